"""Procedures for consumers, orphan files and file indexes of a table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from storage.errors import BadInput
from storage.read.predicate import Predicate
from tidelake.catalog import open_catalog
from tidelake.consumers import TableConsumers

Options = Mapping[str, str] | None


class RemovedFiles(NamedTuple):
    """How many, and their bytes."""

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
    """Files that nothing names: what tasks and drivers left that ended before their commit.

    table: `db.t`, or `db.*` for all of a database
    older_than: a local time; without, a day ago. A commit under way must not have begun before.
    dry_run: only count them
    """
    catalog = open_catalog(warehouse, **(catalog_options or {}))
    database, _, name = table.partition(".")
    names = [f"{database}.{one}" for one in catalog.list_tables(database)] if name == "*" else [table]
    count, nbytes = 0, 0
    for one in names:
        opened = catalog.table(one)
        if older_than is None:
            gone = opened.clean_orphans(dry_run=dry_run)
        else:
            gone = opened.clean_orphans(older_than_ms=_age_ms(older_than), dry_run=dry_run)
        count, nbytes = count + len(gone.paths), nbytes + gone.size_bytes
    return RemovedFiles(count, nbytes)


def reset_consumer(
    table: str,
    warehouse: str,
    consumer_id: str,
    *,
    next_snapshot_id: int | None = None,
    catalog_options: Options = None,
) -> None:
    """next_snapshot_id: what it reads next; without, the consumer is deleted."""
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
    """Deletes those whose whole name fits the one regular expression and not the other: of streams that will not come
    back. Returns names.
    """
    consumers = TableConsumers(open_catalog(warehouse, **(catalog_options or {})).table(table))
    gone = [
        one.name
        for one in consumers.list()
        if re.fullmatch(including_consumers, one.name)
        and not (excluding_consumers and re.fullmatch(excluding_consumers, one.name))
    ]
    for name in gone:
        consumers.delete(name)
    return gone


def rewrite_file_index(
    table: str, warehouse: str, *, where: Predicate | None = None, catalog_options: Options = None
) -> RewrittenIndexes:
    """Files get the indexes that the options `file-index.*` name now.

    where: on partition columns
    """
    found = open_catalog(warehouse, **(catalog_options or {})).table(table).rewrite_file_index(where=where)
    return RewrittenIndexes(found.checked, found.rewritten)


def analyze(table: str, warehouse: str, *, columns: str = "", catalog_options: Options = None) -> int | None:
    """Counts rows and the values of columns (`a,b`; without, of all), as ANALYZE TABLE does, in the driver. Returns the
    snapshot that names the statistics.
    """
    names = [name.strip() for name in columns.split(",") if name.strip()]
    return open_catalog(warehouse, **(catalog_options or {})).table(table).analyze(names or None)


def remove_unexisting_files(
    table: str, warehouse: str, *, dry_run: bool = False, catalog_options: Options = None
) -> list[str]:
    """Data files that are lost for good are left out of the table, so that it can be read. Returns their paths."""
    return open_catalog(warehouse, **(catalog_options or {})).table(table).remove_missing_files(dry_run=dry_run)


def purge_files(table: str, warehouse: str, *, catalog_options: Options = None) -> RemovedFiles:
    """Deletes all rows, branches, tags, consumers and older snapshots. Stop writers and readers first."""
    gone = open_catalog(warehouse, **(catalog_options or {})).table(table).purge()
    return RemovedFiles(len(gone.paths), gone.size_bytes)


def _age_ms(text: str) -> int:
    try:
        return max(0, int((datetime.now().timestamp() - datetime.fromisoformat(text).timestamp()) * 1000))
    except ValueError:
        raise BadInput(f"older_than is a local time like 2026-01-31 12:00:00, not {text!r}") from None
