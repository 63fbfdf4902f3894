"""`tidelake table verify`: checks files and metadata, or the changelog, once or at each new snapshot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelake.cli.arguments import CatalogAddress, Commands, duration_ms, not_negative, positive, table_command
from tidelake.cli.exits import ExitCode, UsageError
from tidelake.cli.output import CommandOutput
from tidelake.storage.base import env

if TYPE_CHECKING:
    from tidelake.storage.maintenance.verify import Report
    from tidelake.storage.maintenance.verify.changelog_check import ChangelogReport
    from tidelake.storage.maintenance.verify.changelog_watch import WatchedCheck
    from tidelake.storage.maintenance.verify.row_history import RowHistory
    from tidelake.table import Table


def add_verify(verbs: Commands) -> None:
    parser = table_command(
        verbs,
        "verify",
        verify,
        "check that a table is complete and consistent; changes nothing",
        "Checks all snapshots, tags and branches: files and their sizes, manifests, row counts, levels, the positions\n"
        "of each pipeline. Also counts files that nothing references. Exit code 1 if there are problems.",
        example="tidelake table verify shop.orders -w lake --deep --changelog",
    )
    parser.add_argument("--snapshot", type=positive, metavar="ID", help="only this one")
    parser.add_argument("--deep", action="store_true", help="also read all rows of all files")
    parser.add_argument(
        "--changelog",
        action="store_true",
        help="replay the changelog and compare the result with the table, by checksums of key ranges",
    )
    parser.add_argument(
        "--start",
        type=not_negative,
        metavar="ID",
        help="with --changelog: snapshot to start from; 0 is the empty table",
    )
    parser.add_argument(
        "--end", type=positive, metavar="ID", help="with --changelog: snapshot to compare with; default: the newest"
    )
    parser.add_argument(
        "--watch",
        action="store_true",
        help="compare the changelog with the table at each new snapshot, with what changed since; until Ctrl-C, or a "
        "difference",
    )
    parser.add_argument(
        "--metrics-file",
        metavar="PATH",
        help="with --watch: write Prometheus metrics to this file, for node_exporter's textfile collector",
    )
    parser.add_argument(
        "--orphans-older-than",
        default="1 d",
        metavar="DURATION",
        help="younger unreferenced files may belong to a running commit; default: 1 d",
    )


def verify(  # noqa: PLR0913 - one parameter per option
    out: CommandOutput,
    *,
    name: str,
    catalog: CatalogAddress,
    snapshot: int | None,
    deep: bool,
    orphans_older_than: str,
    changelog: bool,
    start: int | None,
    end: int | None,
    watch: bool,
    metrics_file: str | None,
) -> ExitCode:
    """Verify a table. Returns exit code 1 if there are problems."""
    from tidelake.verification import inspect_table

    age_ms = duration_ms(f"--orphans-older-than {orphans_older_than!r}", orphans_older_than)
    if watch and (changelog or deep or snapshot is not None or end is not None):
        raise UsageError(
            "--watch compares the changelog of each new snapshot; pass it without --changelog, --deep, "
            "--snapshot and --end"
        )
    if metrics_file is not None and not watch:
        raise UsageError("--metrics-file needs --watch")
    opened = catalog.open()
    table = opened.table(name)
    if watch:
        return _watch(out, lambda: opened.table(name), start, metrics_file)
    if changelog:
        return _verify_changelog(out, table, start, end)
    if start is not None or end is not None:
        raise UsageError("--start and --end need --changelog; --start may also be passed with --watch")
    report = inspect_table(table, snapshot_id=snapshot, deep=deep, orphans_older_than_ms=age_ms)
    if out.is_json:
        out.document(_members(report))
    else:
        _print(out, table.name, report)
    return ExitCode.FAILED if report.problems else ExitCode.DONE


def _members(report: Report) -> dict[str, Any]:
    orphans = None
    if report.orphans is not None:
        found = report.orphans
        orphans = {"files": len(found.paths), "bytes": found.size_bytes, "younger": found.young, "paths": found.paths}
    return {
        "sound": not report.problems,
        "findings": [asdict(finding) for finding in report.findings],
        "snapshots": report.snapshots,
        "tags": report.tags,
        "branches": report.branches,
        "dataFiles": report.data_files,
        "dataBytes": report.data_bytes,
        "rows": report.rows,
        "orphans": orphans,
    }


def _print(out: CommandOutput, name: str, report: Report) -> None:
    from tidelake.storage.maintenance.verify import Severity

    for finding in report.findings:
        mark = "note" if finding.severity is Severity.NOTE else "WRONG"
        out.text(f"{mark}  {finding.where}: {finding.what}\n       {finding.remedy}")
    out.text(
        f"{name}: {report.snapshots} snapshots, {report.tags} tags, {report.branches} branches; "
        f"{report.data_files:,} data files with {report.rows:,} rows, {report.data_bytes:,} bytes",
    )
    if report.orphans is not None and (report.orphans.paths or report.orphans.young):
        out.text(
            f"{len(report.orphans.paths):,} orphan files ({report.orphans.size_bytes:,} bytes), and "
            f"{report.orphans.young:,} younger ones that may belong to a running commit",
        )
    problems = len(report.problems)
    out.text(f"{problems} problems found" if problems else "sound")


# ---------------------------------------------------------------- verify --changelog


def _verify_changelog(out: CommandOutput, table: Table, start: int | None, end: int | None) -> ExitCode:
    """Verify the changelog. Returns exit code 1 if it does not match the table."""
    from tidelake.storage.maintenance.verify.changelog_check import check_changelog

    report = check_changelog(table.context, start, end)
    return _tell(out, table, report)


def _tell(out: CommandOutput, table: Table, report: ChangelogReport) -> ExitCode:
    """Print a report, with the history of the first wrong key. Returns exit code 1 if it is not sound."""
    from tidelake.storage.maintenance.verify.row_history import row_history

    key = report.first.key if report.first is not None else report.first_ill_formed
    history = None
    if key is not None:
        named = {name: key.column(name)[0] for name in key.schema.names}
        history = row_history(table.context, named, report.end)
    if out.is_json:
        out.document(_changelog_members(table, report, history))
    else:
        _print_changelog_report(out, table, report, history)
    return ExitCode.DONE if report.is_sound else ExitCode.FAILED


def _changelog_members(table: Table, report: ChangelogReport, history: RowHistory | None) -> dict[str, Any]:
    from tidelake.cli.rendering.row_versions import history_members
    from tidelake.row_origin import plain_row

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
        "history": None if history is None else history_members(table, history),
    }


def _print_changelog_report(
    out: CommandOutput, table: Table, report: ChangelogReport, history: RowHistory | None
) -> None:
    from tidelake.cli.rendering.row_versions import print_history, row_text

    if report.overwritten:
        numbers = ", ".join(map(str, report.overwritten))
        out.text(f"rows were overwritten in snapshot {numbers}: the check starts after it")
    begin = "the empty table" if report.start is None else f"snapshot {report.start}"
    out.text(
        f"{begin} and {report.changes:,} changes, compared with snapshot {report.end} of {table.name}: "
        f"{report.keys:,} keys",
    )
    if report.differing:
        out.text(f"WRONG  {report.differing:,} keys whose row differs from the replayed changelog")
    if report.ill_formed:
        out.text(f"WRONG  {report.ill_formed:,} keys with a change that contradicts the previous row")
    if report.first is not None:
        out.text(f"first: {row_text(report.first.key)}")
        out.text(f"  replayed   {row_text(report.first.replayed)}")
        out.text(f"  the table  {row_text(report.first.there)}")
    if history is not None:
        print_history(out, table, history)
    out.text(
        "sound"
        if report.is_sound
        else "the changelog does not match the table. Report this and keep the table unchanged",
    )


# ---------------------------------------------------------------- verify --watch


def _watch(
    out: CommandOutput, open_table: Callable[[], Table], start: int | None, metrics_file: str | None
) -> ExitCode:
    """Check each new snapshot until a signal, or the first difference. Returns exit code 1 for a difference."""
    from tidelake.compaction.cancellation import cancelled_by_signals
    from tidelake.storage.maintenance.verify.changelog_watch import watch_changelog

    checks = 0
    with cancelled_by_signals() as cancellation:

        def wait_s(seconds: float) -> bool:
            cancellation.wait_ms(seconds * 1000)
            return not cancellation.is_cancelled

        out.note(f"watching the changelog of {open_table().name}; Ctrl-C ends it")
        for check in watch_changelog(lambda: open_table().context, wait_s, start):
            checks += 1
            if metrics_file is not None:
                _write_metrics(metrics_file, open_table().name, check, checks)
            if not check.report.is_sound:
                return _tell(out, open_table(), check.report)
            _print_check(out, open_table().name, check)
    return ExitCode.DONE


def _print_check(out: CommandOutput, name: str, check: WatchedCheck) -> None:
    report, unchecked = check.report, check.unchecked
    if out.is_json:
        members = {"start": report.start, "end": report.end, "keys": report.keys, "changes": report.changes}
        gaps = {"unchecked": unchecked, "rolled_back": check.rolled_back}
        out.lines([{"table": name, "sound": True, **members, **gaps, "seconds": check.duration_s}])
        return
    if unchecked is not None:
        out.line(f"snapshots {unchecked[0]} to {unchecked[1]} expired before they were checked")
    if check.rolled_back is not None:
        out.line(f"snapshot {check.rolled_back} was rolled back; the check starts again from the earliest state")
    begin = "the empty table" if report.start is None else f"snapshot {report.start}"
    out.line(
        f"{name}: {begin} and {report.changes:,} changes give snapshot {report.end} · {report.keys:,} keys · "
        f"{check.duration_s:.1f} s · sound"
    )


def _write_metrics(path: str, name: str, check: WatchedCheck, checks: int) -> None:
    """Replace the file at once: a scrape sees the old one or the new one."""
    table = name.replace("\\", "\\\\").replace('"', '\\"')
    values: list[tuple[str, str, float]] = [
        ("checks_total", "counter", checks),
        ("snapshot", "gauge", check.report.end),
        ("differing_keys", "gauge", check.report.differing),
        ("ill_formed_keys", "gauge", check.report.ill_formed),
        ("duration_seconds", "gauge", round(check.duration_s, 3)),
    ]
    lines: list[str] = []
    for metric, kind, value in values:
        named = f"tidelake_changelog_check_{metric}"
        lines.append(f'# TYPE {named} {kind}\n{named}{{table="{table}"}} {value}\n')
    target = Path(path)
    unfinished = target.with_name(f"{target.name}.{env.process_id()}.tmp")
    unfinished.write_text("".join(lines), "utf-8")
    unfinished.replace(target)
