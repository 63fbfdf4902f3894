"""Merging sorted runs in bounded memory, in columns.

Every run is open at one batch. The smallest of the batches' last keys is the cut: no row still to come, of any run,
has a key up to the cut, so all rows up to it are complete groups of equal keys. They are merged at once: order words
of all of them sorted together, one take per column. The run that ended at the cut goes on to its next batch, and so on.

Memory: one batch a run, and the rows between two cuts (at most the same once more). Of large rows, what is being read
or merged; the others are parked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from storage.files.formats.base import BATCH_BYTES_MAX, LARGE_ROW_BYTES
from storage.format import KIND_COLUMN, SEQUENCE_COLUMN
from storage.merge.equal_keys import Groups
from storage.merge.normalized_keys import KeyWords, NormalizedKey, Word, align_keys, count_rows_up_to, normalize_column
from storage.merge.sort_order import merge_order
from storage.merge.spill_file import ParkedRows
from storage.options import TableOptions
from storage.types.row_kinds import is_retract, row_kinds


@dataclass(frozen=True, slots=True)
class MergeOrder:
    """What orders rows: by which columns they are one key, and which row of a key is the newest.

    key_columns: names, most significant first.
    sequence_fields: user-defined ones, before the sequence number.
    runs_in_order: the runs are given oldest first and every sequence number of a run is larger than all of those
        before. Then the sequence number need not be compared, nor read.
    """

    key_columns: tuple[str, ...]
    sequence_fields: tuple[str, ...] = ()
    descending: bool = False
    runs_in_order: bool = False

    @classmethod
    def of(cls, key_columns: tuple[str, ...], options: TableOptions, *, runs_in_order: bool = False) -> MergeOrder:
        """As a table's options say."""
        return cls(key_columns, options.sequence_fields, options.sequence_descending, runs_in_order)


_LARGE_ROWS_MAX: Final = BATCH_BYTES_MAX // LARGE_ROW_BYTES  # in a batch: of more, none need be measured

T = TypeVar("T")
Merge: TypeAlias = Callable[[pa.RecordBatch, Groups], T]
"""What becomes of the rows between two cuts: rows, as by `MergeFunction.merge`, or more."""


def merge_runs(
    runs: Sequence[Iterator[pa.RecordBatch]],
    order: MergeOrder,
    merge: Merge[T],
    *,
    newest_wins: bool = False,
    parked_rows: ParkedRows | None = None,
) -> Iterator[T]:
    """What merging makes of each cut, in key order. Of rows, retracts that win are still in it (`drop_retracts`).

    runs: batches in key order, all of the same schema. A run has a key once; where it has it more often, its rows lie
        in one batch, oldest first. `_VALUE_KIND` may be missing where no run holds retracts; `_SEQUENCE_NUMBER` may be
        missing where `order.runs_in_order`.
    newest_wins: as of a `MergeFunction`: of large rows `merge` gets the newest of each key alone.
    parked_rows: where large rows wait while those of other runs are read or merged; None: in memory.
    """
    cursors: list[_Cursor] = []
    for run in runs:
        _park(cursors, parked_rows)
        if (cursor := _Cursor.open(run, order)) is not None:
            cursors.append(cursor)
    while cursors:
        words = align_keys([cursor.keys for cursor in cursors])
        lasts = [tuple(word[-1].item() for word in of_run) for of_run in words]
        cut = min(lasts)
        taken: list[_Rows] = []
        taken_words: list[KeyWords] = []
        for cursor, of_run, last in zip(cursors, words, lasts, strict=True):
            count = len(of_run[0]) if last == cut else count_rows_up_to(of_run, cut)
            if count:
                taken.append(cursor.take(count))
                taken_words.append(tuple(word[:count] for word in of_run))
        _park(cursors, parked_rows)
        if newest_wins and len(taken) > 1 and _are_large(taken):
            merged = _merged_newest(taken, taken_words, order, merge)
        else:
            parts = [rows.load() for rows in taken]
            taken.clear()
            merged = _merged(parts, taken_words, order, merge)
        yield merged
        del merged  # rows may be large: gone before others are read
        going_on = []
        for cursor in cursors:
            if not cursor.is_empty:
                going_on.append(cursor)
                continue
            _park(cursors, parked_rows)
            if cursor.read_on():
                going_on.append(cursor)
        cursors = going_on


