"""Merges sorted runs in bounded memory, in columns.

One batch of each run is open. The cut is the smallest of the batches' last keys. All rows that are not read yet have
keys after the cut, so the rows up to the cut are complete groups of equal keys. These rows are merged at once: their
order words are sorted together, with one take per column. Then each run whose batch ended at the cut reads its next
batch.

Memory: one batch per run, and the rows between two cuts (at most as much again). Of large rows, only those that are
being read or merged are in memory; the others are parked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.storage.files.formats.file_format import BATCH_BYTES_MAX, LARGE_ROW_BYTES
from tidelake.storage.merge.equal_keys import Groups
from tidelake.storage.merge.normalized_keys import (
    KeyWords,
    NormalizedKey,
    Word,
    align_keys,
    count_rows_up_to,
    merge_order,
    normalize_column,
)
from tidelake.storage.merge.spill_file import ParkedRows
from tidelake.storage.model.format import KIND_COLUMN, SEQUENCE_COLUMN
from tidelake.storage.model.options import TableOptions
from tidelake.storage.model.types.row_kinds import is_retract, row_kinds


@dataclass(frozen=True, slots=True)
class MergeOrder:
    """The order of rows: which columns are the key, and which row of a key is the newest.

    key_columns: the names of the key columns, most significant first.
    sequence_fields: the user-defined sequence fields, which are compared before the sequence number.
    descending: whether the sequence fields are compared in descending order.
    sequence_follows_run_order: whether the runs are given oldest first, and all sequence numbers of a run are larger
        than those of the runs before. Then the sequence number need not be compared or read.
    """

    key_columns: tuple[str, ...]
    sequence_fields: tuple[str, ...] = ()
    descending: bool = False
    sequence_follows_run_order: bool = False

    @classmethod
    def of(
        cls, key_columns: tuple[str, ...], options: TableOptions, *, sequence_follows_run_order: bool = False
    ) -> MergeOrder:
        """Make the order from the options of a table."""
        return cls(key_columns, options.sequence_fields, options.sequence_descending, sequence_follows_run_order)


_LARGE_ROWS_MAX: Final = BATCH_BYTES_MAX // LARGE_ROW_BYTES  # a batch of more rows can't consist of large ones

T = TypeVar("T")
Merge: TypeAlias = Callable[[pa.RecordBatch, Groups], T]
"""Processes the rows between two cuts. Returns merged rows, as `MergeFunction.merge` does, or more."""


def merge_runs(
    runs: Sequence[Iterator[pa.RecordBatch]],
    order: MergeOrder,
    merge: Merge[T],
    *,
    newest_wins: bool = False,
    parked_rows: ParkedRows | None = None,
) -> Iterator[T]:
    """Yield the result of `merge` for each cut, in key order. Retracts that win are still included (`drop_retracts`).

    runs: batches in key order, all with the same schema. If a run contains a key more than once, all its rows are in
        one batch, oldest first. `_VALUE_KIND` may be missing if no run contains retracts. `_SEQUENCE_NUMBER` may be
        missing if `order.sequence_follows_run_order`.
    newest_wins: see `MergeFunction`. If set, `merge` gets only the newest row of each key when rows are large.
    parked_rows: where large rows wait while those of other runs are read or merged; None keeps them in memory.
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
        del merged  # rows may be large: release them before others are read
        remaining = []
        for cursor in cursors:
            if not cursor.is_empty:
                remaining.append(cursor)
                continue
            _park(cursors, parked_rows)
            if cursor.read_next_batch():
                remaining.append(cursor)
        cursors = remaining


def _park(cursors: Sequence[_Cursor], parked_rows: ParkedRows | None) -> None:
    """Park large rows. Called before rows are merged, encoded or decoded, which all copy them."""
    if parked_rows is not None and sum(cursor.large_bytes for cursor in cursors) > WAITING_BYTES_MAX:
        for cursor in cursors:
            cursor.park(parked_rows)


def merge_batch(rows: pa.RecordBatch, order: MergeOrder, merge: Merge[T]) -> T:
    """Sort and merge rows that are in arrival order, for a flush. The rules are those of `merge_runs`."""
    words = align_keys([_key_words(rows, order)])
    return _merged([rows], words, order, merge)


def sort_batch(rows: pa.RecordBatch, order: MergeOrder) -> tuple[pa.RecordBatch, NDArray[np.bool_]]:
    """Sort rows that are in arrival order, without merging them.

    Returns the sorted rows, and (n,) whether each is the last one of its key.
    """
    (keys,) = align_keys([_key_words(rows, order)])
    by_key, is_last = merge_order(keys, sequence_words(rows, order))
    return rows.take(pa.array(by_key)), is_last


