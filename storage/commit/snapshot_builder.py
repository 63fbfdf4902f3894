"""Writes the metadata of a new snapshot: manifests, manifest lists, and the JSON to publish.

It also counts what a commit changes in each partition, for catalogs that keep such statistics.

Source: Java `operation/FileStoreCommitImpl.tryCommitOnce`, `manifest/PartitionEntry.java`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import metadata

from tidelake.storage.base.garbage_collection import paused_collection
from tidelake.storage.commit.commit_changes import CommitChanges
from tidelake.storage.commit.manifests.index_manifest import IndexEntry
from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.commit.manifests.manifest_file_meta import ManifestFileMeta
from tidelake.storage.commit.manifests.manifest_merge import MergeLimits, merge_manifests
from tidelake.storage.commit.manifests.manifest_store import ManifestStore, NewManifests
from tidelake.storage.commit.manifests.snapshot_files import table_manifests
from tidelake.storage.commit.row_ids import with_row_ids
from tidelake.storage.fileio.requests import run_requests
from tidelake.storage.model.format import FileKind
from tidelake.storage.model.snapshots.snapshot import FIRST_SNAPSHOT_ID, Snapshot
from tidelake.storage.model.snapshots.snapshot_commit import PartitionStatistics
from tidelake.storage.model.table import TableContext


@dataclass(frozen=True, slots=True)
class CommitMetadata:
    """Metadata of a snapshot, except its files. The fields commit_user to operation are those of `Snapshot`."""

    commit_user: str
    commit_identifier: int
    watermark: int | None
    properties: Mapping[str, str]
    operation: str | None
    uuid: str
    time_ms: int


@dataclass(frozen=True, slots=True)
class PreparedSnapshot:
    """A snapshot ready to be published.

    base: the snapshot that it was built on.
    files: the names of the metadata files that only it names.
    entries: what it adds and deletes.
    """

    snapshot: Snapshot
    base: Snapshot | None
    files: Sequence[str]
    entries: Sequence[ManifestEntry]

    def statistics(self) -> list[PartitionStatistics]:
        """Return what it changes in each partition."""
        return partition_statistics(self.entries)


class SnapshotBuilder:
    """Builds snapshots of one table. Not thread-safe."""

    def __init__(self, context: TableContext) -> None:
        self._io = context.io
        self._paths = context.paths
        self._table_name = context.name
        self._manifests = context.shared(ManifestStore)
        self._limits = MergeLimits.of(context.options)
        self._has_row_ids = context.options.row_tracking_enabled
        self._schema_of_statistics: dict[str, int | None] = {}

    def build(
        self,
        base: Snapshot | None,
        changes: CommitChanges,
        index: Sequence[IndexEntry] | None,
        metadata: CommitMetadata,
        *,
        schema_id: int,
        merge: bool,
        still_true: Sequence[Callable[[], bool]] = (),
    ) -> PreparedSnapshot | None:
        """Write the metadata of a snapshot. After an error, it deletes what it wrote.

        index: the complete index if the changes change it; None: that of the base.
        schema_id: the table's latest, not that of the rows.
        merge: merge small manifests.
        still_true: what was assumed, and is asked while the files are written. If one of the answers is False, the
            files are deleted, and None is returned.
        """
        new = NewManifests(self._manifests)
        try:
            with paused_collection():
                snapshot = self._snapshot(new, base, changes, index, metadata, schema_id, merge)
            answers = run_requests(self._paths.location, *still_true, *map(_returning_true, new.puts()))
        except Exception:
            with suppress(Exception):  # the first error is raised, not one of the cleanup
                self._manifests.delete(new.names)
            raise
        if not all(answers):
            with suppress(Exception):  # files that are left are orphans
                self._manifests.delete(new.names)
            return None
        return PreparedSnapshot(snapshot, base, new.names, changes.entries)

    def _snapshot(
        self,
        new: NewManifests,
        base: Snapshot | None,
        changes: CommitChanges,
        index: Sequence[IndexEntry] | None,
        metadata: CommitMetadata,
        schema_id: int,
        merge: bool,
    ) -> Snapshot:
        before = table_manifests(new, base) if base is not None else []
        base_list = new.write_list(self._merged(new, before, base) if merge else before)
        entries, next_row_id = changes.entries, (base.next_row_id or 0) if base is not None else 0
        if self._has_row_ids:
            entries, next_row_id = with_row_ids(entries, _next_id(base), next_row_id)
        delta_list = new.write_list(new.write(entries))
        changelog_list = new.write_list(new.write(changes.changelog)) if changes.changelog else None
        index_manifest = base.index_manifest if base is not None else None
        if index is not None:
            index_manifest = new.write_index(index)
        added_rows = _row_count(changes.entries, FileKind.ADD) - _row_count(changes.entries, FileKind.DELETE)
        return Snapshot(
            id=_next_id(base),
            schema_id=schema_id,
            base_manifest_list=base_list.name,
            base_manifest_list_size=base_list.size,
            delta_manifest_list=delta_list.name,
            delta_manifest_list_size=delta_list.size,
            changelog_manifest_list=changelog_list.name if changelog_list is not None else None,
            changelog_manifest_list_size=changelog_list.size if changelog_list is not None else None,
            index_manifest=index_manifest,
            commit_user=metadata.commit_user,
            commit_identifier=metadata.commit_identifier,
            commit_kind=changes.kind,
            time_ms=metadata.time_ms,
            total_record_count=(base.total_record_count if base is not None else 0) + added_rows,
            delta_record_count=added_rows,
            changelog_record_count=_row_count(changes.changelog, FileKind.ADD) if changes.changelog else None,
            watermark=_later(metadata.watermark, base.watermark if base is not None else None),
            statistics=changes.statistics or self._inherited_statistics(base, schema_id),
            properties=dict(metadata.properties),
            next_row_id=next_row_id,
            operation=metadata.operation,
            uuid=metadata.uuid,
            writer_version=writer_version(),
        )

    def _merged(
        self, new: NewManifests, metas: Sequence[ManifestFileMeta], base: Snapshot | None
    ) -> Sequence[ManifestFileMeta]:
        where = f"{self._table_name}, snapshot {base.id}" if base is not None else self._table_name
        return merge_manifests(new, metas, self._limits, where)

    def _inherited_statistics(self, base: Snapshot | None, schema_id: int) -> str | None:
        """Return the base's statistics file. Statistics depend on columns, so it is not kept under another schema."""
        if base is None or base.statistics is None:
            return None
        return base.statistics if self._statistics_schema(base.statistics) == schema_id else None

    def _statistics_schema(self, name: str) -> int | None:
        """Return None for an unreadable file: statistics only help planners, and must not stop writes."""
        if name not in self._schema_of_statistics:
            try:
                schema_id: int | None = int(json.loads(self._io.read(self._paths.statistics(name)))["schemaId"])
            except (FileNotFoundError, ValueError, KeyError, TypeError):
                schema_id = None
            self._schema_of_statistics = {name: schema_id}
        return self._schema_of_statistics[name]


