"""The Connect schema of an Avro schema, as Connect's converter derives it.

Source: Confluent `AvroData` (properties `connect.*`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from tidelake.ingest.formats.connect_schema import ConnectSchema
from tidelake.ingest.formats.values.json_text import BadValue
from tidelake.storage.model.avro.avro_type import AvroType, avro_type_of

_CONNECT_WORDS: Final = {
    "boolean": "boolean",
    "int": "int32",
    "long": "int64",
    "float": "float",
    "double": "double",
    "bytes": "bytes",
    "fixed": "bytes",
    "string": "string",
    "enum": "string",
}
_CONNECT_INTEGERS: Final = frozenset({"int8", "int16"})  # AvroData: `connect.type` of an int
_MAP_ENTRY: Final = "MapEntry"  # AvroData: `connect.internal.type` of the pairs of a map whose keys are no texts
# (Avro type, logical type) to the logical type of Connect or Debezium with the same unit.
_LOGICAL_NAMES: Final[Mapping[tuple[str, str], str]] = {
    ("int", "date"): "org.apache.kafka.connect.data.Date",
    ("int", "time-millis"): "org.apache.kafka.connect.data.Time",
    ("long", "time-micros"): "io.debezium.time.MicroTime",
    ("long", "timestamp-millis"): "org.apache.kafka.connect.data.Timestamp",
    ("long", "timestamp-micros"): "io.debezium.time.MicroTimestamp",
    ("long", "timestamp-nanos"): "io.debezium.time.NanoTimestamp",
    ("long", "local-timestamp-millis"): "org.apache.kafka.connect.data.Timestamp",
    ("long", "local-timestamp-micros"): "io.debezium.time.MicroTimestamp",
    ("long", "local-timestamp-nanos"): "io.debezium.time.NanoTimestamp",
    ("bytes", "decimal"): "org.apache.kafka.connect.data.Decimal",
    ("fixed", "decimal"): "org.apache.kafka.connect.data.Decimal",
}
_NESTING_MAX: Final = 60


def parse_avro_schema(text: str, references: Sequence[str] = ()) -> AvroType:
    """Return the type of a schema in JSON.

    references: schemas whose types this one uses.

    Raises BadValue for an invalid schema.
    """
    try:
        return avro_type_of(msgspec.json.decode(text), [msgspec.json.decode(reference) for reference in references])
    except (ValueError, RecursionError) as e:  # also those of msgspec
        raise BadValue(f"not a schema of Avro: {e}") from None


def is_pairs(type_: AvroType) -> bool:
    """Return whether an array is a map whose keys are no texts."""
    return type_.items is not None and type_.items.properties.get("connect.internal.type") == _MAP_ENTRY


def connect_schema(type_: AvroType, field_name: str | None = None, depth: int = 0) -> ConnectSchema:
    """Return the Connect schema that Connect's converter derives from this type."""
    inner = type_.without_null
    if depth > _NESTING_MAX:  # a type that contains itself
        return ConnectSchema("struct", field=field_name)
    properties = inner.properties
    parameters = {str(k): str(v) for k, v in (properties.get("connect.parameters") or {}).items()}
    name = properties.get("connect.name")
    if name is None or (inner.kind in ("record", "enum", "fixed") and name == properties.get("name")):
        name = name or _LOGICAL_NAMES.get((inner.kind, str(properties.get("logicalType"))))
        if properties.get("logicalType") == "decimal":
            precision = str(properties.get("precision", ""))
            parameters |= {"scale": str(properties.get("scale", 0)), "connect.decimal.precision": precision}
    word, members = _name_and_attributes(inner, depth + 1)
    return ConnectSchema(
        word,
        None if name is None else str(name),
        inner is not type_,
        parameters or None,
        properties.get("connect.doc", properties.get("doc")),
        field_name,
        **members,
    )


def _name_and_attributes(inner: AvroType, depth: int) -> tuple[str, Mapping[str, Any]]:
    match inner.kind:
        case "int":
            word = inner.properties.get("connect.type")
            return (word if word in _CONNECT_INTEGERS else "int32"), {}
        case "record":
            return "struct", {"fields": tuple(connect_schema(t, name, depth) for name, t in inner.fields.items())}
        case "array" if is_pairs(inner) and inner.items is not None:
            pair = inner.items.fields
            return "map", {
                "keys": connect_schema(pair["key"], None, depth),
                "values": connect_schema(pair["value"], None, depth),
            }
        case "array" if inner.items is not None:
            return "array", {"items": connect_schema(inner.items, None, depth)}
        case "map" if inner.items is not None:
            return "map", {"keys": ConnectSchema("string"), "values": connect_schema(inner.items, None, depth)}
        case _:
            return _CONNECT_WORDS.get(inner.kind, ""), {}