def drop_retracts(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Remove the keys whose newest row is a delete, as a reader of the table expects."""
    return map(_without_retracts, batches)


def _without_retracts(batch: pa.RecordBatch) -> pa.RecordBatch:
    retract = is_retract(row_kinds(batch))
    return batch.filter(pa.array(~retract)) if retract.any() else batch


def _merged(parts: list[pa.RecordBatch], words: list[KeyWords], order: MergeOrder, merge: Merge[T]) -> T:
    """Merge the rows of one cut.

    parts: the rows of each run. The list is emptied, so that large rows are not in memory together with their copy.
    """
    rows = parts[0] if len(parts) == 1 else pa.concat_batches(parts)
    parts.clear()
    keys = words[0] if len(words) == 1 else tuple(np.concatenate(same) for same in zip(*words, strict=True))
    return merge(rows, Groups.of(*merge_order(keys, sequence_words(rows, order))))


def _are_large(parts: Sequence[_Rows]) -> bool:
    large_bytes = sum(part.large_bytes for part in parts)
    return large_bytes > 0 and large_bytes >= LARGE_ROW_BYTES * sum(part.num_rows for part in parts)


def _merged_newest(parts: list[_Rows], words: list[KeyWords], order: MergeOrder, merge: Merge[T]) -> T:
    """Like `_merged`, for large rows: only the newest row of each key is copied.

    The newest rows are found with the deciding columns. The other rows are released before anything is copied.
    """
    rows = pa.concat_batches([part.deciding.select(_deciding_columns(part.deciding, order)) for part in parts])
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


def _deciding_columns(rows: pa.RecordBatch, order: MergeOrder) -> list[str]:
    """Return the columns that decide which row of a key is the newest."""
    names = (*order.sequence_fields, SEQUENCE_COLUMN, KIND_COLUMN)
    own = set(rows.schema.names)  # Arrow makes a list of them each time
    return [name for name in dict.fromkeys(names) if name in own]


def sequence_words(rows: pa.RecordBatch, order: MergeOrder) -> list[Word]:
    """Return the words that order the rows of one key."""
    sequences = [
        word
        for name in order.sequence_fields
        for word in normalize_column(rows.column(name), nullable=True, descending=order.descending)
    ]
    if not order.sequence_follows_run_order:
        # With equal sequence numbers an add is newer than a retract, as in Java.
        sequences += [rows.column(SEQUENCE_COLUMN).to_numpy(), (~is_retract(row_kinds(rows))).astype(np.int64)]
    return sequences


def _key_words(batch: pa.RecordBatch, order: MergeOrder) -> list[NormalizedKey]:
    return [normalize_column(batch.column(n), nullable=batch.schema.field(n).nullable) for n in order.key_columns]


_NO_ROWS: Final = pa.record_batch({})
WAITING_BYTES_MAX: Final = 16 * 1024 * 1024  # of large rows that wait in memory while others are processed


def _has_rows(batch: pa.RecordBatch) -> bool:
    return bool(batch.num_rows)


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of a run up to a cut.

    deciding: all these rows, with the columns that `_deciding_columns` returns and maybe others.
    load: returns the rows with all columns. It can be called once.
    large_bytes: the size of the rows in memory or on disk, if they were read as a batch of large rows; otherwise 0.
    """

    deciding: pa.RecordBatch
    load: Callable[[], pa.RecordBatch]
    large_bytes: int = 0

    @property
    def num_rows(self) -> int:
        count: int = self.deciding.num_rows
        return count


class _Cursor:
    """An open run with its next rows. It is empty only between `take` and `read_next_batch`.

    keys: the words of the rows' keys.
    large_bytes: the size of the rows if they are large and in memory; otherwise 0.
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
        """Read the first batch. Returns None for a run without rows."""
        rows = filter(_has_rows, run)
        first = next(rows, None)
        return None if first is None else cls(first, rows, order)

    @property
    def is_empty(self) -> bool:
        rows: int = self._batch.num_rows
        return not rows

    def take(self, count: int) -> _Rows:
        """Remove the next `count` rows from the cursor, and return them."""
        if self._parked is not None and count < self._batch.num_rows:
            self._begin(self._parked.load())
        if self._parked is not None:
            taken = self._parked
        else:
            part = self._batch.slice(0, count)
            taken = _Rows(part, lambda: part, part.nbytes if self.large_bytes else 0)
        if count == self._batch.num_rows:
            self._batch = _NO_ROWS  # so that only the caller refers to large rows
            self._parked, self.large_bytes = None, 0
        elif count:
            self._batch = self._batch.slice(count)
            self.keys = [words.slice(count) for words in self.keys]
        return taken

    def park(self, parked_rows: ParkedRows) -> None:
        """Move large rows to `parked_rows`."""
        if self.large_bytes:
            rows = self._batch
            self._batch = rows.select(_deciding_columns(rows, self._order))
            self._parked = _Rows(self._batch, parked_rows.park(rows), self.large_bytes)
            self.large_bytes = 0

    def read_next_batch(self) -> bool:
        """Read the next batch. Returns False at the end of the run."""
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
