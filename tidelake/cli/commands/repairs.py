"""Repairs after files were lost: `tidelake table iceberg`, `remove-missing-files`, `-manifests`, and `purge`."""

from __future__ import annotations

from collections.abc import Sequence

from tidelake.cli.arguments import CatalogAddress, Commands, add_dry_run, table_command
from tidelake.cli.exits import CommandRefused
from tidelake.cli.output import CommandOutput

_SHOWN = 20


def add_iceberg(verbs: Commands) -> None:
    parser = table_command(
        verbs,
        "iceberg",
        iceberg,
        "publish the metadata for Iceberg readers again, if it is lost or behind",
        "Each commit publishes it: option metadata.iceberg.storage. Prints the file that Iceberg readers open.",
        example="tidelake table iceberg shop.orders -w lake",
    )
    parser.add_argument("--anew", action="store_true", help="replace all of it, even if nothing is lost")


def iceberg(out: CommandOutput, *, name: str, catalog: CatalogAddress, anew: bool) -> None:
    path = catalog.open().table(name).publish_iceberg_metadata(anew=anew)
    text = f"Iceberg readers see {name} in {path}" if path else f"{name} has no snapshot: there is nothing to publish"
    out.result({"metadata": path}, text)


def add_remove_missing_files(verbs: Commands) -> None:
    parser = table_command(
        verbs,
        "remove-missing-files",
        remove_missing_files,
        "remove lost data files from the table's metadata",
        "The table is then readable, without their rows. If a backup of the files exists, restore them instead.",
        example="tidelake table remove-missing-files shop.orders -w lake --dry-run",
    )
    add_dry_run(parser, "only list what is missing")


def remove_missing_files(out: CommandOutput, *, name: str, catalog: CatalogAddress, dry_run: bool) -> None:
    _show(out, "data files", catalog.open().table(name).remove_missing_files(dry_run=dry_run), name, dry_run)


def add_remove_missing_manifests(verbs: Commands) -> None:
    parser = table_command(
        verbs,
        "remove-missing-manifests",
        remove_missing_manifests,
        "remove lost manifests from the latest snapshot",
        "Files that they added are lost; files that they deleted are back. Call `remove-missing-files` next.",
        example="tidelake table remove-missing-manifests shop.orders -w lake --dry-run",
    )
    add_dry_run(parser, "only list what is missing")


def remove_missing_manifests(out: CommandOutput, *, name: str, catalog: CatalogAddress, dry_run: bool) -> None:
    _show(out, "manifests", catalog.open().table(name).remove_missing_manifests(dry_run=dry_run), name, dry_run)


def _show(out: CommandOutput, what: str, lost: Sequence[str], name: str, dry_run: bool) -> None:
    if out.is_json:
        out.document({"missing": list(lost)})
        return
    for path in lost[:_SHOWN]:
        out.line(path)
    if len(lost) > _SHOWN:
        out.note(f"{len(lost) - _SHOWN:,} more; --json lists all")
    verb = "would be removed from the metadata" if dry_run else "were removed from the metadata"
    text = f"{len(lost):,} missing {what} of {name} {verb}" if lost else f"no {what} of {name} are missing"
    out.result({}, text)


def add_purge(verbs: Commands) -> None:
    parser = table_command(
        verbs,
        "purge",
        purge,
        "delete all rows and all history: branches, tags, consumers, older snapshots",
        "The table, its schemas and options are kept. Stop writers and readers first. If interrupted, call it again.",
        example="tidelake table purge shop.orders -w lake",
    )
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")


def purge(out: CommandOutput, *, name: str, catalog: CatalogAddress, yes: bool) -> None:
    table = catalog.open().table(name)
    if not yes:
        history = f"{len(table.snapshots())} snapshots, {len(table.tags())} tags, {len(table.branches())} branches"
        raise CommandRefused(f"Delete all rows of {name}, with {history}? Pass --yes to confirm")
    deleted = table.purge()
    files = f"{len(deleted.paths):,} orphan files were deleted"
    out.result({"orphans": len(deleted.paths)}, f"{name} and its history are now empty; {files}")
