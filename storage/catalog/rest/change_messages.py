"""Converts schema changes to the messages of a REST catalog.

Source: Java `schema/SchemaChange.java`, `schema/Schema.java`.
"""

from __future__ import annotations

from itertools import repeat
from typing import Any

import pyarrow as pa

from tidelake.storage.ddl.schema_changes import (
    AddColumn,
    ColumnPath,
    ColumnType,
    DropColumn,
    RemoveOption,
    RenameColumn,
    SchemaChange,
    SetOption,
    UpdateColumnDefault,
    UpdateColumnDescription,
    UpdateColumnNullability,
    UpdateColumnPosition,
    UpdateColumnType,
    UpdateComment,
)
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.types import parse_type, type_from_arrow
from tidelake.storage.model.types.type_json import field_to_json, type_to_json


def schema_message(schema: TableSchema) -> dict[str, Any]:
    """Return the message with the schema of a new table."""
    return {
        "fields": [field_to_json(column) for column in schema.fields],
        "partitionKeys": list(schema.partition_keys),
        "primaryKeys": list(schema.primary_keys),
        "options": dict(schema.options),
        "comment": schema.comment,
    }


def change_message(change: SchemaChange) -> dict[str, Any]:
    match change:
        case AddColumn(name, data_type, description):
            return {
                "action": "addColumn",
                "fieldNames": _path(name),
                "dataType": _type(data_type),
                "comment": description,
                "move": _move(_path(name)[-1], change.first, change.after, None),
            }
        case DropColumn(name):
            return {"action": "dropColumn", "fieldNames": _path(name)}
        case RenameColumn(name, new_name):
            return {"action": "renameColumn", "fieldNames": _path(name), "newName": new_name}
        case UpdateColumnType(name, data_type):
            return {
                "action": "updateColumnType",
                "fieldNames": _path(name),
                "newDataType": _type(data_type),
                "keepNullability": True,
            }
        case UpdateColumnNullability(name, nullable):
            return {"action": "updateColumnNullability", "fieldNames": _path(name), "newNullability": nullable}
        case UpdateColumnDescription(name, description):
            return {"action": "updateColumnComment", "fieldNames": _path(name), "newComment": description}
        case UpdateColumnDefault(name, default):
            return {"action": "updateColumnDefaultValue", "fieldNames": _path(name), "newDefaultValue": default}
        case UpdateColumnPosition(name):
            move = _move(name, change.first, change.after, change.before)
            return {"action": "updateColumnPosition", "move": move}
        case SetOption(key, value):
            return {"action": "setOption", "key": key, "value": value}
        case RemoveOption(key):
            return {"action": "removeOption", "key": key}
        case UpdateComment(comment):
            return {"action": "updateComment", "comment": comment}


def _move(name: str, first: bool, after: str | None, before: str | None) -> dict[str, Any] | None:
    if first:
        return {"fieldName": name, "referenceFieldName": None, "type": "FIRST"}
    if after is not None:
        return {"fieldName": name, "referenceFieldName": after, "type": "AFTER"}
    if before is not None:
        return {"fieldName": name, "referenceFieldName": before, "type": "BEFORE"}
    return None


def _path(name: ColumnPath) -> list[str]:
    return [name] if isinstance(name, str) else list(name)


def _type(given: ColumnType) -> Any:
    if isinstance(given, pa.DataType):
        return type_to_json(type_from_arrow(given, repeat(0).__next__, column="of a change"))
    return type_to_json(parse_type(given) if isinstance(given, str) else given)
