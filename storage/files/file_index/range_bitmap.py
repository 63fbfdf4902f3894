"""Range bitmaps: the distinct values of a column in order, and the number of each row's value, bit by bit.

    header length   4 bytes, then: version 1 byte, 1; number of rows and of values, 4 bytes each; least and largest
                    value, if any exist; length of the dictionary 4 bytes
    dictionary      see `range_dictionary`
    slices          header length 4 bytes, then: version 1 byte, 1; number of slices 1 byte; length of the bitmap of
                    rows with a value, and length of the directory, 4 bytes each; the directory: offset and length of
                    each slice, 4 bytes each. After that, the bitmap of rows with a value, and the slices, lowest bit
                    first

All numbers are big-endian.

Source: Java `fileindex/rangebitmap/RangeBitmap.java`, `RangeBitmapFileIndex.java`, `BitSliceIndexBitmap.java`.
"""

from __future__ import annotations

import struct
from functools import cached_property, reduce
from itertools import accumulate
from operator import or_
from typing import Final

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from tidelake.storage.base.roaring import serialize
from tidelake.storage.files.file_index.bit_slices import BitSlices, slices_of
from tidelake.storage.files.file_index.column_index import Answer
from tidelake.storage.files.file_index.distinct_values import (
    DistinctValues,
    DistinctValuesCollector,
    content,
    with_lengths,
)
from tidelake.storage.files.file_index.indexed_values import is_text
from tidelake.storage.files.file_index.key_bytes import Key, KeyReader, literal_keys
from tidelake.storage.files.file_index.range_dictionary import RangeDictionary, dictionary_bytes
from tidelake.storage.model.types import AtomicType

_VERSION: Final = 1
_INT: Final = struct.Struct(">i")
_HEAD: Final = struct.Struct(">bii")
_SLICES_HEAD: Final = struct.Struct(">bBii")
_PLACE: Final = struct.Struct(">ii")
_SLICES_OF_NOTHING: Final = 64  # the number of slices that Java writes if there is no value


class RangeBitmapWriter:
    """See `IndexWriter`."""

    def __init__(self, data_type: AtomicType, chunk_size_bytes: int) -> None:
        self._collector = DistinctValuesCollector(data_type)
        self._chunk_size_bytes = chunk_size_bytes

    def add(self, column: pa.Array) -> None:
        self._collector.add(column)

    def finish(self) -> bytes:
        values = self._collector.finish()
        keys = with_lengths(values.stored) if is_text(values.data_type) else values.stored
        dictionary = dictionary_bytes(values, self._chunk_size_bytes)
        ends, _ = content(keys.take(pa.array([0, len(keys) - 1]))) if len(keys) else (b"", None)
        head = _HEAD.pack(_VERSION, len(values.codes), len(values)) + ends + _INT.pack(len(dictionary))
        return b"".join([_INT.pack(len(head)), head, dictionary, _slices_bytes(values)])


def _slices_bytes(values: DistinctValues) -> bytes:
    positions = np.flatnonzero(values.codes >= 0).astype(np.uint32)
    count = max(1, (len(values) - 1).bit_length()) if len(values) else _SLICES_OF_NOTHING
    present = serialize(BitMap(positions))
    bodies = [serialize(bits) for bits in slices_of(values.codes[positions].astype(np.int64), positions, count)]
    starts = [0, *accumulate(map(len, bodies))]
    places = b"".join(_PLACE.pack(start, len(body)) for start, body in zip(starts, bodies, strict=False))
    head = _SLICES_HEAD.pack(_VERSION, count, len(present), len(places)) + places
    return b"".join([_INT.pack(len(head)), head, present, *bodies])


class RangeBitmapIndex:
    """See `ColumnIndex`."""

    def __init__(self, data: bytes, data_type: AtomicType) -> None:
        self._data = data
        self._data_type = data_type
        (head_length,) = _INT.unpack_from(data)
        version, self._rows, self._values = _HEAD.unpack_from(data, _INT.size)
        if version != _VERSION:
            raise ValueError(f"version {version} of a range bitmap; {_VERSION} is supported")
        reader = KeyReader(data, data_type, _INT.size + _HEAD.size)
        self._ends: tuple[Key, Key] | None = (reader.key(), reader.key()) if self._values > 0 else None
        dictionary_length = reader.int32()
        self._dictionary_at = _INT.size + head_length
        self._slices_at = self._dictionary_at + dictionary_length

    @cached_property
    def _dictionary(self) -> RangeDictionary:
        return RangeDictionary(self._data, self._data_type, self._dictionary_at)

    @cached_property
    def _slices(self) -> BitSlices:
        data, at = self._data, self._slices_at
        (head_length,) = _INT.unpack_from(data, at)
        _, count, present_length, directory_length = _SLICES_HEAD.unpack_from(data, at + _INT.size)
        directory = at + _INT.size + _SLICES_HEAD.size
        present_at = at + _INT.size + head_length
        first = present_at + present_length

        def slice_at(bit: int) -> BitMap:
            offset, length = _PLACE.unpack_from(data, directory + bit * _PLACE.size)
            return BitMap.deserialize(data[first + offset : first + offset + length])

        if directory_length != count * _PLACE.size:
            raise ValueError(f"a directory of {directory_length} bytes for {count} slices")
        return BitSlices(BitMap.deserialize(data[present_at:first]), count, slice_at)

    def any_of(self, values: pa.Array) -> Answer:
        return reduce(or_, map(self._equal, literal_keys(values, self._data_type)), BitMap())

    def _equal(self, key: Key) -> BitMap:
        if self._ends is None or key < self._ends[0] or key > self._ends[1]:  # type: ignore[operator]
            return BitMap()
        code, is_there = self._dictionary.code(key)
        return self._slices.equal(code) if is_there else BitMap()

    def none_of(self, values: pa.Array) -> Answer:
        found = self.any_of(values)
        return None if found is None else self.is_not_null() - found

    def compare(self, operator: str, value: pa.Array) -> Answer:
        (key,) = literal_keys(value, self._data_type)
        if self._ends is None:
            return BitMap()
        least, largest = self._ends
        if key < least:  # type: ignore[operator]  # keys of one column have one type
            code, is_there = 0, False
        elif key > largest:  # type: ignore[operator]
            code, is_there = self._values, False
        else:
            code, is_there = self._dictionary.code(key)
        below = code + (is_there and operator in ("<=", ">"))  # smaller codes are on the lower side of the comparison
        less = self._slices.less(below) if below < self._values else self._slices.present.copy()
        return less if operator in ("<", "<=") else self._slices.present - less

    def is_null(self) -> Answer:
        return BitMap(range(self._rows)) if self._ends is None else self._slices.present.flip(0, self._rows)

    def is_not_null(self) -> BitMap:
        return BitMap() if self._ends is None else self._slices.present.copy()
