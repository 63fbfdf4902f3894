"""`tidelake database …`, `tidelake catalog …`."""

from __future__ import annotations

from tidelake.cli.arguments import CatalogAddress, Commands, add_warehouse, command
from tidelake.cli.exits import CommandRefused
from tidelake.cli.output import CommandOutput


def add_database(verbs: Commands) -> None:
    listing = command(verbs, "list", list_, "list databases", example="tidelake database list -w lake")
    add_warehouse(listing)
    making = command(
        verbs, "create", create, "create a database", example="tidelake database create shop -w lake --if-not-exists"
    )
    making.add_argument("name", metavar="NAME")
    making.add_argument("--if-not-exists", action="store_true", help="no error if it exists")
    add_warehouse(making)
    dropping = command(
        verbs, "drop", drop, "drop an empty database", example="tidelake database drop shop -w lake --cascade"
    )
    dropping.add_argument("name", metavar="NAME")
    dropping.add_argument("--cascade", action="store_true", help="also drop all its tables, with their rows")
    dropping.add_argument("--yes", action="store_true", help="confirm --cascade")
    add_warehouse(dropping)


def list_(out: CommandOutput, *, catalog: CatalogAddress) -> None:
    names = catalog.open().list_databases()
    if out.is_json:
        out.document(names)
        return
    for name in names:
        out.line(name)


def create(out: CommandOutput, *, name: str, catalog: CatalogAddress, if_not_exists: bool) -> None:
    catalog.open().create_database(name, if_not_exists=if_not_exists)
    out.done({"created": name}, f"created database {name}")


def drop(out: CommandOutput, *, name: str, catalog: CatalogAddress, cascade: bool, yes: bool) -> None:
    if cascade and not yes:
        raise CommandRefused(f"Delete all tables of {name} in {catalog.warehouse}? Pass --yes to confirm")
    catalog.open().drop_database(name, cascade=cascade)
    out.done({"dropped": name}, f"dropped database {name}")


def add_catalog(verbs: Commands) -> None:
    parser = command(
        verbs,
        "repair",
        repair,
        "update catalog entries (jdbc, hive) from the files in the warehouse",
        example="tidelake catalog repair shop.orders -w lake --catalog-option metastore=jdbc",
    )
    parser.add_argument("name", metavar="NAME", nargs="?", help="a database or a table; default: the whole warehouse")
    add_warehouse(parser)


def repair(out: CommandOutput, *, name: str | None, catalog: CatalogAddress) -> None:
    repaired = catalog.open().repair(name)
    if out.is_json:
        out.document({"repaired": repaired})
        return
    for table in repaired:
        out.line(table)
    out.note(f"{len(repaired)} catalog entries were updated from the tables' files")
