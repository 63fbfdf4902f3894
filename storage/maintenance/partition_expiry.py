"""Drops expired partitions: by the time in their values, or by the time of their last write.

They are dropped in one commit of kind OVERWRITE, or in several (`partition.expiration-batch-size`). Their files are
deleted when the snapshots before that commit expire. Each attempt to commit decides again which partitions have
expired, so rows that were written meanwhile count.

Source: Java `operation/NormalPartitionExpire.java`, `partition/PartitionUpdateTimeExpireStrategy.java`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from tidelake.errors import BadInput
from tidelake.storage.base import env
from tidelake.storage.base.clock import epoch_ms
from tidelake.storage.base.logs import get_logger
from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.commit.table_commit import TableCommit, new_commit_user
from tidelake.storage.files.partition_times import PartitionTimes
from tidelake.storage.model.binary_row import decode_rows
from tidelake.storage.model.options.maintenance_options import PartitionExpirationStrategy
from tidelake.storage.model.paths import partition_path
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types.partition_text import partition_texts
from tidelake.storage.read.expired_snapshots import newest_live_entries

_log = get_logger(__name__)

_UNREADABLE_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class ExpiredPartitions:
    """Selects the expired partitions of a state.

    older_than_ms: a partition has expired if its time is longer ago than this.
    now: the local wall clock.
    """

    context: TableContext
    older_than_ms: int
    strategy: PartitionExpirationStrategy
    now: datetime

    def expired_partitions(self, entries: Iterable[ManifestEntry]) -> list[bytes]:
        """Return the expired partitions in the order in which they are dropped.

        entries: all live files.
        """
        limit = self.now - timedelta(milliseconds=self.older_than_ms)
        if self.strategy is PartitionExpirationStrategy.UPDATE_TIME:
            return self._sorted(self._not_written_since(limit, entries))
        found = sorted({entry.partition for entry in entries})
        times = dict(zip(found, PartitionTimes(self.context).of(found), strict=True))
        self._log_unreadable([partition for partition, time in times.items() if time is None])
        return self._sorted([partition for partition, time in times.items() if time is not None and time < limit])

    @staticmethod
    def _not_written_since(limit: datetime, entries: Iterable[ManifestEntry]) -> list[bytes]:
        """Return the partitions whose newest file is older than limit. A file without a creation time counts as new."""
        newest_ms: dict[bytes, float] = {}
        for entry in entries:
            made_ms = entry.file.creation_time_ms
            known = newest_ms.get(entry.partition, float("-inf"))
            newest_ms[entry.partition] = max(known, float("inf") if made_ms is None else made_ms)
        # both times are the local wall clock, as if it were UTC
        limit_ms = limit.replace(tzinfo=UTC).timestamp() * 1000
        return [partition for partition, time_ms in newest_ms.items() if time_ms < limit_ms]

    def _sorted(self, partitions: Sequence[bytes]) -> list[bytes]:
        """Sort partitions by the text of their values, as Java joins them."""
        default = self.context.options.partition_default_name
        rows = _texts(self.context, partitions)
        joined = [",".join(default if text is None else text for text in row) for row in rows]
        return [partition for _, partition in sorted(zip(joined, partitions, strict=True))]

    def _log_unreadable(self, partitions: Sequence[bytes]) -> None:
        if partitions:
            shown = partition_names(self.context, partitions[:_UNREADABLE_SHOWN])
            _log.warning(
                "partitions that name no time never expire",
                table=self.context.name,
                partitions=len(partitions),
                some=shown,
                remedy="set partition.timestamp-pattern and partition.timestamp-formatter, or "
                "partition.expiration-strategy = update-time, or drop them manually",
            )


def expired_by_value(context: TableContext, entries: Iterable[ManifestEntry]) -> list[bytes]:
    """Return the partitions that expire by the table's options.

    Returns an empty list unless the options expire partitions by their values.
    """
    age_ms, strategy = context.options.partition_expiration_ms, context.options.partition_expiration_strategy
    if age_ms is None or strategy is not PartitionExpirationStrategy.VALUES_TIME or not context.schema.partition_keys:
        return []
    return ExpiredPartitions(context, age_ms, strategy, env.local_now()).expired_partitions(entries)


def partition_names(context: TableContext, partitions: Sequence[bytes]) -> list[str]:
    """Return `dt=2024-05-14/hour=7` for each partition."""
    names, default = context.schema.partition_keys, context.options.partition_default_name
    return [partition_path(names, row, default) for row in _texts(context, partitions)]


def _texts(context: TableContext, partitions: Sequence[bytes]) -> list[list[str | None]]:
    types = [field.type for field in context.schema.partition_fields]
    if not partitions:
        return []
    columns = decode_rows(list(partitions), types)
    legacy = context.options.partition_legacy_name
    return [partition_texts(row, types, legacy) for row in zip(*columns, strict=True)]


def expire_partitions(
    context: TableContext,
    *,
    older_than_ms: int | None = None,
    strategy: PartitionExpirationStrategy | None = None,
    now: datetime | None = None,
    dry_run: bool = False,
) -> list[str]:
    """Drop expired partitions, at most `partition.expiration-max-num`. Returns their names: `dt=2024-05-14/hour=7`.

    older_than_ms: None uses the table's option.
    strategy: None uses the table's option.
    now: the local wall clock.

    Raises BadInput for a table without partitions or without an expiration time.
    """
    options = context.options
    if not context.schema.partition_keys:
        raise BadInput(f"{context.name} is not partitioned; `expire` removes old snapshots, deletes take a condition")
    age_ms = options.partition_expiration_ms if older_than_ms is None else older_than_ms
    if age_ms is None:
        raise BadInput(f"{context.name} has no option partition.expiration-time; set it, or pass the age")
    chosen = strategy or options.partition_expiration_strategy
    over = ExpiredPartitions(context, age_ms, chosen, now or env.local_now())
    expiring = over.expired_partitions(newest_live_entries(context))[: options.partition_expiration_max_num]
    names = partition_names(context, expiring)
    if not expiring or dry_run:
        return names
    size = options.partition_expiration_batch_size or len(expiring)
    for start in range(0, len(expiring), max(size, 1)):
        batch = expiring[start : start + max(size, 1)]
        commit = TableCommit(context, new_commit_user(options))
        commit.remove_partitions(partial(_still_expired, over, frozenset(batch)))
    _log.info("partitions expired", table=context.name, partitions=names)
    return names


def _still_expired(over: ExpiredPartitions, batch: frozenset[bytes], entries: Sequence[ManifestEntry]) -> set[bytes]:
    return set(batch.intersection(over.expired_partitions(entries)))


class PartitionExpiry:
    """Partition expiry after the commits of one table. Not thread-safe.

    now_ms: wall clock.
    random_fraction: returns a number in [0, 1). It puts the first check at a random time within one interval, so that
        some of many short jobs check, too.
    """

    name: Final = "partition_expiry"

    def __init__(
        self,
        context: TableContext,
        *,
        now_ms: Callable[[], int] = epoch_ms,
        random_fraction: Callable[[], float] = lambda: env.random_fraction(),
    ) -> None:
        self._context = context
        self._now_ms = now_ms
        self._interval_ms = context.options.partition_expiration_check_interval_ms
        self._checks_at_end_of_input = context.options.end_input_check_partition_expire
        self._next_check_ms = now_ms() + self._interval_ms - int(self._interval_ms * random_fraction())
        PartitionTimes(context)  # raises for an invalid formatter

    @staticmethod
    def is_enabled_for(context: TableContext) -> bool:
        return context.options.partition_expiration_ms is not None and bool(context.schema.partition_keys)

    def is_due(self, *, respect_interval: bool = True) -> bool:
        """Return whether it is time for a check.

        respect_interval: False at the end of input.
        """
        if not respect_interval and self._checks_at_end_of_input:
            return True
        return not self._interval_ms or self._now_ms() > self._next_check_ms

    def run(self) -> None:
        self._next_check_ms = self._now_ms() + self._interval_ms
        expire_partitions(self._context, now=datetime.fromtimestamp(self._now_ms() / 1000))
