"""Stores the numbers of rows as bitmaps, one per bit: slice i contains the rows whose number has bit i.

Numbers are compared with the algorithm of O'Neil and Quass, from the highest bit down. The first bit in which a row
differs from the constant decides.

Source: Java `utils/BitSliceIndexRoaringBitmap.java`, `fileindex/rangebitmap/BitSliceIndexBitmap.java`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap


def slices_of(numbers: NDArray[np.int64], positions: NDArray[np.uint32], count: int) -> list[BitMap]:
    """Return the slices of the lowest `count` bits.

    numbers (n,): numbers that are not negative.
    positions (n,): the rows of the numbers.
    """
    return [BitMap(positions[(numbers >> bit) & 1 == 1]) for bit in range(count)]


@dataclass(frozen=True, slots=True)
class BitSlices:
    """The numbers of rows, as slices.

    present: the rows that have a number.
    slice_count: the number of bits of the largest number.
    slice_at: returns the rows with bit i. Slices are read when they are needed.
    """

    present: BitMap
    slice_count: int
    slice_at: Callable[[int], BitMap]

    def less(self, number: int) -> BitMap:
        """Return the rows whose number is less."""
        return self._less_and_equal(number)[0]

    def equal(self, number: int) -> BitMap:
        return self._less_and_equal(number)[1]

    def greater(self, number: int) -> BitMap:
        less, equal = self._less_and_equal(number)
        return self.present - less - equal

    def _less_and_equal(self, number: int) -> tuple[BitMap, BitMap]:
        """Return the rows with a smaller number, and the rows with this number."""
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
