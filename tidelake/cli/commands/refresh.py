"""`tidelake table refresh`: refreshes a materialized table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from tidelake.cli.arguments import CatalogAddress, Commands, duration_ms, pair, table_command
from tidelake.cli.exits import UsageError
from tidelake.cli.output import CommandOutput

if TYPE_CHECKING:
    from tidelake.materialized.refresh_result import Refreshed


def add_refresh(verbs: Commands) -> None:
    parser = table_command(
        verbs,
        "refresh",
        refresh,
        "refresh a materialized table",
        "Applies only changed rows when the query and its source allow it. Otherwise it recomputes all rows and\n"
        "prints the reason. The query runs in this process with DuckDB: pip install 'tidelake[sql]'.",
        example="tidelake table refresh shop.revenue -w lake --every '10 min'",
    )
    parser.add_argument("--full", action="store_true", help="recompute all rows")
    parser.add_argument("--when-due", action="store_true", help="only if rows are older than the table's freshness")
    parser.add_argument(
        "--dialect",
        choices=("duckdb",),
        help="the query is in DuckDB's SQL; by default only queries are accepted that mean the same in every dialect",
    )
    parser.add_argument(
        "--source",
        dest="sources",
        action="append",
        type=pair,
        default=[],
        metavar="NAME=TABLE",
        help="the table that a name in the query refers to; repeatable; default: tables of the same database",
    )
    parser.add_argument("--every", metavar="TIME", help="repeat at this interval ('10 min') until Ctrl-C")


def refresh(
    out: CommandOutput,
    *,
    name: str,
    catalog: CatalogAddress,
    full: bool,
    when_due: bool,
    dialect: str | None,
    sources: Sequence[tuple[str, str]],
    every: str | None,
) -> None:
    """Refresh a materialized table.

    every: repeat at this interval until SIGINT or SIGTERM; the first error ends it.
    """
    from tidelake.compaction.cancellation import cancelled_by_signals
    from tidelake.materialized.refresh_result import RefreshKind

    opened = catalog.open()

    def once() -> Refreshed:
        return opened.refresh_table(name, full=full, when_due=when_due, dialect=dialect, sources=dict(sources))

    if every is None:
        _show(out, once(), is_only=True)
        return
    wait_ms = _wait_ms(every)
    with cancelled_by_signals() as cancellation:
        out.note(f"refreshing {name} every {every}; Ctrl-C ends it")
        while not cancellation.is_cancelled:
            done = once()
            if done.kind is not RefreshKind.NONE:
                _show(out, done, is_only=False)
            cancellation.wait_ms(wait_ms)


def _wait_ms(every: str) -> int:
    wait_ms = duration_ms("--every", every)
    if wait_ms < 1:
        raise UsageError(f"--every {every}: the time must be longer than 0, for example '10 min'")
    return wait_ms


def _show(out: CommandOutput, done: Refreshed, *, is_only: bool) -> None:
    from tidelake.materialized.refresh_result import RefreshKind

    if out.is_json:
        members = {**asdict(done), "kind": done.kind.value}
        out.document(members) if is_only else out.lines([members])
        return
    match done.kind:
        case RefreshKind.NONE:
            text = f"{done.table} was not refreshed: {done.reason}"
        case RefreshKind.INCREMENTAL:
            text = f"{done.table}: snapshot {done.snapshot_id}, {done.reason}"
        case RefreshKind.FULL:
            text = f"{done.table}: snapshot {done.snapshot_id}, all rows, because {done.reason}"
    out.line(text)
