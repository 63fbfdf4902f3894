"""`tidelake table analyze`, `remove-missing-files`, `remove-missing-manifests` and `purge`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidelake.cli.arguments import CatalogAddress
from tidelake.cli.exits import CommandRefused
from tidelake.cli.formatting import printable
from tidelake.cli.output import CommandOutput

_SHOWN = 20


def analyze(
    out: CommandOutput, *, name: str, catalog: CatalogAddress, columns: Sequence[str] | None, rows_only: bool
) -> None:
    table = catalog.open().table(name)
    snapshot_id = table.analyze([] if rows_only else columns)
    found = table.statistics()
    if snapshot_id is None or found is None:
        _print_result(out, {"snapshot": None}, f"{name} has no snapshot: there is nothing to count")
        return
    members: dict[str, object] = {"snapshot": snapshot_id, "rows": found.merged_record_count, "columns": found.columns}
    counted = f"{found.merged_record_count:,} rows and {len(found.columns)} columns of {name} were analyzed"
    _print_result(out, members, f"{counted}: snapshot {snapshot_id}, {name}$statistics")


def remove_missing_files(out: CommandOutput, *, name: str, catalog: CatalogAddress, dry_run: bool) -> None:
    _show(out, "data files", catalog.open().table(name).remove_missing_files(dry_run=dry_run), name, dry_run)


def remove_missing_manifests(out: CommandOutput, *, name: str, catalog: CatalogAddress, dry_run: bool) -> None:
    _show(out, "manifests", catalog.open().table(name).remove_missing_manifests(dry_run=dry_run), name, dry_run)


def purge(out: CommandOutput, *, name: str, catalog: CatalogAddress, yes: bool) -> None:
    table = catalog.open().table(name)
    if not yes:
        history = f"{len(table.snapshots())} snapshots, {len(table.tags())} tags, {len(table.branches())} branches"
        raise CommandRefused(f"Delete all rows of {name}, with {history}? Pass --yes to confirm")
    deleted = table.purge()
    files = f"{len(deleted.paths):,} orphan files were deleted"
    _print_result(out, {"orphans": len(deleted.paths)}, f"{name} and its history are now empty; {files}")


def _show(out: CommandOutput, what: str, lost: Sequence[str], name: str, dry_run: bool) -> None:
    if out.is_json:
        out.document({"missing": list(lost)})
        return
    for path in lost[:_SHOWN]:
        out.console.print(printable(path), soft_wrap=True)
    if len(lost) > _SHOWN:
        out.note(f"{len(lost) - _SHOWN:,} more; --json lists all")
    verb = "would be removed from the metadata" if dry_run else "were removed from the metadata"
    text = f"{len(lost):,} missing {what} of {name} {verb}" if lost else f"no {what} of {name} are missing"
    _print_result(out, {}, text)


def _print_result(out: CommandOutput, document: Mapping[str, object], text: str) -> None:
    if out.is_json:
        out.document(dict(document))
    else:
        out.console.print(printable(text), soft_wrap=True)
