"""Which tables can take the source's initial snapshot sorted, straight to their highest level (`bootstrap`)."""

from __future__ import annotations

from collections.abc import Iterator

from tidelake.errors import UnsupportedFeature
from tidelake.ingest.settings import TableSettings
from tidelake.storage.model.bucketing import BucketMode, bucket_mode
from tidelake.storage.model.format import POSTPONE_BUCKET
from tidelake.storage.model.table import TableContext

_LEAVE_OUT = "Leave out `bootstrap` of this table"


def bootstrap_obstacle(settings: TableSettings, table: TableContext | None = None) -> tuple[str, str] | None:
    """Return why the rows of a snapshot can't go sorted to the table's highest level, and the remedy; None if they can.

    table: None: it does not exist yet, or only the settings count.
    """
    if settings.mode == "append":
        return "a history has no key to sort by, and its files have no levels", f"{_LEAVE_OUT}, or `mode: append`."
    if settings.mode == "scd2":
        return "a version is written with the one that it ends", f"{_LEAVE_OUT}, or `mode: scd2`."
    if settings.deletes == "soft":
        return "a row is written with what is known of its deletion", f"{_LEAVE_OUT}, or `deletes: soft`."
    if settings.filter is not None:
        return "a row that doesn't meet `filter` is written as a delete", f"{_LEAVE_OUT}, or `filter`."
    if settings.other_users:
        return "others fill the table, too (`shared_with`)", f"{_LEAVE_OUT}."
    return None if table is None else _obstacle_of_table(table)


def bootstrap_errors(settings: TableSettings) -> Iterator[tuple[str, str, str]]:
    """Yield (setting, reason, remedy) of the error of an entry with a `bootstrap` of its own that can't work."""
    if settings.bootstrap is None or not settings.bootstrap.enabled:
        return
    if (obstacle := bootstrap_obstacle(settings)) is not None:
        yield "bootstrap", *obstacle


def check_bootstrap(settings: TableSettings, table: TableContext) -> None:
    """Raise UnsupportedFeature for a table whose entry has a `bootstrap` of its own that can't work."""
    if settings.bootstrap is None or not settings.bootstrap.enabled:
        return
    if (obstacle := _obstacle_of_table(table)) is not None:
        raise UnsupportedFeature(f"`bootstrap` of {table.name}", *obstacle)


def _obstacle_of_table(table: TableContext) -> tuple[str, str] | None:
    if not table.schema.has_primary_key:
        return "the table has no primary key, so its files have no levels", f"{_LEAVE_OUT}, or give it a primary key"
    if bucket_mode(table.schema, table.options) is BucketMode.POSTPONE:
        reason = f"its rows wait for their buckets until a compaction chooses these (bucket = {POSTPONE_BUCKET})"
        return reason, f"{_LEAVE_OUT}, or set another `bucket`"
    if not table.options.write_buffer_spillable:
        reason = "rows that exceed memory are sorted on disk, and write-buffer-spillable is false"
        return reason, f"Unset the option, or {_LEAVE_OUT[0].lower()}{_LEAVE_OUT[1:]}"
    return None
