"""`tidelake view …`."""

from __future__ import annotations

from tidelake.cli.arguments.common import Verbs, add_warehouse, command
from tidelake.cli.arguments.values import pair


def add_view(verbs: Verbs) -> None:
    listing = command(verbs, "list", "views:list_", "names of a database's views")
    listing.add_argument("database", metavar="DATABASE")
    add_warehouse(listing)
    show = command(verbs, "show", "views:show", "the columns and the queries of a view")
    create = command(verbs, "create", "views:create", "create a view; engines run its query, nothing here does")
    drop = command(verbs, "drop", "views:drop", "drop a view; the tables that it reads stay")
    rename = command(verbs, "rename", "views:rename", "give a view another name")
    for parser in (show, create, drop, rename):
        parser.add_argument("name", metavar="NAME", help="database.view")
        add_warehouse(parser)
    create.add_argument("--query", required=True, metavar="SQL", help="for engines that --dialect doesn't name")
    create.add_argument(
        "--column",
        dest="columns",
        action="append",
        default=[],
        metavar="NAME:TYPE",
        help="a column that the query gives, repeatable: 'amount:DECIMAL(10,2)'",
    )
    create.add_argument(
        "--dialect",
        dest="dialects",
        action="append",
        type=pair,
        default=[],
        metavar="ENGINE=SQL",
        help="the query as an engine writes it, repeatable",
    )
    create.add_argument("--comment", metavar="TEXT")
    create.add_argument("--if-not-exists", action="store_true", help="no error when it exists")
    drop.add_argument("--if-exists", action="store_true", help="no error when there is none")
    rename.add_argument("new_name", metavar="NEW_NAME")
