"""System tables about the schemas of a table: `t$schemas`, `t$options`, `t$aggregation_fields`.

Source: Java `table/system/SchemasTable.java`, `OptionsTable.java`, `AggregationFieldsTable.java`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, ClassVar

import pyarrow as pa

from tidelake.storage.kinds.system_tables.metadata_table import (
    TIME,
    Columns,
    MetadataTable,
    bigint,
    local_time,
    matching_keys,
    text,
)
from tidelake.storage.kinds.system_tables.system_table import SystemTableRead
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import DataField, field_to_json


class SchemasTable(MetadataTable[TableSchema]):
    name = "schemas"
    fields: ClassVar[Sequence[pa.Field]] = (
        bigint("schema_id", nullable=False),
        text("fields", nullable=False),
        text("partition_keys", nullable=False),
        text("primary_keys", nullable=False),
        text("options", nullable=False),
        text("comment"),
        pa.field("update_time", TIME, nullable=False),
    )

    def items(self, at: SystemTableRead) -> Sequence[TableSchema]:
        schemas = at.context.schemas
        return [schemas.get(number) for number in matching_keys(at.predicate, self.fields[0], schemas.ids())]

    def columns(self, items: Sequence[TableSchema], context: TableContext) -> Columns:
        return {
            "schema_id": lambda: [schema.id for schema in items],
            "fields": lambda: [_json([field_to_json(f) for f in schema.fields]) for schema in items],
            "partition_keys": lambda: [_json(schema.partition_keys) for schema in items],
            "primary_keys": lambda: [_json(schema.primary_keys) for schema in items],
            "options": lambda: [_json(dict(schema.options)) for schema in items],
            "comment": lambda: [schema.comment for schema in items],
            "update_time": lambda: [local_time(schema.time_ms) for schema in items],
        }


class OptionsTable(MetadataTable[tuple[str, str]]):
    """The options of the newest schema, as they are stored."""

    name = "options"
    fields: ClassVar[Sequence[pa.Field]] = (text("key", nullable=False), text("value", nullable=False))

    def items(self, at: SystemTableRead) -> Sequence[tuple[str, str]]:
        return list(_newest(at.context).options.items())

    def columns(self, items: Sequence[tuple[str, str]], context: TableContext) -> Columns:
        return {"key": lambda: [key for key, _ in items], "value": lambda: [value for _, value in items]}


class AggregationFieldsTable(MetadataTable[DataField]):
    """The columns of the newest schema, with the `fields.*` options of each."""

    name = "aggregation_fields"
    fields: ClassVar[Sequence[pa.Field]] = (
        text("field_name", nullable=False),
        text("field_type", nullable=False),
        text("function"),
        text("function_options"),
        text("comment"),
    )

    def items(self, at: SystemTableRead) -> Sequence[DataField]:
        return _newest(at.context).fields

    def columns(self, items: Sequence[DataField], context: TableContext) -> Columns:
        of_columns: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for key, value in _newest(context).options.items():
            parts = key.split(".")
            if parts[0] == "fields" and len(parts) > 2:
                of_columns[parts[1]].append((key, value))

        def listed(index: int) -> list[str]:
            return [f"[{', '.join(option[index] for option in of_columns[item.name])}]" for item in items]

        return {
            "field_name": lambda: [item.name for item in items],
            "field_type": lambda: [str(item.type) for item in items],
            "function": lambda: listed(1),
            "function_options": lambda: listed(0),
            "comment": lambda: [item.description for item in items],
        }


def _newest(context: TableContext) -> TableSchema:
    return context.schemas.latest() or context.schema


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
