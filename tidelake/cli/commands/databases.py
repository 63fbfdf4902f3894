"""`tidelake database …`, `tidelake catalog …`."""

from __future__ import annotations

from tidelake.cli.arguments import CatalogAddress
from tidelake.cli.exits import CommandRefused
from tidelake.cli.formatting import printable
from tidelake.cli.output import CommandOutput


def list_(out: CommandOutput, *, catalog: CatalogAddress) -> None:
    names = catalog.open().list_databases()
    if out.is_json:
        out.document(names)
        return
    for name in names:
        out.console.print(printable(name), soft_wrap=True)


def create(out: CommandOutput, *, name: str, catalog: CatalogAddress, if_not_exists: bool) -> None:
    catalog.open().create_database(name, if_not_exists=if_not_exists)
    _print_result(out, {"created": name}, f"created database {name}")


def drop(out: CommandOutput, *, name: str, catalog: CatalogAddress, cascade: bool, yes: bool) -> None:
    if cascade and not yes:
        raise CommandRefused(f"Delete all tables of {name} in {catalog.warehouse}? Pass --yes to confirm")
    catalog.open().drop_database(name, cascade=cascade)
    _print_result(out, {"dropped": name}, f"dropped database {name}")


def repair(out: CommandOutput, *, name: str | None, catalog: CatalogAddress) -> None:
    repaired = catalog.open().repair(name)
    if out.is_json:
        out.document({"repaired": repaired})
        return
    for table in repaired:
        out.console.print(printable(table), soft_wrap=True)
    out.note(f"{len(repaired)} catalog entries were updated from the tables' files")


def _print_result(out: CommandOutput, document: dict[str, str], note: str) -> None:
    if out.is_json:
        out.document(document)
    else:
        out.note(note)
