"""`tidelake view …`."""

from __future__ import annotations

from tidelake.cli.arguments.common import Verbs, add_warehouse, command
from tidelake.cli.arguments.values import pair


def add_view(verbs: Verbs) -> None:
    listing = command(verbs, "list", "views:list_", "list the views of a database")
    listing.add_argument("database", metavar="DATABASE")
    add_warehouse(listing)
    show = command(verbs, "show", "views:show", "show the columns and queries of a view")
    create = command(verbs, "create", "views:create", "create a view; query engines run it, tidelake does not")
    drop = command(verbs, "drop", "views:drop", "drop a view; its tables are kept")
    rename = command(verbs, "rename", "views:rename", "rename a view")
    for parser in (show, create, drop, rename):
        parser.add_argument("name", metavar="NAME", help="database.view")
        add_warehouse(parser)
    create.add_argument(
        "--query", required=True, metavar="SQL", help="the query for all engines that have no --dialect"
    )
    create.add_argument(
        "--column",
        dest="columns",
        action="append",
        default=[],
        metavar="NAME:TYPE",
        help="a column of the query's result, repeatable: 'amount:DECIMAL(10,2)'",
    )
    create.add_argument(
        "--dialect",
        dest="dialects",
        action="append",
        type=pair,
        default=[],
        metavar="ENGINE=SQL",
        help="the query in the SQL of an engine, repeatable",
    )
    create.add_argument("--comment", metavar="TEXT")
    create.add_argument("--if-not-exists", action="store_true", help="no error if it exists")
    drop.add_argument("--if-exists", action="store_true", help="no error if it does not exist")
    rename.add_argument("new_name", metavar="NEW_NAME")
