"""The Iceberg snapshots of a table, computed from its own snapshots one after the other.

Each snapshot of the table gives one of Iceberg with the same id: the manifests of the snapshot before it, without the
files that it deleted, and one with the files that it added. Without a snapshot before it, all visible files are added.

Source: Java `iceberg/IcebergCommitCallback.java`. Java's totals in a summary also count files that Iceberg readers
don't see; here they count what these readers see.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final

from tidelake.errors import UnsupportedFeature
from tidelake.storage.commit.iceberg.data_files import DataFile, DataFiles
from tidelake.storage.commit.iceberg.manifest_files import Content, IcebergManifests, Status, is_live
from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.commit.manifests.manifest_store import ManifestStore
from tidelake.storage.commit.manifests.record_file import Record
from tidelake.storage.commit.manifests.snapshot_files import delta_entries, live_entries
from tidelake.storage.model.format import CommitKind, FileKind
from tidelake.storage.model.iceberg.schemas import iceberg_schema, unpublishable_types
from tidelake.storage.model.iceberg.table_metadata import (
    COMMIT_IDENTITY,
    IcebergMetadata,
    IcebergSnapshot,
    commit_identity,
    partition_spec_fields,
)
from tidelake.storage.model.options.iceberg_options import ICEBERG_FORMAT_VERSION_3
from tidelake.storage.model.snapshots.snapshot import FIRST_SNAPSHOT_ID, Snapshot
from tidelake.storage.model.table import TableContext

_APPEND: Final = "append"
_OVERWRITE: Final = "overwrite"
_REPLACE: Final = "replace"


@dataclass(frozen=True, slots=True)
class Inheritance:
    """What new metadata takes over from metadata that it replaces, so that readers see the same table.

    last_column_id: the new one is at least this.
    next_row_id: the ids of rows begin here.
    """

    table_uuid: str
    last_column_id: int = 0
    next_row_id: int = 0


@dataclass(frozen=True, slots=True)
class _Changes:
    """The visible files that a snapshot adds and deletes, and the partitions that they are in."""

    added: Sequence[DataFile]
    deleted: Sequence[Record]
    partitions: frozenset[bytes]


class IcebergSnapshots:
    """Computes the Iceberg snapshots of one table. Their manifests and manifest lists are written at once."""

    def __init__(self, context: TableContext, manifests: IcebergManifests) -> None:
        options = context.options
        self._context = context
        self._manifests = manifests
        self._table_manifests = context.shared(ManifestStore)
        self._files = DataFiles(context, manifests.directory)
        self._version = options.iceberg_format_version
        self._has_row_ids = self._version >= ICEBERG_FORMAT_VERSION_3
        self._target_bytes = options.manifest_target_file_size_bytes
        self._merge_min = options.iceberg_compaction_min_files
        self._merge_max = options.iceberg_compaction_max_files

    # ------------------------------------------------------------ from nothing

    def first(self, snapshot: Snapshot, inherited: Inheritance) -> IcebergMetadata:
        """Return metadata with this snapshot alone."""
        entries = live_entries(self._context, snapshot, keep_entry=lambda entry: self._files.is_visible(entry.file))
        added = self._files.located(entries)
        metas = self._manifests.write(self._files.added(added, snapshot.id), snapshot.id)
        vectors = self._vectors(snapshot)
        changes = _Changes(added, (), frozenset(entry.partition for entry in entries))
        schemas = self._schemas([i for i in self._context.schemas.ids() if i <= snapshot.schema_id], snapshot)
        parent_id = None if snapshot.id == FIRST_SNAPSHOT_ID else snapshot.id - 1
        shown = self._snapshot(
            snapshot, parent_id, [*metas, *vectors], vectors, _summary(_APPEND, changes, {}), inherited.next_row_id
        )
        return IcebergMetadata(
            format_version=self._version,
            table_uuid=inherited.table_uuid,
            location=self._context.location,
            last_updated_ms=snapshot.time_ms,
            last_column_id=max(inherited.last_column_id, _last_column_id(schemas)),
            schemas=schemas,
            current_schema_id=snapshot.schema_id,
            partition_fields=partition_spec_fields(self._context.schema),
            snapshots=(shown,),
            next_row_id=self._next_row_id(shown),
        )

    # ------------------------------------------------------------ after another snapshot

    def after(self, base: IcebergMetadata, before: Snapshot, snapshot: Snapshot) -> IcebergMetadata:
        """Return metadata with one more snapshot.

        before: the snapshot of the table that the newest one of `base` shows.
        snapshot: the next one.
        """
        metas = self._manifests.read_list(base.current.manifest_list)
        data = [meta for meta in metas if meta["content"] == Content.DATA]
        vectors = [meta for meta in metas if meta["content"] == Content.DELETES]
        data, changes, operation = self._changed(data, snapshot)
        data = self._merged(data, snapshot.id)
        if snapshot.index_manifest != before.index_manifest:
            vectors = self._vectors(snapshot)
        summary = _summary(operation, changes, base.current.summary)
        shown = self._snapshot(snapshot, snapshot.id - 1, [*data, *vectors], vectors, summary, base.next_row_id or 0)
        newer = range(base.current_schema_id + 1, snapshot.schema_id + 1)
        schemas = [*base.schemas, *(self._schemas(newer, snapshot) if newer else ())]
        return replace(
            base,
            last_updated_ms=snapshot.time_ms,
            last_column_id=max(base.last_column_id, _last_column_id(schemas)),
            schemas=schemas,
            current_schema_id=snapshot.schema_id,
            snapshots=(*base.snapshots, shown),
            next_row_id=self._next_row_id(shown),
        )

    def _changed(self, data: Sequence[Record], snapshot: Snapshot) -> tuple[list[Record], _Changes, str]:
        """Return the manifests after the snapshot, what it changed, and the name of the operation."""
        delta = delta_entries(self._context, snapshot)
        deletes = any(entry.kind is FileKind.DELETE for entry in delta)
        added, deleted = self._delta(delta)
        found: list[Record] = []
        removed: list[Record] = []
        for meta in data:
            paths = self._manifests.live_paths(meta) if deletes else frozenset[str]()
            for path in paths & added.keys():  # a file that changed its level was deleted and added
                del added[path]
            if paths.isdisjoint(deleted):
                found.append(meta)
                continue
            entries = [entry for entry in self._with_row_ids(meta, self._manifests.read(meta)) if is_live(entry)]
            removed += [entry for entry in entries if entry["data_file"]["file_path"] in deleted]
            found += self._manifests.write(
                [_after_deletion(entry, deleted, snapshot.id) for entry in entries], snapshot.id
            )
        files = list(added.values())
        found += self._manifests.write(self._files.added(files, snapshot.id), snapshot.id)
        partitions = {file.entry.partition for file in files}
        partitions |= {deleted[entry["data_file"]["file_path"]] for entry in removed}
        operation = _APPEND
        if removed:
            operation = _REPLACE if snapshot.commit_kind is CommitKind.COMPACT else _OVERWRITE
        return found, _Changes(files, removed, frozenset(partitions)), operation

    def _delta(self, entries: Sequence[ManifestEntry]) -> tuple[dict[str, DataFile], dict[str, bytes]]:
        """Return the added visible files by path, and the partitions of deleted files by path."""
        added: dict[str, DataFile] = {}
        deleted: dict[str, bytes] = {}
        for file in self._files.located(entries):
            if file.entry.kind is FileKind.DELETE:
                added.pop(file.path, None)
                deleted[file.path] = file.entry.partition
            elif self._files.is_visible(file.entry.file):
                deleted.pop(file.path, None)
                added[file.path] = file
        return added, deleted

    # ------------------------------------------------------------ manifests

    def _vectors(self, snapshot: Snapshot) -> list[Record]:
        """Write the manifests of all deletion vectors of a snapshot."""
        if not self._files.has_vectors:
            return []
        index = self._table_manifests.read_index(snapshot.index_manifest)
        return self._manifests.write(self._files.vectors(index, snapshot.id), snapshot.id, Content.DELETES)

    def _merged(self, metas: list[Record], snapshot_id: int) -> list[Record]:
        """Merge small manifests, if there are enough of them."""
        small = [meta for meta in metas if meta["manifest_length"] < self._target_bytes * 2 // 3]
        size = sum(meta["manifest_length"] for meta in small)
        is_due = len(small) >= self._merge_min and (len(small) >= self._merge_max or size >= self._target_bytes)
        if not is_due:
            return metas
        entries = list(
            chain.from_iterable(
                _as_existing(self._with_row_ids(meta, self._manifests.read(meta)), snapshot_id) for meta in small
            )
        )
        merged = self._manifests.write(entries, snapshot_id)
        self._manifests.delete(meta["manifest_path"] for meta in small if meta["sequence_number"] == snapshot_id)
        large = [meta for meta in metas if meta["manifest_length"] >= self._target_bytes * 2 // 3]
        return [*large, *merged]

    def _with_row_ids(self, meta: Record, entries: Sequence[Record]) -> Sequence[Record]:
        """Return the entries with the row ids that they inherit from their manifest. A copy elsewhere keeps them."""
        first = meta["first_row_id"]
        if first is None:
            return entries
        found = []
        for entry in entries:
            file = entry["data_file"]
            inherits = is_live(entry) and file["first_row_id"] is None
            found.append({**entry, "data_file": {**file, "first_row_id": first}} if inherits else entry)
            first += file["record_count"] if inherits else 0
        return found

    # ------------------------------------------------------------ snapshots

    def _snapshot(
        self,
        snapshot: Snapshot,
        parent_id: int | None,
        metas: Sequence[Record],
        vectors: Sequence[Record],
        summary: dict[str, str],
        next_row_id: int,
    ) -> IcebergSnapshot:
        """Write the manifest list. Manifests without row ids get theirs."""
        listed, taken = [], 0
        for meta in metas:
            if self._has_row_ids and meta["content"] == Content.DATA and meta["first_row_id"] is None:
                listed.append({**meta, "first_row_id": next_row_id + taken})
                taken += meta["added_rows_count"] + meta["existing_rows_count"]
            else:
                listed.append(meta)
        summary["total-delete-files"] = str(_live_count(vectors, "files"))
        summary["total-position-deletes"] = str(_live_count(vectors, "rows"))
        summary["total-equality-deletes"] = "0"
        summary |= snapshot.properties
        summary[COMMIT_IDENTITY] = commit_identity(snapshot)
        return IcebergSnapshot(
            id=snapshot.id,
            parent_id=parent_id,
            time_ms=snapshot.time_ms,
            summary=summary,
            manifest_list=self._manifests.write_list(listed),
            schema_id=snapshot.schema_id,
            first_row_id=next_row_id if self._has_row_ids else None,
            added_rows=taken if self._has_row_ids else None,
        )

    def _next_row_id(self, shown: IcebergSnapshot) -> int | None:
        if shown.first_row_id is None or shown.added_rows is None:
            return None
        return shown.first_row_id + shown.added_rows

    def _schemas(self, ids: Iterable[int], snapshot: Snapshot) -> list[dict[str, Any]]:
        """Return schemas, without older ones that Iceberg can't express. Raises UnsupportedFeature for the newest."""
        found = []
        for schema_id in ids:
            schema = self._context.schemas.get(schema_id)
            problem = next(unpublishable_types(schema, self._version), None)
            if problem is None:
                found.append(iceberg_schema(schema))
            elif schema_id == snapshot.schema_id:
                field, reason = problem
                raise UnsupportedFeature(
                    f"{self._context.name}: column {field.name} {field.type}",
                    f"Iceberg readers can't read it: {reason}",
                    "Use another type for the column, or unset metadata.iceberg.storage",
                )
        return found


