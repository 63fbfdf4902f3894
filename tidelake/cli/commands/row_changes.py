"""`tidelake table delete` and `tidelake table update`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tidelake.cli.arguments import CatalogAddress, Commands, table_command
from tidelake.cli.exits import UsageError
from tidelake.cli.output import CommandOutput

if TYPE_CHECKING:
    from tidelake.storage.read.predicate import Predicate
    from tidelake.storage.write.row_level.row_changes import RowLevelOperation
    from tidelake.table import Table


def add_row_changes(verbs: Commands) -> None:
    deleting = table_command(
        verbs,
        "delete",
        delete,
        "delete the rows that match a condition; older snapshots keep them",
        "Append tables need deletion-vectors.enabled = true: rows are marked as deleted, and compaction removes them.\n"
        "Conditions are written as in `scan`.",
        example="tidelake table delete shop.orders -w lake --where \"status = 'test'\" --dry-run",
    )
    updating = table_command(
        verbs,
        "update",
        update,
        "update the rows that match a condition; older snapshots keep the old values",
        "Append tables need deletion-vectors.enabled = true. Conditions and values are written as in `scan`.",
        example='tidelake table update shop.orders -w lake --set status=paid --where "id in (17, 18)"',
    )
    updating.add_argument(
        "--set",
        dest="assignments",
        action="append",
        required=True,
        metavar="COLUMN=VALUE",
        help="\"status = 'paid'\", amount=3.5, note=NULL; repeatable for several columns",
    )
    for changing in (deleting, updating):
        changing.add_argument("--where", required=True, metavar="CONDITION", help="rows to change")
        changing.add_argument("--dry-run", action="store_true", help="only print how many rows would change")


def delete(out: CommandOutput, *, name: str, catalog: CatalogAddress, where: str, dry_run: bool) -> None:
    from tidelake.storage.read.condition_text import parse_condition
    from tidelake.storage.write.row_level.row_changes import RowLevelOperation

    condition = parse_condition(where)
    table = catalog.open().table(name)
    if dry_run:
        _print_matching_rows(out, table, RowLevelOperation(condition))
    else:
        _print_result(out, table, "deleted", table.delete(condition))


def update(
    out: CommandOutput, *, name: str, catalog: CatalogAddress, where: str, assignments: Sequence[str], dry_run: bool
) -> None:
    from tidelake.storage.read.condition_text import parse_assignment, parse_condition
    from tidelake.storage.write.row_level.assignments import Assignments
    from tidelake.storage.write.row_level.row_changes import RowLevelOperation

    condition = parse_condition(where)
    values: dict[str, Any] = {}
    for text in assignments:
        column, value = parse_assignment(text)
        if column in values:
            raise UsageError(f"--set names column {column} twice")
        values[column] = value
    table = catalog.open().table(name)
    if dry_run:
        _print_matching_rows(out, table, RowLevelOperation(condition, Assignments(values)))
    else:
        _print_result(out, table, "updated", table.update(condition, values))


def _print_matching_rows(out: CommandOutput, table: Table, change: RowLevelOperation) -> None:
    """Count the matching rows. Refuses what a real run would refuse."""
    from tidelake.storage.write.row_level.row_changes import check_rows_can_change

    check_rows_can_change(table.context, change)
    if change.assignments is not None:
        change.assignments.for_table(table.context)
    rows = _matching(table, change.where)
    if out.is_json:
        out.document({"rows": rows, "snapshot": None})
    else:
        done = "deleted" if change.assignments is None else "updated"
        out.text(f"{rows:,} row{'' if rows == 1 else 's'} of {table.name} would be {done}")


def _matching(table: Table, condition: Predicate) -> int:
    columns = sorted(condition.columns)
    return sum(batch.num_rows for batch in table.scan(columns=columns, filter=condition).to_batches())


def _print_result(out: CommandOutput, table: Table, done: str, snapshot_id: int | None) -> None:
    if out.is_json:
        out.document({"snapshot": snapshot_id})
    elif snapshot_id is None:
        out.text(f"no row of {table.name} matches the condition: nothing was {done}")
    else:
        out.text(f"{done} in snapshot {snapshot_id} of {table.name}")
