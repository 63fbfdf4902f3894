"""Reads the difference between two states of a table without a primary key: the rows that went and the rows that came.

Rows are compared as a multiset, by a 64-bit hash of all columns: rows that a compaction only moved to another file, or
that a deletion vector left alone, are in both states.

Source: Java `operation/RawFileSplitRead.java` (IncrementalSplit). Java returns all rows of files that are only in the
later state. So it repeats old rows that were compacted, and does not report deleted ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.storage.model.format import KIND_COLUMN, SEQUENCE_COLUMN, RowKind
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types.row_kinds import with_kind
from tidelake.storage.read.changes.subtask import Subtask
from tidelake.storage.read.row_hashes import Hashes, row_hashes
from tidelake.storage.read.scan import TableScan
from tidelake.storage.read.snapshot_reader import SnapshotReader
from tidelake.storage.read.split import SectionIdentity, Split, section_identity
from tidelake.storage.read.state_files import StateFiles

_Mask: TypeAlias = NDArray[np.bool_]


class AppendDiff:
    """The difference between two states of a table without a primary key.

    before: None for an empty table
    context: rows are mapped to its schema
    sequence_numbers: rows have the column `_SEQUENCE_NUMBER`

    Memory: 8 bytes for each row of the files that are only in one of the states, and none if no file went.
    """

    def __init__(
        self, context: TableContext, before: Snapshot | None, after: Snapshot, *, sequence_numbers: bool = False
    ) -> None:
        self._context = context
        self._before = before
        self._after = after
        self._compared = context.schema.names
        numbers = [SEQUENCE_COLUMN] if sequence_numbers else []
        self._columns = [*self._compared, KIND_COLUMN, *numbers]
        self._reader = SnapshotReader(context, (*self._compared, *numbers))

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows that went as -D, then those that came as +I, each in the order of the files."""
        before, after = self._splits(self._before), self._splits(self._after)
        known = [{identity for split in side for identity in _identities(split)} for side in (before, after)]
        gone, new = _without(before, known[1]), _without(after, known[0])
        if not gone:
            return self._read(new, RowKind.INSERT)
        hashes = [self._hashes(side) for side in (gone, new)]
        return self._unmatched(gone, new, _surplus(hashes[0], hashes[1]), _surplus(hashes[1], hashes[0]))

    def _unmatched(
        self, gone: Sequence[Split], new: Sequence[Split], is_gone: _Mask, is_new: _Mask
    ) -> Iterator[pa.RecordBatch]:
        for splits, wanted, kind in ((gone, is_gone, RowKind.DELETE), (new, is_new, RowKind.INSERT)):
            at = 0
            for rows in self._read(splits, kind):
                part = wanted[at : at + rows.num_rows]
                at += rows.num_rows
                if part.any():
                    yield rows.filter(pa.array(part))

    def _splits(self, snapshot: Snapshot | None) -> list[Split]:
        keep = Subtask.of(self._context.options).keep_entry(self._context)
        return TableScan(self._context, keep_entry=keep, files=StateFiles.ALL).plan(snapshot)

    def _read(self, splits: Sequence[Split], kind: RowKind) -> Iterator[pa.RecordBatch]:
        return (with_kind(rows, kind).select(self._columns) for rows in self._reader.read(splits))

    def _hashes(self, splits: Sequence[Split]) -> Hashes:
        """Return the hash of each row (n,)."""
        parts = [
            row_hashes(map(rows.column, self._compared), rows.num_rows) for rows in self._read(splits, RowKind.INSERT)
        ]
        return np.concatenate(parts) if parts else np.zeros(0, np.uint64)


def _identities(split: Split) -> Iterator[SectionIdentity]:
    return (section_identity(section, split) for section in split.sections)


def _without(splits: Sequence[Split], known: set[SectionIdentity]) -> list[Split]:
    """Return the splits without these sections."""
    kept = (
        replace(split, sections=tuple(s for s in split.sections if section_identity(s, split) not in known))
        for split in splits
    )
    return [split for split in kept if split.sections]


def _surplus(hashes: Hashes, others: Hashes) -> _Mask:
    """Return which of the rows (n,) have no row with the same hash of their own among the m others."""
    order = np.argsort(hashes, kind="stable")
    values, first, counts = np.unique(hashes[order], return_index=True, return_counts=True)
    rank = np.arange(len(hashes)) - np.repeat(first, counts)  # among the rows with the same hash
    other = np.sort(others)
    matched = np.searchsorted(other, values, "right") - np.searchsorted(other, values, "left")
    surplus = np.empty(len(hashes), np.bool_)
    surplus[order] = rank >= np.repeat(matched, counts)
    return surplus
