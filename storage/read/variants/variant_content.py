"""Reads the content of a variant, by path or as JSON in the form that Java prints.

    $            the value itself
    $.a['b c']   the field `b c` of the field `a`
    $[0]         an element of an array

Source: Java `data/variant/GenericVariant.java`, `VariantPathSegment.java`.
"""

from __future__ import annotations

import base64
import json
import math
import re
import struct
import uuid
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from tidelake.errors import BadInput
from tidelake.storage.files.string_casts import text_of
from tidelake.storage.model.types import DOUBLE, FLOAT
from tidelake.storage.model.variants.variant_layout import (
    Basic,
    Primitive,
    basic_type,
    check_metadata,
    elements_of,
    fields_of,
    primitive_type,
    size_of,
    unsigned,
)

_SEGMENT: Final = re.compile(r"""\[(\d+)\]|\.([^.\[]+)|\['([^']+)'\]|\["([^"]+)"\]""")
_CONTROL: Final = re.compile(r"((?<!\\)(?:\\\\)*\\u)([0-9a-f]{4})")
_EPOCH: Final = datetime(1970, 1, 1)
_INTEGERS: Final = {Primitive.INT1: 1, Primitive.INT2: 2, Primitive.INT4: 4, Primitive.INT8: 8}
_DECIMALS: Final = {Primitive.DECIMAL4: 4, Primitive.DECIMAL8: 8, Primitive.DECIMAL16: 16}


def parse_path(path: str) -> list[str | int]:
    """Return the names of fields and numbers of elements on the path. Raises BadInput."""
    segments: list[str | int] = []
    at = 1
    while path[:1] == "$" and at < len(path):
        if (match := _SEGMENT.match(path, at)) is None:
            break
        index, *names = match.groups()
        segments.append(int(index) if index is not None else next(name for name in names if name is not None))
        at = match.end()
    if path[:1] != "$" or at < len(path):
        raise BadInput(f"{path!r} is not a path into a variant; write $, then .name, ['name'] or [number]")
    return segments


def place_of(value: bytes, metadata: bytes, path: Sequence[str | int]) -> int | None:
    """Return where the value at a path begins; None if no value is there. Raises MalformedVariant."""
    check_metadata(metadata)
    at = 0
    for segment in path:
        kind = basic_type(value, at)
        found: int | None = None
        if isinstance(segment, str) and kind is Basic.OBJECT:
            found = next((place for name, place in fields_of(value, metadata, at) if name == segment), None)
        elif isinstance(segment, int) and kind is Basic.ARRAY:
            places = elements_of(value, at)
            found = places[segment] if segment < len(places) else None
        if found is None:
            return None
        at = found
    return at


def json_of(value: bytes, metadata: bytes, at: int = 0) -> str:
    """Return the value as JSON. Raises MalformedVariant."""
    match basic_type(value, at):
        case Basic.OBJECT:
            fields = fields_of(value, metadata, at)
            return "{" + ",".join(f"{_quoted(n)}:{json_of(value, metadata, place)}" for n, place in fields) + "}"
        case Basic.ARRAY:
            return "[" + ",".join(json_of(value, metadata, place) for place in elements_of(value, at)) + "]"
        case _:
            return _text(scalar_of(value, at))


class Float32(float):
    """A value of type FLOAT. A plain float is a DOUBLE."""


class Micros(int):
    """A point in time: microseconds since 1970 in UTC."""


class MicrosNtz(int):
    """A local time without zone: microseconds since 1970."""


class Days(int):
    """A date: days since 1970."""


def scalar_of(value: bytes, at: int) -> Any:
    """Return the value as None, bool, int, str, float, Float32, Decimal, Days, Micros, MicrosNtz, bytes or UUID."""
    if basic_type(value, at) is Basic.SHORT_TEXT:
        return _slice(value, at + 1, size_of(value, at) - 1).decode()
    kind = primitive_type(value, at)
    data = _slice(value, at + 1, size_of(value, at) - 1)
    if kind in _INTEGERS:
        return int.from_bytes(data, "little", signed=True)
    if kind in _DECIMALS:
        number = int.from_bytes(data[1:], "little", signed=True)
        return Decimal((number < 0, tuple(map(int, str(abs(number)))), -data[0]))  # exact: no decimal context rounds it
    match kind:
        case Primitive.NULL:
            return None
        case Primitive.TRUE | Primitive.FALSE:
            return kind is Primitive.TRUE
        case Primitive.DOUBLE:
            return struct.unpack("<d", data)[0]
        case Primitive.FLOAT:
            return Float32(struct.unpack("<f", data)[0])
        case Primitive.DATE:
            return Days(int.from_bytes(data, "little", signed=True))
        case Primitive.TIMESTAMP:
            return Micros(int.from_bytes(data, "little", signed=True))
        case Primitive.TIMESTAMP_NTZ:
            return MicrosNtz(int.from_bytes(data, "little", signed=True))
        case Primitive.LONG_TEXT:
            return data[4:].decode()
        case Primitive.UUID:
            return uuid.UUID(bytes=data)
        case _:
            return data[4:]


def _slice(value: bytes, at: int, size: int) -> bytes:
    unsigned(value, at + size - 1, 1) if size else None
    return value[at : at + size]


def _text(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case Days():
            return _quoted((date(1970, 1, 1) + timedelta(days=value)).isoformat())
        case Micros() | MicrosNtz():
            zone = "+00:00" if isinstance(value, Micros) else ""
            return _quoted(_time(value) + zone)
        case int():
            return str(value)
        case Decimal():
            return format(stripped(value), "f")
        case float():
            kind = FLOAT if isinstance(value, Float32) else DOUBLE
            written = text_of(pa.array([value], pa.float32() if kind is FLOAT else pa.float64()), kind)
            assert written is not None
            return str(written[0]) if math.isfinite(value) else _quoted(str(written[0]))
        case bytes():
            return _quoted(base64.b64encode(value).decode())
        case uuid.UUID():
            return _quoted(str(value))
        case _:
            return _quoted(value)


def stripped(value: Decimal) -> Decimal:
    """Return the number without trailing zeros in its fraction."""
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    while exponent < 0 and digits and digits[-1] == 0:
        digits, exponent = digits[:-1], exponent + 1
    return Decimal((sign, digits, exponent)) if any(digits) else Decimal(0)


def _time(micros: int) -> str:
    """Format a time as Java does: three or six digits of a fraction, and no fraction if it is zero."""
    shown = _EPOCH + timedelta(microseconds=micros)
    digits = f"{shown.microsecond:06d}"
    fraction = "" if not shown.microsecond else f".{digits[:3] if digits.endswith('000') else digits}"
    return f"{shown:%Y-%m-%d %H:%M:%S}{fraction}"


def _quoted(text: str) -> str:
    """Quote a text for JSON. Java writes upper-case hexadecimal digits in escapes of control characters."""
    return _CONTROL.sub(lambda match: match[1] + match[2].upper(), json.dumps(text, ensure_ascii=False))
