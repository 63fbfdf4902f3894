"""The dictionary of a range bitmap: distinct values in order, in chunks, so that a search reads only a few values.

    13            4 bytes: the length of the next four fields
    version       1 byte, 1
    chunks        4 bytes: the number of chunks
    offsets       4 bytes: the length of the offsets of the chunks' heads, 4 bytes per chunk
    heads         4 bytes: the length of the heads
    offsets, heads, further values
    head          version 1 byte, 1; first value; the number of that value, the offset of the chunk's further values,
                  and how many these are, 4 bytes each. Then for texts: length of their offsets 4 bytes, length of the
                  texts 4 bytes. For numbers: length of all numbers 4 bytes, length of one number 4 bytes

Further values are consecutive numbers, or the offsets of texts, 4 bytes each, and then the texts. All numbers are
big-endian.

Source: Java `fileindex/rangebitmap/dictionary/chunked/ChunkedDictionary.java`, `FixedLengthChunk.java`,
`VariableLengthChunk.java`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tidelake.storage.files.file_index.distinct_values import DistinctValues, content, with_lengths
from tidelake.storage.files.file_index.indexed_values import is_text, width_bytes
from tidelake.storage.files.file_index.key_bytes import Key, KeyReader
from tidelake.storage.model.types import AtomicType

_VERSION: Final = 1
_INT: Final = struct.Struct(">i")
_HEAD: Final = struct.Struct(">ibiii")
_HEAD_LENGTH: Final = 13
_CHUNK_PLACE: Final = struct.Struct(">iiiii")  # code, offset, further values, and two lengths


def dictionary_bytes(values: DistinctValues, chunk_size_bytes: int) -> bytes:
    """Return a dictionary.

    chunk_size_bytes: the maximum size of a chunk's further values; for texts also of their offsets.
    """
    texts = is_text(values.data_type)
    data, bounds = content(with_lengths(values.stored) if texts else values.stored)
    width = width_bytes(values.data_type)
    heads: list[bytes] = []
    keys: list[bytes] = []
    keys_length = 0
    for first, end in _chunks(bounds, chunk_size_bytes, texts):
        further = data[bounds[first + 1] : bounds[end]]
        offsets = (bounds[first + 1 : end] - bounds[first + 1]).astype(">i4").tobytes() if texts else b""
        count = end - first - 1
        lengths = (len(offsets), len(further)) if texts else (len(further), width)
        place = _CHUNK_PLACE.pack(first, keys_length, count, *lengths)
        heads.append(bytes([_VERSION]) + data[bounds[first] : bounds[first + 1]] + place)
        keys += [offsets, further]
        keys_length += len(offsets) + len(further)
    starts = np.cumsum([0, *map(len, heads)])
    directory = starts[:-1].astype(">i4").tobytes()
    head = _HEAD.pack(_HEAD_LENGTH, _VERSION, len(heads), len(directory), int(starts[-1]))
    return b"".join([head, directory, *heads, *keys])


def _chunks(bounds: NDArray[np.int64], chunk_size_bytes: int, texts: bool) -> Iterator[tuple[int, int]]:
    """Yield a range of values for each chunk. The first value is stored in the head, the others are further values."""
    count = len(bounds) - 1
    first = 0
    while first < count:
        fitting = int(np.searchsorted(bounds, bounds[first + 1] + chunk_size_bytes, side="right")) - 1
        if texts:
            fitting = min(fitting, first + 1 + chunk_size_bytes // _INT.size)
        end = min(count, max(fitting, first + 1))
        yield first, end
        first = end


@dataclass(frozen=True, slots=True)
class _Chunk:
    first: Key
    code: int
    offset: int
    count: int
    lengths: tuple[int, int]


class RangeDictionary:
    """A dictionary that finds the numbers of values."""

    def __init__(self, data: bytes, data_type: AtomicType, at: int) -> None:
        self._data = data
        self._data_type = data_type
        head_length, version, self._count, offsets_length, heads_length = _HEAD.unpack_from(data, at)
        if version != _VERSION:
            raise ValueError(f"version {version} of a dictionary; {_VERSION} is supported")
        self._offsets_at = at + _INT.size + head_length
        self._heads_at = self._offsets_at + offsets_length
        self._keys_at = self._heads_at + heads_length

    def code(self, key: Key) -> tuple[int, bool]:
        """Return the number of the value, or of the next greater one, and whether the value exists."""
        low, high = 0, self._count
        while low < high:
            middle = (low + high) // 2
            if self._chunk(middle).first <= key:  # type: ignore[operator]  # keys of one column have one type
                low = middle + 1
            else:
                high = middle
        if not low:
            return 0, False
        chunk = self._chunk(low - 1)
        if chunk.first == key:
            return chunk.code, True
        return self._search_chunk(chunk, key)

    def _chunk(self, number: int) -> _Chunk:
        (offset,) = _INT.unpack_from(self._data, self._offsets_at + number * _INT.size)
        reader = KeyReader(self._data, self._data_type, self._heads_at + offset)
        version = reader.byte()
        if version != _VERSION:
            raise ValueError(f"version {version} of a dictionary's chunk; {_VERSION} is supported")
        first = reader.key()
        code, keys_offset, count, *lengths = _CHUNK_PLACE.unpack_from(self._data, reader.at)
        return _Chunk(first, code, keys_offset, count, (lengths[0], lengths[1]))

    def _search_chunk(self, chunk: _Chunk, key: Key) -> tuple[int, bool]:
        start = self._keys_at + chunk.offset
        low, high = 0, chunk.count
        while low < high:
            middle = (low + high) // 2
            found = self._read_key(chunk, start, middle)
            if found == key:
                return chunk.code + 1 + middle, True
            if found < key:  # type: ignore[operator]
                low = middle + 1
            else:
                high = middle
        return chunk.code + 1 + low, False

    def _read_key(self, chunk: _Chunk, start: int, number: int) -> Key:
        reader = KeyReader(self._data, self._data_type, start)
        if is_text(self._data_type):
            (offset,) = _INT.unpack_from(self._data, start + number * _INT.size)
            return reader.key_at(start + chunk.lengths[0] + offset)
        return reader.key_at(start + number * chunk.lengths[1])
