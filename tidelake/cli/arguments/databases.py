"""`tidelake database …`, `tidelake catalog …`."""

from __future__ import annotations

from tidelake.cli.arguments.common import Verbs, add_migration_source, add_warehouse, command


def add_database(verbs: Verbs) -> None:
    listing = command(verbs, "list", "databases:list_", "names of databases")
    add_warehouse(listing)
    create = command(verbs, "create", "databases:create", "create a database")
    create.add_argument("name", metavar="NAME")
    create.add_argument("--if-not-exists", action="store_true", help="no error when it exists")
    add_warehouse(create)
    drop = command(verbs, "drop", "databases:drop", "drop a database that holds no tables")
    drop.add_argument("name", metavar="NAME")
    drop.add_argument("--cascade", action="store_true", help="and all of its tables, with their rows")
    drop.add_argument("--yes", action="store_true", help="with --cascade: that is meant")
    add_warehouse(drop)

    _add_migrate(verbs)


def _add_migrate(verbs: Verbs) -> None:
    migrate = command(
        verbs,
        "migrate",
        "maintenance.migrate:migrate_database",
        "new append tables of the files that others wrote, one of each folder",
        "Nobody may write there meanwhile. A call that failed can be repeated.",
    )
    migrate.add_argument("name", metavar="NAME", help="of the new tables; made if there is none")
    add_warehouse(migrate)
    add_migration_source(migrate, "that holds a folder for each table, or a database of format tables")
    migrate.add_argument(
        "--table", dest="tables", action="append", default=[], metavar="NAME", help="only this one; repeatable"
    )


def add_catalog(verbs: Verbs) -> None:
    repair = command(verbs, "repair", "databases:repair", "let the catalog (jdbc, hive) say what the files say")
    repair.add_argument("name", metavar="NAME", nargs="?", help="a database or a table; default: all of the warehouse")
    add_warehouse(repair)
