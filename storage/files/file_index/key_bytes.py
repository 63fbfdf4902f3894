"""Reads consecutive values in an index: texts after a length of 4 bytes, numbers with a fixed width."""

from __future__ import annotations

import struct
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from tidelake.storage.files.file_index.indexed_values import (
    in_order,
    is_text,
    literal_bytes,
    literal_numbers,
    width_bytes,
)
from tidelake.storage.model.types import AtomicType

Key: TypeAlias = int | bytes
"""A number of `values.in_order`, or the bytes of a text. The order of a column's keys is that of Java."""

_INT: Final = struct.Struct(">i")


def literal_keys(values: pa.Array, data_type: AtomicType) -> list[Key]:
    if is_text(data_type):
        return [*literal_bytes(values)]
    return [*literal_numbers(values, data_type)]


class KeyReader:
    """Reads values from a position on. Raises ValueError or struct.error if the bytes end early."""

    def __init__(self, data: bytes, data_type: AtomicType, at: int) -> None:
        self._data = data
        self._data_type = data_type
        self._width = None if is_text(data_type) else width_bytes(data_type)
        self.at = at

    def int32(self) -> int:
        (number,) = _INT.unpack_from(self._data, self.at)
        self.at += _INT.size
        return int(number)

    def byte(self) -> int:
        self.at += 1
        return self._data[self.at - 1]

    def key(self) -> Key:
        length = self.int32() if self._width is None else self._width
        stored = self._data[self.at : self.at + length]
        if length < 0 or len(stored) != length:
            raise ValueError(f"a value of {length} bytes at byte {self.at} of {len(self._data)}")
        self.at += length
        return self._decode(stored)

    def _decode(self, stored: bytes) -> Key:
        if self._width is None:
            return stored
        number = int.from_bytes(stored, "big", signed=True)
        return int(in_order(np.array([number], np.int64), self._data_type)[0])

    def key_at(self, position: int) -> Key:
        self.at = position
        return self.key()
