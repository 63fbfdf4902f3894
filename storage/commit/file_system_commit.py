"""Snapshots committed by the file system alone: `snapshot-N` is created if absent.

Created is not enough: it must follow the newest. A writer that slept so long that its id was used and expired would add
a snapshot below the earliest, which no reader looks at. So after its creation the snapshot is looked at: its base still
stands, or what is above it was built on it. A first snapshot has no base: the table itself must still be the one that
was opened. What is not the next is withdrawn.

Source: Java `catalog/RenamingSnapshotCommit.java`. The look after the creation is ours.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from storage.errors import CommitOutcomeUnknown
from storage.format import FileKind
from storage.manifests.manifest_entry import Identity, ManifestEntry
from storage.manifests.manifest_store import ManifestStore
from storage.manifests.snapshot_files import base_list, delta_list, merged, table_manifests
from storage.snapshots.snapshot import Snapshot
from storage.snapshots.snapshot_commit import SnapshotCommit, Statistics
from storage.table import TableContext


class FileSystemSnapshotCommit:
    """See `SnapshotCommit`. The FileIO's `create_if_absent` excludes others; it needs no lock."""

    keeps_partitions: ClassVar[bool] = False

    def __init__(self, context: TableContext) -> None:
        self._table_name = context.name
        self._identity = context.identity
        self._snapshots = context.snapshots
        self._manifests = context.shared(ManifestStore)

    def commit(self, base: Snapshot | None, snapshot: Snapshot, statistics: Statistics) -> bool:
        is_ours = self._snapshots.publish(snapshot) or self._snapshots.find(snapshot.id) == snapshot
        if not is_ours or not self._is_next(base, snapshot):
            return False
        self._snapshots.hint_latest(snapshot.id)
        return True

    def is_committed(self, base: Snapshot | None, snapshot: Snapshot) -> bool:
        if not self._is_next(base, snapshot):
            return False
        self._snapshots.hint_latest(self._snapshots.latest_id() or snapshot.id)
        return True

    def _is_next(self, base: Snapshot | None, snapshot: Snapshot) -> bool:
        """Of a snapshot that was just found in the table; withdraws one that is not."""
        if self._is_in_history(base, snapshot):
            return True
        self._snapshots.withdraw(snapshot.id)
        return False

    def _is_in_history(self, base: Snapshot | None, snapshot: Snapshot) -> bool:
        """While its base stands it is: expiry takes the smallest id first and rollback the largest, so no other
        snapshot had its id before and went. Else the base expired, or there never was one: then what is above it
        decides.
        """
        if base is None:
            if self._identity.loss() is not None:
                return False
        elif self._snapshots.find(base.id) == base:
            return True
        newest = max(self._snapshots.ids(), default=0)
        if newest <= snapshot.id and self._snapshots.exists(snapshot.id):  # smaller: the store's listing lags
            return True
        successor = self._snapshots.find(snapshot.id + 1)
        if successor is not None:
            return self._is_built_on(successor, snapshot)
        if self._snapshots.exists(snapshot.id):
            return False
        raise CommitOutcomeUnknown(
            f"{self._table_name}: snapshot {snapshot.id} was published, and expired before it could be seen whether "
            "it was the table's next"
        )

    def _is_built_on(self, successor: Snapshot, snapshot: Snapshot) -> bool:
        """By the names of manifests; where these were merged meanwhile, by the files they list."""
        delta = {meta.file_name for meta in self._manifests.read_list(delta_list(snapshot))}
        before = self._manifests.read_list(base_list(successor))
        if delta and delta <= {meta.file_name for meta in before}:
            return True
        ours = merged(self._manifests, table_manifests(self._manifests, snapshot), self._table_name)
        theirs = merged(self._manifests, before, self._table_name)
        return _live(ours) == _live(theirs)


def _live(entries: Iterable[ManifestEntry]) -> set[Identity]:
    return {entry.identity for entry in entries if entry.kind is FileKind.ADD}


def snapshot_commit_of(context: TableContext) -> SnapshotCommit:
    """The snapshot commit of the table's catalog, or that of the file system."""
    return (context.snapshot_commit or FileSystemSnapshotCommit)(context)
