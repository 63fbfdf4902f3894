"""Converts MongoDB's extended JSON to plain JSON, with the value of a column for each BSON type.

Numbers keep all digits. The canonical, relaxed and older forms of extended JSON are read.

Source: Paimon `cdc/mongodb/BsonValueConvertor.java`; MongoDB, "Extended JSON (v2)".
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

import msgspec

from tidelake.ingest.formats.values.json_text import (
    BadValue,
    JsonKind,
    kind_of,
    read_list,
    read_object,
    read_text,
    shown,
)

_JSON_NUMBER: Final = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_INTEGER: Final = re.compile(rb"-?[0-9]{1,20}")
_NOT_FINITE: Final = frozenset({"NaN", "Infinity", "-Infinity"})
_UUID_SUBTYPE: Final = 4
_NESTING_MAX: Final = 200  # MongoDB allows 100
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def document_members(document: bytes) -> dict[str, bytes]:
    """Return the document's top-level fields as raw plain JSON. Raises BadValue for an invalid document."""
    return {name: plain_json(raw) for name, raw in read_object(document).items()}


def plain_json(raw: bytes, depth: int = 1) -> bytes:
    """Return one value as plain JSON, with BSON's types converted inside arrays and objects as well."""
    if depth > _NESTING_MAX:
        raise BadValue(f"a document is nested more than {_NESTING_MAX} deep")
    kind = kind_of(raw)
    if kind is JsonKind.ARRAY:
        return b"[" + b",".join(plain_json(item, depth + 1) for item in read_list(raw)) + b"]"
    if kind is not JsonKind.OBJECT:
        return raw
    members = read_object(raw)
    for name, convert in _TYPES.items():
        if name in members and len(members) <= 2:
            return convert(members, depth)
    inside = (_encoded(name) + b":" + plain_json(member, depth + 1) for name, member in members.items())
    return b"{" + b",".join(inside) + b"}"


def _encoded(text: str) -> bytes:
    return msgspec.json.encode(text)


def _text(name: str) -> Callable[[Mapping[str, bytes], int], bytes]:
    return lambda members, _: _encoded(_read(members[name]))


def _constant(json: bytes) -> Callable[[Mapping[str, bytes], int], bytes]:
    return lambda *_: json


def _read(raw: bytes) -> str:
    if kind_of(raw) is not JsonKind.TEXT:
        raise BadValue(f"{shown(raw)} is not a string within a value of extended JSON")
    return read_text(raw)


def _integer(raw: bytes) -> bytes:
    """Return the integer of a text, of a number, or of {"$numberLong": text}."""
    if kind_of(raw) is JsonKind.OBJECT:
        raw = next(iter(read_object(raw).values()), b"null")
    digits = read_text(raw).encode() if kind_of(raw) is JsonKind.TEXT else raw
    if not _INTEGER.fullmatch(digits):
        raise BadValue(f"{shown(raw)} is not an integer of extended JSON")
    return str(int(digits)).encode()


def _number(name: str) -> Callable[[Mapping[str, bytes], int], bytes]:
    """Return a converter of numbers. NaN and the infinities stay texts."""

    def convert(members: Mapping[str, bytes], _: int) -> bytes:
        raw = members[name]
        text = read_text(raw) if kind_of(raw) is JsonKind.TEXT else raw.decode()
        if text in _NOT_FINITE:
            return _encoded(text)
        if not _JSON_NUMBER.fullmatch(text.encode()):
            raise BadValue(f"{shown(raw)} is not a number of extended JSON")
        return text.encode()

    return convert


def _date(members: Mapping[str, bytes], _: int) -> bytes:
    """Return milliseconds since 1970."""
    raw = members["$date"]
    if kind_of(raw) is not JsonKind.TEXT:
        return _integer(raw)
    try:
        at = datetime.fromisoformat(read_text(raw))
    except ValueError:
        raise BadValue(f"{shown(raw)} is not a date of extended JSON") from None
    return str(((at if at.tzinfo else at.replace(tzinfo=UTC)) - _EPOCH) // timedelta(milliseconds=1)).encode()


def _timestamp(members: Mapping[str, bytes], _: int) -> bytes:
    """Return the timestamp's seconds."""
    return _integer(read_object(members["$timestamp"]).get("t", b"null"))


def _binary(members: Mapping[str, bytes], _: int) -> bytes:
    """Return base64, or the text of a UUID. UUIDs of the older subtype stay base64, as their byte order is unknown."""
    inner = members["$binary"]
    parts = read_object(inner) if kind_of(inner) is JsonKind.OBJECT else members
    data, subtype = parts.get("base64", inner), parts.get("subType", members.get("$type", b'"00"'))
    try:
        octets = binascii.a2b_base64(_read(data), strict_mode=True)
        if int(_read(subtype), 16) == _UUID_SUBTYPE:
            return _encoded(str(UUID(bytes=octets)))
    except ValueError as e:
        raise BadValue(f"{shown(inner)} is not a binary of extended JSON ({e})") from None
    return _encoded(_read(data))


def _regular_expression(members: Mapping[str, bytes], _: int) -> bytes:
    inner = members.get("$regularExpression")
    if inner is None:
        pattern, options = _read(members["$regex"]), _read(members.get("$options", b'""'))
    else:
        parts = read_object(inner)
        pattern, options = _read(parts.get("pattern", b"null")), _read(parts.get("options", b'""'))
    escaped = pattern.replace("/", r"\/") or "(?:)"
    return _encoded(f"/{escaped}/{options}")


def _code(members: Mapping[str, bytes], depth: int) -> bytes:
    code = _encoded(_read(members["$code"]))
    if "$scope" not in members:
        return code
    return b'{"$code":' + code + b',"$scope":' + plain_json(members["$scope"], depth + 1) + b"}"


def _pointer(members: Mapping[str, bytes], depth: int) -> bytes:
    parts = read_object(members["$dbPointer"])
    id_ = plain_json(parts.get("$id", b"null"), depth + 1)
    return b'{"$ref":' + parts.get("$ref", b"null") + b',"$id":' + id_ + b"}"


_TYPES: Final[Mapping[str, Callable[[Mapping[str, bytes], int], bytes]]] = {
    "$oid": _text("$oid"),
    "$symbol": _text("$symbol"),
    "$uuid": _text("$uuid"),
    "$numberInt": lambda members, _: _integer(members["$numberInt"]),
    "$numberLong": lambda members, _: _integer(members["$numberLong"]),
    "$numberDouble": _number("$numberDouble"),
    "$numberDecimal": _number("$numberDecimal"),
    "$date": _date,
    "$timestamp": _timestamp,
    "$binary": _binary,
    "$regularExpression": _regular_expression,
    "$regex": _regular_expression,
    "$code": _code,
    "$dbPointer": _pointer,
    "$undefined": _constant(b"null"),
    "$minKey": _constant(b'"BsonMinKey"'),
    "$maxKey": _constant(b'"BsonMaxKey"'),
}
