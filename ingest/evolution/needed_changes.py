"""What a record needs of a table, as changes of its schema: which can be made, and why the others can't."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ingest.evolution.behavior import ChangeKind
from ingest.evolution.type_rules import is_widening
from ingest.formats.base import NeededColumn
from storage.ddl.schema_changes import AddColumn, SchemaChange, UpdateColumnType
from storage.messages.alter_command import path_text
from storage.options.values import parse_names
from storage.schema.table_schema import TableSchema
from storage.types import STRING, nullable


@dataclass(frozen=True, slots=True)
class NeededChange:
    """One column.

    change: None where it can't be made.
    reason: why it can't.
    """

    kind: ChangeKind
    column: NeededColumn
    change: SchemaChange | None
    reason: str = ""

    def __str__(self) -> str:
        """For the log: `add note STRING`, `price from DECIMAL(8, 2) to DECIMAL(12, 4)`."""
        name = path_text(self.column.path)
        type_ = nullable(self.column.type or STRING)
        if self.column.found is None:
            return f"add {name} {type_}"
        return f"{name} from {nullable(self.column.found)} to {type_}"


def needed_changes(needed: Sequence[NeededColumn], schema: TableSchema) -> list[NeededChange]:
    """In the order given. Nothing for columns that the schema has already is left out: it is asked of the newest."""
    return [_addition(column) if column.found is None else _widening(column, schema) for column in needed]


def _addition(column: NeededColumn) -> NeededChange:
    # NOT NULL at the source is nullable here: rows that are there lack the column.
    added = AddColumn(column.path, nullable(column.type or STRING), column.description)
    return NeededChange(ChangeKind.ADD_COLUMN, column, added)


def _widening(column: NeededColumn, schema: TableSchema) -> NeededChange:
    assert column.found is not None
    reason = ""
    if column.type is None or not is_widening(column.found, column.type):
        wanted = "it" if column.type is None else str(nullable(column.type))
        reason = f"{nullable(column.found)} can't become {wanted} without touching values or their kind"
    elif (use := _fixed_by(column, schema)) is not None:
        reason = f"the type of a column of the {use} can't change"
    change = None if reason or column.type is None else UpdateColumnType(column.path, nullable(column.type))
    return NeededChange(ChangeKind.ALTER_COLUMN_TYPE, column, change, reason)


def _fixed_by(column: NeededColumn, schema: TableSchema) -> str | None:
    if "key" in column.path[1:]:
        return "keys of a MAP"
    for use, names in (
        ("primary key", schema.primary_keys),
        ("partition", schema.partition_keys),
        ("bucket key", parse_names(schema.options.get("bucket-key", ""))),
    ):
        if column.path == (column.path[0],) and column.path[0] in names:
            return use
    return None