def _last_column_id(schemas: Iterable[Mapping[str, Any]]) -> int:
    """Return the highest id, without nested fields, as Java does."""
    return max((field["id"] for schema in schemas for field in schema["fields"]), default=0)


def _summary(operation: str, changes: _Changes, before: Mapping[str, str]) -> dict[str, str]:
    """Return the counts of data files and their rows.

    before: the summary of the snapshot before; empty for the first one.
    """
    files = [file.entry.file for file in changes.added]
    gone = [entry["data_file"] for entry in changes.deleted]
    added = {
        "data-files": len(files),
        "records": sum(file.row_count for file in files),
        "files-size": sum(file.file_size for file in files),
    }
    deleted = {
        "data-files": len(gone),
        "records": sum(file["record_count"] for file in gone),
        "files-size": sum(file["file_size_in_bytes"] for file in gone),
    }
    summary = {"operation": operation, "changed-partition-count": str(len(changes.partitions))}
    for what, more in added.items():
        less = deleted[what]
        summary[f"added-{what}"] = str(more)
        summary[f"{'removed' if what == 'files-size' else 'deleted'}-{what}"] = str(less)
        total = int(before.get(f"total-{what}", 0)) + more - less
        summary[f"total-{what}"] = str(max(0, total))
    return summary


def _after_deletion(entry: Record, deleted: dict[str, bytes], snapshot_id: int) -> Record:
    """Return the entry in the manifest that replaces its own."""
    if entry["data_file"]["file_path"] in deleted:
        return {**entry, "status": int(Status.DELETED), "snapshot_id": snapshot_id}
    return {**entry, "status": int(Status.EXISTING)}


def _as_existing(entries: Sequence[Record], snapshot_id: int) -> list[Record]:
    """Return the entries for a merged manifest: deletions of older snapshots are left out."""
    found = []
    for entry in entries:
        if entry["snapshot_id"] == snapshot_id or entry["status"] == Status.EXISTING:
            found.append(entry)
        elif entry["status"] == Status.ADDED:
            found.append({**entry, "status": int(Status.EXISTING)})
    return found


def _live_count(metas: Sequence[Record], what: str) -> int:
    return sum(meta[f"added_{what}_count"] + meta[f"existing_{what}_count"] for meta in metas)
