"""Recognizes the format of a record by its members, its frame or its writer's schema.

It is for proposals, which a person then confirms in a configuration. No record is decoded by a guess.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tidelake.ingest.formats.avro.framing import KEY_SCHEMA_HEADER, VALUE_SCHEMA_HEADER, unframed
from tidelake.ingest.formats.avro.plain_avro import refuse_envelope
from tidelake.ingest.formats.avro.registry_options import REGISTRY_OPTIONS, RegistryOptions, with_underscores
from tidelake.ingest.formats.avro.schema_cache import SchemaCache
from tidelake.ingest.formats.avro.schema_registry import SchemaRegistry
from tidelake.ingest.formats.connector_rules import rules_of
from tidelake.ingest.formats.debezium.debezium_envelope import read_envelope, unwrapped
from tidelake.ingest.formats.registry import format_like
from tidelake.ingest.formats.values.json_text import BadValue, read_object
from tidelake.ingest.raw_batch import Headers
from tidelake.storage.model.avro.avro_type import AvroType

AVRO_FORMATS: Final = ("debezium-avro", "debezium-flattened-avro", "avro")
"""Formats whose records may refer to schemas in a registry."""

KEPT_HEADERS: Final = frozenset({KEY_SCHEMA_HEADER, VALUE_SCHEMA_HEADER})
"""Names of the record headers that are needed to recognize a format."""

_DEBEZIUM: Final = "debezium-json"
_FLATTENED: Final = "debezium-flattened-json"
_TRANSACTION: Final = frozenset({"status", "id", "event_count", "data_collections"})
_SCHEMA_CHANGE: Final = frozenset({"databaseName", "ddl"})
_HEARTBEAT: Final = frozenset({"ts_ms", "ts_us", "ts_ns"})
_REGISTRY_TIMEOUT_S: Final = 5.0  # somebody waits for the answer


@dataclass(frozen=True, slots=True)
class Recognition:
    """What a record looks like.

    format: the name of a format; None if no format is recognized, or only a schema registry knows it.
    needs_registry: whether the record refers to a schema in a registry.
    is_control: whether the record is Debezium's, and has no row: a transaction marker, a schema change, a heartbeat, or
        a tombstone with a schema.
    """

    format: str | None = None
    needs_registry: bool = False
    is_control: bool = False


class Recognizer:
    """Recognizes formats of records.

    registry_options: `format_options`; those of the schema registry are used. Without `schema_registry_url`, the
        formats of Avro are not told apart.

    Raises BadInput for invalid options.
    """

    def __init__(self, registry_options: Mapping[str, Any] | None = None) -> None:
        given = with_underscores(registry_options or {})
        known = {name: value for name, value in given.items() if name in REGISTRY_OPTIONS}
        options = RegistryOptions.parsed("avro", {"schema_registry_timeout_s": _REGISTRY_TIMEOUT_S, **known})
        self._schemas = SchemaCache(SchemaRegistry(options)) if options.urls else None

    def recognize(self, value: bytes, headers: Headers = ()) -> Recognition:
        """Return what a record looks like. value: not null.

        Raises RegistryUnavailable if the registry doesn't answer.
        """
        if value[:1] == b"\0" or VALUE_SCHEMA_HEADER in dict(headers):
            return self._avro(value, headers)
        try:
            return _json(value)
        except BadValue:
            return Recognition()

    def _avro(self, value: bytes, headers: Headers) -> Recognition:
        if self._schemas is None:
            return Recognition(needs_registry=True)
        try:
            id_, _ = unframed(value, headers, VALUE_SCHEMA_HEADER)
            type_ = self._schemas.type_of(id_)
        except BadValue:  # the registry doesn't know the schema, or it is none of a record
            return Recognition(needs_registry=True)
        if _is_control(type_.fields):
            return Recognition(needs_registry=True, is_control=True)
        return Recognition(_avro_format(type_), needs_registry=True)


def _json(value: bytes) -> Recognition:
    """Raise BadValue for anything but a JSON object."""
    payload = unwrapped(value)
    is_wrapped = payload != value
    if is_wrapped and payload.strip() == b"null":  # some releases of Connect's converter write a tombstone so
        return Recognition(is_control=True)
    members = read_object(payload)
    if _is_control(members):
        return Recognition(is_control=True)
    found = format_like(members)
    if found is None:
        return Recognition(_FLATTENED if is_wrapped else "json")
    if found == _DEBEZIUM:
        rules = rules_of(read_envelope(payload).source.connector or "")
        return Recognition(found if rules is None or rules.format is None else rules.format)
    return Recognition(found)


def _is_control(members: Collection[str]) -> bool:
    names = set(members)
    return names >= _TRANSACTION or names >= _SCHEMA_CHANGE or bool(names and names <= _HEARTBEAT)


def _avro_format(type_: AvroType) -> str:
    try:
        refuse_envelope(type_)
    except BadValue:
        return "debezium-avro"
    return "debezium-flattened-avro" if format_like(type_.fields) == _FLATTENED else "avro"
