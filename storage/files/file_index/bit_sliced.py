"""Bit-sliced indexes (`bsi`): the numbers of a column, bit by bit. Negative numbers are stored without their sign.

    version         1 byte, 1
    rows            4 bytes
    has positive    1 byte, then the half with the numbers >= 0
    has negative    1 byte, then the half with the other numbers
    half            version 1 byte, 1; least and largest number, 8 bytes each; bitmap of the rows in this half; number
                    of slices, 4 bytes; the slices of (number - least), lowest bit first

All numbers are big-endian, except those in Roaring bitmaps. Java writes 0 as the least number.

Source: Java `fileindex/bsi/BitSliceIndexBitmapFileIndex.java`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyroaring import BitMap

from tidelake.storage.base.roaring import serialize, serialized_bytes
from tidelake.storage.files.file_index.bit_slices import BitSlices, slices_of
from tidelake.storage.files.file_index.column_index import Answer
from tidelake.storage.files.file_index.indexed_values import numbers
from tidelake.storage.model.types import AtomicType

_VERSION: Final = 1
_HEAD: Final = struct.Struct(">bi")
_HALF_HEAD: Final = struct.Struct(">bqq")
_INT: Final = struct.Struct(">i")
_LOWEST: Final = -(2**63)


class BitSlicedWriter:
    """See `IndexWriter`. A file with the number -2**63 gets no index: the format can't represent it."""

    def __init__(self, data_type: AtomicType) -> None:
        self._data_type = data_type
        self._numbers: list[NDArray[np.int64]] = []
        self._positions: list[NDArray[np.uint32]] = []
        self._rows = 0

    def add(self, column: pa.Array) -> None:
        of_rows = numbers(column, self._data_type)
        present = np.arange(self._rows, self._rows + len(column), dtype=np.uint32)
        if column.null_count:
            is_there = column.is_valid().to_numpy(zero_copy_only=False)
            of_rows, present = of_rows[is_there], present[is_there]
        self._numbers.append(of_rows)
        self._positions.append(present)
        self._rows += len(column)

    def finish(self) -> bytes | None:
        of_rows = np.concatenate([np.zeros(0, np.int64), *self._numbers])
        positions = np.concatenate([np.zeros(0, np.uint32), *self._positions])
        if len(of_rows) and int(of_rows.min()) == _LOWEST:
            return None
        negative = of_rows < 0
        parts = [_HEAD.pack(_VERSION, self._rows)]
        for of_half, at in ((of_rows[~negative], positions[~negative]), (-of_rows[negative], positions[negative])):
            parts += [bytes([len(at) > 0]), _encode_half(of_half, at) if len(at) else b""]
        return b"".join(parts)


def _encode_half(of_rows: NDArray[np.int64], positions: NDArray[np.uint32]) -> bytes:
    largest = int(of_rows.max())
    slices = slices_of(of_rows, positions, largest.bit_length())
    head = _HALF_HEAD.pack(_VERSION, 0, largest)
    bitmaps = map(serialize, slices)
    return b"".join([head, serialize(BitMap(positions)), _INT.pack(len(slices)), *bitmaps])


@dataclass(frozen=True, slots=True)
class _Magnitudes:
    """The numbers of one sign, without the sign."""

    least: int
    slices: BitSlices

    def less(self, number: int) -> BitMap:
        return self.slices.less(number - self.least)

    def equal(self, number: int) -> BitMap:
        return self.slices.equal(number - self.least)

    def greater(self, number: int) -> BitMap:
        if number < self.least:
            return self.slices.present.copy()
        return self.slices.greater(number - self.least)


class BitSlicedIndex:
    """See `ColumnIndex`."""

    def __init__(self, data: bytes, data_type: AtomicType) -> None:
        self._data = data
        self._data_type = data_type
        version, self._rows = _HEAD.unpack_from(data)
        _check_version(version)
        self._at = _HEAD.size
        self._positive = self._read_half()
        self._negative = self._read_half()

    def _read_half(self) -> _Magnitudes:
        self._at += 1
        if not self._data[self._at - 1]:
            return _Magnitudes(0, BitSlices(BitMap(), 0, lambda _: BitMap()))
        version, least, _ = _HALF_HEAD.unpack_from(self._data, self._at)
        _check_version(version)
        self._at += _HALF_HEAD.size
        present = self._read_bitmap()
        (count,) = _INT.unpack_from(self._data, self._at)
        self._at += _INT.size
        return _Magnitudes(least, BitSlices(present, count, [self._read_bitmap() for _ in range(count)].__getitem__))

    def _read_bitmap(self) -> BitMap:
        length = serialized_bytes(self._data, self._at)
        self._at += length
        return BitMap.deserialize(self._data[self._at - length : self._at])

    @property
    def _present(self) -> BitMap:
        return self._positive.slices.present | self._negative.slices.present

    def any_of(self, values: pa.Array) -> Answer:
        return reduce(or_, map(self._equal, numbers(values, self._data_type).tolist()), BitMap())

    def _equal(self, number: int) -> BitMap:
        return self._negative.equal(-number) if number < 0 else self._positive.equal(number)

    def none_of(self, values: pa.Array) -> Answer:
        found = self.any_of(values)
        return None if found is None else self._present - found

    def compare(self, operator: str, value: pa.Array) -> Answer:
        number = int(numbers(value, self._data_type)[0])
        match operator:
            case "<":
                return self._less(number)
            case "<=":
                return self._less(number) | self._equal(number)
            case ">":
                return self._present - self._less(number) - self._equal(number)
            case _:
                return self._present - self._less(number)

    def _less(self, number: int) -> BitMap:
        if number < 0:
            return self._negative.greater(-number)
        return self._positive.less(number) | self._negative.slices.present

    def is_null(self) -> Answer:
        return self._present.flip(0, self._rows)

    def is_not_null(self) -> Answer:
        return self._present


def _check_version(version: int) -> None:
    if version != _VERSION:
        raise ValueError(f"version {version} of a bit-sliced index; {_VERSION} is supported")
