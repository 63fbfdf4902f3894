"""Iceberg's form of a table's schema.

Ids of columns are those of the table, so an Iceberg reader finds columns in data files by the ids in these files.

Source: Java `iceberg/metadata/IcebergDataField.java`, `IcebergSchema.java`, `table/SpecialFields.java`; Iceberg's
specification, "Schemas and Data Types" and "Appendix C".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tidelake.storage.model.format import NESTED_FIELD_ID_BASE, NESTED_FIELD_ID_DEPTH_LIMIT
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.types import (
    ArrayType,
    AtomicType,
    DataField,
    DataType,
    MapType,
    MultisetType,
    Root,
    RowType,
    VectorType,
    walk_types,
)

IcebergType = str | dict[str, Any]

_PLAIN: Final = {
    Root.BOOLEAN: "boolean",
    Root.TINYINT: "int",
    Root.SMALLINT: "int",
    Root.INT: "int",
    Root.BIGINT: "long",
    Root.FLOAT: "float",
    Root.DOUBLE: "double",
    Root.DATE: "date",
    Root.TIME: "time",
    Root.CHAR: "string",
    Root.VARCHAR: "string",
    Root.BINARY: "binary",
    Root.VARBINARY: "binary",
}
_TIMESTAMPS: Final = {Root.TIMESTAMP: "timestamp", Root.TIMESTAMP_LTZ: "timestamptz"}
MICROSECOND_PRECISION: Final = 6
_LEAST_TIMESTAMP_PRECISION: Final = 3
_GREATEST_TIME_PRECISION: Final = 3
_V3: Final = 3


def iceberg_schema(schema: TableSchema) -> dict[str, Any]:
    """Return the JSON of a schema. Raises ValueError for a type that `unpublishable_types` names."""
    return {"type": "struct", "schema-id": schema.id, "fields": [_field(field) for field in schema.fields]}


def unpublishable_types(schema: TableSchema, format_version: int) -> Iterator[tuple[DataField, str]]:
    """Yield the columns that Iceberg's readers can't read, each with the reason."""
    for field in schema.fields:
        for data_type in walk_types(field.type):
            reason = _unpublishable(data_type, format_version)
            if reason is not None:
                yield field, reason
                break


def _unpublishable(data_type: DataType, format_version: int) -> str | None:
    match data_type.root:
        case Root.VARIANT:
            return "a shredded or plain VARIANT of this format is none of Iceberg's"
        case Root.BLOB:
            return "Iceberg has no type for values in separate files"
        case Root.VECTOR:
            return "Iceberg has no vectors"
    if not isinstance(data_type, AtomicType):
        return None
    if data_type.root is Root.TIME and data_type.precision > _GREATEST_TIME_PRECISION:
        return "data files hold times in milliseconds, so Iceberg readers get at most three digits"
    if data_type.root in _TIMESTAMPS:
        if data_type.precision < _LEAST_TIMESTAMP_PRECISION:
            return "Iceberg's timestamps have at least milliseconds"
        if data_type.precision > MICROSECOND_PRECISION and format_version < _V3:
            return "Iceberg has nanoseconds since format version 3 (metadata.iceberg.format-version)"
    return None


def _field(field: DataField) -> dict[str, Any]:
    members: dict[str, Any] = {
        "id": field.id,
        "name": field.name,
        "required": not field.type.nullable,
        "type": _type(field.type, field.id, 0),
    }
    if field.description is not None:
        members["doc"] = field.description
    return members


def _type(data_type: DataType, field_id: int, depth: int) -> IcebergType:
    """Return a type.

    field_id: of the field that contains it.
    depth: how many arrays, maps and multisets of that field contain it.
    """
    match data_type:
        case ArrayType():
            return {
                "type": "list",
                "element-id": _value_id(field_id, depth + 1),
                "element-required": not data_type.element.nullable,
                "element": _type(data_type.element, field_id, depth + 1),
            }
        case MapType():
            return _map(data_type.key, data_type.value, field_id, depth + 1)
        case MultisetType():
            return _map(data_type.element, AtomicType(Root.INT, nullable=False), field_id, depth + 1)
        case RowType():
            return {"type": "struct", "fields": [_field(inner) for inner in data_type.fields]}
        case VectorType():
            raise ValueError(f"{data_type} has no Iceberg type")
    if data_type.root is Root.DECIMAL:
        return f"decimal({data_type.precision}, {data_type.scale})"
    if data_type.root in _TIMESTAMPS:
        is_fine = data_type.precision > MICROSECOND_PRECISION
        return _TIMESTAMPS[data_type.root] + ("_ns" if is_fine else "")
    if data_type.root not in _PLAIN:
        raise ValueError(f"{data_type} has no Iceberg type")
    return _PLAIN[data_type.root]


def _map(key: DataType, value: DataType, field_id: int, depth: int) -> IcebergType:
    return {
        "type": "map",
        "key-id": NESTED_FIELD_ID_BASE - field_id * NESTED_FIELD_ID_DEPTH_LIMIT - depth,
        "key": _type(key, field_id, depth),
        "value-id": _value_id(field_id, depth),
        "value-required": not value.nullable,
        "value": _type(value, field_id, depth),
    }


def _value_id(field_id: int, depth: int) -> int:
    return NESTED_FIELD_ID_BASE + field_id * NESTED_FIELD_ID_DEPTH_LIMIT + depth
