"""`tidelake table expire-partitions` and `mark-done`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from tidelake.cli.arguments import CatalogAddress
from tidelake.cli.exits import UsageError
from tidelake.cli.formatting import printable
from tidelake.cli.output import CommandOutput
from tidelake.storage.base.errors import BadInput
from tidelake.storage.model.options.values import parse_duration_ms


def expire_partitions(
    out: CommandOutput,
    *,
    name: str,
    catalog: CatalogAddress,
    older_than: str | None,
    strategy: str | None,
    dry_run: bool,
) -> None:
    age = None if older_than is None else timedelta(milliseconds=_duration_ms(older_than))
    table = catalog.open().table(name)
    _show(out, name, table.expire_partitions(older_than=age, strategy=strategy, dry_run=dry_run), "dropped", dry_run)


def mark_done(
    out: CommandOutput,
    *,
    name: str,
    catalog: CatalogAddress,
    partition: Sequence[Sequence[tuple[str, str]]],
    dry_run: bool,
) -> None:
    found = catalog.open().table(name).mark_done([dict(spec) for spec in partition], dry_run=dry_run)
    _show(out, name, found, "marked as done", dry_run)


def _show(out: CommandOutput, name: str, partitions: list[str], what: str, dry_run: bool) -> None:
    if out.is_json:
        out.document({"partitions": partitions})
        return
    for partition in partitions:
        out.console.print(printable(partition), soft_wrap=True)
    verb = "would be" if dry_run else "were"
    out.console.print(printable(f"{len(partitions):,} partitions of {name} {verb} {what}"), soft_wrap=True)


def _duration_ms(text: str) -> int:
    try:
        return parse_duration_ms(text)
    except BadInput as e:
        raise UsageError(f"--older-than: {e}") from None
