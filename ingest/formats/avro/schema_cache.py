"""Schemas by id, parsed; and keys and headers in Avro as the JSON that the rules for keys are written for."""

from __future__ import annotations

from collections.abc import Mapping

from ingest.formats.avro.avro_schema import AvroType, parse_avro_schema
from ingest.formats.avro.framing import KEY_SCHEMA_HEADER, SchemaId, unframed
from ingest.formats.avro.schema_registry import SchemaRegistry
from ingest.formats.avro.value_reader import object_of, read_record
from ingest.formats.values.json_text import BadValue
from ingest.raw_batch import Headers


class SchemaCache:
    """Not for use by two threads at once."""

    def __init__(self, registry: SchemaRegistry | None, known: Mapping[SchemaId, AvroType] | None = None) -> None:
        """known: types that need no registry. registry: None where there are no others."""
        self._registry = registry
        self._types: dict[SchemaId, AvroType] = dict(known or {})

    def type_of(self, id_: SchemaId) -> AvroType:
        """A record's type. Raises BadValue for a schema that is unknown, none, or no record's; RegistryUnavailable."""
        found = self._types.get(id_)
        if found is None:
            if self._registry is None:
                raise BadValue(f"schema {id_} is not the one that is configured")
            registered = self._registry.schema(id_)
            try:
                found = parse_avro_schema(registered.text, registered.references)
            except BadValue as e:
                raise BadValue(f"schema {id_}: {e}") from None
            if found.kind != "record":
                raise BadValue(f"schema {id_} is one of {found.kind}, not of a record")
            self._types[id_] = found
        return found

    def record(self, data: bytes, headers: Headers, schema_header: str) -> tuple[AvroType, dict[str, bytes]]:
        """A record's type, and its fields as raw JSON. Raises BadValue, RegistryUnavailable."""
        id_, bare = unframed(data, headers, schema_header)
        type_ = self.type_of(id_)
        try:
            return type_, read_record(bare, type_)
        except BadValue as e:
            raise BadValue(f"schema {id_}: {e}") from None

    def key_as_json(self, key: bytes | None, headers: Headers) -> bytes | None:
        """A record's key as Debezium's JSON; a key that is not Avro stays as it is: keys may have another converter."""
        if key is None or (not key.startswith(b"\0") and KEY_SCHEMA_HEADER not in dict(headers)):
            return key
        try:
            _, members = self.record(key, headers, KEY_SCHEMA_HEADER)
        except BadValue:
            return key
        return wrapped(members)


def wrapped(members: Mapping[str, bytes]) -> bytes:
    """As Debezium's JSON wraps a payload, so that no member of it is taken for the wrapping."""
    return b'{"schema":null,"payload":' + object_of(members) + b"}"
