"""Procedures for consumers, orphan files and file indexes of a table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from tidelake.catalog import open_catalog
from tidelake.consumers import TableConsumers
from tidelake.errors import BadInput
from tidelake.storage.base.clock import datetime_in_ms, epoch_ms
from tidelake.storage.read.predicate import Predicate

Options = Mapping[str, str] | None


class RemovedFiles(NamedTuple):
    """The number of removed files, and their bytes."""

    deleted_file_count: int
    deleted_file_total_len_in_bytes: int


class RewrittenIndexes(NamedTuple):
    checked: int
    rewritten: int


def remove_orphan_files(
    table: str,
    warehouse: str,
    *,
    older_than: str | None = None,
    dry_run: bool = False,
    catalog_options: Options = None,
) -> RemovedFiles:
    """Delete orphan files, which tasks and drivers leave that end before their commit.

    table: `db.t`, or `db.*` for all tables of a database
    older_than: a local time; default: a day ago. A running commit must not have started before.
    dry_run: only count them
    """
    catalog = open_catalog(warehouse, **(catalog_options or {}))
    database, _, name = table.partition(".")
    names = [f"{database}.{one}" for one in catalog.list_tables(database)] if name == "*" else [table]
    count, nbytes = 0, 0
    for one in names:
        opened = catalog.table(one)
        if older_than is None:
            removed = opened.clean_orphans(dry_run=dry_run)
        else:
            removed = opened.clean_orphans(older_than_ms=_age_ms(older_than), dry_run=dry_run)
        count, nbytes = count + len(removed.paths), nbytes + removed.size_bytes
    return RemovedFiles(count, nbytes)


def reset_consumer(
    table: str,
    warehouse: str,
    consumer_id: str,
    *,
    next_snapshot_id: int | None = None,
    catalog_options: Options = None,
) -> None:
    """Set or delete a consumer.

    next_snapshot_id: the next snapshot to read. None deletes the consumer.
    """
    consumers = TableConsumers(open_catalog(warehouse, **(catalog_options or {})).table(table))
    if next_snapshot_id is None:
        consumers.delete(consumer_id)
    else:
        consumers.reset(consumer_id, next_snapshot_id)


def clear_consumers(
    table: str,
    warehouse: str,
    *,
    including_consumers: str = ".*",
    excluding_consumers: str = "",
    catalog_options: Options = None,
) -> list[str]:
    """Delete consumers, for example of streams that will not be started again. Returns their names.

    including_consumers: a regular expression that must match the whole name
    excluding_consumers: consumers whose whole name matches are kept
    """
    consumers = TableConsumers(open_catalog(warehouse, **(catalog_options or {})).table(table))
    expired = [
        one.name
        for one in consumers.list()
        if re.fullmatch(including_consumers, one.name)
        and not (excluding_consumers and re.fullmatch(excluding_consumers, one.name))
    ]
    for name in expired:
        consumers.delete(name)
    return expired


def rewrite_file_index(
    table: str, warehouse: str, *, where: Predicate | str | None = None, catalog_options: Options = None
) -> RewrittenIndexes:
    """Build the indexes that the options `file-index.*` name, for existing files.

    where: a condition on partition columns
    """
    found = open_catalog(warehouse, **(catalog_options or {})).table(table).rewrite_file_index(where=where)
    return RewrittenIndexes(found.checked, found.rewritten)


def analyze(table: str, warehouse: str, *, columns: str = "", catalog_options: Options = None) -> int | None:
    """Count rows and the values of columns in the driver, as ANALYZE TABLE does.

    Returns the snapshot with the statistics.

    columns: `a,b`; default: all columns
    """
    names = [name.strip() for name in columns.split(",") if name.strip()]
    return open_catalog(warehouse, **(catalog_options or {})).table(table).analyze(names or None)


def remove_unexisting_files(
    table: str, warehouse: str, *, dry_run: bool = False, catalog_options: Options = None
) -> list[str]:
    """Remove lost data files from the table, so that it can be read. Returns their paths."""
    return open_catalog(warehouse, **(catalog_options or {})).table(table).remove_missing_files(dry_run=dry_run)


def purge_files(table: str, warehouse: str, *, catalog_options: Options = None) -> RemovedFiles:
    """Delete all rows, branches, tags, consumers and older snapshots. Stop writers and readers first."""
    deleted = open_catalog(warehouse, **(catalog_options or {})).table(table).purge()
    return RemovedFiles(len(deleted.paths), deleted.size_bytes)


def _age_ms(text: str) -> int:
    try:
        return max(0, epoch_ms() - datetime_in_ms(datetime.fromisoformat(text)))
    except ValueError:
        raise BadInput(f"older_than must be a local time such as 2026-01-31 12:00:00, not {text!r}") from None
