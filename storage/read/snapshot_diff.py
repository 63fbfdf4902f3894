"""Reads the difference between two states of a table with a primary key: for each key, the row before and after.

Source: Java `table/source/splitread/IncrementalDiffSplitRead.java`. Java skips the files that are in both states, and
so merges some keys without a part of their rows. Here only sections are skipped that are the same in both states.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa

from tidelake.errors import BadInput
from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.commit.manifests.snapshot_files import live_entries
from tidelake.storage.merge.changelog_rows import KeyedRows, equal_rows, row_changes
from tidelake.storage.merge.equal_keys import Groups
from tidelake.storage.merge.merge_reader import Merge, MergeOrder, merge_runs
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.definition import REWRITTEN, Definition, with_definition_of
from tidelake.storage.model.format import KIND_COLUMN, POSTPONE_BUCKET, SEQUENCE_COLUMN, RowKind
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types.row_kinds import is_retract, row_kinds
from tidelake.storage.read.changes.subtask import Subtask
from tidelake.storage.read.scan import TableScan
from tidelake.storage.read.snapshot_reader import SnapshotReader
from tidelake.storage.read.split import Split, section_identity
from tidelake.storage.read.state_files import StateFiles

_IS_AFTER: Final = "_IS_AFTER"
_Buckets = dict[BucketId, Split]


class SnapshotDiff:
    """The difference between two states of a table with a primary key.

    before: None for an empty table
    context: rows are mapped to its schema
    columns: only these columns and the primary key are read, in the table's order. Rows that differ only in other
        columns count as equal.
    files: which files of the two states are compared.
    """

    def __init__(
        self,
        context: TableContext,
        before: Snapshot | None,
        after: Snapshot,
        *,
        sequence_numbers: bool = False,
        columns: Sequence[str] | None = None,
        files: StateFiles = StateFiles.ALL,
    ) -> None:
        self._output = context.schema
        context = _as_written(context, before, after)
        self._context = context
        self._before = before
        self._after = after
        self._files = files
        wanted = {*(context.schema.names if columns is None else columns), *context.schema.primary_keys}
        names = [name for name in context.schema.names if name in wanted]
        self._names = [*names, KIND_COLUMN, *([SEQUENCE_COLUMN] if sequence_numbers else [])]
        self._compared = [name for name in names if name not in context.schema.primary_keys]
        self._reader = SnapshotReader(context, tuple(self._names))

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Yield +I, -U, +U and -D, ordered by bucket and key. Keys with the same row in both states are left out."""
        return (self._selected(rows) for rows in self._rows(self._changes))

    def rows_as_java(self) -> Iterator[pa.RecordBatch]:
        """Yield rows as Java does.

        These are the changed rows of the later state as they are stored, including deleted rows. Of keys that no longer
        exist at all, the earlier rows are yielded as -D.
        """
        return (self._selected(rows) for rows in self._rows(self._rows_after))

    def _selected(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        selected = rows.select(self._names)
        if self._output is self._context.schema:
            return selected
        wanted = SnapshotReader(self._context.with_schema(self._output), tuple(self._names)).schema
        return selected.cast(wanted)

    def _rows(self, compare: Merge[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        before, after = self._buckets(self._before), self._buckets(self._after)
        self._check_bucket_counts()
        for bucket in sorted(before.keys() | after.keys()):
            sides = _without_equal_sections(before.get(bucket), after.get(bucket))
            runs = [self._run(split, is_after) for split, is_after in sides]
            for rows in merge_runs(runs, self._order, compare):
                if rows.num_rows:
                    yield rows

    @cached_property
    def _order(self) -> MergeOrder:
        return MergeOrder(tuple(self._context.schema.trimmed_primary_keys), sequence_follows_run_order=True)

    def _buckets(self, snapshot: Snapshot | None) -> _Buckets:
        """Return one split for each bucket, with rows in key order."""
        keep = Subtask.of(self._context.options).keep_entry(self._context)
        splits = TableScan(self._context, keep_entry=keep, in_key_order=True, files=self._files).plan(snapshot)
        return {split.bucket_id: split for split in splits}

    def _run(self, split: Split, is_after: bool) -> Iterator[pa.RecordBatch]:
        for batch in self._reader.read([split]):
            yield batch.append_column(_IS_AFTER, pa.array(np.full(batch.num_rows, is_after)))

    def _changes(self, rows: pa.RecordBatch, groups: Groups) -> pa.RecordBatch:
        before, after = _before_and_after(rows, groups)
        return row_changes(before.adds(), after.adds(), len(groups), self._compared)

    def _rows_after(self, rows: pa.RecordBatch, groups: Groups) -> pa.RecordBatch:
        before, after = _before_and_after(rows, groups)
        old, new = before.places(len(groups)), after.places(len(groups))
        both = np.flatnonzero((old >= 0) & (new >= 0))
        is_deleted = [is_retract(row_kinds(side.rows)) for side in (before, after)]
        both = both[is_deleted[0][old[both]] == is_deleted[1][new[both]]]
        same = both[equal_rows(before.rows, old[both], after.rows, new[both], self._compared)]
        changed = new >= 0
        changed[same] = False
        removed = (old >= 0) & (new < 0)
        removed[np.flatnonzero(old >= 0)] &= ~is_deleted[0][old[old >= 0]]
        keys = np.flatnonzero(changed | removed)
        places = np.where(removed, old, new + before.rows.num_rows)[keys]
        found = pa.concat_batches([before.rows, after.rows]).take(pa.array(places))
        kinds = np.where(removed[keys], np.int8(RowKind.DELETE), row_kinds(found))
        at = found.schema.get_field_index(KIND_COLUMN)
        return found.set_column(at, found.schema.field(at), pa.array(kinds))

    def _check_bucket_counts(self) -> None:
        """Raise BadInput if a partition was rescaled. A key that moved between buckets would look deleted and new."""
        if self._before is None:
            return
        counts = [
            {
                entry.partition: entry.total_buckets
                for entry in live_entries(self._context, snapshot, keep_entry=_has_bucket)
            }
            for snapshot in (self._before, self._after)
        ]
        for partition in counts[0].keys() & counts[1].keys():
            if counts[0][partition] != counts[1][partition]:
                raise BadInput(
                    f"{self._context.name} was rescaled between snapshots {self._before.id} and {self._after.id}: from "
                    f"{counts[0][partition]} to {counts[1][partition]} buckets. Read the difference up to the snapshot "
                    "before, or scan both states"
                )


def _as_written(context: TableContext, before: Snapshot | None, after: Snapshot) -> TableContext:
    """Return the table with the definition that both states have, which is not today's if it was rewritten since.

    Raises BadInput if the states have different ones.
    """
    if REWRITTEN not in context.schema.options:
        return context
    written = context.schemas.get(after.schema_id)
    definition = Definition.of(written)
    if before is not None and Definition.of(context.schemas.get(before.schema_id)) != definition:
        raise BadInput(
            f"{context.name} was rewritten between snapshots {before.id} and {after.id}, with another key, other "
            "buckets or another merge engine. Read the difference up to the snapshot before, or scan both states"
        )
    if definition == Definition.of(context.schema):
        return context
    return context.with_schema(with_definition_of(context.schema, written))


def _before_and_after(rows: pa.RecordBatch, groups: Groups) -> tuple[KeyedRows, KeyedRows]:
    """Return the rows before and the rows after, retracts included."""
    is_after = rows.column(_IS_AFTER).to_numpy(zero_copy_only=False)[groups.rows]
    positions = [groups.last(side) for side in (~is_after, is_after)]
    keys = [np.flatnonzero(of_side >= 0) for of_side in positions]
    taken = [rows.take(pa.array(groups.rows[p[k]])) for p, k in zip(positions, keys, strict=True)]
    return KeyedRows(taken[0], keys[0]), KeyedRows(taken[1], keys[1])


def _has_bucket(entry: ManifestEntry) -> bool:
    return entry.bucket != POSTPONE_BUCKET


def _without_equal_sections(before: Split | None, after: Split | None) -> Iterator[tuple[Split, bool]]:
    """Yield both splits without the sections that are the same in both. A split without sections is left out."""
    sides = [(split, is_after) for split, is_after in ((before, False), (after, True)) if split is not None]
    known = [{section_identity(section, split) for section in split.sections} for split, _ in sides]
    same = known[0] & known[1] if len(known) == 2 else set()
    for split, is_after in sides:
        kept = tuple(section for section in split.sections if section_identity(section, split) not in same)
        if kept:
            yield replace(split, sections=kept), is_after
