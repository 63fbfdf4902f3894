"""Collects rows of one bucket of a primary-key table and makes a sorted, merged run of them.

A buffer numbers rows as they arrive. If memory is short, it sorts its rows and writes them to disk as a segment. The
segment is merged if the merge engine can merge in steps. The flush merges all segments and the rows in memory as runs,
oldest first.

Source: Java `mergetree/MergeTreeWriter.java`, `mergetree/SortBufferWriteBuffer.java`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.storage.base.logs import get_logger
from tidelake.storage.merge.equal_keys import Groups
from tidelake.storage.merge.merge_functions import MergeFunction, check_remaining_retracts
from tidelake.storage.merge.merge_reader import Merge, MergeOrder, merge_batch, merge_runs, sort_batch
from tidelake.storage.merge.multi_pass_merge import keep_all
from tidelake.storage.merge.spill_file import SpillFile
from tidelake.storage.model.format import SEQUENCE_COLUMN
from tidelake.storage.model.types.row_kinds import is_retract, row_kinds
from tidelake.storage.write.buffered_rows import BufferedRows

_log = get_logger(__name__)

# A flush holds a piece of every segment in memory, so their number is limited.
SEGMENTS_MAX: Final = 64
PARTS_MAX: Final = 256  # runs that one flush writes, if a key has many retracts
PIECE_ROWS_MAX: Final = 16_384
PIECE_BYTES: Final = 1024 * 1024


class WriteBuffer:
    """The rows of one bucket that are not in a file yet. Not thread-safe; its owner has the lock.

    order: merge order of the table. The buffer sets `sequence_follows_run_order`, because it adds the sequence numbers
    next_sequence_number: the number of the next row.
    buffered: the rows in memory.
    """

    def __init__(
        self, order: MergeOrder, merge_function: MergeFunction, next_sequence_number: int, spill_directory: str | None
    ) -> None:
        # Order of arrival is sequence order, both in the buffer and between segments.
        self._order = replace(order, sequence_follows_run_order=True)
        self._merge_function = merge_function
        self._spill_directory = spill_directory
        self._segments: list[SpillFile] = []
        self.buffered = BufferedRows()
        self.next_sequence_number = next_sequence_number
        self._has_retracts = False

    @property
    def is_empty(self) -> bool:
        return not self.buffered.batches and not self._segments

    @property
    def batches(self) -> Sequence[pa.RecordBatch]:
        """All buffered rows, in order of arrival; empty if some are on disk, or if they make several runs."""
        return () if self._segments or self._is_divided else self.buffered.batches

    @property
    def may_spill_again(self) -> bool:
        """Whether one more segment is possible: a flush opens all segments and holds a piece of each."""
        return len(self._segments) < SEGMENTS_MAX

    def add(self, rows: pa.RecordBatch) -> None:
        """Add converted rows (table columns and `_VALUE_KIND`), in order of arrival."""
        numbers = pa.array(np.arange(self.next_sequence_number, self.next_sequence_number + rows.num_rows))
        self.next_sequence_number += rows.num_rows
        if not self._has_retracts and not self._merge_function.keeps_retracts:
            self._has_retracts = bool(is_retract(row_kinds(rows)).any())
        self.buffered.add(rows.append_column(pa.field(SEQUENCE_COLUMN, pa.int64(), nullable=False), numbers))

    def rows_in_arrival_order(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows by key and arrival, for a changelog of the input. Only before anything was spilled."""
        assert not self._segments, "rows of a segment are merged already"
        if self.buffered.has_large_rows:
            yield from merge_runs(self._rows_as_runs(), self._order, keep_all)
        else:
            yield sort_batch(self.buffered.concatenated(), replace(self._order, sequence_fields=()))[0]

    def versions(self) -> Iterator[pa.RecordBatch]:
        """Yield what the buffer holds now, on disk and in memory, oldest first. Later changes don't affect it."""
        # A segment whose reading has started stays readable after it is deleted.
        segments = [_start_run(segment.read()) for segment in self._segments]
        return chain(*segments, list(self.buffered.batches))

    def spill(self) -> None:
        """Write the rows to disk and free their memory. A full disk raises OSError, and no row is lost."""
        if not self.buffered.batches:
            return
        rows, is_last = self._as_run()
        self._segments.append(SpillFile(self._spill_directory, rows.schema, in_pieces(rows, is_last)))
        self.buffered.clear()

    def drain(self) -> Iterator[pa.RecordBatch]:
        """Yield the merged run, in key order. The buffer is emptied at the end of the iteration, and only then.

        Raises BadInput for rows that no merge would accept (`check_remaining_retracts`).
        """
        for rows in self._merged(self._merge_function.merge, newest_wins=self._merge_function.newest_wins):
            check_remaining_retracts(self._merge_function, row_kinds(rows))
            yield rows
        self.clear()

    def runs(self) -> Iterator[Iterator[pa.RecordBatch]]:
        """Yield the sorted runs that a flush writes, oldest first. The buffer is emptied after the last one.

        Usually this is one run, that of `drain`. If the merge engine can't merge a retract without the older row that
        it retracts, the rows of a key are divided: such a retract is in a later run than the rows before it, and in an
        earlier one than the rows after it.
        """
        if not self._is_divided:
            yield self.drain()
            return
        is_in_memory = not self._segments and not self.buffered.has_large_rows
        part = _PartOfKeys(self._merge_function, 0, is_in_memory)
        yield self._checked(self._merged(part.merge), part)
        for number in range(1, PARTS_MAX):
            if number >= part.count:
                break
            part, rest = _PartOfKeys(self._merge_function, number, is_in_memory), part.rest
            merged = self._merged(part.merge) if rest is None else iter([merge_batch(rest, self._order, part.merge)])
            yield self._checked(merged, part)
        if part.count > PARTS_MAX:
            _log.warning(
                "retracts merged without the rows that they retract",
                reason=f"the rows of one key and one flush would make {part.count} sorted runs, more than {PARTS_MAX}: "
                "aggregates other than sums may come out wrong",
                remedy="commit more often, so that fewer updates of a key come together",
            )
        self.clear()

    @property
    def _is_divided(self) -> bool:
        return self._has_retracts and not self._merge_function.keeps_retracts

    def _checked(self, merged: Iterator[pa.RecordBatch], part: _PartOfKeys) -> Iterator[pa.RecordBatch]:
        for rows in merged:
            check_remaining_retracts(self._merge_function, part.last_kinds)
            if rows.num_rows:
                yield rows

    def clear(self) -> None:
        for segment in self._segments:
            segment.delete()
        self._segments = []
        self._has_retracts = False
        self.buffered.clear()

    def _merged(self, merge: Merge[pa.RecordBatch], *, newest_wins: bool = False) -> Iterator[pa.RecordBatch]:
        if not self._segments:
            if self.buffered.has_large_rows:
                yield from merge_runs(self._rows_as_runs(), self._order, merge, newest_wins=newest_wins)
            elif self.buffered.batches:
                yield merge_batch(self.buffered.concatenated(), self._order, merge)
        else:
            runs = [segment.read() for segment in self._segments]
            if self.buffered.has_large_rows:
                runs += self._rows_as_runs()
            elif self.buffered.batches:
                runs.append(in_pieces(*self._as_run()))
            yield from merge_runs(runs, self._order, merge, newest_wins=newest_wins)

    def _rows_as_runs(self) -> list[Iterator[pa.RecordBatch]]:
        """Return each row in memory as a run, oldest first."""
        return [iter((batch.slice(row, 1),)) for batch in self.buffered.batches for row in range(batch.num_rows)]

    def _as_run(self) -> tuple[pa.RecordBatch, NDArray[np.bool_]]:
        """Return the rows in memory as a run for a later merge, and which rows are the last of their key."""
        if not self._merge_function.merges_in_steps:
            return sort_batch(self.buffered.concatenated(), self._order)
        merged = merge_batch(self.buffered.concatenated(), self._order, self._merge_function.merge)
        return merged, np.ones(merged.num_rows, np.bool_)


