"""`tidelake table expire`, `verify` and `rewrite-file-index`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tidelake.cli.arguments import CatalogAddress
from tidelake.cli.commands.explain import verify_changelog
from tidelake.cli.conditions import parse_condition
from tidelake.cli.exits import ExitCode, UsageError
from tidelake.cli.formatting import printable
from tidelake.cli.output import CommandOutput
from tidelake.consumers import ConsumerPosition, TableConsumers
from tidelake.storage.base.errors import BadInput
from tidelake.storage.commit.expire.retention import retention_of
from tidelake.storage.commit.expire.snapshot_expiry import SnapshotExpiry
from tidelake.storage.maintenance.verify import Report, Severity
from tidelake.storage.model.options.values import parse_duration_ms
from tidelake.table import Table
from tidelake.verification import inspect_table


def expire(
    out: CommandOutput,
    *,
    name: str,
    catalog: CatalogAddress,
    retain_min: int | None,
    retain_max: int | None,
    retain_time: str | None,
    dry_run: bool,
) -> None:
    table = catalog.open().table(name)
    retain_ms = None if retain_time is None else _duration_ms("--retain-time", retain_time)
    if dry_run:
        _show_expirable(out, table, catalog, retain_min, retain_max, retain_ms)
        return
    expired = table.expire(retain_min=retain_min, retain_max=retain_max, retain_ms=retain_ms)
    holders = _blocking_consumers(table, retain_min, retain_max, retain_ms)
    if out.is_json:
        out.document({**asdict(expired), **_blocking_consumer_members(holders)})
        return
    changelogs = f" and {expired.changelogs} changelogs" if expired.changelogs else ""
    files = f"{expired.data_files:,} data files and {expired.metadata_files:,} metadata files"
    _line(out, f"{expired.snapshots} snapshots{changelogs} of {name} were deleted, with {files}")
    _print_blocking_consumers(out, name, catalog, holders)


def _blocking_consumers(
    table: Table, retain_min: int | None, retain_max: int | None, retain_ms: int | None
) -> list[ConsumerPosition]:
    """Return the consumers that keep snapshots which would otherwise expire."""
    if table.context.options.consumer_changelog_only:
        return []
    context = table.context.with_options({"consumer.changelog-only": "true"})
    retention = retention_of(context.options, retain_min, retain_max, retain_ms, limit=2**31)
    ids = SnapshotExpiry(context, retention=retention).expirable()
    return [one for one in TableConsumers(table).list() if one.next_snapshot_id < ids.stop]


def _blocking_consumer_members(holders: Sequence[ConsumerPosition]) -> dict[str, Any]:
    found = [{"consumer": one.name, "next_snapshot_id": one.next_snapshot_id} for one in holders]
    return {"held_by": found} if found else {}


def _print_blocking_consumers(
    out: CommandOutput, name: str, catalog: CatalogAddress, holders: Sequence[ConsumerPosition]
) -> None:
    if not holders:
        return
    who = ", ".join(f"{one.name} (reads {one.next_snapshot_id} next)" for one in holders)
    delete = f"tidelake table consumers delete {name} CONSUMER -w {catalog.warehouse}"
    lost = "for example a Spark query whose checkpoint directory was deleted"
    _line(out, f"consumers keep other snapshots: {who}. Delete a consumer that will not return, {lost}: {delete}")


def _show_expirable(
    out: CommandOutput,
    table: Table,
    catalog: CatalogAddress,
    retain_min: int | None,
    retain_max: int | None,
    retain_ms: int | None,
) -> None:
    retention = retention_of(table.context.options, retain_min, retain_max, retain_ms, limit=2**31)
    ids = SnapshotExpiry(table.context, retention=retention).expirable()
    holders = _blocking_consumers(table, retain_min, retain_max, retain_ms)
    if out.is_json:
        found = {"first": ids.start, "last": ids.stop - 1, "snapshots": len(ids)} if ids else {"snapshots": 0}
        out.document({**found, **_blocking_consumer_members(holders)})
        return
    if ids:
        _line(out, f"snapshots {ids.start} to {ids.stop - 1} of {table.name} would be deleted")
    else:
        _line(out, f"no snapshot of {table.name} would be deleted")
    _print_blocking_consumers(out, table.name, catalog, holders)


def rewrite_file_index(
    out: CommandOutput, *, name: str, catalog: CatalogAddress, where: str | None, dry_run: bool
) -> None:
    condition = None if where is None else parse_condition(where)
    found = catalog.open().table(name).rewrite_file_index(where=condition, dry_run=dry_run)
    if out.is_json:
        out.document({"checked": found.checked, "rewritten": found.rewritten, "snapshot": found.snapshot_id})
    elif dry_run:
        _line(out, f"{found.rewritten:,} of {found.checked:,} files of {name} would get other indexes")
    elif found.snapshot_id is None:
        _line(out, f"all {found.checked:,} files of {name} have their indexes")
    else:
        changed = f"{found.rewritten:,} of {found.checked:,} files of {name} got other indexes"
        _line(out, f"{changed}: snapshot {found.snapshot_id}")


def verify(
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
) -> ExitCode:
    """Verify a table. Returns exit code 1 if there are problems."""
    age_ms = _duration_ms("--orphans-older-than", orphans_older_than)
    table = catalog.open().table(name)
    if changelog:
        return verify_changelog(out, table, start, end)
    if start is not None or end is not None:
        raise UsageError("--start and --end need --changelog")
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
    for finding in report.findings:
        mark = "note" if finding.severity is Severity.NOTE else "WRONG"
        _line(out, f"{mark}  {finding.where}: {finding.what}\n       {finding.remedy}")
    _line(
        out,
        f"{name}: {report.snapshots} snapshots, {report.tags} tags, {report.branches} branches; "
        f"{report.data_files:,} data files with {report.rows:,} rows, {report.data_bytes:,} bytes",
    )
    if report.orphans is not None and (report.orphans.paths or report.orphans.young):
        _line(
            out,
            f"{len(report.orphans.paths):,} orphan files ({report.orphans.size_bytes:,} bytes), and "
            f"{report.orphans.young:,} younger ones that may belong to a running commit",
        )
    problems = len(report.problems)
    _line(out, f"{problems} problems found" if problems else "sound")


def _line(out: CommandOutput, text: str) -> None:
    out.console.print(printable(text, may_break=True), soft_wrap=True)


def _duration_ms(option: str, text: str) -> int:
    try:
        return parse_duration_ms(text)
    except (BadInput, ValueError) as error:
        raise UsageError(f"{option} {text!r}: {error}") from None
