"""Reads the changes of single snapshots, also of expired snapshots whose changelog still exists.

`changelog-producer` decides which files hold the changes. With `none`, they are the files that the commit added, with
rows as they were written. With any other producer, they are the changelog files of the snapshot. Rows are not merged:
every row keeps its kind, and files are read in the order of the plan.

Source: Java `table/source/snapshot/DeltaFollowUpScanner.java`, `ChangelogFollowUpScanner.java`,
`utils/NextSnapshotFetcher.java`; vectors `stream_read_rules.json`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import groupby
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import BadInput
from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.commit.manifests.snapshot_files import changelog_entries, delta_entries
from tidelake.storage.files.bucket_directory import bucket_directory, data_file_path
from tidelake.storage.files.reader import read_data_file
from tidelake.storage.model.format import KIND_COLUMN, POSTPONE_BUCKET, CommitKind, FileKind, RowKind
from tidelake.storage.model.option_support import check_supported
from tidelake.storage.model.options import ChangelogProducer, Operation
from tidelake.storage.model.schema.table_schema import KIND_FIELD, SEQUENCE_FIELD
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import DataField, arrow_schema
from tidelake.storage.model.types.row_kinds import with_kind
from tidelake.storage.read.changes.overwrites import overwritten_rows, reads_overwrites_as_changes
from tidelake.storage.read.changes.position import ChangePosition
from tidelake.storage.read.changes.read_ahead import read_ahead
from tidelake.storage.read.changes.subtask import ALL, Subtask
from tidelake.storage.read.evolution.row_id_group_reader import RowIdGroupReader
from tidelake.storage.read.evolution.row_id_groups import row_id_groups, row_ids_of
from tidelake.storage.read.expired_snapshots import raise_if_changes_expired, snapshot_expired

BATCH_ROWS: Final = 65_536


@dataclass(frozen=True, slots=True)
class ChangeBatch:
    """Some of a snapshot's changes.

    rows: the table's columns and int8 `_VALUE_KIND` (0 +I, 1 -U, 2 +U, 3 -D).
    is_break: the snapshot replaced rows and does not record which (OVERWRITE). `rows` is empty. A copy of the table
        must be read again at this snapshot.
    is_last: this is the last batch of the snapshot. A reader that stores the rows up to here together with
        `position` has each change exactly once.
    position: where to continue after these rows were processed, for `follow(start=position)`.
    """

    snapshot_id: int
    rows: pa.RecordBatch
    is_break: bool = False
    is_last: bool = True
    position: ChangePosition | None = None


class ChangeSource(StrEnum):
    """Which files of a snapshot hold its changes."""

    DELTA = "read delta files"
    CHANGELOG = "read changelog files"
    NOTHING = "skip"


def files_of_changes(producer: ChangelogProducer) -> ChangeSource:
    return ChangeSource.DELTA if producer is ChangelogProducer.NONE else ChangeSource.CHANGELOG


def change_source(files: ChangeSource, kind: CommitKind, *, has_changelog: bool) -> ChangeSource:
    """Return which files hold the changes of a snapshot of this kind. The rule is that of Java's follow-up scanners.

    files: the files in which the table keeps its changes
    """
    if files is ChangeSource.DELTA:
        return ChangeSource.DELTA if kind is CommitKind.APPEND else ChangeSource.NOTHING
    return ChangeSource.CHANGELOG if has_changelog and kind is not CommitKind.OVERWRITE else ChangeSource.NOTHING


class ChangeReader:
    """Reads the changes of single snapshots.

    context: rows are mapped to its schema (the latest).
    share: which of several readers this one is.
    files: which files hold the changes. None: the changelog producer decides, and overwritten rows are read as changes
        if the options say so.
    sequence_numbers: rows have the column `_SEQUENCE_NUMBER`.
    """

    def __init__(
        self,
        context: TableContext,
        share: Subtask = ALL,
        *,
        files: ChangeSource | None = None,
        sequence_numbers: bool = False,
    ) -> None:
        check_supported(context, Operation.CHANGES)
        self._context = context
        self._share = share
        self._files = files
        self._identity = context.identity
        self._has_kinds = context.schema.has_primary_key
        special = [*([KIND_FIELD] if self._has_kinds else []), *([SEQUENCE_FIELD] if sequence_numbers else [])]
        self._fields: list[DataField] = [*context.schema.fields, *special]
        self.history = context.history
        self.schema = context.schema.arrow.append(pa.field(KIND_FIELD.name, pa.int8(), nullable=False))
        if sequence_numbers:
            self.schema = self.schema.append(arrow_schema([SEQUENCE_FIELD]).field(0))

    def read_range(self, start: int, end: int) -> Iterator[ChangeBatch]:
        """Read the changes of the snapshots start to end, both included. Raises the errors of `get`."""
        for snapshot_id in range(start, end + 1):
            yield from self.read(self.get(snapshot_id))

    def get(self, snapshot_id: int) -> Snapshot:
        """Return the snapshot; of an expired snapshot, the changelog that still exists.

        Raises SnapshotExpired if the snapshot and its changelog are gone, and BadInput if it does not exist yet. A gap
        is never skipped silently.
        """
        found = self.history.find(snapshot_id)
        if found is not None:
            return found
        self._identity.check_before_read()
        latest = self.history.latest_id()
        if latest is not None and snapshot_id < latest:
            raise snapshot_expired(self._context, snapshot_id, changes=True)
        available = "it has no snapshot" if latest is None else f"the latest is {latest}"
        raise BadInput(f"{self._context.name} has no snapshot {snapshot_id} yet ({available}); follow() waits for it")

    def read(self, snapshot: Snapshot, *, skip_rows: int = 0) -> Iterator[ChangeBatch]:
        """Read the changes of one snapshot, without the first `skip_rows` rows. The result may be empty.

        Raises SnapshotExpired if files were deleted because the snapshot expired.
        """
        with raise_if_changes_expired(self._context, snapshot):
            yield from self._read(snapshot, skip_rows)

    def _read(self, snapshot: Snapshot, skip_rows: int) -> Iterator[ChangeBatch]:
        self._identity.check_before_read()  # only now: the snapshot that was found surely belongs to this table
        begin, end = ChangePosition(snapshot.id, skip_rows), ChangePosition.behind(snapshot)
        if snapshot.commit_kind is CommitKind.OVERWRITE:
            if self._files is None and reads_overwrites_as_changes(self._context):
                columns = tuple(name for name in self.schema.names if name != KIND_COLUMN)
                overwritten = overwritten_rows(self._context, snapshot, self._share, columns)
                selected = (batch.select(self.schema.names) for batch in overwritten)
                yield from change_batches(without_first(selected, skip_rows), begin, end)
            else:
                nothing = pa.RecordBatch.from_pylist([], self.schema)
                yield ChangeBatch(snapshot.id, nothing, is_break=True, position=end)
            return
        entries = self.entries(snapshot)
        rows: Iterator[pa.RecordBatch] = self.rows(entries, skip_rows)
        if sum(entry.file.row_count for entry in entries) - skip_rows > BATCH_ROWS:
            rows = read_ahead(rows)
        yield from change_batches(rows, begin, end)

    def entries(self, snapshot: Snapshot) -> list[ManifestEntry]:
        """Return the files that hold a snapshot's changes, in the order of the plan."""
        entries = self._entries_of(snapshot)
        return [
            entry for entry in entries if entry.kind is FileKind.ADD and self._share.is_assigned(self._context, entry)
        ]

    def _entries_of(self, snapshot: Snapshot) -> Sequence[ManifestEntry]:
        files = self._files or files_of_changes(self._context.options.changelog_producer)
        has_changelog = snapshot.changelog_manifest_list is not None
        match change_source(files, snapshot.commit_kind, has_changelog=has_changelog):
            case ChangeSource.CHANGELOG:
                entries = changelog_entries(self._context, snapshot)
                # The changelog of the real buckets has the postponed rows again.
                return [entry for entry in entries if entry.bucket != POSTPONE_BUCKET]
            case ChangeSource.DELTA:
                return delta_entries(self._context, snapshot)
            case _:
                return ()

    def rows(self, entries: Sequence[ManifestEntry], skip_rows: int = 0) -> Iterator[pa.RecordBatch]:
        """Read the rows of these files, bucket by bucket, without the first `skip_rows` rows."""
        # The sort is stable: inside a bucket, files keep the order of the plan.
        ordered = sorted(entries, key=lambda entry: entry.bucket_id)
        for (partition, bucket), of_bucket in groupby(ordered, key=lambda entry: entry.bucket_id):
            directory = bucket_directory(self._context, partition, bucket)
            if self._context.options.data_evolution_enabled:
                for group in row_id_groups([entry.file for entry in of_bucket]):
                    if skip_rows >= (count := len(row_ids_of(group))):
                        skip_rows -= count
                        continue
                    batches = RowIdGroupReader(self._context, tuple(self._fields)).read(group, directory, partition, {})
                    for batch in without_first(batches, skip_rows):
                        yield with_kind(batch, RowKind.INSERT)
                    skip_rows = 0
                continue
            for entry in of_bucket:
                if skip_rows >= entry.file.row_count:
                    skip_rows -= entry.file.row_count
                    continue
                path = data_file_path(directory, entry.file)
                batches = read_data_file(
                    self._context, entry.file, path, self._fields, partition=partition, batch_rows=BATCH_ROWS
                )
                whole = whole_updates(batches) if self._has_kinds else batches
                for batch in without_first(whole, skip_rows):
                    yield batch if self._has_kinds else with_kind(batch, RowKind.INSERT)
                skip_rows = 0


