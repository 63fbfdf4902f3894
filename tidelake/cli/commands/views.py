"""`tidelake view …`."""

from __future__ import annotations

from collections.abc import Sequence

from tidelake.cli.arguments import CatalogAddress, Commands, add_warehouse, command, pair
from tidelake.cli.output import CommandOutput


def add_view(verbs: Commands) -> None:
    listing = command(verbs, "list", list_, "list the views of a database", example="tidelake view list shop -w lake")
    listing.add_argument("database", metavar="DATABASE")
    add_warehouse(listing)
    showing = command(
        verbs,
        "show",
        show,
        "show the columns and queries of a view",
        example="tidelake view show shop.open_orders -w lake",
    )
    creating = command(
        verbs,
        "create",
        create,
        "create a view; query engines run it, tidelake does not",
        example="tidelake view create shop.open_orders -w lake \\\n"
        "  --query \"select * from shop.orders where status = 'new'\"",
    )
    dropping = command(
        verbs, "drop", drop, "drop a view; its tables are kept", example="tidelake view drop shop.open_orders -w lake"
    )
    renaming = command(
        verbs, "rename", rename, "rename a view", example="tidelake view rename shop.open_orders shop.open -w lake"
    )
    for parser in (showing, creating, dropping, renaming):
        parser.add_argument("name", metavar="NAME", help="database.view")
        add_warehouse(parser)
    creating.add_argument(
        "--query", required=True, metavar="SQL", help="the query for all engines that have no --dialect"
    )
    creating.add_argument(
        "--column",
        dest="columns",
        action="append",
        default=[],
        metavar="NAME:TYPE",
        help="a column of the query's result, repeatable: 'amount:DECIMAL(10,2)'",
    )
    creating.add_argument(
        "--dialect",
        dest="dialects",
        action="append",
        type=pair,
        default=[],
        metavar="ENGINE=SQL",
        help="the query in the SQL of an engine, repeatable",
    )
    creating.add_argument("--comment", metavar="TEXT")
    creating.add_argument("--if-not-exists", action="store_true", help="no error if it exists")
    dropping.add_argument("--if-exists", action="store_true", help="no error if it does not exist")
    renaming.add_argument("new_name", metavar="NEW")


def list_(out: CommandOutput, *, catalog: CatalogAddress, database: str) -> None:
    names = [f"{database}.{view}" for view in catalog.open().list_views(database)]
    if out.is_json:
        out.document(names)
        return
    for name in names:
        out.line(name)


def show(out: CommandOutput, *, catalog: CatalogAddress, name: str) -> None:
    view = catalog.open().view(name)
    if out.is_json:
        out.document({"name": name, **view.to_members()})
        return
    columns = ", ".join(f"{column.name} {column.type}" for column in view.fields)
    lines = [f"{name} ({columns})", *([view.comment] if view.comment else []), view.query]
    lines += [f"{dialect}: {query}" for dialect, query in sorted(view.dialects.items())]
    for line in lines:
        out.line(line)


def create(
    out: CommandOutput,
    *,
    catalog: CatalogAddress,
    name: str,
    query: str,
    columns: Sequence[str],
    dialects: Sequence[tuple[str, str]],
    comment: str | None,
    if_not_exists: bool,
) -> None:
    from tidelake.cli.schema_texts import column_from_text

    fields = [column_from_text(column) for column in columns]
    catalog.open().create_view(
        name, fields, query, dialects=dict(dialects), comment=comment, if_not_exists=if_not_exists
    )
    out.done({"created": name}, f"created view {name}")


def drop(out: CommandOutput, *, catalog: CatalogAddress, name: str, if_exists: bool) -> None:
    catalog.open().drop_view(name, if_exists=if_exists)
    out.done({"dropped": name}, f"dropped view {name}")


def rename(out: CommandOutput, *, catalog: CatalogAddress, name: str, new_name: str) -> None:
    catalog.open().rename_view(name, new_name)
    out.done({"renamed": name, "to": new_name}, f"renamed view {name} to {new_name}")
