"""The binary layout of a variant.

Source: Java `data/variant/GenericVariantUtil.java`.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Final

VERSION: Final = 1
SIZE_MAX: Final = 128 * 1024 * 1024


class Basic(IntEnum):
    PRIMITIVE = 0
    SHORT_TEXT = 1
    OBJECT = 2
    ARRAY = 3


class Primitive(IntEnum):
    NULL = 0
    TRUE = 1
    FALSE = 2
    INT1 = 3
    INT2 = 4
    INT4 = 5
    INT8 = 6
    DOUBLE = 7
    DECIMAL4 = 8
    DECIMAL8 = 9
    DECIMAL16 = 10
    DATE = 11
    TIMESTAMP = 12
    TIMESTAMP_NTZ = 13
    FLOAT = 14
    BINARY = 15
    LONG_TEXT = 16
    UUID = 20


_P = Primitive
# Bytes after the header. For BINARY and LONG_TEXT these 4 bytes are the number of bytes that follow.
FIXED_BYTES: Final = {
    _P.NULL: 0,
    _P.TRUE: 0,
    _P.FALSE: 0,
    _P.INT1: 1,
    _P.INT2: 2,
    _P.INT4: 4,
    _P.INT8: 8,
    _P.DOUBLE: 8,
    _P.DECIMAL4: 5,
    _P.DECIMAL8: 9,
    _P.DECIMAL16: 17,
    _P.DATE: 4,
    _P.TIMESTAMP: 8,
    _P.TIMESTAMP_NTZ: 8,
    _P.FLOAT: 4,
    _P.UUID: 16,
}


class MalformedVariant(ValueError):
    """The bytes are not a variant."""


def unsigned(data: bytes, at: int, size: int) -> int:
    if at < 0 or at + size > len(data):
        raise MalformedVariant(f"{size} bytes at {at} of {len(data)}")
    return int.from_bytes(data[at : at + size], "little")


def basic_type(value: bytes, at: int) -> Basic:
    return Basic(unsigned(value, at, 1) & 3)


def primitive_type(value: bytes, at: int) -> Primitive:
    try:
        return Primitive(value[at] >> 2)
    except ValueError:
        raise MalformedVariant(f"a value of kind {value[at] >> 2}") from None


def size_of(value: bytes, at: int) -> int:
    """Return the size in bytes, header included."""
    match basic_type(value, at):
        case Basic.SHORT_TEXT:
            return 1 + (value[at] >> 2)
        case Basic.OBJECT:
            *_, ends, size, data = _object_parts(value, at)
            return data - at + unsigned(value, ends + size * _offset_bytes(value, at), _offset_bytes(value, at))
        case Basic.ARRAY:
            ends, size, data = _array_parts(value, at)
            return data - at + unsigned(value, ends + size * _offset_bytes(value, at), _offset_bytes(value, at))
        case _:
            kind = primitive_type(value, at)
            return 1 + FIXED_BYTES[kind] if kind in FIXED_BYTES else 5 + unsigned(value, at + 1, 4)


def _offset_bytes(value: bytes, at: int) -> int:
    return (value[at] >> 2 & 3) + 1


def _object_parts(value: bytes, at: int) -> tuple[int, int, int, int, int]:
    """Return start and width of the ids, start of the offsets, number of fields, start of the values."""
    info = value[at] >> 2
    id_bytes, count_bytes = (info >> 2 & 3) + 1, 4 if info >> 4 & 1 else 1
    size = unsigned(value, at + 1, count_bytes)
    ids = at + 1 + count_bytes
    offsets = ids + size * id_bytes
    return ids, id_bytes, offsets, size, offsets + (size + 1) * _offset_bytes(value, at)


def _array_parts(value: bytes, at: int) -> tuple[int, int, int]:
    """Return the start of the offsets, the number of elements, and the start of the elements."""
    count_bytes = 4 if value[at] >> 4 & 1 else 1
    size = unsigned(value, at + 1, count_bytes)
    offsets = at + 1 + count_bytes
    return offsets, size, offsets + (size + 1) * _offset_bytes(value, at)


def fields_of(value: bytes, metadata: bytes, at: int) -> Iterator[tuple[str, int]]:
    """Yield name and position of each field of an object, in the order of names."""
    ids, id_bytes, offsets, size, data = _object_parts(value, at)
    width = _offset_bytes(value, at)
    for i in range(size):
        name = name_of(metadata, unsigned(value, ids + i * id_bytes, id_bytes))
        yield name, data + unsigned(value, offsets + i * width, width)


def elements_of(value: bytes, at: int) -> list[int]:
    """Return the position of each element of an array."""
    offsets, size, data = _array_parts(value, at)
    width = _offset_bytes(value, at)
    return [data + unsigned(value, offsets + i * width, width) for i in range(size)]


def check_metadata(metadata: bytes) -> None:
    if not metadata or metadata[0] & 0x0F != VERSION:
        raise MalformedVariant(f"metadata of version {VERSION} expected, and {metadata[:1].hex() or 'nothing'} found")


def name_of(metadata: bytes, number: int) -> str:
    width = (metadata[0] >> 6 & 3) + 1
    size = unsigned(metadata, 1, width)
    if number >= size:
        raise MalformedVariant(f"name {number} of {size}")
    start, end = (unsigned(metadata, 1 + (1 + number + i) * width, width) for i in (0, 1))
    texts = 1 + (size + 2) * width
    if end < start or texts + end > len(metadata):
        raise MalformedVariant(f"name {number} from {start} to {end}")
    return metadata[texts + start : texts + end].decode()