class _PartOfKeys:
    """Merges only a part of each key's rows. A retract that would be lost is a part of its own.

    count: the largest number of parts of a key, as far as known.
    last_kinds: the row kinds of the newest rows of the keys that the last call merged completely.
    rest: the rows of keys that have more parts, in order of arrival; None if they are not kept.
    """

    def __init__(self, function: MergeFunction, number: int, keeps_rest: bool) -> None:
        self._function = function
        self._number = number
        self._keeps_rest = keeps_rest
        self.rest: pa.RecordBatch | None = None
        self.count = 0
        self.last_kinds = np.empty(0, np.int8)

    def merge(self, rows: pa.RecordBatch, groups: Groups) -> pa.RecordBatch:
        """Merge the rows of each group that belong to the part. The result has no row for groups with fewer parts."""
        kinds = row_kinds(rows)[groups.rows]
        lost = self._function.lost_retracts(rows, groups)
        # Each row of such a key is a part. A part of several rows could have another result than its rows one by one:
        # of two late rows the older one may count, but the part has the newer one.
        begins = groups.broadcast(np.logical_or.reduceat(lost, groups.starts)) if len(lost) else lost
        begins[groups.starts] = False
        parts = np.cumsum(begins, dtype=np.intp)
        parts -= groups.broadcast(parts[groups.starts])
        self.count = max(self.count, int(parts.max(initial=-1)) + 1)
        parts = np.minimum(parts, PARTS_MAX - 1)
        of_last = parts[groups.ends - 1]
        if self._keeps_rest:
            self.rest = rows.take(pa.array(np.sort(groups.rows[groups.broadcast(of_last > self._number)])))
        self.last_kinds = kinds[groups.ends - 1][of_last == self._number]
        kept = groups.keep(parts == self._number)
        return self._function.merge(rows, kept) if len(kept) else rows.slice(0, 0)


def _start_run(run: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return chain([next(run)], run)


def in_pieces(rows: pa.RecordBatch, is_last: NDArray[np.bool_]) -> Iterator[pa.RecordBatch]:
    """Yield the pieces of a segment. A merge holds one piece at a time, and needs all rows of a key in one piece."""
    count = max(1, min(PIECE_ROWS_MAX, PIECE_BYTES * rows.num_rows // max(1, rows.nbytes)))
    ends = np.flatnonzero(is_last) + 1
    full = ends[np.searchsorted(ends, np.arange(count, rows.num_rows, count))]
    for start, end in pairwise(np.unique([0, *full, rows.num_rows]).tolist()):
        yield rows.slice(start, end - start)
