"""Parses Protobuf messages without their definition: fields by number.

Source: protobuf.dev, "Encoding".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import pyarrow as pa

Message: TypeAlias = dict[int, list[Any]]
"""Field number -> values: integers, or bytes for all other types."""


def parse_message(data: bytes) -> Message:
    """Parse a message. Raises pa.ArrowInvalid if it is invalid."""
    message: Message = {}
    try:
        at = 0
        while at < len(data):
            key, at = varint(data, at)
            match key & 7:
                case 0:
                    number, at = varint(data, at)
                    message.setdefault(key >> 3, []).append(number)
                    continue
                case 1:
                    size = 8
                case 2:
                    size, at = varint(data, at)
                case 5:
                    size = 4
                case kind:
                    raise IndexError(f"wire type {kind}")
            message.setdefault(key >> 3, []).append(data[at : at + size])
            at += size
    except IndexError as e:
        raise pa.ArrowInvalid(f"no protobuf message: {e}") from None
    return message


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def varints(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        value, at = varint(data, at)
        yield value


def zigzag(encoded: int) -> int:
    """Decode a signed integer."""
    return (encoded >> 1) ^ -(encoded & 1)
