"""Procedures for snapshots, tags and branches of a table."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from tidelake.catalog import open_catalog
from tidelake.errors import BadInput
from tidelake.storage.base.clock import datetime_in_ms, epoch_ms
from tidelake.storage.maintenance.automatic_tags import AutomaticTags
from tidelake.storage.model.options.values import parse_duration_ms
from tidelake.table import Table

Options = Mapping[str, str] | None


class RolledBack(NamedTuple):
    """The ids of the table's newest snapshot, before and after a rollback."""

    previous_snapshot_id: int | None
    current_snapshot_id: int | None


class TaggedSnapshot(NamedTuple):
    """A snapshot that was tagged.

    commit_time: epoch milliseconds.
    """

    tag_name: str
    snapshot: int
    commit_time: int
    watermark: int | None


def expire_snapshots(
    table: str,
    warehouse: str,
    *,
    retain_max: int | None = None,
    retain_min: int | None = None,
    older_than: str | None = None,
    catalog_options: Options = None,
) -> int:
    """Expire snapshots. Returns how many were removed.

    older_than: a local time (`2026-01-31 12:00:00`); newer snapshots stay.
    """
    retain_ms = None if older_than is None else _age_ms(older_than)
    opened = _open(table, warehouse, catalog_options)
    return opened.expire(retain_min=retain_min, retain_max=retain_max, retain_ms=retain_ms).snapshots


def create_tag(
    table: str,
    warehouse: str,
    tag: str,
    *,
    snapshot: int | None = None,
    time_retained: str | None = None,
    catalog_options: Options = None,
) -> None:
    """Create a tag.

    snapshot: an id; None is the latest
    time_retained: `7 d`; None is forever
    """
    _open(table, warehouse, catalog_options).create_tag(tag, snapshot=snapshot, retain=_duration(time_retained))


def create_tag_from_timestamp(
    table: str,
    warehouse: str,
    tag: str,
    *,
    timestamp: int,
    time_retained: str | None = None,
    catalog_options: Options = None,
) -> TaggedSnapshot:
    """Create a tag of the first snapshot committed at this time or later.

    timestamp: epoch milliseconds
    """
    opened = _open(table, warehouse, catalog_options)
    found = min((one for one in opened.snapshots() if one.time_ms >= timestamp), key=lambda one: one.id, default=None)
    if found is None:
        raise BadInput(
            f"{table} has no snapshot that was committed at {timestamp} or later; to tag the latest snapshot, call "
            "create_tag"
        )
    made = opened.create_tag(tag, snapshot=found.id, retain=_duration(time_retained))
    return TaggedSnapshot(tag, made.id, made.time_ms, made.watermark)


def trigger_tag_automatic_creation(table: str, warehouse: str, *, catalog_options: Options = None) -> list[str]:
    """Create the tags that are due by `tag.automatic-creation`. Returns the new ones.

    A committing writer does the same. This is for tables without commits.
    """
    opened = _open(table, warehouse, catalog_options)
    if not AutomaticTags.is_enabled_for(opened.context):
        raise BadInput(
            f"{table} has no automatic tags. Set its option tag.automatic-creation to process-time or watermark"
        )
    before = set(opened.tags())
    AutomaticTags(opened.context).run()
    return sorted(set(opened.tags()) - before)


def rename_branch(
    table: str, warehouse: str, from_branch: str, to_branch: str, *, catalog_options: Options = None
) -> None:
    _open(table, warehouse, catalog_options).rename_branch(from_branch, to_branch)


def replace_tag(
    table: str,
    warehouse: str,
    tag: str,
    *,
    snapshot: int | None = None,
    time_retained: str | None = None,
    catalog_options: Options = None,
) -> None:
    """Move a tag to another snapshot. The arguments are those of `create_tag`."""
    _open(table, warehouse, catalog_options).replace_tag(tag, snapshot=snapshot, retain=_duration(time_retained))


def rename_tag(table: str, warehouse: str, tag: str, target_tag: str, *, catalog_options: Options = None) -> None:
    _open(table, warehouse, catalog_options).rename_tag(tag, target_tag)


