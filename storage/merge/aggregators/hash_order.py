"""The order in which Java's hash collections hand out what was put in: that of nested rows and distinct elements.

Nobody should rely on it. Yet with it, an array that Java merged and one that we merged are the same, and comparing two
tables needs no excuse.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from storage.arrow_buffers import fixed_width_values
from storage.binary_row import hash_bytes
from storage.merge.aggregators.unscaled import whole_numbers

_TICKS_PER_MILLI: Final = {"s": 0, "ms": 1, "us": 1_000, "ns": 1_000_000}


def in_hash_order(hashes: Sequence[int], most: int, *, newest_first: bool = False) -> list[int]:
    """Indices of the entries as `HashMap` and `HashSet` iterate over them.

    hashes: `hashCode()` of each, in the order they were put in. most: how many there were when the table last had
    occasion to grow. newest_first: they were put in by `computeIfAbsent`, which puts an entry before others of its bin.
    Eight and more entries in a bin, which Java keeps as a tree, would be another matter.
    """
    capacity = 16
    while most * 4 > capacity * 3:
        capacity *= 2
    bins = [(code ^ (code & 0xFFFFFFFF) >> 16) & (capacity - 1) for code in hashes]
    entries = range(len(bins))
    return sorted(reversed(entries) if newest_first else entries, key=bins.__getitem__)


def hash_codes(values: pa.Array) -> list[int]:
    """`hashCode()` of the objects that Paimon makes of values that hold no others; 0 for null. Not of bytes."""
    kind = values.type
    if pa.types.is_string(kind):
        codes: NDArray[Any] = hash_bytes(values)
    elif pa.types.is_boolean(kind):
        codes = np.where(values.fill_null(False).to_numpy(zero_copy_only=False), 1231, 1237)
    elif pa.types.is_decimal(kind):
        codes = np.array([_decimal_hash(number, kind.scale) for number in whole_numbers(values).to_ints()], np.int64)
    elif pa.types.is_timestamp(kind):
        ticks, per_milli = fixed_width_values(values, np.int64), _TICKS_PER_MILLI[kind.unit]
        millis = ticks // per_milli if per_milli >= 1 else ticks * 1000
        nanos = (ticks - millis * per_milli) * (1_000_000 // per_milli) if per_milli >= 1 else 0
        codes = _folded(millis) * 31 + nanos
    elif kind.bit_width < 64:
        codes = fixed_width_values(_with_one_nan(values), np.dtype(f"i{kind.bit_width // 8}"))
    else:
        codes = _folded(fixed_width_values(_with_one_nan(values), np.int64))
    hashes: list[int] = np.where(values.is_valid(), codes.astype(np.int64).astype(np.int32), 0).tolist()
    return hashes


def _folded(longs: NDArray[np.int64]) -> NDArray[np.int64]:
    """As `Long.hashCode`, in the lower 32 bits: the upper half onto the lower."""
    return longs ^ longs >> 32


def _with_one_nan(values: pa.Array) -> pa.Array:
    if not pa.types.is_floating(values.type):
        return values
    return pc.if_else(pc.is_nan(values), pa.scalar(float("nan"), values.type), values)


def _decimal_hash(unscaled: int, scale: int) -> int:
    """`BigDecimal.hashCode`, before it is cut to 32 bits."""
    code, rest = 0, abs(unscaled)
    for shift in range(96, -1, -32):
        code = (code * 31 + (rest >> shift & 0xFFFFFFFF)) & 0xFFFFFFFF
    return 31 * (-code if unscaled < 0 else code) + scale
