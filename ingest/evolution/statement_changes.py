"""What the source's DDL makes of a table's schema. A column that was dropped is only brought back by DDL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ingest.evolution.behavior import Action, ChangeKind, SchemaBehavior
from ingest.formats.ddl_statements import ColumnStatement
from ingest.formats.types.inferred_types import inferred_type
from ingest.formats.types.mysql_types import mysql_source_type
from ingest.tables.column_types import ColumnTypes
from storage.ddl.schema_changes import AddColumn, DropColumn, RenameColumn, SchemaChange
from storage.table import TableContext
from storage.types import nullable


@dataclass(slots=True)
class StatementChanges:
    """changes: to be made.
    left: what is not, and why.
    stops: whether the pipeline does.
    must_be_made: whether it stops where they can't be made.
    """

    changes: list[SchemaChange] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    stops: bool = False
    must_be_made: bool = False


def statement_changes(
    statements: Sequence[ColumnStatement], table: TableContext, behavior: SchemaBehavior, types: ColumnTypes
) -> StatementChanges:
    """Nothing for statements whose effect the table has already."""
    found = StatementChanges()
    names = set(table.schema.names)
    dropped = dropped_columns(table) if behavior.drops_columns else frozenset[str]()
    for statement in statements:
        old, new = statement.old, statement.new
        change: SchemaChange
        if old is None:
            # others come with the first row that has them
            if new is None or new in names or new not in dropped:
                continue
            source = mysql_source_type(statement.type)
            kind = ChangeKind.ADD_COLUMN
            change = AddColumn(new, nullable(types.type_of(new, source, inferred_type(source))))
        elif old not in names:
            continue
        elif new is None:
            kind, change = ChangeKind.DROP_COLUMN, DropColumn(old)
        elif new in names:
            found.left.append(f"{statement}: the table has both, as a row came before the statement")
            continue
        else:
            kind, change = ChangeKind.RENAME_COLUMN, RenameColumn(old, new)
        action = behavior.action(kind)
        if action is Action.STOP:
            found.stops = True
        elif action is Action.IGNORE:
            found.left.append(f"{statement}: `schema_evolution` leaves it out")
        else:
            found.changes.append(change)
            found.must_be_made |= action is Action.APPLY
            names -= {old} if old is not None else set()
            names |= {new} if new is not None else set()
    return found


def dropped_columns(table: TableContext) -> frozenset[str]:
    """Names of columns that earlier versions of the schema had, and that are gone, not renamed."""
    newest = table.schema
    ids = {f.id for f in newest.fields}
    found: set[str] = set()
    for schema_id in table.schemas.ids():
        if schema_id < newest.id:
            found |= {f.name for f in table.schemas.get(schema_id).fields if f.id not in ids}
    return frozenset(found - set(newest.names))
