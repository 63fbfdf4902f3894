"""`tidelake table explain`, and the findings of `tidelake table verify --changelog`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from tidelake.cli.arguments import CatalogAddress
from tidelake.cli.exits import ExitCode, UsageError
from tidelake.cli.formatting import cut_text, printable, value_text
from tidelake.cli.output import CommandOutput
from tidelake.row_origin import members_of_version, merge_description, plain_row, source_ranges, writer_of
from tidelake.storage.base.errors import BadInput
from tidelake.storage.maintenance.verify.changelog_check import ChangelogReport, check_changelog
from tidelake.storage.maintenance.verify.row_history import RowHistory, row_history
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.table import Table

_VALUE_CELLS: Final = 80


def explain(
    out: CommandOutput,
    *,
    name: str,
    catalog: CatalogAddress,
    key: Sequence[tuple[str, str]],
    snapshot: int | None,
) -> None:
    table = catalog.open().table(name)
    history = row_history(table.context, _values(table.context.schema, key), snapshot)
    if out.is_json:
        out.document(_members(table, history))
    else:
        _print_history(out, table, history)


def _values(schema: TableSchema, key: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Convert typed texts to values of their columns.

    Raises BadInput for an unknown column, or a text not of its type.
    """
    if len({name for name, _ in key}) != len(key):
        raise UsageError("--key names a column twice")
    values = {}
    for name, text in key:
        if name not in schema.names:
            raise BadInput(f"no column {name!r}; the key has {', '.join(schema.primary_keys)}")
        kind = schema.arrow.field(name).type
        try:
            values[name] = pa.scalar(text).cast(kind)
        except (pa.ArrowException, ValueError):
            raise BadInput(
                f"--key {name}={text}: column {name} has type {kind}, and this text is not a value of that type"
            ) from None
    return values


def _members(table: Table, history: RowHistory) -> dict[str, Any]:
    return {
        "key": plain_row(history.key),
        "snapshot": history.snapshot.id,
        "visible": None if history.visible is None else plain_row(history.visible),
        "merge": merge_description(table.context, history),
        "versions": [members_of_version(version) for version in history.versions],
        "changes": [
            {"snapshot": change.snapshot.id, "kind": change.kind.symbol, "row": plain_row(change.row)}
            for change in history.changes
        ],
    }


def _print_history(out: CommandOutput, table: Table, history: RowHistory) -> None:
    _line(out, f"{_row_text(history.key)} of {table.name} at snapshot {history.snapshot.id}:")
    _line(out, f"  {_row_text(history.visible)}" if history.visible is not None else "  no row")
    _line(out, f"  {merge_description(table.context, history)}")
    _line(out, "versions in files, oldest first; *: merged by a read of this snapshot")
    for version in history.versions:
        at = "?" if version.snapshot is None else str(version.snapshot.id)
        mark = "*" if version.is_live else " "
        _line(
            out,
            f"{mark} #{at} {version.kind.symbol} {_row_text(version.row)}\n"
            f"     sequence {version.sequence_number}, level {version.level}, bucket {version.bucket}, "
            f"{version.file_name}, by {writer_of(version)}",
        )
        for source, (start, end) in source_ranges(version.snapshot).items():
            _line(out, f"     source {source}: offsets {start} to {end - 1}")
    _line(out, "changelog, oldest first" if history.changes else "the changelog has no change of this key")
    for change in history.changes:
        _line(out, f"  #{change.snapshot.id} {change.kind.symbol} {_row_text(change.row)}")


# ---------------------------------------------------------------- verify --changelog


def verify_changelog(out: CommandOutput, table: Table, start: int | None, end: int | None) -> ExitCode:
    """Verify the changelog. Returns exit code 1 if it does not match the table."""
    report = check_changelog(table.context, start, end)
    key = report.first.key if report.first is not None else report.first_ill_formed
    history = None
    if key is not None:
        named = {name: key.column(name)[0] for name in key.schema.names}
        history = row_history(table.context, named, report.end)
    if out.is_json:
        out.document(_report_members(table, report, history))
    else:
        _print_report(out, table, report, history)
    return ExitCode.DONE if report.is_sound else ExitCode.FAILED


def _report_members(table: Table, report: ChangelogReport, history: RowHistory | None) -> dict[str, Any]:
    first = report.first
    return {
        "sound": report.is_sound,
        "start": report.start,
        "end": report.end,
        "overwritten": report.overwritten,
        "keys": report.keys,
        "changes": report.changes,
        "differing": report.differing,
        "illFormed": report.ill_formed,
        "first": None
        if first is None
        else {
            "key": plain_row(first.key),
            "folded": None if first.replayed is None else plain_row(first.replayed),
            "there": None if first.there is None else plain_row(first.there),
        },
        "firstIllFormed": None if report.first_ill_formed is None else plain_row(report.first_ill_formed),
        "history": None if history is None else _members(table, history),
    }


def _print_report(out: CommandOutput, table: Table, report: ChangelogReport, history: RowHistory | None) -> None:
    if report.overwritten:
        numbers = ", ".join(map(str, report.overwritten))
        _line(out, f"rows were overwritten in snapshot {numbers}: the check starts after it")
    begin = "the empty table" if report.start is None else f"snapshot {report.start}"
    _line(
        out,
        f"{begin} and {report.changes:,} changes, compared with snapshot {report.end} of {table.name}: "
        f"{report.keys:,} keys",
    )
    if report.differing:
        _line(out, f"WRONG  {report.differing:,} keys whose row differs from the replayed changelog")
    if report.ill_formed:
        _line(out, f"WRONG  {report.ill_formed:,} keys with a change that contradicts the previous row")
    if report.first is not None:
        _line(out, f"first: {_row_text(report.first.key)}")
        _line(out, f"  replayed   {_row_text(report.first.replayed)}")
        _line(out, f"  the table  {_row_text(report.first.there)}")
    if history is not None:
        _print_history(out, table, history)
    _line(
        out,
        "sound"
        if report.is_sound
        else "the changelog does not match the table. Report this and keep the table unchanged",
    )


def _row_text(row: pa.RecordBatch | None) -> str:
    """Return a row as text. Long values are cut; `--json` prints them whole."""
    if row is None:
        return "no row"
    return " ".join(f"{name}={cut_text(value_text(value), _VALUE_CELLS)}" for name, value in plain_row(row).items())


def _line(out: CommandOutput, text: str) -> None:
    out.console.print(printable(text, may_break=True), soft_wrap=True)
