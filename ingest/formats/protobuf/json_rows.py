"""Converts messages of Protobuf to JSON as Connect's JSON converter writes it, with Connect's schema.

So the decoders for JSON also read Protobuf, by the same rules for types, columns and schema changes.

- A field with presence that is not set is null: `optional`, a member of a `oneof`, a message, each of proto2. Any other
  field has its default.
- A name of an enum is a text. A number without a name is its digits.
- Unsigned 64-bit integers are DECIMAL(20, 0), unsigned 32-bit ones int64.
- A message is a struct; a message that contains itself is a text with JSON.
- Well-known types are what they stand for (`_WELL_KNOWN`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
import numpy as np
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from tidelake.ingest.formats.connect_schema import ConnectSchema
from tidelake.ingest.formats.values.json_text import BadValue

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECONDS_MIN: Final = -62_135_596_800  # 0001-01-01T00:00:00Z
_SECONDS_MAX: Final = 253_402_300_799  # 9999-12-31T23:59:59Z
_DURATION_SECONDS_MAX: Final = 315_576_000_000
_NANOS: Final = 10**9

_Convert = Callable[[Any], Any]
_UINT64: Final = ConnectSchema(
    "bytes",
    "org.apache.kafka.connect.data.Decimal",
    parameters={"scale": "0", "connect.decimal.precision": "20"},
)
_SCALARS: Final = {
    FieldDescriptor.TYPE_DOUBLE: ConnectSchema("double"),
    FieldDescriptor.TYPE_FLOAT: ConnectSchema("float"),
    FieldDescriptor.TYPE_INT64: ConnectSchema("int64"),
    FieldDescriptor.TYPE_SINT64: ConnectSchema("int64"),
    FieldDescriptor.TYPE_SFIXED64: ConnectSchema("int64"),
    FieldDescriptor.TYPE_UINT64: _UINT64,
    FieldDescriptor.TYPE_FIXED64: _UINT64,
    FieldDescriptor.TYPE_INT32: ConnectSchema("int32"),
    FieldDescriptor.TYPE_SINT32: ConnectSchema("int32"),
    FieldDescriptor.TYPE_SFIXED32: ConnectSchema("int32"),
    FieldDescriptor.TYPE_UINT32: ConnectSchema("int64"),
    FieldDescriptor.TYPE_FIXED32: ConnectSchema("int64"),
    FieldDescriptor.TYPE_BOOL: ConnectSchema("boolean"),
    FieldDescriptor.TYPE_STRING: ConnectSchema("string"),
    FieldDescriptor.TYPE_BYTES: ConnectSchema("bytes"),
    FieldDescriptor.TYPE_ENUM: ConnectSchema("string"),
}
_MESSAGES: Final = (FieldDescriptor.TYPE_MESSAGE, FieldDescriptor.TYPE_GROUP)


@dataclass(frozen=True, slots=True)
class RowType:
    """The rows of one message type.

    schema: the schema of the rows. row: returns a message as plain values for JSON; raises BadValue.
    """

    schema: ConnectSchema
    row: Callable[[Message], dict[str, Any]]


def row_type(descriptor: Descriptor) -> RowType:
    """Return the rows of a message type."""
    schema, convert = _struct(descriptor, ())
    return RowType(schema, convert)


def _struct(descriptor: Descriptor, above: tuple[str, ...]) -> tuple[ConnectSchema, _Convert]:
    above = (*above, descriptor.full_name)
    members: list[ConnectSchema] = []
    optional: list[tuple[str, _Convert]] = []
    always: list[tuple[str, _Convert]] = []
    for field in descriptor.fields:
        schema, convert = _field(field, above)
        members.append(msgspec.structs.replace(schema, field=field.name))
        (optional if field.has_presence else always).append((field.name, convert))
    is_extendable = descriptor.is_extendable

    def row(message: Message) -> dict[str, Any]:
        found = {name: convert(getattr(message, name)) for name, convert in always}
        has = message.HasField
        for name, convert in optional:
            found[name] = convert(getattr(message, name)) if has(name) else None
        if is_extendable and any(of.is_extension for of, _ in message.ListFields()):
            raise BadValue(f"{descriptor.full_name} has an extension, which no column can have")
        return found

    return ConnectSchema("struct", fields=tuple(members)), row


def _field(field: FieldDescriptor, above: tuple[str, ...]) -> tuple[ConnectSchema, _Convert]:
    if field.type in _MESSAGES and field.message_type.GetOptions().map_entry:
        return _map(field.message_type, above)
    schema, convert = _single(field, above)
    if not field.is_repeated:
        return schema, convert
    return ConnectSchema("array", items=schema), lambda values: [convert(value) for value in values]


def _map(entry: Descriptor, above: tuple[str, ...]) -> tuple[ConnectSchema, _Convert]:
    """Return the conversion of a map: an object, or a list of pairs if its keys are no texts, as Connect writes it."""
    keys, convert_key = _single(entry.fields_by_name["key"], above)
    values, convert = _single(entry.fields_by_name["value"], above)
    schema = ConnectSchema("map", keys=keys, values=values)
    if keys.type == "string":
        return schema, lambda items: {key: convert(value) for key, value in sorted(items.items())}
    return schema, lambda items: [[convert_key(key), convert(value)] for key, value in sorted(items.items())]


def _single(field: FieldDescriptor, above: tuple[str, ...]) -> tuple[ConnectSchema, _Convert]:
    """Return the conversion of one value."""
    if field.type in _MESSAGES:
        return _message(field.message_type, above)
    if field.type == FieldDescriptor.TYPE_ENUM:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        return _SCALARS[field.type], lambda number: names.get(number) or str(number)
    if field.type == FieldDescriptor.TYPE_FLOAT:
        return _SCALARS[field.type], _float32
    if field.type == FieldDescriptor.TYPE_DOUBLE:
        return _SCALARS[field.type], _float64
    return _SCALARS[field.type], _same


def _message(descriptor: Descriptor, above: tuple[str, ...]) -> tuple[ConnectSchema, _Convert]:
    known = _WELL_KNOWN.get(descriptor.full_name)
    if known is not None:
        return known
    if descriptor.full_name.startswith(_WRAPPERS) and descriptor.full_name.endswith("Value"):
        schema, convert = _single(descriptor.fields_by_name["value"], above)
        return schema, lambda message: convert(message.value)
    if _contains_itself(descriptor):
        return ConnectSchema("string"), _json_text
    return _struct(descriptor, above)


def _contains_itself(descriptor: Descriptor) -> bool:
    """Return whether a message of this type may contain one of a type that contains itself."""

    def visit(of: Descriptor, above: frozenset[str]) -> bool:
        if of.full_name in above:
            return True
        inner = (f.message_type for f in of.fields if f.type in _MESSAGES)
        return any(visit(one, above | {of.full_name}) for one in inner if one.full_name not in _WELL_KNOWN)

    return visit(descriptor, frozenset())


def _json_text(message: Message) -> str:
    return msgspec.json.encode(_plain(message)).decode()


def _plain(message: Message) -> dict[str, Any]:
    """Return the fields that are set, as values for JSON."""
    found: dict[str, Any] = {}
    for field, value in message.ListFields():
        if field.type not in _MESSAGES or field.message_type.GetOptions().map_entry:
            found[field.name] = _field(field, ())[1](value)
        elif field.message_type.full_name in _WELL_KNOWN:
            convert = _WELL_KNOWN[field.message_type.full_name][1]
            found[field.name] = [convert(one) for one in value] if field.is_repeated else convert(value)
        else:
            found[field.name] = [_plain(one) for one in value] if field.is_repeated else _plain(value)
    return found


# ---------------------------------------------------------------- values


def _same(value: Any) -> Any:
    return value


def _float32(value: float) -> float | str:
    """Return the shortest number that distinguishes a 32-bit float from all others."""
    return float(str(np.float32(value))) if math.isfinite(value) else _float64(value)


def _float64(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _timestamp(message: Any) -> str:
    seconds, nanos = message.seconds, message.nanos
    if not _SECONDS_MIN <= seconds <= _SECONDS_MAX or not 0 <= nanos < _NANOS:
        raise BadValue(f"a Timestamp of {seconds} s and {nanos} ns is outside of the years 1 to 9999")
    moment = (_EPOCH + timedelta(seconds=seconds)).replace(tzinfo=None)
    fraction = f".{nanos:09d}".rstrip("0") if nanos else ""
    return f"{moment.isoformat()}{fraction}Z"


def _duration(message: Any) -> str:
    seconds, nanos = message.seconds, message.nanos
    if abs(seconds) > _DURATION_SECONDS_MAX or abs(nanos) >= _NANOS or seconds * nanos < 0:
        raise BadValue(f"a Duration of {seconds} s and {nanos} ns is invalid")
    sign = "-" if seconds < 0 or nanos < 0 else ""
    fraction = f".{abs(nanos):09d}".rstrip("0") if nanos else ""
    return f"{sign}{abs(seconds)}{fraction}s"


def _json_value(message: Any) -> Any:
    kind = message.WhichOneof("kind")
    match kind:
        case None | "null_value":
            return None
        case "struct_value":
            return _json_object(message.struct_value)
        case "list_value":
            return [_json_value(one) for one in message.list_value.values]
        case "number_value":
            return _float64(message.number_value)
        case _:
            return getattr(message, kind)


def _json_object(message: Any) -> Mapping[str, Any]:
    return {name: _json_value(value) for name, value in sorted(message.fields.items())}


def _as_text(convert: _Convert) -> _Convert:
    return lambda message: msgspec.json.encode(convert(message)).decode()


_WRAPPERS: Final = (
    *(f"google.protobuf.{kind}" for kind in ("Bool", "Bytes", "Double", "Float", "Int32", "Int64", "String")),
    *(f"google.protobuf.{kind}" for kind in ("UInt32", "UInt64")),
)
_WELL_KNOWN: Final[Mapping[str, tuple[ConnectSchema, _Convert]]] = {
    "google.protobuf.Timestamp": (ConnectSchema("string", "io.debezium.time.ZonedTimestamp"), _timestamp),
    "google.protobuf.Duration": (ConnectSchema("string"), _duration),
    "google.protobuf.Struct": (ConnectSchema("string"), _as_text(_json_object)),
    "google.protobuf.Value": (ConnectSchema("string"), _as_text(_json_value)),
    "google.protobuf.ListValue": (
        ConnectSchema("string"),
        _as_text(lambda message: [_json_value(one) for one in message.values]),
    ),
    "google.protobuf.FieldMask": (ConnectSchema("string"), lambda message: ",".join(message.paths)),
}
