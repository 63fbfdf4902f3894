"""`tidelake table compact`: rewrites files into fewer, once or until it is stopped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tidelake.cli.arguments import TABLE_NAME, CatalogAddress, Commands, add_warehouse, command, names
from tidelake.cli.exits import ExitCode, UsageError
from tidelake.cli.formatting import partition_text, size_text
from tidelake.cli.output import CommandOutput
from tidelake.errors import TidelakeError, UnsupportedFeature

if TYPE_CHECKING:
    from rich.table import Table as Grid

    from tidelake.compaction.cancellation import CancellationToken
    from tidelake.compaction.jobs.request import CompactionRequest
    from tidelake.compaction.report import BucketCompaction, CompactionReport
    from tidelake.storage.model.table import TableContext

_BUCKETS_SHOWN: Final = 20


def add_compact(verbs: Commands) -> None:
    parser = command(
        verbs,
        "compact",
        compact,
        "rewrite files into fewer, for faster reads; rows do not change",
        "Compacts what is due, or everything with --full. Writers can continue. With --watch it is the compaction\n"
        "job of tables whose writers have write-only = true. SIGTERM or Ctrl-C commits what is being rewritten, then\n"
        "ends; a second one ends at once. Nothing is lost either way.",
        example="tidelake table compact shop.orders -w lake --full",
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("name", metavar="NAME", nargs="?", help=TABLE_NAME)
    what.add_argument("--database", metavar="DATABASE", help="all tables of this database")
    add_warehouse(parser)
    parser.add_argument("--full", action="store_true", help="compact each bucket into one sorted run")
    parser.add_argument("--where", metavar="CONDITION", help="only partitions that match; on partition columns")
    parser.add_argument(
        "--order-by",
        type=names,
        default=(),
        metavar="COLUMNS",
        help="append tables: sort all rows by these, separated by commas, so that filters read fewer files",
    )
    parser.add_argument(
        "--strategy",
        choices=("order", "zorder", "hilbert"),
        help="with --order-by; default: order for one column, zorder for up to four, otherwise hilbert",
    )
    parser.add_argument("--watch", action="store_true", help="keep running: check again at each new snapshot")


def compact(
    out: CommandOutput,
    *,
    name: str | None,
    database: str | None,
    catalog: CatalogAddress,
    full: bool,
    where: str | None,
    order_by: Sequence[str],
    strategy: str | None,
    watch: bool,
) -> ExitCode:
    """Compact tables. Returns INTERRUPTED if it was cancelled before everything was done.

    watch: run until it is cancelled
    """
    from tidelake.compaction.append.clustering import ClusteringStrategy
    from tidelake.compaction.cancellation import cancelled_by_signals
    from tidelake.compaction.jobs.request import CompactionRequest
    from tidelake.compaction.jobs.watch import watch as watch_tables
    from tidelake.storage.read.condition_text import parse_condition

    if watch and (full or order_by):
        raise UsageError(
            "--watch compacts only what is due, and continues; --full and --order-by rewrite everything once. Pass "
            "only one of them"
        )
    if strategy is not None and not order_by:
        raise UsageError("--strategy says how to sort; name the columns with --order-by")
    opened = catalog.open()
    request = CompactionRequest(
        full=full,
        where=None if where is None else parse_condition(where),
        order_by=tuple(order_by),
        strategy=None if strategy is None else ClusteringStrategy(strategy),
    )

    def all_names() -> list[str]:
        return [name] if name is not None else [f"{database}.{table}" for table in opened.list_tables(str(database))]

    def open_table(name: str) -> TableContext:
        return opened.table(name).context

    with cancelled_by_signals() as cancellation:
        if watch:
            out.note(f"watching {name or f'the tables of {database}'}; Ctrl-C ends it")
            print_line = partial(_print_report_line, out)
            watch_tables(all_names, open_table, request, cancellation, print_line, keep_going=name is None)
            return ExitCode.DONE
        return _compact_once(out, all_names(), open_table, request, cancellation, is_single=name is not None)


def _compact_once(
    out: CommandOutput,
    names: Sequence[str],
    open_table: Callable[[str], TableContext],
    request: CompactionRequest,
    cancellation: CancellationToken,
    *,
    is_single: bool,
) -> ExitCode:
    """Compact each table once. If one can't be compacted, the others still are; its error is raised at the end.

    Of several tables, those that this release can't compact at all are skipped.
    """
    from tidelake.compaction.report import CompactionReport
    from tidelake.compaction.table_compaction import compact as compact_now

    reports: list[CompactionReport] = []
    passed_over: list[dict[str, Any]] = []
    errors: list[Exception] = []
    for name in names:
        if cancellation.is_cancelled:
            break
        try:
            report = compact_now(open_table(name), request, cancellation=cancellation)
        except (TidelakeError, OSError) as error:
            if is_single:
                raise
            if isinstance(error, UnsupportedFeature):
                passed_over.append({**CompactionReport(name).to_members(), "passed_over": str(error)})
                out.note(f"skipped: {error}")
                continue
            errors.append(error)
            continue
        reports.append(report)
        if not out.is_json:
            _print_report(out, report, request)
    if out.is_json:
        members = [*(report.to_members() for report in reports), *passed_over]
        out.document(members[0] if is_single and members else members)
    if errors:
        raise errors[0] if len(errors) == 1 else ExceptionGroup("some tables were not compacted", errors)
    if len(reports) + len(passed_over) < len(names) or any(report.is_cancelled for report in reports):
        out.note("stopped before all compactions were done; those listed above are committed")
        return ExitCode.INTERRUPTED
    return ExitCode.DONE


# ---------------------------------------------------------------- for people


def _print_report_line(out: CommandOutput, report: CompactionReport) -> None:
    if out.is_json:
        out.lines([report.to_members()])
        return
    out.console.print(f"{report.table}: {_summary(report)}", soft_wrap=True)


def _summary(report: CompactionReport) -> str:
    from tidelake.storage.commit.commit_message import reasons_text

    before, after = _sum(report.buckets, "before"), _sum(report.buckets, "after")
    snapshots = ", ".join(map(str, report.snapshot_ids))
    parts = [
        f"{before[0]:,} files became {after[0]:,}, {size_text(before[1])} became {size_text(after[1])}",
        f"snapshot{'s' if len(report.snapshot_ids) > 1 else ''} {snapshots}",
        reasons_text(one.reason for one in report.buckets),
    ]
    if not report.buckets:
        parts = []
    if report.lost:
        parts.append(f"{report.lost} discarded: another commit had changed the same files")
    return " · ".join(parts)


def _sum(buckets: Sequence[BucketCompaction], when: str) -> tuple[int, int]:
    """Return the numbers of files and bytes."""
    return sum(getattr(one, f"files_{when}") for one in buckets), sum(getattr(one, f"bytes_{when}") for one in buckets)


def _print_report(out: CommandOutput, report: CompactionReport, request: CompactionRequest) -> None:
    if report.buckets:
        out.console.print(_grid(report.buckets))
        out.console.print(f"{report.table}: {_summary(report)}", soft_wrap=True)
        return
    if report.is_cancelled:
        why = "the job was cancelled before"
    elif report.planned_snapshot_id is None:
        why = "it has no snapshot yet"
    elif request.where is not None:
        why = "nothing to compact in these partitions"
    elif request.full:
        why = "everything is compacted already"
    else:
        why = "nothing to compact; --full compacts everything"
    out.note(f"{report.table}: nothing was done: {why}")


def _grid(buckets: Sequence[BucketCompaction]) -> Grid:
    """Return the largest compactions, sorted by partition."""
    from rich.text import Text

    from tidelake.cli.rendering.grids import plain_grid

    largest = sorted(buckets, key=lambda one: -one.bytes_before)[:_BUCKETS_SHOWN]
    has_partitions = any(one.partition for one in buckets)
    grid = plain_grid(*(["partition"] if has_partitions else []), "bucket", "files", "size", "why")
    for column in grid.columns[has_partitions:-1]:
        column.justify = "right"
    for one in buckets:
        if one in largest:
            cells = [
                *([partition_text(one.partition)] if has_partitions else []),
                str(one.bucket),
                f"{one.files_before:,} → {one.files_after:,}",
                f"{size_text(one.bytes_before)} → {size_text(one.bytes_after)}",
                one.reason,
            ]
            grid.add_row(*map(Text, cells))
    if len(buckets) > len(largest):
        grid.add_row(*([""] if has_partitions else []), f"+ {len(buckets) - len(largest)}")
    return grid
