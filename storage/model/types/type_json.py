"""Column types as in schema files: text for atomic types, objects for constructed ones.

Source: Java `types/DataTypeJsonParser.java`, `types/DataField.java`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidelake.errors import BadInput
from tidelake.storage.model.types.data_types import (
    ArrayType,
    AtomicType,
    DataField,
    DataType,
    MapType,
    MultisetType,
    Root,
    RowType,
    VectorType,
)
from tidelake.storage.model.types.type_parser import parse_type


def type_to_json(data_type: DataType) -> str | dict[str, Any]:
    """Return the form in a schema file: text for atomic types, an object for constructed ones."""
    if isinstance(data_type, AtomicType):
        return str(data_type)
    word = str(data_type.root) + ("" if data_type.nullable else " NOT NULL")
    match data_type:
        case RowType():
            return {"type": word, "fields": [field_to_json(f) for f in data_type.fields]}
        case MapType():
            return {"type": word, "key": type_to_json(data_type.key), "value": type_to_json(data_type.value)}
        case VectorType():
            return {"type": word, "element": type_to_json(data_type.element), "length": data_type.length}
        case ArrayType() | MultisetType():
            return {"type": word, "element": type_to_json(data_type.element)}


def type_from_json(value: object) -> DataType:
    """Read what `type_to_json` returns, and what pypaimon writes. Raises BadInput for anything else."""
    if isinstance(value, str):
        return parse_type(value)
    if not isinstance(value, Mapping) or not isinstance(value.get("type"), str):
        raise BadInput(f"not a column type: {value!r}")
    word: str = value["type"].upper()
    is_nullable = "NOT NULL" not in word
    try:
        if word.startswith(Root.ARRAY):
            return ArrayType(type_from_json(value["element"]), is_nullable)
        if word.startswith(Root.MULTISET):
            return MultisetType(type_from_json(value["element"]), is_nullable)
        if word.startswith(Root.VECTOR):
            return VectorType(type_from_json(value["element"]), int(value["length"]), is_nullable)
        if word.startswith(Root.MAP):
            return MapType(type_from_json(value["key"]), type_from_json(value["value"]), is_nullable)
        if word.startswith(Root.ROW):
            return RowType(tuple(field_from_json(f) for f in value["fields"]), is_nullable)
    except KeyError as missing:
        raise BadInput(f"column type {value!r} lacks {missing}") from None
    return parse_type(value["type"])


def field_to_json(field: DataField) -> dict[str, Any]:
    out: dict[str, Any] = {"id": field.id, "name": field.name, "type": type_to_json(field.type)}
    if field.description is not None:
        out["description"] = field.description
    if field.default is not None:
        out["defaultValue"] = field.default
    return out


def field_from_json(value: Mapping[str, Any]) -> DataField:
    return DataField(
        int(value["id"]),
        str(value["name"]),
        type_from_json(value["type"]),
        value.get("description"),
        value.get("defaultValue"),
    )
