"""Checks of the tables: differences from the configuration, soundness, consumers, sorted runs."""

from __future__ import annotations

from collections.abc import Callable

from tidelake.consumers import TableConsumers
from tidelake.doctor.checks import Finding, Findings, counted, failed, ok, warning
from tidelake.ingest.monitoring.table_levels import TableLevelsReader
from tidelake.ingest.settings import Config
from tidelake.ingest.tables.table_differences import differences
from tidelake.storage.base.clock import epoch_ms
from tidelake.storage.base.threads import map_parallel
from tidelake.storage.catalog.opening import open_catalog
from tidelake.table import Table
from tidelake.verification import inspect_table


def check_differences(config: Config) -> Findings:
    """Compare the options of the configuration with those of existing tables."""
    settings = {table.name: table for table in config.named_tables}

    def of(table: Table) -> list[Finding]:
        return [
            warning(f"{one}: the table is not changed", one.command or "Make the two equal")
            for one in differences(settings[table.name], table.context)
        ]

    return _of_each(config, of, "no option differs from the configuration")


def check_soundness(config: Config) -> Findings:
    """Verify the newest snapshot of each table: whether all its files exist and have their sizes."""

    def of(table: Table) -> list[Finding]:
        newest = table.context.snapshots.latest_id()
        if newest is None:
            return []
        return [
            failed(f"{table.name}, {one.where}: {one.what}", one.remedy)
            for one in inspect_table(table, snapshot_id=newest).problems
        ]

    return _of_each(config, of, "the newest snapshot is sound")


def check_consumers(config: Config) -> Findings:
    """Find consumers that keep snapshots from expiring that would be gone without them."""

    def of(table: Table) -> list[Finding]:
        context, found = table.context, []
        retained_ms = context.options.snapshot_time_retained_ms
        for consumer in TableConsumers(table).list():
            snapshot = context.snapshots.find(consumer.next_snapshot_id) if consumer.behind else None
            age_ms = 0 if snapshot is None else epoch_ms() - snapshot.time_ms
            if age_ms > retained_ms:
                what = f"consumer {consumer.name} is {counted(consumer.behind, 'snapshot')} behind, and holds them"
                remedy = (
                    f"Start its reader, or: tidelake table consumers delete {table.name} CONSUMER -w {config.warehouse}"
                )
                found.append(warning(f"{table.name}: {what} since {age_ms / 3_600_000:,.1f} h", remedy))
        return found

    return _of_each(config, of, "no consumer holds old snapshots")


def check_sorted_runs(config: Config) -> Findings:
    """Find buckets with so many sorted runs that a flush soon waits for a compaction."""

    def of(table: Table) -> list[Finding]:
        context = table.context
        if not context.schema.has_primary_key or context.options.write_only:
            return []
        runs, stop = TableLevelsReader(context).read().sorted_runs_max(), context.options.stop_trigger
        if runs < stop:
            return []
        what = f"a bucket has {runs:,} sorted runs, and flushes wait above {stop:,} (num-sorted-run.stop-trigger)"
        remedy = f"tidelake table compact {table.name} -w {config.warehouse}"
        return [warning(f"{table.name}: {what}", remedy)]

    return _of_each(config, of, "sorted runs are below the stop trigger")


def _of_each(config: Config, look: Callable[[Table], list[Finding]], otherwise: str) -> Findings:
    """Look at each table that exists. A table that can't be read is a finding, and the others are looked at."""
    catalog = open_catalog(config.warehouse, config.warehouse_options)

    def of(name: str) -> list[Finding] | None:
        try:
            return look(Table(catalog.load(name))) if catalog.table_exists(name) else None
        except Exception as error:
            return [failed(f"{name}: {error}", f"tidelake table verify {name} -w {config.warehouse}")]

    found = list(map_parallel(of, [table.name for table in config.named_tables]))
    existing = sum(1 for one in found if one is not None)
    return [finding for one in found for finding in one or ()] or [ok(f"{counted(existing, 'table')}: {otherwise}")]
