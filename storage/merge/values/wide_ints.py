"""Converts integers, decimals, dates, times and timestamps of a column to whole numbers of 64 or 128 bits, and back.

A decimal becomes its unscaled value: 12.34 in DECIMAL(10, 2) is 1234. A date becomes its days, a timestamp its units.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.storage.merge.equal_keys import Groups, Mask
from tidelake.storage.model.types.arrow_buffers import fixed_width_values

_LOW_32_BITS = np.uint64(0xFFFFFFFF)


@dataclass(frozen=True, slots=True)
class WideInts:
    """(n,) numbers: high * 2**64 + low.

    low: the lower 64 bits. Signed if `high` is None.
    high: the upper 64 bits. None if all numbers fit 64 bits.
    """

    low: NDArray[Any]
    high: NDArray[np.int64] | None = None

    def __getitem__(self, which: NDArray[Any]) -> WideInts:
        return WideInts(self.low[which], None if self.high is None else self.high[which])

    def or_zero(self, mask: Mask) -> WideInts:
        """Return the numbers where `mask` is True, and 0 elsewhere."""
        high = None if self.high is None else np.where(mask, self.high, np.int64(0))
        return WideInts(np.where(mask, self.low, self.low.dtype.type(0)), high)

    def negated_where(self, mask: Mask) -> WideInts:
        """Negate some numbers.

        The least 64-bit number does not change (two's complement): check `magnitudes` before.
        """
        if self.high is None:
            return WideInts(np.where(mask, -self.low, self.low))
        low = np.where(mask, ~self.low + np.uint64(1), self.low)
        return WideInts(low, np.where(mask, ~self.high + (low == 0), self.high))

    def magnitudes(self) -> NDArray[np.float64]:
        """Return the absolute values, with a precision of about 15 digits."""
        if self.high is None:
            return np.abs(self.low.astype(np.float64))
        sizes: NDArray[np.float64] = np.abs(self.high * 2.0**64 + self.low)
        return sizes

    def greatest_magnitude(self) -> float:
        """Return the greatest of `magnitudes`. At least one number must exist."""
        if self.high is None:
            return float(max(-int(self.low.min()), int(self.low.max())))
        return float(self.magnitudes().max())

    def sums(self, groups: Groups) -> WideInts:
        """Return the sum of each group. The caller must ensure that no sum overflows."""
        if self.high is None:
            return WideInts(groups.reduce(np.add, self.low))
        first = groups.reduce(np.add, self.low & _LOW_32_BITS)  # 32 bits leave space for the carries of 2**32 rows
        second = groups.reduce(np.add, self.low >> np.uint64(32)) + (first >> np.uint64(32))
        high = groups.reduce(np.add, self.high) + (second >> np.uint64(32)).astype(np.int64)
        return WideInts(second << np.uint64(32) | first & _LOW_32_BITS, high)

    def to_ints(self) -> list[int]:
        if self.high is None:
            ints: list[int] = self.low.tolist()
            return ints
        return [(high << 64) + low for high, low in zip(self.high.tolist(), self.low.tolist(), strict=True)]

    def put(self, at: Mask, numbers: list[int]) -> None:
        """Overwrite the numbers where `at` is True, in place."""
        if self.high is None:
            self.low[at] = numbers
        else:
            self.low[at] = np.array([number % 2**64 for number in numbers], np.uint64)
            self.high[at] = [number >> 64 for number in numbers]


def is_integer_like(kind: pa.DataType) -> bool:
    """Return whether each value is a single 64-bit number."""
    if pa.types.is_decimal128(kind):
        return bool(kind.precision <= 18)
    return bool(pa.types.is_signed_integer(kind) or pa.types.is_temporal(kind))


def to_wide_ints(values: pa.Array) -> WideInts:
    """Convert integers, dates, times and timestamps of up to 64 bits, or decimal128. A null becomes 0."""
    kind = values.type
    if not pa.types.is_decimal128(kind):
        numbers = WideInts(fixed_width_values(values, np.dtype(f"i{kind.bit_width // 8}")).astype(np.int64))
    else:
        halves = fixed_width_values(values, np.int64).reshape(-1, 2)
        numbers = WideInts(halves[:, 0].copy())
        if kind.precision > 18:
            numbers = WideInts(numbers.low.view(np.uint64), halves[:, 1].copy())
    if values.null_count:
        is_null = values.is_null().to_numpy(zero_copy_only=False)
        for part in (numbers.low, numbers.high):
            if part is not None:
                part[is_null] = 0
    return numbers


def from_wide_ints(numbers: WideInts, valid: Mask, kind: pa.DataType) -> pa.Array:
    """Convert the numbers to a column of type `kind`, with null where `valid` is False."""
    if not pa.types.is_decimal128(kind):
        return pa.array(numbers.low.astype(np.dtype(f"i{kind.bit_width // 8}")), kind, mask=~valid)
    high = numbers.low >> 63 if numbers.high is None else numbers.high
    halves = np.stack((numbers.low.view(np.int64), high), axis=1)
    validity = pa.array(valid).buffers()[1]
    return pa.Array.from_buffers(kind, len(valid), [validity, pa.py_buffer(halves)])
