"""Decodes records in Protobuf: each is converted to JSON, and Debezium's decoder reads it like a record with op `c`.

Converting takes most of the time: it makes Python objects for each record. Only the topic names the source table.
Source of the frame: Confluent `MessageIndexes`, `ProtobufSchema`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec
import pyarrow as pa
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Error, Message
from google.protobuf.message_factory import GetMessageClass

from tidelake.ingest.formats.avro.framing import VALUE_SCHEMA_HEADER, SchemaId, unframed
from tidelake.ingest.formats.avro.schema_registry import SchemaRegistry
from tidelake.ingest.formats.base import TargetOf
from tidelake.ingest.formats.connect_schema import ConnectSchema
from tidelake.ingest.formats.debezium.converted_records import ConvertingDecoder
from tidelake.ingest.formats.debezium.debezium_json_decoder import DebeziumJsonDecoder, InexactValues
from tidelake.ingest.formats.protobuf.json_rows import RowType, row_type
from tidelake.ingest.formats.protobuf.schema_files import SchemaFile, compiled
from tidelake.ingest.formats.registry import other_format_hint
from tidelake.ingest.formats.values.json_text import BadValue
from tidelake.ingest.formats.values.unavailable_placeholders import NoPlaceholders
from tidelake.ingest.raw_batch import Headers, RawBatch

_VARINT_BYTES_MAX: Final = 5
_PATH_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class _Type:
    """A message type. prefix: the beginning of its records in JSON, with the name of its columns as their schema."""

    message: type[Message]
    rows: RowType
    prefix: bytes


class ProtobufRows:
    """Converts records to Debezium's JSON. It caches every message type. Two threads must not use it at a time."""

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry
        self._files: dict[SchemaId, SchemaFile] = {}
        self._types: dict[tuple[SchemaId, tuple[int, ...]], _Type] = {}
        self._columns: dict[bytes, Sequence[ConnectSchema]] = {}

    def columns_of(self, schema: bytes) -> Sequence[ConnectSchema]:
        """Return the columns of records that `as_json` returned. schema: their member `schema`."""
        return self._columns[schema]

    def columns(self, value: bytes, headers: Headers) -> Sequence[ConnectSchema]:
        """Return the columns of a record. Raises BadValue and RegistryUnavailable."""
        self.as_json(value, headers)
        id_, rest = unframed(value, headers, VALUE_SCHEMA_HEADER)
        return self._types[id_, _message_path(rest)[0]].rows.schema.fields

    def as_json(self, value: bytes, headers: Headers) -> bytes:
        """Return a record with an envelope. Raises BadValue and RegistryUnavailable.

        Its member `schema` is only a name for `columns_of`: the schema itself may be larger than the records.
        """
        id_, rest = unframed(value, headers, VALUE_SCHEMA_HEADER)
        path, at = _message_path(rest)
        type_ = self._types.get((id_, path)) or self._type(id_, path)
        try:
            message = type_.message.FromString(rest[at:])
            size = message.ByteSize()
            message.DiscardUnknownFields()
            has_unknown = message.ByteSize() != size
        except (Error, ValueError) as error:  # also a required field that is missing
            raise BadValue(f"schema {id_}: not a message of {_name_of(type_.message.DESCRIPTOR)}: {error}") from None
        if has_unknown:
            raise BadValue(
                f"schema {id_}: the record has fields or numbers of an enum that {_name_of(type_.message.DESCRIPTOR)} "
                "does not have: it was written with another schema"
            )
        try:
            row = type_.rows.row(message)
        except BadValue as error:
            raise BadValue(f"schema {id_}: {error}") from None
        return type_.prefix + msgspec.json.encode(row) + b"}}"

    def _type(self, id_: SchemaId, path: tuple[int, ...]) -> _Type:
        if id_ not in self._files:
            registered = self._registry.schema(id_)
            try:
                imported = dict(zip(registered.names, registered.references, strict=True))
                self._files[id_] = compiled(registered.text, imported)
            except BadValue as error:
                raise BadValue(f"schema {id_}: {error}") from None
        descriptor = self._files[id_].message(path)
        rows = row_type(descriptor)
        name = msgspec.json.encode(f"{id_} {path}")
        self._columns[name] = rows.schema.fields
        found = _Type(GetMessageClass(descriptor), rows, b'{"schema":%b,"payload":{"op":"c","after":' % name)
        self._types[id_, path] = found
        return found


def protobuf_decoder(target_of: TargetOf, rows: ProtobufRows, inexact_values: InexactValues) -> ConvertingDecoder:
    """Return the decoder of rows in Protobuf."""

    def as_json(value: bytes, headers: Headers) -> bytes:
        try:
            return rows.as_json(value, headers)
        except BadValue as error:
            raise BadValue(f"{error}{other_format_hint(value, '') if value[:1] == b'{' else ''}") from None

    decoder = DebeziumJsonDecoder(
        target_of, inexact_values=inexact_values, placeholders=NoPlaceholders(), columns_of=rows.columns_of
    )
    return ConvertingDecoder(decoder, as_json, _without_keys)


def _without_keys(batch: RawBatch) -> RawBatch:
    """Return the batch without keys: they name no columns of rows."""
    return replace(batch, keys=pa.nulls(len(batch), pa.binary()), headers={})


def _message_path(data: bytes) -> tuple[tuple[int, ...], int]:
    """Return the numbers that name the message type, and the position behind them. Raises BadValue."""
    count, at = _varint(data, 0)
    if count == 0:
        return (0,), at
    if not 0 < count <= _PATH_MAX:
        raise BadValue(f"{count} is no number of message indexes of Confluent's Protobuf format")
    path = []
    for _ in range(count):
        number, at = _varint(data, at)
        if number < 0:
            raise BadValue(f"{number} is no number of a message type")
        path.append(number)
    return tuple(path), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(_VARINT_BYTES_MAX):
        if at >= len(data):
            raise BadValue("the record ends before its message indexes: not Confluent's Protobuf format")
        octet = data[at]
        at += 1
        value |= (octet & 0x7F) << (7 * shift)
        if octet < 0x80:
            return (value >> 1) ^ -(value & 1), at
    raise BadValue("a message index of more than 32 bits: not Confluent's Protobuf format")


def _name_of(descriptor: Descriptor) -> str:
    return str(descriptor.full_name)
