"""Bitmap indexes: for each value, the rows that have it.

    version 1 or 2   1 byte
    rows, values     number of each, 4 bytes each
    has null         1 byte; then the place of the bitmap of nulls: offset 4 bytes, in version 2 also length 4 bytes
    version 1        each value with an offset of 4 bytes
    version 2        number of blocks, then for each block its first value and an offset of 4 bytes; length of all
                     blocks, 4 bytes; then each block: number of values, then each value with an offset and a length of
                     4 bytes each, in the order of the values
    bitmaps          the bitmap of nulls comes first

All numbers are big-endian. An offset of -1 - r means the single row r, which has no bitmap. A text is stored after its
length of 4 bytes; other values have a fixed width.

Source: Java `fileindex/bitmap/BitmapFileIndex.java`, `BitmapFileIndexMeta.java`, `BitmapFileIndexMetaV2.java`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyroaring import BitMap

from tidelake.storage.base.roaring import serialize, serialized_bytes
from tidelake.storage.files.file_index.column_index import Answer
from tidelake.storage.files.file_index.distinct_values import (
    DistinctValues,
    DistinctValuesCollector,
    big_endian,
    content,
    joined,
    with_lengths,
)
from tidelake.storage.files.file_index.indexed_values import is_text
from tidelake.storage.files.file_index.key_bytes import Key, KeyReader, literal_keys
from tidelake.storage.model.types import AtomicType

VERSION_1: Final = 1
VERSION_2: Final = 2

_HEAD: Final = struct.Struct(">biib")  # version, rows, values, has null
_INT: Final = struct.Struct(">i")
_TWO_INTS: Final = struct.Struct(">ii")
_LENGTH_UNKNOWN: Final = -1


class BitmapWriter:
    """See `IndexWriter`."""

    def __init__(self, data_type: AtomicType, version: int, block_size_bytes: int) -> None:
        self._collector = DistinctValuesCollector(data_type)
        self._version = version
        self._block_size_bytes = block_size_bytes

    def add(self, column: pa.Array) -> None:
        self._collector.add(column)

    def finish(self) -> bytes:
        return bitmap_bytes(self._collector.finish(), self._version, self._block_size_bytes)


def bitmap_bytes(
    values: DistinctValues, version: int, block_size_bytes: int, layout: Sequence[int] | None = None
) -> bytes:
    """Return a bitmap index.

    layout: the numbers of values in the order of their bitmaps (in version 1 also of the values). None means the order
        of the values. Java uses the order of a hash map; readers accept any order.
    """
    rows = values.rows()
    order = np.arange(len(values)) if layout is None else np.array(layout, np.int64)
    null_bitmap = serialize(rows.of(0))
    null_count = int(rows.counts[0])
    bodies = [null_bitmap] if null_count > 1 else []
    at = sum(map(len, bodies))
    offsets = -1 - rows.first_rows
    lengths = np.full(len(values), _LENGTH_UNKNOWN, np.int64)
    for number in order[rows.counts[1:][order] > 1].tolist():
        body = serialize(rows.of(number + 1))
        offsets[number], lengths[number] = at, len(body)
        bodies.append(body)
        at += len(body)
    parts = [_HEAD.pack(version, len(values.codes), len(values), null_count > 0)]
    if null_count:
        parts.append(_INT.pack(-1 - int(rows.positions[0]) if null_count == 1 else 0))
    keys = with_lengths(values.stored) if is_text(values.data_type) else values.stored
    if version == VERSION_1:
        places = joined(keys, big_endian(offsets)).take(pa.array(order))
        parts.append(content(places)[0])
    else:
        parts += [_INT.pack(len(null_bitmap))] if null_count else []
        parts += _blocks(keys, joined(keys, big_endian(offsets), big_endian(lengths)), block_size_bytes)
    return b"".join([*parts, *bodies])


def _blocks(keys: pa.Array, entries: pa.Array, block_size_bytes: int) -> Iterator[bytes]:
    """Yield the directory and the blocks of entries. A block has at least one entry."""
    data, bounds = content(entries)
    key_data, key_bounds = content(keys)
    starts = _block_starts(bounds, block_size_bytes - _INT.size)
    yield _INT.pack(len(starts) - 1)
    for block, first in enumerate(starts[:-1]):
        yield key_data[key_bounds[first] : key_bounds[first + 1]] + _INT.pack(int(bounds[first]) + block * _INT.size)
    yield _INT.pack(len(data) + (len(starts) - 1) * _INT.size)
    for first, end in pairwise(starts):
        yield _INT.pack(end - first) + data[bounds[first] : bounds[end]]


def _block_starts(bounds: NDArray[np.int64], room_bytes: int) -> list[int]:
    """Return the numbers of the entries that start a block, then the number of all entries."""
    count = len(bounds) - 1
    starts = [0]
    while starts[-1] < count:
        first = starts[-1]
        fitting = int(np.searchsorted(bounds, bounds[first] + room_bytes, side="right")) - 1
        starts.append(min(count, max(fitting, first + 1)))
    return starts


@dataclass(frozen=True, slots=True)
class _Place:
    """The place of a bitmap after the head.

    length: the size of the bitmap; None in version 1, which does not store it.
    """

    offset: int
    length: int | None


class BitmapIndex:
    """See `ColumnIndex`. The places of values are looked up when they are needed. `none_of` includes null rows."""

    def __init__(self, data: bytes, data_type: AtomicType) -> None:
        self._data = data
        self._data_type = data_type
        version, self._rows, self._values, has_null = _HEAD.unpack_from(data)
        if version not in (VERSION_1, VERSION_2):
            raise ValueError(f"version {version} of a bitmap index; 1 and 2 are supported")
        reader = KeyReader(data, data_type, _HEAD.size)
        self._nulls: _Place | None = None
        if has_null:
            offset = reader.int32()
            self._nulls = _Place(offset, reader.int32() if version == VERSION_2 else None)
        if version == VERSION_1:
            self._places = {reader.key(): _Place(reader.int32(), None) for _ in range(self._values)}
            self._blocks = None
            self._body = reader.at
            return
        heads = [(reader.key(), reader.int32()) for _ in range(reader.int32())]
        length = reader.int32()
        self._blocks = [(key, reader.at + offset) for key, offset in heads]
        self._places = {}
        self._body = reader.at + length

    def any_of(self, values: pa.Array) -> Answer:
        return self._united(self._found(literal_keys(values, self._data_type)))

    def none_of(self, values: pa.Array) -> Answer:
        return self._others(self._united(self._found(literal_keys(values, self._data_type))))

    def compare(self, operator: str, value: pa.Array) -> Answer:
        return None

    def is_null(self) -> Answer:
        return self._united([] if self._nulls is None else [self._nulls])

    def is_not_null(self) -> Answer:
        return self._others(self._united([] if self._nulls is None else [self._nulls]))

    def _others(self, rows: BitMap) -> BitMap:
        return rows.flip(0, self._rows)

    def _united(self, places: Iterable[_Place]) -> BitMap:
        rows = BitMap()
        for place in places:
            rows |= self._bitmap(place)
        return rows

    def _bitmap(self, place: _Place) -> BitMap:
        if place.offset < 0:
            return BitMap([-1 - place.offset])
        start = self._body + place.offset
        length = serialized_bytes(self._data, start) if place.length is None else place.length
        return BitMap.deserialize(self._data[start : start + length])

    def _found(self, keys: Iterable[Key]) -> Iterator[_Place]:
        for key in keys:
            if (place := self._places.get(key) if self._blocks is None else self._in_block(key)) is not None:
                yield place

    def _in_block(self, key: Key) -> _Place | None:
        assert self._blocks is not None
        low, high = 0, len(self._blocks)
        while low < high:
            middle = (low + high) // 2
            if self._blocks[middle][0] <= key:  # type: ignore[operator]  # keys of one column have one type
                low = middle + 1
            else:
                high = middle
        if not low:
            return None
        reader = KeyReader(self._data, self._data_type, self._blocks[low - 1][1])
        for _ in range(reader.int32()):
            found = reader.key()
            offset, length = _TWO_INTS.unpack_from(self._data, reader.at)
            reader.at += _TWO_INTS.size
            if found == key:
                return _Place(offset, length)
        return None
