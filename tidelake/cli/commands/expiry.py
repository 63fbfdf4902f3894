"""`tidelake table expire` and `orphans`: delete files that nothing needs any more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from tidelake.cli.arguments import CatalogAddress, Commands, add_dry_run, duration_ms, positive, table_command
from tidelake.cli.output import CommandOutput

if TYPE_CHECKING:
    from tidelake.consumers import ConsumerPosition
    from tidelake.table import Table

_PATHS_SHOWN: Final = 20


def add_expire(verbs: Commands) -> None:
    parser = table_command(
        verbs,
        "expire",
        expire,
        "expire old snapshots, and delete the files that only they reference",
        "Keeps what the arguments or the table's options say (snapshot.num-retained.*, snapshot.time-retained), what\n"
        "consumers still have to read, tags, and the newest snapshot. Writers can continue.",
        example="tidelake table expire shop.orders -w lake --retain-time '1 d' --dry-run",
    )
    parser.add_argument("--retain-min", type=positive, metavar="N", help="keep at least this many of the newest")
    parser.add_argument("--retain-max", type=positive, metavar="N", help="keep at most this many")
    parser.add_argument("--retain-time", metavar="DURATION", help="keep snapshots younger than this: 30 min, 1 d, 0 s")
    add_dry_run(parser)


def expire(
    out: CommandOutput,
    *,
    name: str,
    catalog: CatalogAddress,
    retain_min: int | None,
    retain_max: int | None,
    retain_time: str | None,
    dry_run: bool,
) -> None:
    table = catalog.open().table(name)
    retain_ms = None if retain_time is None else duration_ms(f"--retain-time {retain_time!r}", retain_time)
    if dry_run:
        _show_expirable(out, table, catalog, retain_min, retain_max, retain_ms)
        return
    expired = table.expire(retain_min=retain_min, retain_max=retain_max, retain_ms=retain_ms)
    holders = _blocking_consumers(table, retain_min, retain_max, retain_ms)
    if out.is_json:
        out.document({**asdict(expired), **_blocking_consumer_members(holders)})
        return
    changelogs = f" and {expired.changelogs} changelogs" if expired.changelogs else ""
    files = f"{expired.data_files:,} data files and {expired.metadata_files:,} metadata files"
    out.text(f"{expired.snapshots} snapshots{changelogs} of {name} were deleted, with {files}")
    _print_blocking_consumers(out, name, catalog, holders)


def _blocking_consumers(
    table: Table, retain_min: int | None, retain_max: int | None, retain_ms: int | None
) -> list[ConsumerPosition]:
    """Return the consumers that keep snapshots which would otherwise expire."""
    from tidelake.consumers import TableConsumers
    from tidelake.storage.commit.expire.retention import retention_of
    from tidelake.storage.commit.expire.snapshot_expiry import SnapshotExpiry

    if table.context.options.consumer_changelog_only:
        return []
    context = table.context.with_options({"consumer.changelog-only": "true"})
    retention = retention_of(context.options, retain_min, retain_max, retain_ms, limit=2**31)
    ids = SnapshotExpiry(context, retention=retention).expirable()
    return [one for one in TableConsumers(table).list() if one.next_snapshot_id < ids.stop]


def _blocking_consumer_members(holders: Sequence[ConsumerPosition]) -> dict[str, Any]:
    found = [{"consumer": one.name, "next_snapshot_id": one.next_snapshot_id} for one in holders]
    return {"held_by": found} if found else {}


def _print_blocking_consumers(
    out: CommandOutput, name: str, catalog: CatalogAddress, holders: Sequence[ConsumerPosition]
) -> None:
    if not holders:
        return
    who = ", ".join(f"{one.name} (reads {one.next_snapshot_id} next)" for one in holders)
    delete = f"tidelake table consumers delete {name} CONSUMER -w {catalog.warehouse}"
    lost = "for example a Spark query whose checkpoint directory was deleted"
    out.text(f"consumers keep other snapshots: {who}. Delete a consumer that will not return, {lost}: {delete}")


def _show_expirable(
    out: CommandOutput,
    table: Table,
    catalog: CatalogAddress,
    retain_min: int | None,
    retain_max: int | None,
    retain_ms: int | None,
) -> None:
    from tidelake.storage.commit.expire.retention import retention_of
    from tidelake.storage.commit.expire.snapshot_expiry import SnapshotExpiry

    retention = retention_of(table.context.options, retain_min, retain_max, retain_ms, limit=2**31)
    ids = SnapshotExpiry(table.context, retention=retention).expirable()
    holders = _blocking_consumers(table, retain_min, retain_max, retain_ms)
    if out.is_json:
        found = {"first": ids.start, "last": ids.stop - 1, "snapshots": len(ids)} if ids else {"snapshots": 0}
        out.document({**found, **_blocking_consumer_members(holders)})
        return
    if ids:
        out.text(f"snapshots {ids.start} to {ids.stop - 1} of {table.name} would be deleted")
    else:
        out.text(f"no snapshot of {table.name} would be deleted")
    _print_blocking_consumers(out, table.name, catalog, holders)


def add_orphans(verbs: Commands) -> None:
    parser = table_command(
        verbs,
        "orphans",
        orphans,
        "delete files that no snapshot, tag or branch references",
        "They are left by crashes, failed commits, rollbacks and deleted branches. Writers can continue.",
        example="tidelake table orphans shop.orders -w lake --older-than '2 d' --dry-run",
    )
    parser.add_argument(
        "--older-than",
        default="1 d",
        metavar="DURATION",
        help="keep younger files, which may belong to a running commit; default: 1 d",
    )
    add_dry_run(parser)


def orphans(out: CommandOutput, *, name: str, catalog: CatalogAddress, older_than: str, dry_run: bool) -> None:
    age_ms = duration_ms("--older-than", older_than)
    found = catalog.open().table(name).clean_orphans(older_than_ms=age_ms, dry_run=dry_run)
    if out.is_json:
        out.document({"paths": list(found.paths), "size_bytes": found.size_bytes, "young": found.young})
        return
    for path in found.paths[:_PATHS_SHOWN]:
        out.line(path)
    more = len(found.paths) - _PATHS_SHOWN
    if more > 0:
        out.note(f"{more:,} more; --json lists all")
    verb = "would be deleted" if dry_run else "were deleted"
    young = f"; {found.young:,} are younger" if found.young else ""
    out.result({}, f"{len(found.paths):,} orphans of {name}, {found.size_bytes:,} bytes, {verb}{young}")
