"""Hive's hash of rows, for tables with `bucket-function.type = hive`.

Source: Java `bucket/HiveHasher.java`, `bucket/HiveBucketFunction.java`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.errors import BadInput
from tidelake.storage.model.binary_row.row_layout import FIXED_WIDTH, ramp
from tidelake.storage.model.types import BINARY_ROOTS, STRING_ROOTS, AtomicType, DataType, Root
from tidelake.storage.model.types.arrow_buffers import (
    byte_ranges,
    check_form,
    fixed_width_values,
    null_mask,
    to_single_array,
)

Hashes = NDArray[np.uint32]

_BLOCK_ROWS: Final = 1 << 14
_NAN_BITS: Final = {Root.FLOAT: 0x7FC0_0000, Root.DOUBLE: 0x7FF8_0000_0000_0000}  # Java's single representation of NaN


def hive_hash_rows(columns: Sequence[pa.Array | pa.ChunkedArray], types: Sequence[DataType]) -> Hashes:
    """Return Hive's hash of each row: per field, 31 times the hash so far plus the value's hash, in 32 bits.

    The hash of null is 0.

    Raises BadInput for a value of a type that Hive's function does not support (timestamps, nested types).
    """
    rows = len(columns[0])
    blocks = []
    for start in range(0, rows, _BLOCK_ROWS):
        hashes = np.zeros(1, np.uint32)
        for column, data_type in zip(columns, types, strict=True):
            hashes = hashes * np.uint32(31) + _hash(to_single_array(column.slice(start, _BLOCK_ROWS)), data_type)
        blocks.append(hashes)
    return np.concatenate(blocks) if blocks else np.zeros(0, np.uint32)


def _hash(column: pa.Array, data_type: DataType) -> Hashes:
    if column.null_count == len(column):
        return np.zeros(len(column), np.uint32)
    hashes = _value_hash(column, data_type)
    nulls = null_mask(column)
    return hashes if nulls is None else np.where(nulls, np.uint32(0), hashes)


def _value_hash(column: pa.Array, data_type: DataType) -> Hashes:
    """Return the hash of each value; arbitrary for nulls."""
    check_form(column, data_type)
    root = data_type.root
    if root in STRING_ROOTS or root in BINARY_ROOTS:
        return _hash_bytes(column)
    if isinstance(data_type, AtomicType):
        match root:
            case Root.BOOLEAN:
                return fixed_width_values(column.cast(pa.uint8()), np.uint8).astype(np.uint32)
            case Root.TINYINT | Root.SMALLINT | Root.INT | Root.DATE | Root.TIME:
                return fixed_width_values(column, f"i{FIXED_WIDTH[root]}").astype(np.int32).view(np.uint32)
            case Root.BIGINT:
                return _folded(fixed_width_values(column, np.uint64))
            case Root.FLOAT:
                return _float_bits(fixed_width_values(column, np.float32), np.uint32, _NAN_BITS[root])
            case Root.DOUBLE:
                return _folded(_float_bits(fixed_width_values(column, np.float64), np.uint64, _NAN_BITS[root]))
            case Root.DECIMAL:
                return _hash_decimals(fixed_width_values(column, np.uint64).reshape(-1, 2), data_type.scale)
    raise BadInput(
        f"bucket-function.type = hive does not support values of type {data_type}; choose another bucket-key"
    )


def _folded(words: NDArray[np.uint64]) -> Hashes:
    return (words ^ (words >> np.uint64(32))).astype(np.uint32)


def _float_bits(values: NDArray[Any], bits_type: Any, nan_bits: int) -> NDArray[Any]:
    """Return the bits of each number, with -0.0 as 0.0."""
    bits: NDArray[Any] = np.where(values == 0, bits_type(0), values.view(bits_type))
    bits[np.isnan(values)] = nan_bits
    return bits


def _hash_bytes(column: pa.Array) -> Hashes:
    """Return for each value: for each signed byte, 31 times the hash so far plus the byte.

    This is the sum of the bytes times powers of 31.
    """
    data, starts, lengths = byte_ranges(column)
    numbers = ramp(lengths)
    content = data.data[np.repeat(starts, lengths) + numbers].view(np.int8).astype(np.int32).view(np.uint32)
    powers = np.full(int(lengths.max()) + 1, 31, np.uint32)
    powers[0] = 1
    powers = np.cumprod(powers, dtype=np.uint32)
    terms = content * powers[np.repeat(lengths, lengths) - 1 - numbers]
    sums = np.concatenate([np.zeros(1, np.uint32), np.cumsum(terms, dtype=np.uint32)])
    ends = np.cumsum(lengths)
    hashes: Hashes = sums[ends] - sums[ends - lengths]  # the difference is right modulo 2^32, even after overflows
    return hashes


def _hash_decimals(pairs: NDArray[np.uint64], scale: int) -> Hashes:
    """Return Java's `BigDecimal.hashCode` without trailing zeros of the fraction.

    pairs (n, 2): low and high half of 128 bits.
    """
    low, high = pairs[:, 0], pairs[:, 1]
    negative = high >> np.uint64(63) != 0
    low, high = np.where(negative, ~low + np.uint64(1), low), np.where(negative, ~high + (low == 0), high)
    half = np.uint64(32)
    limbs = np.stack([high >> half, high & np.uint64(0xFFFF_FFFF), low >> half, low & np.uint64(0xFFFF_FFFF)])
    scales = np.where(limbs.any(axis=0), scale, 0)
    rows = np.flatnonzero(scales)
    while len(rows):
        quotients, remainders = _divided_by_ten(limbs[:, rows])
        divisible = remainders == 0
        rows = rows[divisible]
        limbs[:, rows] = quotients[:, divisible]
        scales[rows] -= 1
        rows = rows[scales[rows] > 0]
    magnitude = np.zeros(len(pairs), np.uint32)
    for limb in limbs:
        magnitude = magnitude * np.uint32(31) + limb.astype(np.uint32)
    signed = np.where(negative, ~magnitude + np.uint32(1), magnitude)
    return signed * np.uint32(31) + scales.astype(np.uint32)


def _divided_by_ten(limbs: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Divide by ten. Returns the quotients (4, n) and remainders (n,).

    limbs (4, n): 32 bits each, highest first.
    """
    quotients = np.empty_like(limbs)
    remainders = np.zeros(limbs.shape[1], np.uint64)
    for quotient, limb in zip(quotients, limbs, strict=True):
        quotient[:], remainders = np.divmod((remainders << np.uint64(32)) | limb, np.uint64(10))
    return quotients, remainders
