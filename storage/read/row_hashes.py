"""Computes a 64-bit hash for each row: equal rows have equal hashes, different rows almost never.

`tidelake.storage.merge.values.equality` defines equality: null equals null, NaN equals NaN, -0.0 differs from 0.0, and
maps have no order.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidelake.storage.files.file_index.value_hashes import hash_numbers, hash_texts
from tidelake.storage.model.types.arrow_buffers import fixed_width_values

Hashes = NDArray[np.uint64]

_NULL: Final = np.uint64(0x9E3779B97F4A7C15)
_COLUMN_FACTOR: Final = np.uint64(0xD6E8FEB86659FD93)  # an odd factor, so that the order of columns matters


def row_hashes(columns: Iterable[pa.Array], count: int) -> Hashes:
    """Return hashes (n,), for n = count rows. The same values in other columns give another hash."""
    hashes = np.zeros(count, np.uint64)
    for column in columns:
        hashes = _mixed(hashes * _COLUMN_FACTOR + _value_hashes(column))
    return hashes


def _value_hashes(column: pa.Array) -> Hashes:
    """Return hashes (n,)."""
    hashes = _hashes_of_present(column)
    if column.null_count:
        hashes[column.is_null().to_numpy(zero_copy_only=False)] = _NULL
    return hashes


def _hashes_of_present(column: pa.Array) -> Hashes:
    """Return hashes (n,), with any value for nulls."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return hash_texts(column).view(np.uint64)
    if pa.types.is_struct(kind):
        return row_hashes(column.flatten(), len(column))
    if pa.types.is_map(kind):
        return _sums(row_hashes([column.keys, column.items], len(column.keys)), column.offsets)
    if pa.types.is_fixed_size_list(kind):
        column = column.cast(pa.list_(kind.value_field))
    if pa.types.is_list(column.type):
        return _sums(_by_place(_value_hashes(column.values), column.offsets), column.offsets)
    if pa.types.is_boolean(kind):
        return _mixed(column.fill_null(False).cast(pa.int8()).to_numpy().astype(np.int64))
    if pa.types.is_floating(kind):
        column = pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), kind), column)  # NaN has many bit patterns
    if pa.types.is_decimal128(kind):
        low, high = fixed_width_values(column, np.int64).reshape(-1, 2).T
        return _mixed(_mixed(low) * _COLUMN_FACTOR + high.view(np.uint64))
    return _mixed(fixed_width_values(column, np.dtype(f"i{kind.bit_width // 8}")).astype(np.int64))


def _mixed(numbers: NDArray[np.int64] | Hashes) -> Hashes:
    return hash_numbers(np.ascontiguousarray(numbers).view(np.int64)).view(np.uint64)


def _by_place(hashes: Hashes, offsets: pa.Array) -> Hashes:
    """Return hashes of list elements that depend on their positions."""
    starts = offsets.to_numpy()
    places = np.arange(len(hashes))
    inside = slice(int(starts[0]), int(starts[-1])) if len(starts) else slice(0)
    places[inside] -= np.repeat(starts[:-1], np.diff(starts))
    return _mixed(hashes + places.astype(np.uint64) * _COLUMN_FACTOR)


def _sums(hashes: Hashes, offsets: pa.Array) -> Hashes:
    """Return a hash for each list, of its elements in any order and their number."""
    until = np.concatenate([np.zeros(1, np.uint64), np.cumsum(hashes, dtype=np.uint64)])
    starts = offsets.to_numpy()
    lengths = np.diff(starts).astype(np.uint64)
    return _mixed((until[starts[1:]] - until[starts[:-1]]) * _COLUMN_FACTOR + lengths)
