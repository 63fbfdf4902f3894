"""Finds all versions of one row that still exist in files, and their changes.

A version is in a data file, which one snapshot added and a later one may have removed. If the snapshot that added a
file expired, it is unknown: then `snapshot` is None.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidelake.errors import BadInput
from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.commit.manifests.snapshot_files import delta_entries, live_entries
from tidelake.storage.files.bucket_directory import bucket_directory, data_file_path
from tidelake.storage.files.reader import read_data_file
from tidelake.storage.model.format import KIND_COLUMN, SEQUENCE_COLUMN, CommitKind, FileKind, RowKind
from tidelake.storage.model.schema.table_schema import KIND_FIELD, SEQUENCE_FIELD
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.storage.read.arrow_expressions import matching_rows
from tidelake.storage.read.changes.change_reader import ChangeReader
from tidelake.storage.read.expired_snapshots import raise_if_snapshot_expired
from tidelake.storage.read.predicate import And, Predicate, col
from tidelake.storage.read.scan import TableScan
from tidelake.storage.read.snapshot_reader import SnapshotReader


@dataclass(frozen=True, slots=True)
class Version:
    """A version of the row.

    snapshot: the snapshot that added the file; None if it expired.
    made_from: for a file of a compaction, the names of the files that it replaced.
    is_live: the file is part of the requested state; a read merges it.
    """

    snapshot: Snapshot | None
    file_name: str
    level: int
    bucket: int
    kind: RowKind
    sequence_number: int | None
    row: pa.RecordBatch
    is_live: bool
    made_from: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class RowChange:
    """A row of the changelog."""

    snapshot: Snapshot
    kind: RowKind
    row: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class RowHistory:
    """The history of a row. The key and all rows are batches of one row.

    versions, changes: oldest first.
    visible: the row that a read of the snapshot returns; None for no row.
    """

    key: pa.RecordBatch
    snapshot: Snapshot
    versions: Sequence[Version]
    changes: Sequence[RowChange]
    visible: pa.RecordBatch | None

    @property
    def live(self) -> list[Version]:
        return [version for version in self.versions if version.is_live]


def row_history(context: TableContext, key: Mapping[str, Any], snapshot_id: int | None = None) -> RowHistory:
    """Return the history of a row.

    key: column -> value, for all columns of the primary key.
    snapshot_id: the snapshot whose state is requested; None: the latest.

    Raises BadInput for columns that are not the key, and for a snapshot that does not exist.
    """
    return _HistoryReader(context, key, snapshot_id).history()


class _HistoryReader:
    def __init__(self, context: TableContext, key: Mapping[str, Any], snapshot_id: int | None) -> None:
        wanted = context.schema.primary_keys
        if set(key) != set(wanted):
            raise BadInput(
                f"a row of {context.name} is identified by {', '.join(wanted) or 'nothing: it has no primary key'}; "
                f"given: {', '.join(key) or 'nothing'}"
            )
        self._context = context
        self._key = key
        self._predicate: Predicate = And(tuple(col(name) == value for name, value in key.items()))
        self._expression = self._predicate.expression(context.schema.arrow)
        self._scan = TableScan(context, self._predicate)
        self._store = context.snapshots
        self._snapshot = self._found(snapshot_id)

    def _found(self, snapshot_id: int | None) -> Snapshot:
        found = self._store.latest() if snapshot_id is None else self._store.find(snapshot_id)
        if found is None:
            available = f"its snapshots are {self._store.earliest_id()} to {self._store.latest_id()}"
            what = "a snapshot yet" if snapshot_id is None else f"snapshot {snapshot_id}: {available}"
            raise BadInput(f"{self._context.name} does not have {what}")
        return found

    def history(self) -> RowHistory:
        rows = list(
            SnapshotReader(self._context, self._context.schema.names, self._predicate).read(
                TableScan(self._context, self._predicate).plan(self._snapshot)
            )
        )
        visible = [batch for batch in rows if batch.num_rows]
        own = self._context.schema.arrow
        key_schema = pa.schema([own.field(name) for name in self._key])
        values = [
            pa.array([value.as_py() if isinstance(value, pa.Scalar) else value], key_schema.field(name).type)
            for name, value in self._key.items()
        ]
        return RowHistory(
            pa.RecordBatch.from_arrays(values, schema=key_schema),
            self._snapshot,
            sorted(self._versions(), key=_age),
            list(self._changes()),
            visible[0] if visible else None,
        )

    def _versions(self) -> Iterator[Version]:
        live = {
            entry.file.file_name: entry.file.level
            for entry in self._scan.matching_entries(live_entries(self._context, self._snapshot))
        }
        seen: set[tuple[str, int]] = set()
        for snapshot, entries, removed in self._added():
            for entry in self._scan.matching_entries(entries):
                place = (entry.file.file_name, entry.file.level)
                if place in seen:
                    continue
                seen.add(place)
                is_live = live.get(entry.file.file_name) == entry.file.level
                made_from = [deleted.file.file_name for deleted in removed if deleted.bucket_id == entry.bucket_id]
                for kind, number, row in self._rows(entry):
                    yield Version(
                        snapshot, *place, entry.bucket, kind, number, row, is_live, made_from if snapshot else ()
                    )

    def _added(self) -> Iterator[tuple[Snapshot | None, list[ManifestEntry], list[ManifestEntry]]]:
        """Yield each snapshot up to the requested one, with the files that it added, and those that it removed."""
        earliest = self._store.earliest()
        first = earliest.id if earliest is not None else self._snapshot.id
        deltas = []
        for snapshot in self._store.range(first, self._snapshot.id):
            with raise_if_snapshot_expired(self._context, snapshot.id):
                deltas.append((snapshot, delta_entries(self._context, snapshot)))
        known = {e.file.file_name for _, entries in deltas for e in entries if e.kind is FileKind.ADD}
        if earliest is not None:
            with raise_if_snapshot_expired(self._context, earliest.id):
                before = live_entries(self._context, earliest)
            yield None, [entry for entry in before if entry.file.file_name not in known], []
        for snapshot, entries in deltas:
            added = [entry for entry in entries if entry.kind is FileKind.ADD]
            removed = [entry for entry in entries if entry.kind is FileKind.DELETE]
            yield snapshot, added, removed if snapshot.commit_kind is CommitKind.COMPACT else []

    def _rows(self, entry: ManifestEntry) -> Iterator[tuple[RowKind, int | None, pa.RecordBatch]]:
        path = data_file_path(bucket_directory(self._context, entry.partition, entry.bucket), entry.file)
        fields = [*self._context.schema.fields, KIND_FIELD, SEQUENCE_FIELD]
        batches = read_data_file(
            self._context, entry.file, path, fields, partition=entry.partition, predicate=self._predicate
        )
        for batch in batches:
            found = matching_rows(batch, self._expression)
            kinds, numbers = (found.column(name).to_pylist() for name in (KIND_COLUMN, SEQUENCE_COLUMN))
            rows = found.select(self._context.schema.names)
            for place, (kind, number) in enumerate(zip(kinds, numbers, strict=True)):
                yield RowKind(kind), number, rows.slice(place, 1)

    def _changes(self) -> Iterator[RowChange]:
        reader = ChangeReader(self._context)
        first = reader.history.earliest_id() or self._snapshot.id
        for snapshot_id in range(first, self._snapshot.id + 1):
            snapshot = reader.get(snapshot_id)
            for entry in self._scan.matching_entries(reader.entries(snapshot)):
                for kind, _, row in self._rows(entry):
                    yield RowChange(snapshot, kind, row)


def _age(version: Version) -> tuple[int, int]:
    return (version.snapshot.id if version.snapshot is not None else 0, version.sequence_number or 0)
