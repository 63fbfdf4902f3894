"""`tidelake table explain`: all versions of a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tidelake.cli.arguments import CatalogAddress, Commands, pair, positive, table_command
from tidelake.cli.exits import UsageError
from tidelake.cli.output import CommandOutput
from tidelake.errors import BadInput

if TYPE_CHECKING:
    from tidelake.storage.model.schema.table_schema import TableSchema


def add_explain(verbs: Commands) -> None:
    parser = table_command(
        verbs,
        "explain",
        explain,
        "show all versions of a row: where they came from, and which one is read",
        "For each version that a file still holds: snapshot, file, level, kind, sequence number and source offsets.\n"
        "Also shows the row's changes in the changelog, and which versions a read merges.",
        example="tidelake table explain shop.orders -w lake --key id=17",
    )
    parser.add_argument(
        "--key",
        action="append",
        type=pair,
        default=[],
        required=True,
        metavar="COLUMN=VALUE",
        help="a column of the primary key; repeat it for each",
    )
    parser.add_argument("--snapshot", type=positive, metavar="ID", help="default: the newest")


def explain(
    out: CommandOutput,
    *,
    name: str,
    catalog: CatalogAddress,
    key: Sequence[tuple[str, str]],
    snapshot: int | None,
) -> None:
    from tidelake.cli.rendering.row_versions import history_members, print_history
    from tidelake.storage.maintenance.verify.row_history import row_history

    table = catalog.open().table(name)
    history = row_history(table.context, _values(table.context.schema, key), snapshot)
    if out.is_json:
        out.document(history_members(table, history))
    else:
        print_history(out, table, history)


def _values(schema: TableSchema, key: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Convert typed texts to values of their columns.

    Raises BadInput for an unknown column, or a text not of its type.
    """
    import pyarrow as pa

    if len({name for name, _ in key}) != len(key):
        raise UsageError("--key names a column twice")
    values = {}
    for name, text in key:
        if name not in schema.names:
            raise BadInput(f"no column {name!r}; the key has {', '.join(schema.primary_keys)}")
        kind = schema.arrow.field(name).type
        try:
            values[name] = pa.scalar(text).cast(kind)
        except (pa.ArrowException, ValueError):
            raise BadInput(
                f"--key {name}={text}: column {name} has type {kind}, and this text is not a value of that type"
            ) from None
    return values
