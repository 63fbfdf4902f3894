"""Converts schema changes to the messages of a REST catalog, and back.

Source: Java `schema/SchemaChange.java`, `schema/Schema.java`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Any

import pyarrow as pa

from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.storage.ddl.schema_changes import (
    AddColumn,
    CatalogChange,
    ColumnPath,
    ColumnType,
    DropColumn,
    Redefinition,
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
    UpdatePrimaryKey,
    apply_changes,
)
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.types import nullable, parse_type, type_from_arrow
from tidelake.storage.model.types.type_json import field_to_json, type_from_json, type_to_json


def schema_message(schema: TableSchema) -> dict[str, Any]:
    """Return the message with the schema of a new table."""
    return {
        "fields": [field_to_json(column) for column in schema.fields],
        "partitionKeys": list(schema.partition_keys),
        "primaryKeys": list(schema.primary_keys),
        "options": dict(schema.options),
        "comment": schema.comment,
    }


def change_message(change: CatalogChange) -> dict[str, Any]:
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
        case UpdatePrimaryKey() | Redefinition():
            raise UnsupportedFeature(
                "a change of the primary key", "Paimon's REST API has none", "Create another table"
            )


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


# ---------------------------------------------------------------- from messages


def parse_changes(messages: Sequence[Mapping[str, Any]], schema: TableSchema) -> list[SchemaChange]:
    """Return the changes of the messages of a client.

    schema: the table's schema, for positions that name no column.

    Raises BadInput for what is not a message, and for a change that can't be applied after those before it.
    """
    changes: list[SchemaChange] = []
    for message in messages:
        try:
            changes += _parsed(message, schema, changes)
        except (LookupError, TypeError, ValueError, AttributeError) as e:
            reason = f"it lacks the member {e}" if isinstance(e, KeyError) else str(e)
            raise BadInput(f"a schema change can't be read: {reason}: {dict(message)!r}") from None
    return changes


def _parsed(message: Mapping[str, Any], schema: TableSchema, before: Sequence[SchemaChange]) -> list[SchemaChange]:
    """before: the changes that come before this one."""
    match message["action"]:
        case "addColumn":
            path = tuple(map(str, message["fieldNames"]))
            place = _place(message.get("move"), path, schema, before)
            return [AddColumn(path, type_from_json(message["dataType"]), message.get("comment"), *place)]
        case "dropColumn":
            return [DropColumn(tuple(message["fieldNames"]))]
        case "renameColumn":
            return [RenameColumn(tuple(message["fieldNames"]), message["newName"])]
        case "updateColumnType":
            path, data_type = tuple(message["fieldNames"]), type_from_json(message["newDataType"])
            change: list[SchemaChange] = [UpdateColumnType(path, nullable(data_type))]
            if not message.get("keepNullability", False):
                change.append(UpdateColumnNullability(path, data_type.nullable))
            return change
        case "updateColumnNullability":
            return [UpdateColumnNullability(tuple(message["fieldNames"]), message["newNullability"])]
        case "updateColumnComment":
            return [UpdateColumnDescription(tuple(message["fieldNames"]), message.get("newComment"))]
        case "updateColumnDefaultValue":
            return [UpdateColumnDefault(tuple(message["fieldNames"]), message.get("newDefaultValue"))]
        case "updateColumnPosition":
            name = message["move"]["fieldName"]
            first, after = _place(message["move"], (name,), schema, before)
            return [UpdateColumnPosition(name, first=first, after=after)] if first or after is not None else []
        case "setOption":
            return [SetOption(message["key"], message["value"])]
        case "removeOption":
            return [RemoveOption(message["key"])]
        case "updateComment":
            return [UpdateComment(message.get("comment"))]
        case "dropPrimaryKey":
            raise UnsupportedFeature(
                "a change that drops the primary key",
                "rows of a key would then appear several times",
                "Create a table without it, and write the rows of a scan",
            )
    raise BadInput(f"{message['action']!r} is not a change of a schema")


def _place(
    move: Mapping[str, Any] | None, path: tuple[str, ...], schema: TableSchema, before: Sequence[SchemaChange]
) -> tuple[bool, str | None]:
    """Return `first` and `after` of the change for a Move of Java. Neither is the default place."""
    kind = None if move is None else move["type"]
    if move is None or kind == "FIRST":
        return kind == "FIRST", None
    if kind == "AFTER":
        return False, move["referenceFieldName"]
    if len(path) > 1:
        raise BadInput(f"column {'.'.join(path)}: a nested column can be placed first or after another one only")
    names = apply_changes(schema, before, has_snapshots=False, time_ms=0).names if before else schema.names
    others = [name for name in names if name != path[0]]
    position = len(others) if kind == "LAST" else others.index(move["referenceFieldName"])
    return position == 0, others[position - 1] if position else None
