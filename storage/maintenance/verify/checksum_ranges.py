"""Computes checksums of rows by ranges of keys. Two tables with equal checksums for all ranges have the same rows.

Rows are passed in the order of their keys, batch by batch. The first table defines the ends of the ranges, so that each
holds some ten thousand of its rows. Memory: one key and two numbers for each range.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.storage.merge.normalized_keys import NormalizedKey, align_keys, first_not_less, normalize_column
from tidelake.storage.read.row_hashes import row_hashes

RANGE_ROWS: Final = 65_536  # a range may have up to twice as many rows, as it ends with a batch


@dataclass(frozen=True)
class ChecksumRanges:
    """Ranges of keys.

    ends: the last key of each range except the last one, which has no end; None: there is one range.
    key_columns: the most significant first.
    """

    key_columns: Sequence[str]
    ends: pa.RecordBatch | None = None

    def __len__(self) -> int:
        return 1 if self.ends is None else self.ends.num_rows + 1

    def of_rows(self, rows: pa.RecordBatch) -> NDArray[np.intp]:
        """Return for each row the number of its range (n,)."""
        if self.ends is None:
            return np.zeros(rows.num_rows, np.intp)
        ends, keys = align_keys([self._words(self.ends), self._words(rows)])
        return first_not_less(ends, keys)

    def _words(self, rows: pa.RecordBatch) -> list[NormalizedKey]:
        return [normalize_column(rows.column(name), nullable=True) for name in self.key_columns]


class Checksums:
    """The number of rows and the sum of their hashes, for each of r ranges.

    columns: the compared columns.
    counts (r,): number of rows so far; None: no rows.
    sums (r,): sum of their hashes; None: no rows.
    """

    def __init__(
        self,
        ranges: ChecksumRanges,
        columns: Sequence[str],
        counts: NDArray[np.int64] | None = None,
        sums: NDArray[np.uint64] | None = None,
    ) -> None:
        self.ranges = ranges
        self._columns = columns
        self._counts = np.zeros(len(ranges), np.int64) if counts is None else counts
        self._sums = np.zeros(len(ranges), np.uint64) if sums is None else sums

    @classmethod
    def of(cls, batches: Iterable[pa.RecordBatch], key_columns: Sequence[str], columns: Sequence[str]) -> Checksums:
        """Compute checksums of batches in the order of their keys. The batches define the ends of ranges."""
        ends: list[pa.RecordBatch] = []
        counts: list[int] = []
        sums: list[NDArray[np.uint64]] = []
        for part in chain.from_iterable(map(_parts, batches)):
            if not counts or counts[-1] >= RANGE_ROWS:
                counts.append(0)
                sums.append(np.zeros(1, np.uint64))
                ends.append(part)
            counts[-1] += part.num_rows
            sums[-1] += row_hashes(map(part.column, columns), part.num_rows).sum(dtype=np.uint64)
            ends[-1] = part.select(key_columns).take(pa.array([part.num_rows - 1]))  # a slice would keep the batch
        ranges = ChecksumRanges(key_columns, pa.concat_batches(ends[:-1]) if len(ends) > 1 else None)
        return cls(ranges, columns, np.array(counts), np.concatenate(sums)) if counts else cls(ranges, columns)

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows in the order of their keys."""
        if not rows.num_rows:
            return
        hashes = row_hashes(map(rows.column, self._columns), rows.num_rows)
        until = np.append(np.zeros(1, np.uint64), np.cumsum(hashes, dtype=np.uint64))
        numbers = self.ranges.of_rows(rows)
        starts = np.flatnonzero(np.diff(numbers, prepend=-1))
        stops = np.append(starts[1:], rows.num_rows)
        self._counts[numbers[starts]] += stops - starts
        self._sums[numbers[starts]] += until[stops] - until[starts]

    def differing_ranges(self, other: Checksums) -> NDArray[np.bool_]:
        """Return for each range (r,) whether the rows differ. Both must have the same ranges."""
        found: NDArray[np.bool_] = (self._counts != other._counts) | (self._sums != other._sums)
        return found


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    return (batch.slice(start, RANGE_ROWS) for start in range(0, batch.num_rows, RANGE_ROWS))
