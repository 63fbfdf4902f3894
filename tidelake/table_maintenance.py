"""Maintenance of a table: expiring partitions or marking them as done, statistics, repairs after lost files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from tidelake.compaction.manifest_compaction import ManifestCompaction, compact_manifests
from tidelake.history import TableHistory
from tidelake.storage.base.arguments import checked
from tidelake.storage.base.errors import BadInput
from tidelake.storage.maintenance.analysis.analyze import TableStatistics, analyze, read_statistics
from tidelake.storage.maintenance.orphans import OrphanCleaning
from tidelake.storage.maintenance.partition_done import mark_done, partition_directories, partitions_like
from tidelake.storage.maintenance.partition_expiry import expire_partitions
from tidelake.storage.maintenance.purge import purge
from tidelake.storage.maintenance.repair import remove_missing_files, remove_missing_manifests, repair_earliest_snapshot
from tidelake.storage.model.options.maintenance_options import PartitionExpirationStrategy


class TableMaintenance(TableHistory):
    @checked
    def expire_partitions(
        self, *, older_than: timedelta | None = None, strategy: str | None = None, dry_run: bool = False
    ) -> list[str]:
        """Drop expired partitions, at most `partition.expiration-max-num`. Older snapshots keep their rows.

        Returns the partitions: `dt=2024-05-14/hour=7`.

        older_than: instead of option `partition.expiration-time`
        strategy: "values-time" (the time in its values: `partition.timestamp-pattern`, `partition.timestamp-formatter`)
            or "update-time" (its last write), instead of option `partition.expiration-strategy`
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
        """Write a `_SUCCESS` file into the directory of each partition, to mark it complete. Returns the partitions.

        partitions: column -> value each; other columns match any value

        Raises BadInput for one that matches no partition with rows.
        """
        self._check_changeable("changed")
        found = partitions_like(self._context, partitions)
        return partition_directories(self._context, found) if dry_run else mark_done(self._context, found)

    # ------------------------------------------------------------ statistics

    @checked
    def analyze(self, columns: Sequence[str] | None = None) -> int | None:
        """Collect statistics of rows and columns, for query planners (also Spark's) and `$statistics`.

        Reads all values of the columns. Returns the id of the snapshot with the statistics; None for a table without
        snapshots. Later snapshots keep them until the schema changes.

        columns: None is all columns whose values can be counted; an empty list counts rows only
        """
        self._check_changeable("analyzed")
        return analyze(self._context, columns)

    def statistics(self) -> TableStatistics | None:
        """Return the statistics of the last analysis; None if there was none, or the schema has changed since."""
        latest = self._context.snapshots.latest()
        return None if latest is None else read_statistics(self._context, latest)

    # ------------------------------------------------------------ manifests

    @checked
    def compact_manifests(self, *, dry_run: bool = False) -> ManifestCompaction:
        """Merge the manifests now, with an empty snapshot. Commits merge them, too, but later.

        dry_run: only count them

        Raises CommitConflict if others repeatedly committed first.
        """
        self._check_changeable("compacted")
        return compact_manifests(self._context, dry_run=dry_run)

    # ------------------------------------------------------------ lost files

    @checked
    def remove_missing_files(self, *, dry_run: bool = False) -> list[str]:
        """Remove lost data files from the table's metadata, so that it can be read without their rows.

        Returns their paths.
        """
        self._check_changeable("changed")
        return remove_missing_files(self._context, dry_run=dry_run)

    @checked
    def remove_missing_manifests(self, *, dry_run: bool = False) -> list[str]:
        """Remove lost manifests from the latest snapshot. Returns their names.

        Files that they deleted are then part of the table again; call `remove_missing_files` next.
        """
        self._check_changeable("changed")
        return remove_missing_manifests(self._context, dry_run=dry_run)

    @checked
    def repair_earliest_snapshot(self, snapshot_id: int) -> int:
        """Make this snapshot the earliest one, after earlier ones were lost or deleted manually.

        Returns the previous earliest one. Raises BadInput if it does not exist, or a later one is missing.
        """
        self._check_changeable("changed")
        return repair_earliest_snapshot(self._context, snapshot_id)

    @checked
    def purge(self) -> OrphanCleaning:
        """Delete all rows, branches, tags, consumers, changelogs and older snapshots. Stop writers and readers first.

        If it is interrupted, call it again. The table, its schemas and options stay.
        """
        self._check_changeable("purged")
        return purge(self._context)
