"""Procedures for partitions of a table, and for their number of buckets."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from tidelake.catalog import open_catalog
from tidelake.errors import BadInput
from tidelake.storage.model.options.values import parse_duration_ms

Options = Mapping[str, str] | None


def rescale(
    table: str,
    warehouse: str,
    *,
    bucket_num: int | None = None,
    partitions: str = "",
    catalog_options: Options = None,
) -> list[str]:
    """Overwrite partitions with another number of buckets with their own rows, in the driver.

    bucket_num: also becomes option `bucket`. Default: the value of that option
    partitions: only these, `dt=a,hour=1;dt=b`

    Returns the directories of rewritten partitions. See `Catalog.rescale_table`.
    """
    catalog = open_catalog(warehouse, **(catalog_options or {}))
    number = int(catalog.table(table).options.get("bucket", "-1")) if bucket_num is None else bucket_num
    if number < 1:
        raise BadInput(f"{table} has bucket = {number}: pass the new number of buckets as bucket_num=…")
    chosen: list[dict[str, str] | None] = [*_partitions(partitions)] or [None]
    return [directory for one in chosen for directory in catalog.rescale_table(table, number, partition=one)]


def expire_partitions(
    table: str,
    warehouse: str,
    *,
    expiration_time: str | None = None,
    timestamp_formatter: str | None = None,
    timestamp_pattern: str | None = None,
    expire_strategy: str | None = None,
    max_expires: int | None = None,
    options: Mapping[str, str] | None = None,
    catalog_options: Options = None,
) -> list[str]:
    """Drop expired partitions, and return them. Arguments override the table's options `partition.…`.

    expiration_time: the maximal age, `7 d`
    expire_strategy: `values-time` or `update-time`
    """
    given = {
        "partition.timestamp-formatter": timestamp_formatter,
        "partition.timestamp-pattern": timestamp_pattern,
        "partition.expiration-max-num": None if max_expires is None else str(max_expires),
    }
    dynamic = {**(options or {}), **{name: value for name, value in given.items() if value is not None}}
    opened = open_catalog(warehouse, **(catalog_options or {})).table(table, dynamic)
    age = None if expiration_time is None else timedelta(milliseconds=parse_duration_ms(expiration_time))
    return opened.expire_partitions(older_than=age, strategy=expire_strategy)


def mark_partition_done(table: str, warehouse: str, partitions: str, *, catalog_options: Options = None) -> list[str]:
    """Write a file `_SUCCESS` to each partition. Returns their directories.

    partitions: `dt=a,hour=1;dt=b`
    """
    opened = open_catalog(warehouse, **(catalog_options or {})).table(table)
    return opened.mark_done(_partitions(partitions))


def _partitions(text: str) -> list[dict[str, str]]:
    """Parse partitions separated by semicolons. Returns the values of each by column."""
    found = []
    for one in filter(str.strip, text.split(";")):
        pairs = [part.partition("=") for part in one.split(",")]
        if not all(equals and name.strip() for name, equals, _ in pairs):
            raise BadInput(f"partitions={text!r}: write partitions as dt=2026-01-31,hour=7;dt=2026-02-01")
        found.append({name.strip(): value.strip() for name, _, value in pairs})
    return found
