"""`tidelake table consumers …`."""

from __future__ import annotations

from dataclasses import asdict

from tidelake.cli.arguments import CatalogAddress, Commands, noun, positive, table_command
from tidelake.cli.formatting import printable
from tidelake.cli.output import CommandOutput


def add_consumers(verbs: Commands) -> None:
    consumers = noun(
        verbs, "consumers", "consumers of a table: list, reset, delete. Expiry keeps the snapshots they still need"
    )
    table_command(
        consumers,
        "list",
        list_,
        "list consumers and their next snapshot",
        example="tidelake table consumers list shop.orders -w lake",
    )
    resetting = table_command(
        consumers,
        "reset",
        reset,
        "reset a consumer to another snapshot; stop its readers first",
        example="tidelake table consumers reset shop.orders search --to 42 -w lake",
    )
    resetting.add_argument("consumer", metavar="CONSUMER")
    resetting.add_argument("--to", type=positive, required=True, metavar="ID", help="snapshot to read next")
    deleting = table_command(
        consumers,
        "delete",
        delete,
        "delete a consumer. Its snapshots can then expire",
        example="tidelake table consumers delete shop.orders search -w lake",
    )
    deleting.add_argument("consumer", metavar="CONSUMER")


def list_(out: CommandOutput, *, name: str, catalog: CatalogAddress) -> None:
    from tidelake.consumers import TableConsumers

    found = TableConsumers(catalog.open().table(name)).list()
    if out.is_json:
        out.lines(map(asdict, found))
        return
    from rich import box
    from rich.table import Table as Grid
    from rich.text import Text

    grid = Grid(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    grid.add_column("consumer", overflow="fold")
    grid.add_column("next snapshot", justify="right")
    grid.add_column("behind", justify="right")
    for one in found:
        grid.add_row(Text(printable(one.name)), f"{one.next_snapshot_id:,}", f"{one.behind:,}")
    out.console.print(grid)


def reset(out: CommandOutput, *, name: str, catalog: CatalogAddress, consumer: str, to: int) -> None:
    from tidelake.consumers import TableConsumers

    TableConsumers(catalog.open().table(name)).reset(consumer, to)
    _print_result(out, consumer, to)


def delete(out: CommandOutput, *, name: str, catalog: CatalogAddress, consumer: str) -> None:
    from tidelake.consumers import TableConsumers

    TableConsumers(catalog.open().table(name)).delete(consumer)
    _print_result(out, consumer, None)


def _print_result(out: CommandOutput, consumer: str, next_snapshot_id: int | None) -> None:
    if out.is_json:
        out.document({"consumer": consumer, "next_snapshot_id": next_snapshot_id})
    elif next_snapshot_id is None:
        out.note(f"deleted consumer {consumer}: its snapshots can expire")
    else:
        out.note(f"consumer {consumer} reads snapshot {next_snapshot_id} next")
