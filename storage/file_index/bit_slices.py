"""Numbers of rows as bitmaps, one a bit: slice i holds the rows whose number has bit i.

Comparing is O'Neil and Quass's algorithm: from the highest bit down, rows part from the constant at the first bit in
which they differ.

Source: Java `utils/BitSliceIndexRoaringBitmap.java`, `fileindex/rangebitmap/BitSliceIndexBitmap.java`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap


def slices_of(numbers: NDArray[np.int64], positions: NDArray[np.uint32], count: int) -> list[BitMap]:
    """The lowest `count` bits of numbers that are not negative, at their rows."""
    return [BitMap(positions[(numbers >> bit) & 1 == 1]) for bit in range(count)]


@dataclass(frozen=True, slots=True)
class BitSlices:
    """present: rows that have a number.
    slice_count: bits of the largest number.
    slice_at: the rows with bit i, read when they are needed.
    """

    present: BitMap
    slice_count: int
    slice_at: Callable[[int], BitMap]

    def less(self, number: int) -> BitMap:
        """Rows whose number is less. number: >= 0."""
        return self._parted(number)[0]

    def equal(self, number: int) -> BitMap:
        return self._parted(number)[1]

    def greater(self, number: int) -> BitMap:
        less, equal = self._parted(number)
        return self.present - less - equal

    def _parted(self, number: int) -> tuple[BitMap, BitMap]:
        """Rows with a smaller number, and with this one."""
        if number < 0:
            return BitMap(), BitMap()
        if number >> self.slice_count:
            return self.present.copy(), BitMap()
        less, equal = BitMap(), self.present.copy()
        for bit in reversed(range(self.slice_count)):
            if not equal:
                break
            if number >> bit & 1:
                less |= equal - self.slice_at(bit)
                equal &= self.slice_at(bit)
            else:
                equal -= self.slice_at(bit)
        return less, equal
