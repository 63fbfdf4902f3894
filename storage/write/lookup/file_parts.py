"""The parts of a data file that a lookup reads separately. Parts without any of the keys are not read.

Rows are in key order, so the bounds of the first key column tell which part may contain a key. A part is a row group,
or several small ones. A file is a single part if its format has no bounds, or if the bounds can't be used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.storage.files.stats_collection import ColumnBounds
from tidelake.storage.merge.normalized_keys import NormalizedKey, align_keys, first_not_less, normalize_column
from tidelake.storage.write.lookup.lookup_file import Keys

PART_ROWS: Final = 100_000  # the minimum rows of a part: opening a part takes a lookup about 0.3 ms


@dataclass(frozen=True, slots=True)
class LookupFilePart:
    """Consecutive rows of a data file.

    first_row: the position of the first row in the file.
    row_count: the number of rows.
    chunks: the row groups; None means the whole file.
    """

    first_row: int
    row_count: int
    chunks: range | None = None


@dataclass(frozen=True, slots=True)
class FileParts:
    """The parts of a data file.

    parts: the p parts, in file order.
    first (p,): the lower bound of the first key column in each part, as order words; None for a file of one part.
    last (p,): the upper bound of the first key column in each part, likewise.
    """

    parts: Sequence[LookupFilePart]
    first: NormalizedKey | None = None
    last: NormalizedKey | None = None

    @classmethod
    def of(cls, row_count: int, chunks: ColumnBounds | None) -> FileParts:
        """Divide a file into parts.

        row_count: the number of rows of the file.
        chunks: the bounds of the first key column in the file's row groups; None if they are unknown.
        """
        starts = _starts(chunks) if chunks is not None else []
        if chunks is None or len(starts) < 2:
            return cls([LookupFilePart(0, row_count)])
        rows = np.concatenate([[0], np.cumsum(chunks.row_count.to_numpy())]).tolist()
        stops = [*starts[1:], len(rows) - 1]
        parts = [
            LookupFilePart(rows[start], rows[stop] - rows[start], range(start, stop))
            for start, stop in zip(starts, stops, strict=True)
        ]
        first, last = chunks.minimum.take(pa.array(starts)), chunks.maximum.take(pa.array([stop - 1 for stop in stops]))
        return cls(parts, normalize_column(first, nullable=False), normalize_column(last, nullable=False))

    def of_keys(self, keys: Keys) -> Iterator[tuple[int, int, int]]:
        """Yield (number, start, stop) of each part that may contain keys: the keys from start to stop.

        A key of several columns may be in more than one part.
        """
        if self.first is None or self.last is None:
            yield 0, 0, len(keys)
            return
        of_keys = [normalize_column(keys.columns.column(0), nullable=False)]
        first, last, asked = align_keys([[self.first], [self.last], of_keys])
        starts = first_not_less(asked, first)
        stops = np.searchsorted(first_not_less(last, asked), np.arange(len(self.parts)), side="right")
        for number in np.flatnonzero(starts < stops).tolist():
            yield number, int(starts[number]), int(stops[number])

    def join_parts(self, numbers: range) -> LookupFilePart:
        """Join several consecutive parts to one."""
        first, last = self.parts[numbers[0]], self.parts[numbers[-1]]
        row_count = last.first_row + last.row_count - first.first_row
        if first.chunks is None or last.chunks is None:
            return LookupFilePart(first.first_row, row_count)
        return LookupFilePart(first.first_row, row_count, range(first.chunks.start, last.chunks.stop))


def _starts(chunks: ColumnBounds) -> list[int]:
    """Return the numbers of the row groups that start a part.

    Empty if bounds are unknown or overlap, or if the column has floats, because bounds don't include NaN.
    """
    if len(chunks.row_count) < 2 or pa.types.is_floating(chunks.minimum.type) or pa.types.is_null(chunks.minimum.type):
        return []
    if chunks.minimum.null_count or chunks.maximum.null_count:
        return []
    if not pc.all(pc.less_equal(chunks.maximum[:-1], chunks.minimum[1:])).as_py():
        return []
    starts, rows = [0], 0
    for number, count in enumerate(chunks.row_count.to_pylist()):
        if rows >= PART_ROWS:
            starts.append(number)
            rows = 0
        rows += count
    return starts
