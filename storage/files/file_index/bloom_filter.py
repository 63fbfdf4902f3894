"""Bloom filters: they tell whether a value may be in a column.

    number of hash functions   4 bytes, big-endian
    bits                       the lowest bit of a byte first

Source: Java `fileindex/bloomfilter/BloomFilterFileIndex.java`, `utils/BloomFilter64.java`.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray
from pyroaring import BitMap

from tidelake.storage.files.file_index.column_index import Answer
from tidelake.storage.files.file_index.indexed_values import is_text, literal_bytes, numbers
from tidelake.storage.files.file_index.value_hashes import hash_numbers, hash_text_blocks
from tidelake.storage.model.types import AtomicType

_HASH_FUNCTIONS: Final = struct.Struct(">i")
_BLOCK_ROWS: Final = 8_192
_FEW_VALUES: Final = 8  # for so few values NumPy is slower


def bit_count(items: int, false_positives: float) -> int:
    """Return the number of bits of a filter.

    items: the number of distinct values.
    false_positives: the share of absent values that the filter reports as present.
    """
    raw = int(-items * math.log(false_positives) / (math.log(2) * math.log(2)))
    return raw + (8 - raw % 8)


def hash_function_count(items: int, bits: int) -> int:
    return max(1, math.floor(bits / items * math.log(2) + 0.5))


class BloomFilterWriter:
    """See `IndexWriter`. Nulls are not indexed."""

    def __init__(self, data_type: AtomicType, items: int, false_positives: float) -> None:
        bits = bit_count(items, false_positives)
        self._data_type = data_type
        self._hash_functions = hash_function_count(items, bits)
        self._is_set = np.zeros(bits, np.bool_)

    def add(self, column: pa.Array) -> None:
        for hashes in _hash_blocks(column.drop_null() if column.null_count else column, self._data_type):
            for positions in _positions(hashes, self._hash_functions, len(self._is_set)):
                self._is_set[positions.astype(np.intp)] = True  # NumPy casts other index types in small parts

    def finish(self) -> bytes:
        return _HASH_FUNCTIONS.pack(self._hash_functions) + np.packbits(self._is_set, bitorder="little").tobytes()


class BloomFilterIndex:
    """See `ColumnIndex`. It knows no single rows, so an answer is empty or None.

    Raises ValueError for invalid bytes.
    """

    def __init__(self, data: bytes, data_type: AtomicType) -> None:
        if len(data) <= _HASH_FUNCTIONS.size:
            raise ValueError(f"a Bloom filter of {len(data)} bytes")
        (self._hash_functions,) = _HASH_FUNCTIONS.unpack_from(data)
        self._bits = np.frombuffer(data, np.uint8, offset=_HASH_FUNCTIONS.size)
        self._data = data
        self._data_type = data_type

    def any_of(self, values: pa.Array) -> Answer:
        if len(values) <= _FEW_VALUES:
            bits = 8 * len(self._bits)
            for positions in _bit_positions(values, self._data_type, self._hash_functions, bits):
                if all(self._data[_HASH_FUNCTIONS.size + (at >> 3)] >> (at & 7) & 1 for at in positions):
                    return None
            return BitMap()
        for hashes in _hash_blocks(values, self._data_type):
            maybe = np.ones(len(hashes), np.bool_)
            for at in _positions(hashes, self._hash_functions, 8 * len(self._bits)):
                maybe &= (self._bits[at >> 3] >> (at & 7).astype(np.uint8)) & 1 == 1
            if maybe.any():
                return None
        return BitMap()

    def none_of(self, values: pa.Array) -> Answer:
        return None

    def compare(self, operator: str, value: pa.Array) -> Answer:
        return None

    def is_null(self) -> Answer:
        return None

    def is_not_null(self) -> Answer:
        return None


def _hash_blocks(values: pa.Array, data_type: AtomicType) -> Iterator[NDArray[np.int64]]:
    """Yield the hashes of all values, in any order, in blocks that fit the processor's cache."""
    if is_text(data_type):
        for _, hashes in hash_text_blocks(values):
            yield hashes
    else:
        for start in range(0, len(values), _BLOCK_ROWS):
            yield hash_numbers(numbers(values.slice(start, _BLOCK_ROWS), data_type))


@lru_cache(maxsize=1024)
def _positions_of(value: int, functions: int, bits: int) -> tuple[int, ...]:
    """Return the bits of one hash. Cached, because a scan looks up the same value in many files."""
    return tuple(int(at[0]) for at in _positions(np.array([value], np.int64), functions, bits))


def _bit_positions(values: pa.Array, data_type: AtomicType, functions: int, bits: int) -> Iterator[tuple[int, ...]]:
    """Return the bits of each value's hashes."""
    if is_text(data_type):
        hashes = [xxhash.xxh64_intdigest(text) for text in literal_bytes(values)]
        hashes = [value - (value >> 63 << 64) for value in hashes]
    else:
        hashes = [_hash_of_number(number) for number in numbers(values, data_type).tolist()]
    return (_positions_of(value, functions, bits) for value in hashes)


@lru_cache(maxsize=1024)
def _hash_of_number(number: int) -> int:
    return int(hash_numbers(np.array([number], np.int64))[0])


def _positions(hashes: NDArray[np.int64], functions: int, bits: int) -> list[NDArray[np.int32]]:
    """Return for each hash function the (n,) bits. Sums wrap at 32 bits, like in Java."""
    low, high = hashes.astype(np.int32), (hashes >> 32).astype(np.int32)
    found = []
    for _ in range(functions):
        low += high
        combined = low ^ (low >> 31)  # ~low if it is negative
        whole = combined // np.int32(bits)  # `%` has no fast path for one divisor
        whole *= np.int32(bits)
        combined -= whole
        found.append(combined)
    return found