def _park(cursors: Sequence[_Cursor], parked_rows: ParkedRows | None) -> None:
    """Before rows are merged, encoded or decoded: each makes copies of a large row."""
    if parked_rows is not None and sum(cursor.large_bytes for cursor in cursors) > WAITING_BYTES_MAX:
        for cursor in cursors:
            cursor.park(parked_rows)


def merge_batch(rows: pa.RecordBatch, order: MergeOrder, merge: Merge[T]) -> T:
    """Sort and merge rows that are in arrival order: what a flush does. Same rules as `merge_runs`."""
    words = align_keys([_key_words(rows, order)])
    return _merged([rows], words, order, merge)


def sort_batch(rows: pa.RecordBatch, order: MergeOrder) -> tuple[pa.RecordBatch, NDArray[np.bool_]]:
    """Rows that are in arrival order, sorted but not merged; (n,) which of the sorted ones ends its key."""
    (keys,) = align_keys([_key_words(rows, order)])
    by_key, is_last = merge_order(keys, sequence_words(rows, order))
    return rows.take(pa.array(by_key)), is_last


def drop_retracts(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What a reader of the table sees: rows whose newest version is a delete are gone."""
    return map(_without_retracts, batches)


def _without_retracts(batch: pa.RecordBatch) -> pa.RecordBatch:
    retract = is_retract(row_kinds(batch))
    return batch.filter(pa.array(~retract)) if retract.any() else batch


def _merged(parts: list[pa.RecordBatch], words: list[KeyWords], order: MergeOrder, merge: Merge[T]) -> T:
    """parts: emptied, so that large rows aren't in memory together with their copy"""
    rows = parts[0] if len(parts) == 1 else pa.concat_batches(parts)
    parts.clear()
    keys = words[0] if len(words) == 1 else tuple(np.concatenate(same) for same in zip(*words, strict=True))
    return merge(rows, Groups.of(*merge_order(keys, sequence_words(rows, order))))


def _are_large(parts: Sequence[_Rows]) -> bool:
    large_bytes = sum(part.large_bytes for part in parts)
    return large_bytes > 0 and large_bytes >= LARGE_ROW_BYTES * sum(part.num_rows for part in parts)


def _merged_newest(parts: list[_Rows], words: list[KeyWords], order: MergeOrder, merge: Merge[T]) -> T:
    """As `_merged`, of rows too large to be copied only to be left out: the columns that decide tell which are the
    newest, and the others are let go before anything is copied.
    """
    rows = pa.concat_batches([part.deciding.select(_deciding(part.deciding, order)) for part in parts])
    keys = tuple(np.concatenate(same) for same in zip(*words, strict=True))
    by_key, is_last = merge_order(keys, sequence_words(rows, order))
    starts = np.cumsum([0, *(part.num_rows for part in parts)])
    winners = by_key[is_last]
    part_of = np.searchsorted(starts, winners, side="right") - 1
    loaded = {p: parts[p].load() for p in np.unique(part_of).tolist()}
    newest = [
        loaded[p].slice(row, 1) for p, row in zip(part_of.tolist(), (winners - starts[part_of]).tolist(), strict=True)
    ]
    parts.clear()
    loaded.clear()
    return merge(newest[0] if len(newest) == 1 else pa.concat_batches(newest), Groups.singles(len(newest)))


def _deciding(rows: pa.RecordBatch, order: MergeOrder) -> list[str]:
    """Columns that tell which row of a key is the newest."""
    names = (*order.sequence_fields, SEQUENCE_COLUMN, KIND_COLUMN)
    return [name for name in dict.fromkeys(names) if name in rows.schema.names]


def sequence_words(rows: pa.RecordBatch, order: MergeOrder) -> list[Word]:
    """Words that order the rows of a key."""
    sequences = [
        word
        for name in order.sequence_fields
        for word in normalize_column(rows.column(name), nullable=True, descending=order.descending)
    ]
    if not order.runs_in_order:
        # equal numbers: an add is newer than a retract, as in Java
        sequences += [rows.column(SEQUENCE_COLUMN).to_numpy(), (~is_retract(row_kinds(rows))).astype(np.int64)]
    return sequences


def _key_words(batch: pa.RecordBatch, order: MergeOrder) -> list[NormalizedKey]:
    return [normalize_column(batch.column(n), nullable=batch.schema.field(n).nullable) for n in order.key_columns]


_NO_ROWS: Final = pa.record_batch({})
WAITING_BYTES_MAX: Final = 16 * 1024 * 1024  # of large rows that wait in memory while others are worked on


def _has_rows(batch: pa.RecordBatch) -> bool:
    return bool(batch.num_rows)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of a run up to a cut.

    deciding: all of them, with the columns that `_deciding` names and maybe others.
    load: returns them with all columns, once.
    large_bytes: in memory or on disk, of rows that were read as a batch of large ones; else 0.
    """

    deciding: pa.RecordBatch
    load: Callable[[], pa.RecordBatch]
    large_bytes: int = 0

    @property
    def num_rows(self) -> int:
        count: int = self.deciding.num_rows
        return count


class _Cursor:
    """An open run, at its next rows. `keys` are their words. Empty only between `take` and `read_on`.

    large_bytes: of the rows, where they are large and in memory; else 0.
    """

    __slots__ = ("_batch", "_order", "_parked", "_rest", "keys", "large_bytes")

    _batch: pa.RecordBatch
    keys: list[NormalizedKey]

    def __init__(self, batch: pa.RecordBatch, rest: Iterator[pa.RecordBatch], order: MergeOrder) -> None:
        self._rest = rest
        self._order = order
        self._parked: _Rows | None = None
        self.large_bytes = 0
        self._begin(batch)

    @classmethod
    def open(cls, run: Iterator[pa.RecordBatch], order: MergeOrder) -> _Cursor | None:
        """None for a run without rows."""
        rows = filter(_has_rows, run)
        first = next(rows, None)
        return None if first is None else cls(first, rows, order)

    @property
    def is_empty(self) -> bool:
        rows: int = self._batch.num_rows
        return not rows

    def take(self, count: int) -> _Rows:
        """The next so many rows; they are passed over."""
        if self._parked is not None and count < self._batch.num_rows:
            self._begin(self._parked.load())
        if self._parked is not None:
            taken = self._parked
        else:
            part = self._batch.slice(0, count)
            taken = _Rows(part, lambda: part, part.nbytes if self.large_bytes else 0)
        if count == self._batch.num_rows:
            self._batch = _NO_ROWS  # large rows are held by who merges them alone
            self._parked, self.large_bytes = None, 0
        elif count:
            self._batch = self._batch.slice(count)
            self.keys = [words.slice(count) for words in self.keys]
        return taken

    def park(self, parked_rows: ParkedRows) -> None:
        """Let large rows wait elsewhere."""
        if self.large_bytes:
            rows = self._batch
            self._batch = rows.select(_deciding(rows, self._order))
            self._parked = _Rows(self._batch, parked_rows.park(rows), self.large_bytes)
            self.large_bytes = 0

    def read_on(self) -> bool:
        """To the next batch; False at the end of the run."""
        following = next(self._rest, None)
        if following is not None:
            self._begin(following)
        return following is not None

    def _begin(self, batch: pa.RecordBatch) -> None:
        self._batch = batch
        self._parked = None
        self.keys = _key_words(batch, self._order)
        is_large = batch.num_rows <= _LARGE_ROWS_MAX and batch.nbytes >= LARGE_ROW_BYTES * batch.num_rows
        self.large_bytes = batch.nbytes if is_large else 0