def delete_tag(table: str, warehouse: str, tag: str, *, catalog_options: Options = None) -> None:
    """Delete tags.

    tag: one, or several separated by commas.
    """
    opened = _open(table, warehouse, catalog_options)
    for name in tag.split(","):
        opened.delete_tag(name.strip())


def expire_tags(
    table: str, warehouse: str, *, older_than: str | None = None, catalog_options: Options = None
) -> list[str]:
    """Delete tags whose retention has ended. Returns their names.

    older_than: tags without a retention from before this local time are deleted, too.
    """
    limit = None if older_than is None else _time(older_than)
    return _open(table, warehouse, catalog_options).expire_tags(older_than=limit)


def rollback(
    table: str,
    warehouse: str,
    *,
    version: str | None = None,
    snapshot: int | None = None,
    tag: str | None = None,
    catalog_options: Options = None,
) -> RolledBack:
    """Roll back to a snapshot or a tag.

    version: digits are a snapshot's id, anything else a tag
    """
    if sum(selector is not None for selector in (version, snapshot, tag)) != 1:
        raise BadInput("rollback takes one of version, snapshot and tag")
    if version is not None:
        snapshot, tag = (int(version), None) if version.isdecimal() else (None, version)
    return _rolled_back(_open(table, warehouse, catalog_options), snapshot=snapshot, tag=tag)


def rollback_to_timestamp(table: str, warehouse: str, timestamp: int, *, catalog_options: Options = None) -> RolledBack:
    """Roll back to the last snapshot committed at this time or before.

    timestamp: epoch milliseconds
    """
    return _rolled_back(_open(table, warehouse, catalog_options), as_of=timestamp)


def rollback_to_watermark(table: str, warehouse: str, watermark: int, *, catalog_options: Options = None) -> RolledBack:
    """Roll back to the last snapshot with this watermark or an earlier one."""
    return _rolled_back(_open(table, warehouse, catalog_options), watermark=watermark)


def create_branch(
    table: str, warehouse: str, branch: str, *, tag: str | None = None, catalog_options: Options = None
) -> None:
    """Create a branch.

    tag: the branch starts with this tag. By default it is empty.
    """
    _open(table, warehouse, catalog_options).create_branch(branch, tag=tag)


def delete_branch(table: str, warehouse: str, branch: str, *, catalog_options: Options = None) -> None:
    """Delete branches.

    branch: one, or several separated by commas.
    """
    opened = _open(table, warehouse, catalog_options)
    for name in branch.split(","):
        opened.delete_branch(name.strip())


def fast_forward(table: str, warehouse: str, branch: str, *, catalog_options: Options = None) -> None:
    """Replace the table's state by that of the branch."""
    _open(table, warehouse, catalog_options).fast_forward(branch)


def merge_branch(
    table: str, warehouse: str, source_branch: str, *, target_branch: str = "main", catalog_options: Options = None
) -> int | None:
    """Append the rows that were added on one branch to another: append tables only. Returns the snapshot."""
    name = table if target_branch == "main" else f"{table}$branch_{target_branch}"
    return _open(name, warehouse, catalog_options).merge_branch(source_branch)


def _open(table: str, warehouse: str, options: Options) -> Table:
    return open_catalog(warehouse, **(options or {})).table(table)


def _rolled_back(
    table: Table,
    *,
    snapshot: int | None = None,
    tag: str | None = None,
    as_of: int | None = None,
    watermark: int | None = None,
) -> RolledBack:
    before = table.context.snapshots.latest_id()
    table.rollback(snapshot=snapshot, tag=tag, as_of=as_of, watermark=watermark)
    return RolledBack(before, table.context.snapshots.latest_id())


def _duration(text: str | None) -> timedelta | None:
    return None if text is None else timedelta(milliseconds=parse_duration_ms(text))


def _time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise BadInput(f"older_than must be a local time such as 2026-01-31 12:00:00, not {text!r}") from None


def _age_ms(text: str) -> int:
    return max(0, epoch_ms() - datetime_in_ms(_time(text)))
