"""The schema changes that a record needs in its table: which of them are possible, and why the others are not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tidelake.ingest.evolution.behavior import ChangeKind
from tidelake.ingest.formats.base import NeededColumn
from tidelake.ingest.formats.types.inferred_types import is_widening
from tidelake.ingest.formats.types.type_mapping import ALLOW_NON_STRING_TO_STRING, DECIMAL_NO_CHANGE, TypeMapping
from tidelake.ingest.tables.column_types import ColumnTypes
from tidelake.storage.ddl.schema_changes import AddColumn, SchemaChange, UpdateColumnType
from tidelake.storage.model.messages import path_text
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.schema.type_changes import is_wider_key, use_that_fixes_type
from tidelake.storage.model.types import INT, STRING, Root, nullable


@dataclass(frozen=True, slots=True)
class NeededChange:
    """The change that a record needs for one column.

    change: the schema change; None if it is impossible.
    reason: why the change is impossible.
    is_unwanted: the configuration excludes the change, so the pipeline continues without it.
    """

    kind: ChangeKind
    column: NeededColumn
    change: SchemaChange | None
    reason: str = ""
    is_unwanted: bool = False

    def __str__(self) -> str:
        """Return the text for the log: `add note STRING`, `price from DECIMAL(8, 2) to DECIMAL(12, 4)`."""
        name = path_text(self.column.path)
        type_ = nullable(self.column.type or STRING)
        if self.column.found is None:
            return f"add {name} {type_}"
        rewrites = isinstance(self.change, UpdateColumnType) and self.change.rewrites_keys
        rewritten = ", by rewriting all rows" if rewrites else ""
        return f"{name} from {nullable(self.column.found)} to {type_}{rewritten}"


def needed_changes(needed: Sequence[NeededColumn], schema: TableSchema, types: ColumnTypes) -> list[NeededChange]:
    """Return the needed changes, in the order of the columns.

    schema: the table's newest schema.
    types: the configured column types.
    """
    return [_addition(c, types) if c.found is None else _widening(c, schema, types.mapping) for c in needed]


def unchanged_columns(left: Sequence[NeededChange]) -> tuple[list[str], list[str]]:
    """Return two lists for changes that are not made: the record columns to ignore, and the table columns that keep
    their types.
    """
    ignored = [c.column.path[0] for c in left if c.column.found is None and len(c.column.path) == 1]
    fixed = [c.column.path[0] for c in left if c.column.found is not None or len(c.column.path) > 1]
    return ignored, fixed


def _addition(column: NeededColumn, types: ColumnTypes) -> NeededChange:
    column_type = column.type or STRING
    if len(column.path) == 1:
        column_type = types.type_of(column.path[0], column.source, column_type)
    # A column that is NOT NULL at the source becomes nullable here, because existing rows lack it.
    column = replace(column, type=nullable(column_type))
    return NeededChange(
        ChangeKind.ADD_COLUMN, column, AddColumn(column.path, nullable(column_type), column.description)
    )


def _widening(column: NeededColumn, schema: TableSchema, mapping: TypeMapping) -> NeededChange:
    assert column.found is not None
    reason = ""
    becomes_text = ALLOW_NON_STRING_TO_STRING in mapping.words and nullable(column.type or INT) == STRING
    if column.found.root is Root.DECIMAL and DECIMAL_NO_CHANGE in mapping.words:
        return NeededChange(ChangeKind.ALTER_COLUMN_TYPE, column, None, f"`type_mapping` has {DECIMAL_NO_CHANGE}", True)
    if becomes_text:
        pass
    elif column.type is None or not is_widening(column.found, column.type):
        wanted = "it" if column.type is None else str(nullable(column.type))
        reason = f"{nullable(column.found)} can't become {wanted} without changing values or the kind of the type"
    use = None if reason else _type_constraint(column, schema)
    rewrites_keys = use == "primary key" and is_wider_key(column.found, column.type or INT)
    if use is not None and not rewrites_keys:
        reason = f"the type of a column of the {use} can't change"
    change = None
    if not reason and column.type is not None:
        change = UpdateColumnType(column.path, nullable(column.type), rewrites_keys=rewrites_keys)
    return NeededChange(ChangeKind.ALTER_COLUMN_TYPE, column, change, reason)


def _type_constraint(column: NeededColumn, schema: TableSchema) -> str | None:
    if "key" in column.path[1:]:
        return "keys of a MAP"
    return use_that_fixes_type(schema, column.path[0]) if len(column.path) == 1 else None
