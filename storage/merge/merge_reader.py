"""Merging sorted runs in bounded memory, in columns.

Every run is open at one batch. The smallest of the batches' last keys is the cut: no row still to come, of any run,
has a key up to the cut, so all rows up to it are complete groups of equal keys. They are merged at once: order words
of all of them sorted together, one take per column. The run that ended at the cut goes on to its next batch, and so on.

Memory: one batch a run, and the rows between two cuts (at most the same once more).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from storage.files.formats.base import LARGE_ROW_BYTES
from storage.format import KIND_COLUMN, SEQUENCE_COLUMN
from storage.merge.key_groups import Groups
from storage.merge.normalized_keys import KeyWords, NormalizedKey, Word, align_keys, count_rows_up_to, normalize_column
from storage.merge.sort_order import merge_order
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


T = TypeVar("T")
Merge: TypeAlias = Callable[[pa.RecordBatch, Groups], T]
"""What becomes of the rows between two cuts: rows, as by `MergeFunction.merge`, or more."""


def merge_runs(
    runs: Sequence[Iterator[pa.RecordBatch]], order: MergeOrder, merge: Merge[T], *, newest_wins: bool = False
) -> Iterator[T]:
    """What merging makes of each cut, in key order. Of rows, retracts that win are still in it (`drop_retracts`).

    runs: batches in key order, all of the same schema. A run has a key once; where it has it more often, its rows lie
    in one batch, oldest first. `_VALUE_KIND` may be missing where no run holds retracts; `_SEQUENCE_NUMBER` may be
    missing where `order.runs_in_order`.
    newest_wins: as of a `MergeFunction`: of large rows `merge` gets the newest of each key alone.
    """
    cursors = [cursor for run in runs if (cursor := _Cursor.open(run, order)) is not None]
    while cursors:
        words = align_keys([cursor.keys for cursor in cursors])
        lasts = [tuple(word[-1].item() for word in of_run) for of_run in words]
        cut = min(lasts)
        taken: list[pa.RecordBatch] = []
        taken_words: list[KeyWords] = []
        for cursor, of_run, last in zip(cursors, words, lasts, strict=True):
            count = len(of_run[0]) if last == cut else count_rows_up_to(of_run, cut)
            if count:
                taken.append(cursor.batch.slice(0, count))
                taken_words.append(tuple(word[:count] for word in of_run))
            cursor.pass_over(count)
        if newest_wins and len(taken) > 1 and _are_large(taken):
            merged = _merged_newest(taken, taken_words, order, merge)
        else:
            merged = _merged(taken, taken_words, order, merge)
        yield merged
        del merged  # rows may be large: gone before others are read
        cursors = [cursor for cursor in cursors if cursor.read_on()]


def merge_batch(rows: pa.RecordBatch, order: MergeOrder, merge: Merge[T]) -> T:
    """Sort and merge rows that lie in arrival order: what a flush does. Same rules as `merge_runs`."""
    words = align_keys([_key_words(rows, order)])
    return _merged([rows], words, order, merge)


def sort_batch(rows: pa.RecordBatch, order: MergeOrder) -> tuple[pa.RecordBatch, NDArray[np.bool_]]:
    """Rows that lie in arrival order, sorted but not merged; (n,) which of the sorted ones ends its key."""
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
    """parts: emptied, so that large rows aren't held beside the copy that is made of them."""
    rows = parts[0] if len(parts) == 1 else pa.concat_batches(parts)
    parts.clear()
    keys = words[0] if len(words) == 1 else tuple(np.concatenate(same) for same in zip(*words, strict=True))
    return merge(rows, Groups.of(*merge_order(keys, sequence_words(rows, order))))


def _are_large(parts: Sequence[pa.RecordBatch]) -> bool:
    size_bytes: int = sum(part.nbytes for part in parts)
    rows: int = sum(part.num_rows for part in parts)
    return size_bytes >= LARGE_ROW_BYTES * rows


def _merged_newest(parts: list[pa.RecordBatch], words: list[KeyWords], order: MergeOrder, merge: Merge[T]) -> T:
    """As `_merged`, of rows too large to be copied only to be left out: the columns that decide tell which are the
    newest, and the others are let go before anything is copied.
    """
    names = (*order.sequence_fields, SEQUENCE_COLUMN, KIND_COLUMN)
    deciding = [name for name in dict.fromkeys(names) if name in parts[0].schema.names]
    rows = pa.concat_batches([part.select(deciding) for part in parts])
    keys = tuple(np.concatenate(same) for same in zip(*words, strict=True))
    by_key, is_last = merge_order(keys, sequence_words(rows, order))
    starts = np.cumsum([0, *(part.num_rows for part in parts)])
    winners = by_key[is_last]
    part_of = np.searchsorted(starts, winners, side="right") - 1
    newest = [
        parts[p].slice(row, 1) for p, row in zip(part_of.tolist(), (winners - starts[part_of]).tolist(), strict=True)
    ]
    parts.clear()
    return merge(newest[0] if len(newest) == 1 else pa.concat_batches(newest), Groups.singles(len(newest)))


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


def _has_rows(batch: pa.RecordBatch) -> bool:
    return bool(batch.num_rows)


class _Cursor:
    """An open run: `batch` holds its next rows, `keys` their words. Empty only between `pass_over` and `read_on`."""

    __slots__ = ("_order", "_rest", "batch", "keys")

    def __init__(self, batch: pa.RecordBatch, rest: Iterator[pa.RecordBatch], order: MergeOrder) -> None:
        self.batch = batch
        self.keys = _key_words(batch, order)
        self._rest = rest
        self._order = order

    @classmethod
    def open(cls, run: Iterator[pa.RecordBatch], order: MergeOrder) -> _Cursor | None:
        """None for a run without rows."""
        rows = filter(_has_rows, run)
        first = next(rows, None)
        return None if first is None else cls(first, rows, order)

    def pass_over(self, count: int) -> None:
        if count == self.batch.num_rows:
            self.batch = _NO_ROWS  # large rows are held by who merges them alone
        elif count:
            self.batch = self.batch.slice(count)
            self.keys = [words.slice(count) for words in self.keys]

    def read_on(self) -> bool:
        """Where no row is left, the next batch; False at the end of the run."""
        if self.batch.num_rows:
            return True
        following = next(self._rest, None)
        if following is None:
            return False
        self.batch = following
        self.keys = _key_words(following, self._order)
        return True
