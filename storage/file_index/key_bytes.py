"""Values that are one behind the other in an index: texts after 4 bytes of length, numbers in their own width."""

from __future__ import annotations

import struct
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from storage.file_index.values import in_order, is_text, literal_bytes, literal_numbers, width_bytes
from storage.types import AtomicType

Key: TypeAlias = int | bytes
"""Of a number as `values.in_order` has it, or the bytes of a text. Keys of one column compare as Java compares."""

_INT: Final = struct.Struct(">i")


def literal_keys(values: pa.Array, data_type: AtomicType) -> list[Key]:
    if is_text(data_type):
        return [*literal_bytes(values)]
    return [*literal_numbers(values, data_type)]


class KeyReader:
    """Reads on from a position. Raises ValueError or struct.error where the bytes end."""

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
        return self._of(stored)

    def _of(self, stored: bytes) -> Key:
        if self._width is None:
            return stored
        number = int.from_bytes(stored, "big", signed=True)
        return int(in_order(np.array([number], np.int64), self._data_type)[0])

    def key_at(self, position: int) -> Key:
        self.at = position
        return self.key()
