"""The types of Avro, parsed from a schema.

Source: Avro's specification.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import fastavro.schema

NULL: Final = "null"
_PRIMITIVES: Final = frozenset({NULL, "boolean", "int", "long", "float", "double", "bytes", "string"})


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
    def is_of_records(self) -> bool:
        """Whether it is a union of several record types."""
        return self.kind == "union" and sum(branch.kind == "record" for branch in self.branches) > 1


def avro_type_of(schema: Any, references: Sequence[Any] = ()) -> AvroType:
    """Return the type of a schema, given as parsed JSON.

    references: schemas whose types this one uses.

    Raises ValueError for an invalid schema.
    """
    named: dict[str, Any] = {}
    try:
        for reference in references:
            fastavro.schema.parse_schema(reference, named)
        parsed = fastavro.schema.parse_schema(schema, named)
        return _Parser(named).type_of(parsed)
    except (fastavro.schema.SchemaParseException, RecursionError) as e:
        raise ValueError(str(e)) from None
    except (KeyError, TypeError, ValueError, AttributeError) as e:  # fastavro's errors for JSON that is no schema
        raise ValueError(f"{type(e).__name__} {e}") from None


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
