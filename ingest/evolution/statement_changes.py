"""What the source's DDL makes of a table's schema. A column that was dropped is only brought back by DDL."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from ingest.evolution.behavior import Action, ChangeKind, SchemaBehavior
from ingest.formats.ddl_statements import ColumnStatement
from ingest.formats.types.inferred_types import inferred_type
from ingest.formats.types.mysql_types import mysql_source_type
from ingest.tables.column_types import ColumnTypes
from storage.ddl.schema_changes import AddColumn, DropColumn, RenameColumn, SchemaChange
from storage.table import TableContext
from storage.types import nullable

_IN_A_CIRCLE: Final = (
    "columns take one another's names, and who reads the record again after a crash can't tell whether they have. "
    "Rename them with `tidelake table alter`, by way of a third name, and pass over this record (`--skip-record`)"
)


@dataclass(slots=True)
class StatementChanges:
    """changes: to be made.
    left: what is not, and why.
    stops: whether the pipeline does.
    must_be_made: whether it stops where they can't be made.
    refused: why it stops all the same; "" where it doesn't.
    """

    changes: list[SchemaChange] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    stops: bool = False
    must_be_made: bool = False
    refused: str = ""


def statement_changes(
    statements: Sequence[ColumnStatement], table: TableContext, behavior: SchemaBehavior, types: ColumnTypes
) -> StatementChanges:
    """Nothing for statements whose effect the table has already."""
    found = StatementChanges()
    names = set(table.schema.names)
    dropped = dropped_columns(table) if behavior.drops_columns else frozenset[str]()
    statements = _not_done(statements, names)
    for statement in _in_order(statements, names):
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
        elif new in names and _leads_back(statement, statements):
            action = behavior.action(ChangeKind.RENAME_COLUMN)
            if action is Action.IGNORE:
                found.left.append(f"{statement}: `schema_evolution` leaves it out")
            elif action is Action.TRY:
                found.left.append(f"{statement}: {_IN_A_CIRCLE}")
            else:
                found.refused = f"{statement}: {_IN_A_CIRCLE}"
            continue
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
            dropped |= {old} if old is not None and new is None else set()
    return found


def _not_done(statements: Sequence[ColumnStatement], names: Collection[str]) -> list[ColumnStatement]:
    """Without those that a process before a crash has carried out.

    `DROP b, RENAME a TO b` leaves a `b` that must stay: where the first column of such a chain is gone, all is done.
    """
    origins = {s.new: s.old for s in statements if s.old is not None and s.new is not None}

    def is_done(statement: ColumnStatement) -> bool:
        first, passed = statement.old, set[str]()
        while first is not None and first in origins and first not in passed:
            passed.add(first)
            first = origins[first]
        return bool(passed) and first not in passed and first not in names

    return [statement for statement in statements if not is_done(statement)]


def _in_order(statements: Sequence[ColumnStatement], names: Collection[str]) -> list[ColumnStatement]:
    """Those of one statement mean the columns as they were before it: a name is taken after it was given away."""
    waiting, ordered, taken = list(statements), list[ColumnStatement](), set(names)
    while waiting:
        given = [s.old for s in waiting if s.old is not None]
        free = [s for s in waiting if s.new is None or s.new not in taken or s.new not in given]
        statement = (free or waiting)[0]
        waiting.remove(statement)
        ordered.append(statement)
        taken.discard(statement.old or "")
        taken.add(statement.new or "")
    return ordered


def _leads_back(statement: ColumnStatement, statements: Sequence[ColumnStatement]) -> bool:
    """Whether its column's new name is that of a column that is renamed, and so on, back to itself."""
    renames = {s.old: s.new for s in statements if s.new is not None}
    at = statement.new
    for _ in renames:
        if at == statement.old:
            return True
        at = renames.get(at)
    return False


def dropped_columns(table: TableContext) -> frozenset[str]:
    """Names of columns that earlier versions of the schema had, and that are gone, not renamed."""
    newest = table.schema
    ids = {f.id for f in newest.fields}
    found: set[str] = set()
    for schema_id in table.schemas.ids():
        if schema_id < newest.id:
            found |= {f.name for f in table.schemas.get(schema_id).fields if f.id not in ids}
    return frozenset(found - set(newest.names))
