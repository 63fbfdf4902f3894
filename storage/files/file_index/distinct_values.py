"""Collects the distinct values of a column in order, and the value of each row, to make bitmaps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyroaring import BitMap

from tidelake.storage.files.file_index.indexed_values import binary_values, in_order, is_text, numbers, stored_numbers
from tidelake.storage.model.types import AtomicType

_RADIX_SORT_MAX = 65_535  # 16-bit numbers are sorted without comparisons


@dataclass(frozen=True)
class DistinctValues:
    """The d distinct values of a column with n rows.

    data_type: the type of the column.
    numbers (d,): the result of `in_order`, ascending; None for texts.
    stored (d,): the bytes of each value, as large binary, for numbers and texts.
    codes (n,): the number of each row's value, -1 for null.
    """

    data_type: AtomicType
    numbers: NDArray[np.int64] | None
    stored: pa.Array
    codes: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.stored)

    def rows(self) -> RowsByValue:
        codes = self.codes + 1
        if len(self) < _RADIX_SORT_MAX:
            codes = codes.astype(np.uint16)
        counts = np.bincount(codes, minlength=len(self) + 1)
        positions = np.argsort(codes, kind="stable").astype(np.uint32)
        return RowsByValue(positions, np.cumsum(counts), counts)


@dataclass(frozen=True, slots=True)
class RowsByValue:
    """The rows of null, then of each value.

    positions: the rows. Those of number i end at `ends[i]`.
    ends: the end of each number's rows in `positions`.
    counts: how many rows each number has.
    """

    positions: NDArray[np.uint32]
    ends: NDArray[np.int64]
    counts: NDArray[np.int64]

    def of(self, number: int) -> BitMap:
        """Return the null rows for 0, and the rows of the i-th value for i, counted from 1."""
        return BitMap(self.positions[self.ends[number] - self.counts[number] : self.ends[number]])

    @property
    def first_rows(self) -> NDArray[np.int64]:
        """The first row of each value."""
        firsts: NDArray[np.uint32] = self.positions[(self.ends - self.counts)[1:]]
        return firsts.astype(np.int64)


class DistinctValuesCollector:
    """Collects distinct values batch by batch. Needs four bytes per row, and keeps each value once per batch."""

    def __init__(self, data_type: AtomicType) -> None:
        self._data_type = data_type
        self._kind = pa.large_binary() if is_text(data_type) else pa.int64()
        self._parts: list[pa.DictionaryArray] = []

    def add(self, column: pa.Array) -> None:
        if is_text(self._data_type):
            values = binary_values(column)
        else:
            ordered = in_order(numbers(column, self._data_type), self._data_type)
            nulls = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
            values = pa.array(ordered, self._kind, mask=nulls)
        self._parts.append(values.dictionary_encode())

    def finish(self) -> DistinctValues:
        kind = pa.dictionary(pa.int32(), self._kind)
        whole = pa.chunked_array(self._parts, kind).unify_dictionaries().combine_chunks()
        whole = whole if isinstance(whole, pa.DictionaryArray) else pa.concat_arrays(whole.chunks)
        order = pc.sort_indices(whole.dictionary).to_numpy()
        values = whole.dictionary.take(pa.array(order))
        ranks = np.empty(len(order) + 1, np.int32)
        ranks[order] = np.arange(len(order))
        ranks[-1] = -1
        codes = ranks[whole.indices.fill_null(-1).to_numpy(zero_copy_only=False)]
        if is_text(self._data_type):
            return DistinctValues(self._data_type, None, values, codes)
        ordered = values.to_numpy()
        stored = _fixed_binary(stored_numbers(in_order(ordered, self._data_type), self._data_type))
        return DistinctValues(self._data_type, ordered, stored, codes)


def _fixed_binary(data: NDArray[np.uint8]) -> pa.Array:
    """Convert (n, width) bytes to large binary."""
    offsets = np.arange(len(data) + 1, dtype=np.int64) * data.shape[1]
    return pa.Array.from_buffers(
        pa.large_binary(),
        len(data),
        [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data))],
    )


def joined(*columns: pa.Array) -> pa.Array:
    """(n,): large binary with the concatenated bytes of each row of the columns."""
    return pc.binary_join_element_wise(*columns, pa.scalar(b"", pa.large_binary()))


def big_endian(values: NDArray[np.int64]) -> pa.Array:
    """(n,): large binary with 32 bits each."""
    return _fixed_binary(values.astype(">i4").view(np.uint8).reshape(len(values), 4))


def with_lengths(texts: pa.Array) -> pa.Array:
    """(n,): large binary with a length of 32 bits, then the text."""
    return joined(big_endian(pc.binary_length(texts).to_numpy(zero_copy_only=False)), texts)


def content(rows: pa.Array) -> tuple[bytes, NDArray[np.int64]]:
    """Return all bytes of large binary rows, and the offset where each row begins and where the last one ends."""
    if not len(rows):
        return b"", np.zeros(1, np.int64)
    offsets = np.frombuffer(rows.buffers()[1], np.int64)[rows.offset : rows.offset + len(rows) + 1]
    data = rows.buffers()[2]
    whole = b"" if data is None else data.to_pybytes()[offsets[0] : offsets[-1]]
    return whole, offsets - offsets[0]
