"""Parses a writer's schema to a tree of types, and converts it to a Connect schema as Connect's converter does.

Sources: Avro's specification; Confluent `AvroData` (properties `connect.*`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import fastavro
import fastavro.schema
import msgspec

from tidelake.ingest.formats.connect_schema import ConnectSchema
from tidelake.ingest.formats.values.json_text import BadValue

NULL: Final = "null"
_PRIMITIVES: Final = frozenset({NULL, "boolean", "int", "long", "float", "double", "bytes", "string"})
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


@dataclass(eq=False, slots=True)
class AvroType:
    """An Avro type.

    kind: a primitive type's name, or record, enum, array, map, fixed, union.
    fields: the fields of a record, in order.
    items: the type of an array's items, or of a map's values.
    branches: the branches of a union.
    symbols: the symbols of an enum.
    size: the size of a fixed in bytes.
    properties: all properties in the schema, for example `connect.name`.
    """

    kind: str
    fields: Mapping[str, AvroType] = field(default_factory=dict)
    items: AvroType | None = None
    branches: Sequence[AvroType] = ()
    symbols: Sequence[str] = ()
    size: int = 0
    properties: Mapping[str, Any] = field(default_factory=dict)

    @property
    def without_null(self) -> AvroType:
        """The other branch of a union of null and one type; for all other types the type itself."""
        if self.kind != "union":
            return self
        others = [branch for branch in self.branches if branch.kind != NULL]
        return others[0] if len(others) == 1 else self

    @property
    def is_pairs(self) -> bool:
        """Whether this array is a map whose keys are no texts."""
        return self.items is not None and self.items.properties.get("connect.internal.type") == _MAP_ENTRY


def parse_avro_schema(text: str, references: Sequence[str] = ()) -> AvroType:
    """Return the type of a schema in JSON.

    references: schemas whose types this one uses.

    Raises BadValue for an invalid schema.
    """
    named: dict[str, Any] = {}
    try:
        for reference in references:
            fastavro.schema.parse_schema(msgspec.json.decode(reference), named)
        parsed = fastavro.schema.parse_schema(msgspec.json.decode(text), named)
        return _Parser(named).type_of(parsed)
    except (msgspec.MsgspecError, fastavro.schema.SchemaParseException, RecursionError) as e:
        raise BadValue(f"not a schema of Avro: {e}") from None
    except (KeyError, TypeError, ValueError, AttributeError) as e:  # fastavro's errors for JSON that is no schema
        raise BadValue(f"not a schema of Avro: {type(e).__name__} {e}") from None


class _Parser:
    """A converter of parsed schemas to types. named: full name to definition, as resolved by fastavro."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._types: dict[str, AvroType] = {}  # a type may contain itself

    def type_of(self, node: Any) -> AvroType:
        if isinstance(node, list):
            return AvroType("union", branches=[self.type_of(branch) for branch in node])
        if isinstance(node, str):
            return AvroType(node) if node in _PRIMITIVES else self._named_type(node)
        kind = node["type"]
        if kind in ("record", "error", "enum", "fixed"):
            return self._define(node)
        if kind == "array":
            return AvroType("array", items=self.type_of(node["items"]), properties=node)
        if kind == "map":
            return AvroType("map", items=self.type_of(node["values"]), properties=node)
        if isinstance(kind, str) and kind in _PRIMITIVES:
            return AvroType(kind, properties=node)
        return self.type_of(kind)

    def _named_type(self, name: str) -> AvroType:
        return self._types.get(name) or self._define(self._named[name])

    def _define(self, node: Mapping[str, Any]) -> AvroType:
        found = self._types.get(node["name"])
        if found is not None:
            return found
        kind = "record" if node["type"] == "error" else node["type"]
        defined = self._types[node["name"]] = AvroType(kind, properties=node)
        defined.symbols = node.get("symbols", ())
        defined.size = node.get("size", 0)
        defined.fields = {f["name"]: self.type_of(f["type"]) for f in node.get("fields", ())}
        return defined


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
        case "array" if inner.is_pairs and inner.items is not None:
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
