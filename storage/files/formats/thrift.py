"""Thrift structs in compact protocol, which Parquet uses for page headers and footers.

Unknown fields are kept unchanged.

Source: apache/thrift `doc/specs/thrift-compact-protocol.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
_INTEGERS: Final = frozenset({I16, I32, I64})

Value: TypeAlias = Any


@dataclass(slots=True)
class List:
    kind: int
    items: list[Value]


class Struct:
    """A struct.

    fields: number -> (kind, value), in the order of the struct.
    """

    def __init__(self) -> None:
        self.fields: dict[int, tuple[int, Value]] = {}

    def get(self, number: int) -> Value:
        """Return the value of a field; None if it is absent."""
        return self.fields.get(number, (0, None))[1]

    def set(self, number: int, kind: int, value: Value) -> None:
        self.fields[number] = (kind, value)
        self.fields = dict(sorted(self.fields.items()))

    def remove(self, number: int) -> None:
        self.fields.pop(number, None)


def parse(data: bytes) -> Struct:
    """Parse a struct. Raises ValueError if `data` is invalid."""
    return parse_first(data)[0]


def parse_first(data: bytes, last_field: int | None = None) -> tuple[Struct, int]:
    """Parse the struct that `data` begins with, and return how many bytes were read. Raises ValueError.

    last_field: stop after the field with this number; None: parse the whole struct
    """
    reader = _ThriftReader(data)
    try:
        return reader.struct(last_field), reader.at
    except (IndexError, KeyError) as e:
        raise ValueError(f"not a Thrift struct: {e}") from None


def serialize(struct: Struct, after: int = 0) -> bytes:
    """Encode a struct.

    after: the number of the previous field, if the first fields of the struct were written already.
    """
    out = bytearray()
    _write_struct(out, struct, after)
    return bytes(out)


def varint(value: int) -> bytes:
    """Encode a number that is not negative."""
    out = bytearray()
    _write_varint(out, value)
    return bytes(out)


def zigzag(value: int) -> bytes:
    """Encode the value of an integer field."""
    out = bytearray()
    _write_integer(out, value)
    return bytes(out)


class _ThriftReader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0
        self._value: dict[int, Callable[[], Value]] = {
            TRUE: self._byte,
            FALSE: self._byte,
            BYTE: self._byte,
            **dict.fromkeys(_INTEGERS, self._integer),
            DOUBLE: lambda: self._bytes(8),
            BINARY: lambda: self._bytes(self._varint()),
            LIST: self._list,
            SET: self._list,
            STRUCT: self.struct,
        }

    def struct(self, last_field: int | None = None) -> Struct:
        result = Struct()
        number = 0
        while number != last_field and (header := self._byte()):
            kind, delta = header & 0x0F, header >> 4
            number = number + delta if delta else self._integer()
            # the header of a boolean field includes its value
            result.fields[number] = (kind, None if kind in (TRUE, FALSE) else self._value[kind]())
        return result

    def _list(self) -> List:
        header = self._byte()
        size = header >> 4 if header >> 4 != 0x0F else self._varint()
        return List(header & 0x0F, [self._value[header & 0x0F]() for _ in range(size)])

    def _byte(self) -> int:
        self.at += 1
        return self._data[self.at - 1]

    def _bytes(self, size: int) -> bytes:
        if self.at + size > len(self._data):
            raise IndexError("it ends within a value")
        self.at += size
        return self._data[self.at - size : self.at]

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def _integer(self) -> int:
        zigzag = self._varint()
        return (zigzag >> 1) ^ -(zigzag & 1)


def _write_struct(out: bytearray, struct: Struct, before: int = 0) -> None:
    for number, (kind, value) in struct.fields.items():
        if 0 < number - before < 16:
            out.append((number - before) << 4 | kind)
        else:
            out.append(kind)
            _write_integer(out, number)
        before = number
        if kind not in (TRUE, FALSE):
            _write_value(out, kind, value)
    out.append(0)


def _write_value(out: bytearray, kind: int, value: Value) -> None:
    if kind in _INTEGERS:
        _write_integer(out, value)
    elif kind == BINARY:
        _write_varint(out, len(value))
        out += value
    elif kind == DOUBLE:
        out += value
    elif kind == STRUCT:
        _write_struct(out, value)
    elif kind in (LIST, SET):
        size = len(value.items)
        out.append((size if size < 15 else 0x0F) << 4 | value.kind)
        if size >= 15:
            _write_varint(out, size)
        for item in value.items:
            _write_value(out, value.kind, item)
    else:
        out.append(value)


def _write_integer(out: bytearray, value: int) -> None:
    _write_varint(out, value << 1 if value >= 0 else (-value << 1) - 1)


def _write_varint(out: bytearray, value: int) -> None:
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
