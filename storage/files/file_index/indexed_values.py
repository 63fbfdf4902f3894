"""Converts the values of a column to the form of indexes: 64-bit numbers, or bytes.

    TINYINT … BIGINT, DATE, TIME, BOOLEAN   the number
    DECIMAL                                 the unscaled number, if it fits 64 bits
    TIMESTAMP                               milliseconds; microseconds if more than three digits (more are truncated)
    FLOAT, DOUBLE                           the bits of IEEE 754, with one NaN
    CHAR, VARCHAR, BINARY, VARBINARY        the bytes

Source: Java `fileindex/bitmap/BitmapTypeVisitor.java`, `fileindex/bloomfilter/FastHash.java`,
`fileindex/rangebitmap/dictionary/chunked/KeyFactory.java`.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.storage.model.types import BINARY_ROOTS, STRING_ROOTS, TIMESTAMP_ROOTS, AtomicType, DataType, Root
from tidelake.storage.model.types.arrow_buffers import fixed_width_values

FLOAT_ROOTS: Final = frozenset({Root.FLOAT, Root.DOUBLE})
MICROSECOND_DIGITS: Final = 6
LONG_DECIMAL_DIGITS: Final = 18  # every DECIMAL of up to 18 digits fits 64 bits
_INTEGERS: Final = {
    Root.TINYINT: np.int8,
    Root.SMALLINT: np.int16,
    Root.INT: np.int32,
    Root.BIGINT: np.int64,
    Root.DATE: np.int32,
    Root.TIME: np.int32,
}
_WIDTHS: Final = {Root.BOOLEAN: 1, Root.TINYINT: 1, Root.SMALLINT: 2, Root.FLOAT: 4, Root.INT: 4} | dict.fromkeys(
    (Root.DATE, Root.TIME), 4
)
_NAN_BITS: Final = {Root.FLOAT: 0x7FC00000, Root.DOUBLE: 0x7FF8000000000000}
_MAGNITUDE: Final = {Root.FLOAT: 0x7FFFFFFF, Root.DOUBLE: 0x7FFFFFFFFFFFFFFF}  # all bits but the sign


def is_text(data_type: DataType) -> bool:
    """Return whether the values of the type are bytes, not numbers."""
    return data_type.root in STRING_ROOTS or data_type.root in BINARY_ROOTS


def numbers(column: pa.Array, data_type: AtomicType) -> NDArray[np.int64]:
    """(n,): a number for each row; arbitrary for nulls."""
    root = data_type.root
    if root is Root.BOOLEAN:
        bits: NDArray[np.int8] = column.cast(pa.int8()).fill_null(0).to_numpy(zero_copy_only=False)
        return bits.astype(np.int64)
    if root in _INTEGERS:
        return fixed_width_values(column, _INTEGERS[root]).astype(np.int64)
    if root is Root.DECIMAL:
        words: NDArray[np.int64] = fixed_width_values(column, np.int64)
        return words[::2].copy()  # the lower half of each 128 bits
    if root in FLOAT_ROOTS:
        return _float_bits(column, root)
    assert root in TIMESTAMP_ROOTS, f"{data_type} has no number"
    ticks: NDArray[np.int64] = fixed_width_values(column, np.int64)
    if data_type.precision == 0:
        return ticks * 1000
    return ticks // 1000 if data_type.precision > MICROSECOND_DIGITS else ticks.copy()


def _float_bits(column: pa.Array, root: Root) -> NDArray[np.int64]:
    kind: Any = np.float32 if root is Root.FLOAT else np.float64
    values = fixed_width_values(column, kind)
    bits = values.view(np.int32 if root is Root.FLOAT else np.int64).astype(np.int64)
    bits[np.isnan(values)] = _NAN_BITS[root]
    return bits


def is_cut_off(data_type: AtomicType) -> bool:
    """Return whether different values may have the same number: times finer than a microsecond."""
    return data_type.root in TIMESTAMP_ROOTS and data_type.precision > MICROSECOND_DIGITS


def width_bytes(data_type: DataType) -> int:
    """Return the width of a number in an index that stores values unchanged."""
    return _WIDTHS.get(data_type.root, 8)


def in_order(bits: NDArray[np.int64], data_type: DataType) -> NDArray[np.int64]:
    """Convert numbers so that their order is Java's order of the values: -0.0 before 0.0, and NaN last.

    A second call on the result returns the original numbers.
    """
    if data_type.root not in FLOAT_ROOTS:
        return bits
    return np.where(bits < 0, bits ^ _MAGNITUDE[data_type.root], bits)


def stored_numbers(values: NDArray[np.int64], data_type: DataType) -> NDArray[np.uint8]:
    """(n, width): the bytes of each number, big-endian."""
    width = width_bytes(data_type)
    stored = values.astype(f">i{width}")
    return stored.view(np.uint8).reshape(len(values), width)


def binary_values(column: pa.Array) -> pa.Array:
    """Convert texts and bytes to large binary, because all together may have more than 2 GiB."""
    kind = pa.binary() if pa.types.is_string(column.type) or pa.types.is_binary(column.type) else pa.large_binary()
    return column.cast(kind).cast(pa.large_binary())


def literal_numbers(values: pa.Array, data_type: AtomicType) -> list[int]:
    """Return the numbers of a condition's constants. None of them is null."""
    plain: list[int] = in_order(numbers(values, data_type), data_type).tolist()
    return plain


def literal_bytes(values: pa.Array) -> list[bytes]:
    plain: list[bytes] = binary_values(values).to_pylist()
    return plain
