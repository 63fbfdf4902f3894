"""`tidelake view …`."""

from __future__ import annotations

from collections.abc import Sequence

from tidelake.cli.arguments import CatalogAddress
from tidelake.cli.commands.table import column_from_text
from tidelake.cli.formatting import printable
from tidelake.cli.output import CommandOutput


def list_(out: CommandOutput, *, catalog: CatalogAddress, database: str) -> None:
    names = [f"{database}.{view}" for view in catalog.open().list_views(database)]
    if out.is_json:
        out.document(names)
        return
    for name in names:
        out.console.print(printable(name), soft_wrap=True)


def show(out: CommandOutput, *, catalog: CatalogAddress, name: str) -> None:
    view = catalog.open().view(name)
    if out.is_json:
        out.document({"name": name, **view.to_members()})
        return
    columns = ", ".join(f"{column.name} {column.type}" for column in view.fields)
    lines = [f"{name} ({columns})", *([view.comment] if view.comment else []), view.query]
    lines += [f"{dialect}: {query}" for dialect, query in sorted(view.dialects.items())]
    for line in lines:
        out.console.print(printable(line), soft_wrap=True)


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
    fields = [column_from_text(column) for column in columns]
    catalog.open().create_view(
        name, fields, query, dialects=dict(dialects), comment=comment, if_not_exists=if_not_exists
    )
    _print_result(out, {"created": name}, f"created view {name}")


def drop(out: CommandOutput, *, catalog: CatalogAddress, name: str, if_exists: bool) -> None:
    catalog.open().drop_view(name, if_exists=if_exists)
    _print_result(out, {"dropped": name}, f"dropped view {name}")


def rename(out: CommandOutput, *, catalog: CatalogAddress, name: str, new_name: str) -> None:
    catalog.open().rename_view(name, new_name)
    _print_result(out, {"renamed": name, "to": new_name}, f"renamed view {name} to {new_name}")


def _print_result(out: CommandOutput, document: dict[str, str], note: str) -> None:
    if out.is_json:
        out.document(document)
    else:
        out.note(note)
