"""Parsed schemas by id, and the conversion of Avro keys and headers to Debezium's JSON.

The rules for keys are implemented for JSON only.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelake.ingest.formats.avro.framing import KEY_SCHEMA_HEADER, SchemaId, unframed
from tidelake.ingest.formats.avro.schema_registry import SchemaRegistry
from tidelake.ingest.formats.avro.value_reader import object_of, read_record
from tidelake.ingest.formats.avro.writer_schema import parse_avro_schema
from tidelake.ingest.formats.values.json_text import BadValue
from tidelake.ingest.raw_batch import Headers
from tidelake.storage.model.avro.avro_type import AvroType


class SchemaCache:
    """A cache of parsed schemas. Two threads must not use it at the same time.

    registry: the source of schemas that are not in `known`; None if there are none.
    known: schemas that are configured, and are not in a registry.
    """

    def __init__(self, registry: SchemaRegistry | None, known: Mapping[SchemaId, AvroType] | None = None) -> None:
        self._registry = registry
        self._types: dict[SchemaId, AvroType] = dict(known or {})

    def type_of(self, id_: SchemaId) -> AvroType:
        """Return the record type of a schema.

        Raises BadValue for a schema that is unknown or invalid, or is not of a record. Raises RegistryUnavailable.
        """
        found = self._types.get(id_)
        if found is None:
            if self._registry is None:
                raise BadValue(f"schema {id_} is not the configured schema")
            registered = self._registry.schema(id_)
            try:
                found = parse_avro_schema(registered.text, registered.references)
            except BadValue as e:
                raise BadValue(f"schema {id_}: {e}") from None
            if found.kind == "union":
                names = ", ".join(str(branch.properties.get("name", branch.kind)) for branch in found.branches)
                raise BadValue(
                    f"schema {id_} is a union ({names}), and its records could have columns of any of these types. "
                    "Register the record types as schemas of their own (the serializer's TopicRecordNameStrategy or "
                    "RecordNameStrategy without `use.latest.version`), or send them to one topic each"
                )
            if found.kind != "record":
                raise BadValue(f"schema {id_} is a schema of {found.kind}, not of a record")
            self._types[id_] = found
        return found

    def record(self, data: bytes, headers: Headers, schema_header: str) -> tuple[AvroType, dict[str, bytes]]:
        """Return a record's type, and its fields as raw JSON. Raises BadValue and RegistryUnavailable."""
        id_, bare = unframed(data, headers, schema_header)
        type_ = self.type_of(id_)
        try:
            return type_, read_record(bare, type_)
        except BadValue as e:
            raise BadValue(f"schema {id_}: {e}") from None

    def key_as_json(self, key: bytes | None, headers: Headers) -> bytes | None:
        """Return a record's key as Debezium's JSON. A key that is not Avro, by another converter, stays unchanged."""
        if key is None or (not key.startswith(b"\0") and KEY_SCHEMA_HEADER not in dict(headers)):
            return key
        try:
            _, members = self.record(key, headers, KEY_SCHEMA_HEADER)
        except BadValue:
            return key
        return wrapped(members)


def wrapped(members: Mapping[str, bytes]) -> bytes:
    """Return the members as a payload inside an object with `schema` and `payload`, as Debezium's JSON has it.

    Otherwise members with these names could be mistaken for a schema and a payload.
    """
    return b'{"schema":null,"payload":' + object_of(members) + b"}"
