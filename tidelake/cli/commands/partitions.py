"""`tidelake table expire-partitions` and `mark-done`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from tidelake.cli.arguments import CatalogAddress, Commands, add_dry_run, duration_ms, pair, table_command
from tidelake.cli.output import CommandOutput


def add_expire_partitions(verbs: Commands) -> None:
    parser = table_command(
        verbs,
        "expire-partitions",
        expire_partitions,
        "drop expired partitions",
        "The table's options partition.* say when a partition expires. Older snapshots keep the rows.",
        example="tidelake table expire-partitions shop.events -w lake --older-than '90 d' --dry-run",
    )
    parser.add_argument("--older-than", metavar="DURATION", help="instead of partition.expiration-time")
    parser.add_argument(
        "--strategy", choices=["values-time", "update-time"], help="instead of partition.expiration-strategy"
    )
    add_dry_run(parser)


def expire_partitions(
    out: CommandOutput,
    *,
    name: str,
    catalog: CatalogAddress,
    older_than: str | None,
    strategy: str | None,
    dry_run: bool,
) -> None:
    age = None if older_than is None else timedelta(milliseconds=duration_ms("--older-than", older_than))
    table = catalog.open().table(name)
    _show(out, name, table.expire_partitions(older_than=age, strategy=strategy, dry_run=dry_run), "dropped", dry_run)


def add_mark_done(verbs: Commands) -> None:
    parser = table_command(
        verbs,
        "mark-done",
        mark_done,
        "write a _SUCCESS file into each partition, to mark it complete",
        example="tidelake table mark-done shop.events -w lake --partition day=2026-05-01",
    )
    parser.add_argument(
        "--partition",
        action="append",
        nargs="+",
        type=pair,
        required=True,
        metavar="COLUMN=VALUE",
        help="partitions with these values; repeatable",
    )
    add_dry_run(parser, "only list what would be marked")


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
        out.line(partition)
    verb = "would be" if dry_run else "were"
    out.line(f"{len(partitions):,} partitions of {name} {verb} {what}")
