"""A table's partitions in the hands of its users: old ones that go, complete ones that are marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from storage.arguments import checked
from storage.errors import BadInput
from storage.maintenance.partition_done import mark_done, partition_directories, partitions_like
from storage.maintenance.partition_expiry import expire_partitions
from storage.options.maintenance_options import PartitionExpirationStrategy
from tidelake.history import TableHistory


class TableMaintenance(TableHistory):
    @checked
    def expire_partitions(
        self, *, older_than: timedelta | None = None, strategy: str | None = None, dry_run: bool = False
    ) -> list[str]:
        """Drop partitions whose time is over, at most `partition.expiration-max-num`. Returns them:
        `dt=2024-05-14/hour=7`. Older snapshots keep their rows.

        older_than: in place of option `partition.expiration-time`. strategy: "values-time" (the time that the values
        name: `partition.timestamp-pattern`, `partition.timestamp-formatter`) or "update-time" (when it was last
        written), in place of `partition.expiration-strategy`.
        """
        self._check_changeable("changed")
        if strategy is not None and strategy not in tuple(PartitionExpirationStrategy):
            raise BadInput(f"strategy={strategy!r}: expected one of {', '.join(PartitionExpirationStrategy)}")
        return expire_partitions(
            self._context,
            older_than_ms=None if older_than is None else int(older_than.total_seconds() * 1000),
            strategy=None if strategy is None else PartitionExpirationStrategy(strategy),
            dry_run=dry_run,
        )

    @checked
    def mark_done(self, partitions: Sequence[Mapping[str, Any]], *, dry_run: bool = False) -> list[str]:
        """Say to other jobs that partitions are complete: a file `_SUCCESS` in the directory of each. Returns them.

        partitions: column -> value each; columns that are left out match anything.
        Raises BadInput for one that agrees with no partition that has rows.
        """
        self._check_changeable("changed")
        found = partitions_like(self._context, partitions)
        return partition_directories(self._context, found) if dry_run else mark_done(self._context, found)
