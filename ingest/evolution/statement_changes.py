"""The schema changes that the source's DDL causes in a table. Only DDL adds a dropped column again."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from tidelake.ingest.derived.computed_columns import made_of
from tidelake.ingest.evolution.behavior import Action, ChangeKind, SchemaBehavior
from tidelake.ingest.formats.ddl_statements import ColumnStatement
from tidelake.ingest.formats.types.inferred_types import inferred_type
from tidelake.ingest.formats.types.mysql_types import mysql_source_type
from tidelake.ingest.shaping.shaped_columns import ShapedColumns
from tidelake.ingest.tables.column_types import ColumnTypes
from tidelake.storage.ddl.schema_changes import AddColumn, DropColumn, RenameColumn, SchemaChange
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import nullable
from tidelake.storage.read.condition_text import parse_condition

_RENAME_CYCLE_ERROR: Final = (
    "columns exchange their names. If the record is read again after a crash, it is unknown whether they have been "
    "renamed. Rename them with `tidelake table alter`, using a third name, and skip this record (`--skip-record`)"
)


@dataclass(slots=True)
class StatementChanges:
    """The effect of DDL statements on a table.

    changes: the schema changes to make.
    left: the statements that are not applied, each with its reason.
    stops: whether the pipeline stops, as configured.
    must_be_made: whether the pipeline stops if the changes are impossible.
    refused: why the pipeline stops although the configuration allows the change; "" if it doesn't stop.
    """

    changes: list[SchemaChange] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    stops: bool = False
    must_be_made: bool = False
    refused: str = ""


def statement_changes(
    statements: Sequence[ColumnStatement], table: TableContext, behavior: SchemaBehavior, types: ColumnTypes
) -> StatementChanges:
    """Return the effect of the statements. Statements that the table already reflects have none."""
    found = StatementChanges()
    names = set(table.schema.names)
    dropped = dropped_columns(table) if behavior.drops_columns else frozenset[str]()
    statements = _not_applied(statements, names)
    for statement in _in_order(statements, names):
        old, new = statement.old, statement.new
        change: SchemaChange
        if old is None:
            # Only dropped columns are added here; others are added with the first row that has them.
            if new is None or new in names or new not in dropped:
                continue
            source = mysql_source_type(statement.type)
            kind = ChangeKind.ADD_COLUMN
            change = AddColumn(new, nullable(types.type_of(new, source, inferred_type(source))))
        elif old not in names:
            continue
        elif new is not None and types.shape.renamed.get(new) == old:
            continue  # `rename_columns` follows a statement that was recorded before it was written
        elif unfollowed := _why_settings_must_follow(statement, types.shape):
            found.refused = f"{statement}: {unfollowed}"
            continue
        elif impossible := _why_impossible(statement, statements, names, types):
            action = behavior.action(ChangeKind.DROP_COLUMN if new is None else ChangeKind.RENAME_COLUMN)
            if action is Action.IGNORE:
                found.left.append(f"{statement}: `schema_evolution` ignores it")
            elif action is Action.TRY:
                found.left.append(f"{statement}: {impossible}")
            else:
                found.refused = f"{statement}: {impossible}"
            continue
        elif new is None:
            kind, change = ChangeKind.DROP_COLUMN, DropColumn(old)
        elif new in names:
            found.left.append(f"{statement}: the table has both columns, as a row arrived before the statement")
            continue
        else:
            kind, change = ChangeKind.RENAME_COLUMN, RenameColumn(old, new)
        action = behavior.action(kind)
        if action is Action.STOP:
            found.stops = True
        elif action is Action.IGNORE:
            found.left.append(f"{statement}: `schema_evolution` ignores it")
        else:
            found.changes.append(change)
            found.must_be_made |= action is Action.APPLY
            names -= {old} if old is not None else set()
            names |= {new} if new is not None else set()
            dropped |= {old} if old is not None and new is None else set()
    return found


def _why_settings_must_follow(statement: ColumnStatement, shape: ShapedColumns) -> str:
    """Return which setting still names a column that the source renamed or dropped; "" if none does.

    The table stops even if the configuration ignores the statement: values would come without their mask, rows would
    stop matching the filter, and a column would stay empty or be dropped.
    """
    old, new = statement.old, statement.new
    assert old is not None
    is_filtered = shape.filter is not None and old in parse_condition(shape.filter).columns
    if new is None:
        return f"`filter` needs {old}. Change `filter`" if is_filtered else ""
    is_left_out = not shape.takes(new)
    if is_left_out and shape.kept is None:
        return f"`drop_columns` leaves out {new}, which is now the name of {old}. Take {new} out of it"
    setting = "masks" if old in shape.masks else "filter" if is_filtered else "keep_columns" if is_left_out else ""
    if not setting:
        return ""
    kept = f", with {new} in `keep_columns` in place of {old}" if is_left_out else ""
    too = " and in `keep_columns`" if is_left_out and setting != "keep_columns" else ""
    return (
        f"`{setting}` names {old}, not {new}. Write `rename_columns: {{{new}: {old}}}`{kept}; or rename {old} with "
        f"`tidelake table alter`, and name {new} in `{setting}`{too}"
    )


def _why_impossible(
    statement: ColumnStatement, statements: Sequence[ColumnStatement], names: Collection[str], types: ColumnTypes
) -> str:
    """Return why the column of the table can't be renamed or dropped; "" if it can."""
    old, new = statement.old, statement.new
    assert old is not None
    if new is not None and new in names:
        return _RENAME_CYCLE_ERROR if _is_in_rename_cycle(statement, statements) else ""
    if derived := made_of(old, types.derived.computed):
        remedy = (
            "Take it out of `computed_columns`"
            if new is None
            else f"Rename {old} with `tidelake table alter`, and name {new} in `computed_columns`"
        )
        return (
            f"the computed column {', '.join(derived)} is made of {old}. {remedy}; or pass over this record "
            "(`--skip-record`)"
        )
    return ""


def _not_applied(statements: Sequence[ColumnStatement], names: Collection[str]) -> list[ColumnStatement]:
    """Return the statements without those that were applied before a crash.

    `DROP b, RENAME a TO b` results in a column `b` that must not be dropped again. If the first column of such a chain
    doesn't exist, all statements of the chain were applied.
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
    """Return the changes of one statement in an order in which each name is free before it is used again.

    All of them refer to the columns before the statement.
    """
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


def _is_in_rename_cycle(statement: ColumnStatement, statements: Sequence[ColumnStatement]) -> bool:
    """Return whether the statement is part of a circle of renamed columns."""
    renames = {s.old: s.new for s in statements if s.new is not None}
    at = statement.new
    for _ in renames:
        if at == statement.old:
            return True
        at = renames.get(at)
    return False


def dropped_columns(table: TableContext) -> frozenset[str]:
    """Return the names of columns of earlier schemas that were dropped, not renamed."""
    newest = table.schema
    ids = {f.id for f in newest.fields}
    found: set[str] = set()
    for schema_id in table.schemas.ids():
        if schema_id < newest.id:
            found |= {f.name for f in table.schemas.get(schema_id).fields if f.id not in ids}
    return frozenset(found - set(newest.names))
