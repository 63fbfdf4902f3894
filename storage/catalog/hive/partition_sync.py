"""Commits that also add and drop the table's partitions in the metastore (table option `metastore.partitioned-table`).

The table is committed once the snapshot exists. The metastore is updated after that. If it can't be reached, the
updates are kept, and the next commit of this writer sends them.

Source: Java `metastore/AddPartitionCommitCallback.java`, `hive/HiveCatalog.java` (createPartitions).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from pymetastore.hive_metastore import ttypes
from thrift.Thrift import TException

from tidelake.storage.base import env
from tidelake.storage.base.logs import get_logger
from tidelake.storage.catalog.hive.metastore_client import MetastoreClient
from tidelake.storage.catalog.hive.table_entries import EntryStyle, has_partition_entries
from tidelake.storage.catalog.locked_commits import LockedSnapshotCommit, TableLocks
from tidelake.storage.commit.file_system_commit import FileSystemSnapshotCommit
from tidelake.storage.commit.manifests.manifest_store import ManifestStore
from tidelake.storage.commit.manifests.snapshot_files import live_entries_of
from tidelake.storage.files.bucket_directory import partition_directory
from tidelake.storage.model.paths import parse_partition_path
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.snapshots.snapshot_commit import SnapshotCommit, Statistics
from tidelake.storage.model.table import TableContext

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class HiveCommits:
    """Makes the snapshot commits of a catalog's tables.

    locks: the locks of tables. None if commits take no lock.
    """

    client: MetastoreClient
    style: EntryStyle
    locks: TableLocks | None
    keeps_partitions: ClassVar[bool] = True

    def __call__(self, context: TableContext) -> SnapshotCommit:
        inner: SnapshotCommit = (
            FileSystemSnapshotCommit(context) if self.locks is None else LockedSnapshotCommit(context, self.locks)
        )
        if not has_partition_entries(context.schema):
            return inner
        return PartitionSync(context, inner, PartitionEntries(self.client, self.style))


class PartitionSync:
    """A `SnapshotCommit` that updates the metastore's partitions after each commit."""

    def __init__(self, context: TableContext, inner: SnapshotCommit, entries: PartitionEntries) -> None:
        self._context = context
        self._inner = inner
        self._entries = entries
        self._known: set[bytes] = set()  # partitions that are in the metastore
        self._grown: set[bytes] = set()  # partitions that got rows and may be missing in the metastore
        self._shrunk: set[bytes] = set()  # partitions that lost files; dropped in the metastore if they are empty now

    def commit(self, base: Snapshot | None, snapshot: Snapshot, statistics: Statistics) -> bool:
        found = statistics()
        self._grown |= {s.partition for s in found if s.file_count > 0 or s.record_count > 0} - self._known
        self._shrunk |= {s.partition for s in found if s.file_count < 0 and s.record_count < 0}
        is_committed = self._inner.commit(base, snapshot, lambda: found)
        if is_committed:
            self._update_metastore(snapshot)
        return is_committed

    def is_committed(self, base: Snapshot | None, snapshot: Snapshot) -> bool:
        is_committed = self._inner.is_committed(base, snapshot)
        if is_committed:
            self._update_metastore(snapshot)
        return is_committed

    def _update_metastore(self, snapshot: Snapshot) -> None:
        """Add the grown partitions to the metastore, and drop the empty ones.

        Partitions of attempts that lost are included. If any partition shrank, the snapshot's files decide which
        partitions exist.
        """
        if not self._grown and not self._shrunk:
            return
        try:
            existing = self._grown
            if self._shrunk:
                candidates = self._shrunk | self._grown
                manifests = self._context.shared(ManifestStore)
                live = live_entries_of(manifests, snapshot, candidates, self._context.name)
                live_partitions = {entry.partition for entry in live}
                existing = self._grown & live_partitions
                self._entries.remove(self._context, self._shrunk - live_partitions)
            self._entries.add(self._context, existing)
        except (OSError, TException) as e:
            _log.warning(
                "partitions were not synchronized to the metastore; the next commit of this writer tries again",
                table=self._context.name,
                snapshot=snapshot.id,
                error=str(e),
            )
            return
        self._known = (self._known | existing) - self._shrunk
        self._grown.clear()
        self._shrunk.clear()


@dataclass(frozen=True, slots=True)
class PartitionEntries:
    """The partition entries in the metastore. Partitions are passed as serialized BinaryRows."""

    client: MetastoreClient
    style: EntryStyle

    def add(self, context: TableContext, partitions: Iterable[bytes]) -> None:
        """Add partitions. Existing entries stay unchanged."""
        directories = sorted(partition_directory(context, partition) for partition in partitions)
        if not directories:
            return
        database, _, table = context.name.partition(".")
        entry = self.client.read(lambda c: c.get_table(database, table))
        new = [self._entry(entry, directory, context) for directory in directories]
        request = ttypes.AddPartitionsRequest(
            dbName=database, tblName=table, parts=new, ifNotExists=True, needResult=False
        )
        self.client.read(lambda c: c.add_partitions_req(request))  # `read`, as the call may be repeated

    def count(self, context: TableContext) -> int:
        database, _, table = context.name.partition(".")
        return len(self.client.read(lambda c: c.get_partition_names(database, table, -1)))

    def remove(self, context: TableContext, partitions: Iterable[bytes]) -> None:
        database, _, table = context.name.partition(".")
        for directory in sorted(partition_directory(context, partition) for partition in partitions):
            values = list(parse_partition_path(directory).values())
            try:
                self.client.read(_drop(database, table, values))
            except ttypes.NoSuchObjectException:
                continue

    def _entry(self, table: Any, directory: str, context: TableContext) -> Any:
        now = int(env.wall_s())
        partition = ttypes.Partition(
            values=list(parse_partition_path(directory).values()),
            dbName=table.dbName,
            tableName=table.tableName,
            createTime=now,
            lastAccessTime=now,
            sd=copy.deepcopy(table.sd),
            parameters={},
        )
        self.style.set_location(partition, context.paths.bucket_directory(directory, 0).rpartition("/")[0])
        return partition


def _drop(database: str, table: str, values: list[str]) -> Callable[[Any], object]:
    """Drop the entry without its files: if older snapshots still name them, the expiry of snapshots deletes them."""
    return lambda c: c.drop_partition(database, table, values, False)
