"""`tidelake table alter`: changes columns, options and the comment of a table together."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tidelake.cli.arguments import CatalogAddress, Commands, table_command
from tidelake.cli.exits import UsageError
from tidelake.cli.output import CommandOutput

if TYPE_CHECKING:
    from tidelake.storage.ddl.schema_changes import SchemaChange
    from tidelake.storage.model.schema.table_schema import TableSchema
    from tidelake.storage.model.types import DataField
    from tidelake.table import Table


def add_alter(verbs: Commands) -> None:
    parser = table_command(
        verbs,
        "alter",
        alter,
        "change a table's columns, options and comment in one step",
        "Changes are applied in the order given; each is repeatable. No file is rewritten: older rows are read with\n"
        "the new schema, older snapshots with their own. A nested field is named by its path: address.city for a ROW,\n"
        "items.element.price in an ARRAY, sizes.value for a MAP. Put names with other characters than letters, digits\n"
        "and _ in `backquotes`.",
        example="tidelake table alter shop.orders -w lake --add-column 'note STRING' --set write-only=true",
    )
    parser.set_defaults(changes=[])
    changes = parser.add_argument_group("changes")
    for option, metavar, summary in (
        ("--add-column", "COLUMN", "'note STRING', \"note STRING COMMENT 'text' FIRST\", 'note STRING AFTER id'"),
        ("--drop", "COLUMN", "drop a column and its values"),
        ("--rename", "COLUMN=NAME", "keys and options that name the column are updated"),
        ("--set-type", "COLUMN", "'amount DECIMAL(18,2)'; older rows are cast when they are read"),
        ("--set-nullable", "COLUMN", "allow nulls"),
        ("--set-not-null", "COLUMN", "allow no nulls from now on"),
        ("--set-default", "COLUMN=VALUE", "value that writers use where a row has none"),
        ("--drop-default", "COLUMN", "remove the default value of a column; the default is then null"),
        ("--comment-column", "COLUMN=TEXT", "comment of a column; an empty string removes it"),
        ("--move", "COLUMN", "'note FIRST', 'note AFTER id', 'note BEFORE id'"),
        ("--set", "KEY=VALUE", "table option of Paimon, as in --set bucket=4"),
        ("--unset", "KEY", "reset an option to its default"),
        ("--comment", "TEXT", "comment of the table; '' removes it"),
    ):
        changes.add_argument(option, action=_CollectChanges, dest="changes", metavar=metavar, help=summary)
    parser.add_argument("--dry-run", action="store_true", help="only print what would change")


class _CollectChanges(argparse.Action):
    """Collects changes of different kinds in the order of the command line.

    Each change applies to the result of the one before.
    """

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, value: Any, option: str | None = None
    ) -> None:
        namespace.changes = [*namespace.changes, (option, value)]


def alter(
    out: CommandOutput, *, name: str, catalog: CatalogAddress, changes: Sequence[tuple[str, str]], dry_run: bool
) -> None:
    """Alter a table.

    changes: pairs of option and value, in the order of the command line.
    """
    from tidelake.cli.schema_texts import parse_change

    if not changes:
        raise UsageError("no change given: pass --add-column, --drop, --rename, --set-type, --set, …; see --help")
    parsed = [parse_change(option, text) for option, text in changes]
    opened = catalog.open()
    table = opened.table(name)
    before = table.context.schema
    after = _planned(table, parsed) if dry_run else opened.alter_table(name, parsed).context.schema
    if out.is_json:
        out.document(_members(table.name, before, after, dry_run=dry_run))
        return
    differences = list(_differences(before, after))
    for line in differences:
        out.line(line)
    if not differences:
        out.note(f"{table.name} already has these values; nothing was changed")
    elif dry_run:
        out.note(f"nothing was changed; without --dry-run this would become schema {after.id} of {table.name}")
    else:
        out.note(f"schema {after.id} of {table.name}; running writers use it after a restart")


def _planned(table: Table, changes: Sequence[SchemaChange]) -> TableSchema:
    from tidelake.storage.base.clock import epoch_ms
    from tidelake.storage.ddl.schema_changes import apply_changes
    from tidelake.storage.maintenance.altered_rows import check_rows_stay_readable

    check_rows_stay_readable(table.context, changes)
    has_snapshots = table.context.snapshots.latest_id() is not None
    return apply_changes(table.context.schema, changes, has_snapshots=has_snapshots, time_ms=epoch_ms())


def _members(name: str, before: TableSchema, after: TableSchema, *, dry_run: bool) -> dict[str, Any]:
    differences = list(_differences(before, after))
    return {
        "name": name,
        "altered": bool(differences) and not dry_run,
        "schema_id": before.id if dry_run or not differences else after.id,
        "differences": differences,
        "columns": [
            {"id": f.id, "name": f.name, "type": str(f.type), "description": f.description, "default": f.default}
            for f in after.fields
        ],
        "primary_key": list(after.primary_keys),
        "options": dict(sorted(after.options.items())),
        "comment": after.comment,
    }


def _differences(before: TableSchema, after: TableSchema) -> Iterator[str]:
    """Yield a line for each changed column, option and comment. Columns are compared by their ids."""
    from tidelake.storage.model.messages import path_text

    old, new = {f.id: f for f in before.fields}, {f.id: f for f in after.fields}
    for field in before.fields:
        if field.id not in new:
            yield f"- column {_column(field)}"
    for field in after.fields:
        if field.id not in old:
            yield f"+ column {_column(field)}"
        elif field != old[field.id]:
            yield f"~ column {_column(old[field.id])} → {_column(field)}"
    if [id_ for id_ in old if id_ in new] != [id_ for id_ in new if id_ in old]:
        yield f"~ order of columns: {', '.join(path_text(f.name) for f in after.fields)}"
    for key in sorted({*before.options, *after.options}):
        old_value, new_value = before.options.get(key), after.options.get(key)
        if old_value is None:
            yield f"+ option {key} = {new_value}"
        elif new_value is None:
            yield f"- option {key} = {old_value}"
        elif old_value != new_value:
            yield f"~ option {key} = {old_value} → {new_value}"
    if before.comment != after.comment:
        yield f"~ comment {before.comment!r} → {after.comment!r}"


def _column(field: DataField) -> str:
    from tidelake.storage.model.messages import path_text

    comment = f" COMMENT '{field.description}'" if field.description else ""
    default = "" if field.default is None else f" DEFAULT {field.default}"
    return f"{path_text(field.name)} {field.type}{default}{comment}"