def _returning_true(request: Callable[[], None]) -> Callable[[], bool]:
    def run() -> bool:
        request()
        return True

    return run


def _next_id(base: Snapshot | None) -> int:
    return base.id + 1 if base is not None else FIRST_SNAPSHOT_ID


def _row_count(entries: Sequence[ManifestEntry], kind: FileKind) -> int:
    return sum(entry.file.row_count for entry in entries if entry.kind is kind)


def _later(one: int | None, other: int | None) -> int | None:
    return max((mark for mark in (one, other) if mark is not None), default=None)


@cache
def writer_version() -> str:
    """Return the name and version of the writer, for snapshots."""
    try:
        return f"tidelake-{metadata.version('tidelake')}"
    except metadata.PackageNotFoundError:
        return "tidelake"


def partition_statistics(entries: Iterable[ManifestEntry]) -> list[PartitionStatistics]:
    """Return one result for each partition, in the order in which the partitions occur first.

    entries: the entries of one commit, in its order.
    """
    found: dict[bytes, PartitionStatistics] = {}
    for entry in entries:
        now = _of_entry(entry)
        before = found.get(entry.partition)
        found[entry.partition] = now if before is None else _added(before, now)
    return list(found.values())


def _of_entry(entry: ManifestEntry) -> PartitionStatistics:
    sign = 1 if entry.kind is FileKind.ADD else -1
    file = entry.file
    return PartitionStatistics(
        partition=entry.partition,
        record_count=sign * file.row_count,
        file_size_bytes=sign * file.file_size,
        file_count=sign,
        last_file_creation_time_ms=file.creation_time_ms,
        total_buckets=entry.total_buckets,
    )


def _added(one: PartitionStatistics, other: PartitionStatistics) -> PartitionStatistics:
    times = [t for t in (one.last_file_creation_time_ms, other.last_file_creation_time_ms) if t is not None]
    return PartitionStatistics(
        partition=one.partition,
        record_count=one.record_count + other.record_count,
        file_size_bytes=one.file_size_bytes + other.file_size_bytes,
        file_count=one.file_count + other.file_count,
        last_file_creation_time_ms=max(times, default=None),
        total_buckets=other.total_buckets,
    )
