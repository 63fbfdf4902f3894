"""Parquet footers in which INT96 columns count as 12-byte binaries, or the other way round.

Arrow reads INT96 as nanoseconds that wrap in silence, and writes it for all timestamps of a file or for none. The bytes
of both types are the same in every encoding that INT96 has (plain, and dictionaries of plain values), so a changed
footer lets us convert the values ourselves. A footer is one Thrift struct in compact protocol; fields unknown here pass
unchanged.

Source: apache/parquet-format `parquet.thrift`; apache/thrift `doc/specs/thrift-compact-protocol.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

MAGIC: Final = b"PAR1"

_INT96: Final = 3  # enum Type of parquet.thrift
_FIXED_LEN_BYTE_ARRAY: Final = 7
_INT96_BYTES: Final = 12


def framed(footer: bytes) -> bytes:
    """How a Parquet file ends."""
    return footer + len(footer).to_bytes(4, "little") + MAGIC


def int96_as_binary(footer: bytes) -> bytes:
    """The footer with every INT96 column turned into FIXED_LEN_BYTE_ARRAY(12), bounds of such columns dropped.

    footer: the Thrift struct alone. Raises ValueError when it is none.
    """
    metadata = parse(footer)
    leaves = _leaves(metadata)
    changed = {index for index, leaf in enumerate(leaves) if leaf.get(1) == _INT96}
    for index in changed:
        leaves[index].set(1, _I32, _FIXED_LEN_BYTE_ARRAY)
        leaves[index].set(2, _I32, _INT96_BYTES)
    _set_chunk_type(metadata, changed, _FIXED_LEN_BYTE_ARRAY)
    return serialize(metadata)


def binary_as_int96(footer: bytes, columns: Collection[int]) -> bytes:
    """Undoes `int96_as_binary` for the leaf columns with these numbers."""
    metadata = parse(footer)
    leaves = _leaves(metadata)
    for index in columns:
        leaves[index].set(1, _I32, _INT96)
        leaves[index].remove(2)
    _set_chunk_type(metadata, columns, _INT96)
    return serialize(metadata)


def _leaves(metadata: Struct) -> list[Struct]:
    """FileMetaData.schema without its groups: what columns are counted by."""
    return [element for element in metadata.get(2).items if not element.get(5)]


def _set_chunk_type(metadata: Struct, columns: Collection[int], physical_type: int) -> None:
    for row_group in metadata.get(4).items:
        chunks = row_group.get(1).items
        for index in columns:
            column_metadata = chunks[index].get(3)
            column_metadata.set(1, _I32, physical_type)
            column_metadata.remove(12)  # statistics


# ---------------------------------------------------------------- Thrift compact protocol

_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
_INTEGERS: Final = frozenset({_I16, _I32, _I64})

Value: TypeAlias = Any


@dataclass(slots=True)
class List:
    kind: int
    items: list[Value]


class Struct:
    """Fields by number, in the order they came: number -> (kind, value)."""

    def __init__(self) -> None:
        self.fields: dict[int, tuple[int, Value]] = {}

    def get(self, number: int) -> Value:
        """None when the field is absent."""
        return self.fields.get(number, (0, None))[1]

    def set(self, number: int, kind: int, value: Value) -> None:
        self.fields[number] = (kind, value)
        self.fields = dict(sorted(self.fields.items()))

    def remove(self, number: int) -> None:
        self.fields.pop(number, None)


def parse(data: bytes) -> Struct:
    """Raises ValueError when `data` is not one struct."""
    try:
        return _ThriftReader(data).struct()
    except (IndexError, KeyError) as e:
        raise ValueError(f"not a Thrift struct: {e}") from None


def serialize(struct: Struct) -> bytes:
    out = bytearray()
    _write_struct(out, struct)
    return bytes(out)


class _ThriftReader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._value: dict[int, Callable[[], Value]] = {
            _TRUE: self._byte,
            _FALSE: self._byte,
            _BYTE: self._byte,
            **dict.fromkeys(_INTEGERS, self._integer),
            _DOUBLE: lambda: self._bytes(8),
            _BINARY: lambda: self._bytes(self._varint()),
            _LIST: self._list,
            _SET: self._list,
            _STRUCT: self.struct,
        }

    def struct(self) -> Struct:
        result = Struct()
        number = 0
        while header := self._byte():
            kind, delta = header & 0x0F, header >> 4
            number = number + delta if delta else self._integer()
            # a boolean field has its value in the header
            result.fields[number] = (kind, None if kind in (_TRUE, _FALSE) else self._value[kind]())
        return result

    def _list(self) -> List:
        header = self._byte()
        size = header >> 4 if header >> 4 != 0x0F else self._varint()
        return List(header & 0x0F, [self._value[header & 0x0F]() for _ in range(size)])

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _bytes(self, size: int) -> bytes:
        if self._at + size > len(self._data):
            raise IndexError("it ends within a value")
        self._at += size
        return self._data[self._at - size : self._at]

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


def _write_struct(out: bytearray, struct: Struct) -> None:
    before = 0
    for number, (kind, value) in struct.fields.items():
        if 0 < number - before < 16:
            out.append((number - before) << 4 | kind)
        else:
            out.append(kind)
            _write_integer(out, number)
        before = number
        if kind not in (_TRUE, _FALSE):
            _write_value(out, kind, value)
    out.append(0)


def _write_value(out: bytearray, kind: int, value: Value) -> None:
    if kind in _INTEGERS:
        _write_integer(out, value)
    elif kind == _BINARY:
        _write_varint(out, len(value))
        out += value
    elif kind == _DOUBLE:
        out += value
    elif kind == _STRUCT:
        _write_struct(out, value)
    elif kind in (_LIST, _SET):
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
