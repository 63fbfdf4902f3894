"""Accesses the buffers of Arrow arrays as NumPy arrays."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidelake.errors import BadInput
from tidelake.storage.model.types.arrow_types import arrow_type
from tidelake.storage.model.types.data_types import BINARY_ROOTS, STRING_ROOTS, DataType

_STRING_FORMS: Final = frozenset({pa.string(), pa.binary(), pa.large_string(), pa.large_binary()})
_FIRST_BYTES: Final = np.array([(1 << 8 * count) - 1 for count in range(9)], np.uint64)  # masks of 0 to 8 bytes


def to_single_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        return pa.concat_arrays(column.chunks) if column.chunks else pa.array([], column.type)
    return column


def check_form(column: pa.Array, data_type: DataType) -> None:
    """Raise BadInput unless the column is in the in-memory form of its type. Large strings and binaries are allowed."""
    is_string = data_type.root in STRING_ROOTS or data_type.root in BINARY_ROOTS
    if not (column.type in _STRING_FORMS if is_string else column.type == arrow_type(data_type)):
        raise BadInput(
            f"a column of Arrow type {column.type} can't be read as {data_type}; cast it to {arrow_type(data_type)} "
            "first"
        )


def null_mask(column: pa.Array) -> NDArray[np.bool_] | None:
    """Return True for each null; None if the column has no nulls."""
    return column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None


def fixed_width_values(column: pa.Array, dtype: Any) -> NDArray[Any]:
    """Return the values as they are in memory, `column.type.byte_width` bytes each. Values of nulls are arbitrary."""
    buffer = column.buffers()[1]
    if buffer is None or not len(column):
        return np.zeros(0, dtype)
    size = column.type.bit_width // 8 // np.dtype(dtype).itemsize
    return np.frombuffer(buffer, dtype)[column.offset * size : (column.offset + len(column)) * size]


def is_ascii(texts: pa.Array) -> bool:
    """Return whether no byte of a string column is above 127. Several times as fast as a check of UTF-8."""
    _, offsets, data = texts.buffers()
    if data is None or not len(texts):
        return True
    first, last = np.frombuffer(offsets, np.int32)[[texts.offset, texts.offset + len(texts)]]
    used = np.frombuffer(data, np.uint8)[first:last]
    return not len(used) or int(used.max()) < 128


def text_buffers(column: pa.Array) -> tuple[NDArray[np.integer[Any]], pa.Buffer]:
    """Return the offsets (n + 1,) of a string or binary column (n,), and the bytes that they point into."""
    large = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    _, offsets, data = column.buffers()
    if offsets is None or not offsets.size:
        return np.zeros(1, np.int32), pa.py_buffer(b"")
    all_offsets: NDArray[np.integer[Any]] = np.frombuffer(offsets, np.int64 if large else np.int32)
    return all_offsets[column.offset : column.offset + len(column) + 1], pa.py_buffer(b"") if data is None else data


def value_lengths(column: pa.Array) -> NDArray[np.integer[Any]]:
    """Return the bytes of each value (n,) of a string or binary column; 0 for nulls."""
    lengths = pc.binary_length(column)
    found: NDArray[np.integer[Any]] = (lengths.fill_null(0) if lengths.null_count else lengths).to_numpy()
    return found


class PaddedBytes:
    """Bytes that can be read eight at a time, at any position."""

    def __init__(self, data: NDArray[np.uint8], *, has_room: bool = False) -> None:
        """Copy `data` with padding, so that eight bytes can be read at its last position.

        has_room: `data` ends with eight bytes of padding already, and is not copied.
        """
        if has_room:
            self.data = data
        else:
            self.data = np.zeros(len(data) + 8, np.uint8)
            self.data[: len(data)] = data
        self._eight_from = np.ndarray((len(self.data) - 7,), "<u8", self.data, strides=(1,))

    def load(self, at: NDArray[np.int64], count: NDArray[np.int64] | int) -> NDArray[np.uint64]:
        """Return little-endian words: `count` bytes from each position, zeros above. Counts are clipped to 0 to 8."""
        words: NDArray[np.uint64] = self._eight_from[at]
        if isinstance(count, int):
            return words if count >= 8 else words & _FIRST_BYTES[max(0, count)]
        words &= _FIRST_BYTES[np.clip(count, 0, 8)]
        return words


def byte_ranges(column: pa.Array) -> tuple[PaddedBytes, NDArray[np.int64], NDArray[np.int64]]:
    """Return the values of a string or binary column: the bytes, each value's start, and its length (0 for nulls)."""
    large = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    _, offset_buffer, data_buffer = column.buffers()
    if not len(column) or data_buffer is None:
        nothing = np.zeros(len(column), np.int64)
        return PaddedBytes(np.zeros(0, np.uint8)), nothing, nothing
    all_offsets: NDArray[Any] = np.frombuffer(offset_buffer, np.int64 if large else np.int32)
    offsets = all_offsets[column.offset : column.offset + len(column) + 1].astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    starts, lengths = offsets[:-1], offsets[1:] - offsets[:-1]
    nulls = null_mask(column)
    if nulls is not None:
        lengths[nulls] = 0  # Arrow allows a null to have bytes
    whole = np.frombuffer(data_buffer, np.uint8)
    if last + 8 <= len(whole):
        return PaddedBytes(whole[first : last + 8], has_room=True), starts - first, lengths
    return PaddedBytes(whole[first:last]), starts - first, lengths
