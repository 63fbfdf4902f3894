"""`tidelake database …`, `tidelake catalog …`."""

from __future__ import annotations

from tidelake.cli.arguments.common import Verbs, add_migration_source, add_warehouse, command


def add_database(verbs: Verbs) -> None:
    listing = command(verbs, "list", "databases:list_", "list databases")
    add_warehouse(listing)
    create = command(verbs, "create", "databases:create", "create a database")
    create.add_argument("name", metavar="NAME")
    create.add_argument("--if-not-exists", action="store_true", help="no error if it exists")
    add_warehouse(create)
    drop = command(verbs, "drop", "databases:drop", "drop an empty database")
    drop.add_argument("name", metavar="NAME")
    drop.add_argument("--cascade", action="store_true", help="also drop all its tables, with their rows")
    drop.add_argument("--yes", action="store_true", help="confirm --cascade")
    add_warehouse(drop)

    _add_migrate(verbs)


def _add_migrate(verbs: Verbs) -> None:
    migrate = command(
        verbs,
        "migrate",
        "maintenance.migrate:migrate_database",
        "migrate each folder to a new append table",
        "Stop writers of the source first. A call that failed can be repeated.",
    )
    migrate.add_argument("name", metavar="NAME", help="database of the new tables; created if it does not exist")
    add_warehouse(migrate)
    add_migration_source(migrate, "folder with a folder for each table, or a database of format tables")
    migrate.add_argument(
        "--table", dest="tables", action="append", default=[], metavar="NAME", help="only this table; repeatable"
    )


def add_catalog(verbs: Verbs) -> None:
    repair = command(
        verbs, "repair", "databases:repair", "update catalog entries (jdbc, hive) from the files in the warehouse"
    )
    repair.add_argument("name", metavar="NAME", nargs="?", help="a database or a table; default: the whole warehouse")
    add_warehouse(repair)