def change_batches(
    batches: Iterable[pa.RecordBatch], begin: ChangePosition, end: ChangePosition
) -> Iterator[ChangeBatch]:
    """Yield the rows of one snapshot, each batch with the position after it.

    begin: the position of the first row.
    end: the position after the last row.

    Each batch is held back until the next one is read or the input ends: only then is it known whether it is the last.
    """
    held: pa.RecordBatch | None = None
    rows = begin.rows
    for batch in batches:
        if held is not None:
            rows += held.num_rows
            yield ChangeBatch(begin.next_snapshot_id, held, is_last=False, position=replace(begin, rows=rows))
        held = batch
    if held is not None:
        yield ChangeBatch(begin.next_snapshot_id, held, position=end)


def without_first(batches: Iterable[pa.RecordBatch], skip_rows: int) -> Iterator[pa.RecordBatch]:
    """Yield batches of at least one row, without the first `skip_rows` rows of all batches together."""
    for batch in batches:
        skipped = min(skip_rows, batch.num_rows)
        skip_rows -= skipped
        if batch.num_rows > skipped:
            yield batch.slice(skipped)


def whole_updates(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the same rows, cut so that no batch ends between the -U and the +U of an update."""
    held: pa.RecordBatch | None = None
    for batch in batches:
        rows = batch if held is None else pa.concat_batches([held, batch])
        is_cut = rows.num_rows > 0 and rows.column(KIND_COLUMN)[-1].as_py() == RowKind.UPDATE_BEFORE
        held = rows.slice(rows.num_rows - 1) if is_cut else None
        rows = rows.slice(0, rows.num_rows - is_cut)
        if rows.num_rows:
            yield rows
    if held is not None:
        yield held


def whole_keys(batches: Iterable[pa.RecordBatch], key_columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the same rows, which are ordered by their keys, cut so that all rows of a key are in one batch."""
    held: pa.RecordBatch | None = None
    for batch in batches:
        rows = batch if held is None else pa.concat_batches([held, batch])
        cut = _start_of_last_key(rows, key_columns)
        held = rows.slice(cut)
        if cut:
            yield rows.slice(0, cut)
    if held is not None and held.num_rows:
        yield held


def _start_of_last_key(rows: pa.RecordBatch, key_columns: Sequence[str]) -> int:
    """Return the position of the first row that has the same key as the last row."""
    is_last = np.ones(rows.num_rows, np.bool_)
    for name in key_columns:
        column = rows.column(name)
        if pa.types.is_floating(column.type):  # here NaN equals NaN, and 0.0 differs from -0.0
            column = column.view(pa.int32() if pa.types.is_float32(column.type) else pa.int64())
        last = column[rows.num_rows - 1]
        same = pc.equal(column, last) if last.is_valid else pc.is_null(column)
        is_last &= pc.fill_null(same, False).to_numpy(zero_copy_only=False)
    others = np.flatnonzero(~is_last)
    return int(others[-1]) + 1 if len(others) else 0
