"""Builds a pipeline from its configuration."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING

from tidelake.checkpoint.coordinator import CheckpointPolicy
from tidelake.ingest.clock import Clock, SystemClock
from tidelake.ingest.monitoring.observations import RunObservations
from tidelake.ingest.pipeline.building.configured_tables import ConfiguredTables
from tidelake.ingest.pipeline.building.failing_records import build_failing_records
from tidelake.ingest.pipeline.building.lower_case import format_of, lower_case_for_catalog
from tidelake.ingest.pipeline.building.monitor import build_monitor
from tidelake.ingest.pipeline.building.parts import (
    DEFAULT_COMMAND,
    CheckpointParts,
    FailingRecords,
    SourceParts,
    TableParts,
)
from tidelake.ingest.pipeline.building.quarantine_parts import (
    QuarantineParts,
    build_quarantine,
    creation_by_table,
    has_quarantine,
)
from tidelake.ingest.pipeline.building.sources import build_source_parts
from tidelake.ingest.pipeline.building.tables_at_once import tables_at_once
from tidelake.ingest.pipeline.building.writes import Writes
from tidelake.ingest.pipeline.checkpointer import Checkpointer, SnapshotProperties
from tidelake.ingest.pipeline.flow import Flow, FlowTables
from tidelake.ingest.pipeline.pipeline import Pipeline
from tidelake.ingest.pipeline.pipeline_recovery import PipelineRecovery
from tidelake.ingest.pipeline.progress_tracker import ProgressFile, ProgressTracker, progress_path
from tidelake.ingest.pipeline.recovery_flags import RecoveryFlags
from tidelake.ingest.pipeline.run_metrics import RunMetrics
from tidelake.ingest.pipeline.startup import Startup
from tidelake.ingest.quarantine.record_log import tables_with_directory
from tidelake.ingest.settings import Config, TableSettings
from tidelake.ingest.sources.base import Source
from tidelake.ingest.tables.existing_tables import with_existing_tables
from tidelake.ingest.tables.pipeline_tables import PipelineTables
from tidelake.ingest.tables.table_differences import TableDifference, check_differences, differences
from tidelake.ingest.tables.table_history import history_snapshots_of_each
from tidelake.ingest.tables.table_sink import StorageTableSink
from tidelake.storage.base.logs import get_logger
from tidelake.storage.base.threads import map_parallel
from tidelake.storage.catalog.base import Catalog
from tidelake.storage.catalog.opening import check_holds_files, open_catalog
from tidelake.storage.fileio import FileIO, open_retrying_file_io
from tidelake.storage.maintenance.maintenance_worker import MaintenanceWorker
from tidelake.storage.model.table import TableContext
from tidelake.storage.write.memory_budget import MemoryBudget

if TYPE_CHECKING:
    from tidelake.ingest.monitoring.monitor import PipelineMonitor

_log = get_logger(__name__)


def build_pipeline(
    config: Config,
    recovery_flags: RecoveryFlags | None = None,
    command: str = DEFAULT_COMMAND,
    *,
    io: FileIO | None = None,
    open_source: Callable[[], Source] | None = None,
    clock: Clock | None = None,
) -> Pipeline:
    """Open the warehouse and the existing tables, and build the pipeline. The pipeline opens the source. Blocks.

    recovery_flags: an operator's decisions about positions that can't be proven.
    command: the command that runs this pipeline, for messages.
    io: replaces the file system of the configuration.
    open_source: replaces the source of the configuration. It is called once for the pipeline's reading, and once more
        each time that some records are read again.
    clock: replaces the system clock.

    Raises BadInput or UnsupportedFeature for a configuration that can't be fulfilled.
    """
    options, flags = config.warehouse_options, recovery_flags or RecoveryFlags()
    check_holds_files(config.warehouse, options)
    store = io if options.get("metastore") == "rest" else io or open_retrying_file_io(config.warehouse, options)
    catalog = open_catalog(config.warehouse, options, store)
    config = expanded(config, catalog, io)
    format_ = format_of(config)
    memory, maintenance = MemoryBudget(config.write.memory_bytes), MaintenanceWorker()
    observed = RunObservations(config.checkpoint.interval_ms, clock or SystemClock())
    monitor = build_monitor(config, observed, memory)
    configured = ConfiguredTables.of(config)
    tables = PipelineTables(
        config.tables,
        catalog,
        _sinks(config, configured, memory, maintenance, observed, monitor),
        format_.infer_table,
        configured.targets,
        configured.column_types,
        configured.add,
        quarantines_unreadable=has_quarantine(config),
    )
    check_differences(tables.differences)
    for difference in tables.differences:
        _log.warning("the table stays as it is", difference=str(difference), remedy=difference.command)
    progress = ProgressFile(
        io or open_retrying_file_io(config.warehouse, options), progress_path(config.warehouse, config.pipeline)
    )
    checkpoint = config.checkpoint
    policy = CheckpointPolicy(checkpoint.interval_ms, checkpoint.bytes_max, tables_at_once(config))
    return connect_parts(
        build_source_parts(
            config, format_, configured.decoder(format_, tables.router.target_of), observed, open_source
        ),
        configured.parts(tables, catalog),
        build_failing_records(config, flags.skip, catalog, io, observed.clock),
        CheckpointParts(policy, progress, flags, command),
        observed,
        maintenance,
        monitor,
        build_quarantine(config, io, tables, format_),
    )


def _sinks(
    config: Config,
    configured: ConfiguredTables,
    memory: MemoryBudget,
    maintenance: MaintenanceWorker,
    observed: RunObservations,
    monitor: PipelineMonitor | None,
) -> Callable[[TableContext], StorageTableSink]:
    """Return the function that creates the sink of a table."""
    history = history_snapshots_of_each(len(config.tables))

    def open_sink(context: TableContext) -> StorageTableSink:
        if monitor is not None:
            monitor.watch_table(context)
        return StorageTableSink(
            context,
            config.pipeline,
            memory,
            config.write.spill_directory,
            maintenance,
            configured.shared_with[context.name],
            history,
            observed.table_compacted,
        )

    return open_sink


def expanded(config: Config, catalog: Catalog | None = None, io: FileIO | None = None) -> Config:
    """Add an entry for each existing table of the entries that stand for many tables. Blocks.

    Names are converted to the catalog's case.
    """
    config = lower_case_for_catalog(config)
    if not config.templates:
        return config
    options = config.warehouse_options
    location = config.quarantine_location
    kept = tables_with_directory(io or open_retrying_file_io(location, options), location)
    return with_existing_tables(config, catalog or open_catalog(config.warehouse, options, io), kept)


def connect_parts(
    source: SourceParts,
    tables: TableParts,
    failing: FailingRecords,
    checkpoint: CheckpointParts,
    observed: RunObservations,
    maintenance: MaintenanceWorker,
    monitor: PipelineMonitor | None = None,
    quarantine: QuarantineParts | None = None,
) -> Pipeline:
    """Connect the parts to a pipeline. Each part gets the others that it uses.

    observed: gets the observations of the parts.
    monitor: publishes the observations while the pipeline runs.
    quarantine: None stops the pipeline if a table fails.
    """
    read, sinks, router, dead_letters = source.source, tables.sinks, tables.router, failing.dead_letters
    kept = None if quarantine is None else quarantine.quarantine(tables, observed.clock)
    failed = {} if kept is None else kept.failed
    observed.problems = lambda: {name: f"in quarantine: {one.error}" for name, one in failed.copy().items()}
    tracker = ProgressTracker(sinks, router.tables, tables.routings, checkpoint.progress, observed.clock, failed)
    facts = SnapshotProperties(tables.routings, tables.lineage)
    checkpoints = Checkpointer(
        read, sinks, dead_letters, tracker, tables.moved_files, facts, checkpoint.policy, observed, kept
    )
    recovery = PipelineRecovery(
        read,
        router,
        sinks,
        source.start,
        tables.routings,
        checkpoint.progress,
        checkpoint.command,
        dict if quarantine is None else partial(quarantine.open_logs, router.tables),
        None if quarantine is None else quarantine.opener.unreadable,
    )
    writes = Writes(source, tables, failing, checkpoints, observed, kept)
    create, catch_up = tables.create, None
    if quarantine is not None and kept is not None:
        create = creation_by_table(tables, failed)
        catch_up = quarantine.catch_up(kept, tables, failing, writes)
    flow = Flow(
        read,
        source.decoder,
        FlowTables(create, router.tables_of, sinks.keys(), failing.policy.tolerates),
        writes.of_all(),
        checkpoints,
        tracker,
        source.queue_bytes,
        observed,
        catch_up,
        source.run_decode,
    )
    startup = Startup(recovery, checkpoints, dead_letters, tables.moved_files, writes.writer, checkpoint.flags, kept)
    metrics = RunMetrics(observed, failing.policy.unused_skips)
    return Pipeline(startup, flow, read, sinks, maintenance, metrics, monitor)


def configuration_differences(config: Config, unreadable: Collection[str] = ()) -> list[TableDifference]:
    """Return the differences between the configuration and existing, readable tables. Blocks."""
    catalog = open_catalog(config.warehouse, config.warehouse_options)

    def of(table: TableSettings) -> list[TableDifference]:
        return differences(table, catalog.load(table.name)) if catalog.table_exists(table.name) else []

    tables = [table for table in config.named_tables if table.name not in unreadable]
    return [difference for found in map_parallel(of, tables) for difference in found]


async def run(
    config: Config,
    watch: Callable[[RunMetrics], None] | None = None,
    recovery_flags: RecoveryFlags | None = None,
    command: str = DEFAULT_COMMAND,
) -> RunMetrics:
    """Run a pipeline until its source ends, it fails, or the process gets SIGTERM or SIGINT (see `Pipeline.stop`).

    watch: called once at the start, with an object that shows the progress of the run.
    recovery_flags: see `build_pipeline`.
    command: see `build_pipeline`.
    """
    pipeline = await asyncio.to_thread(build_pipeline, config, recovery_flags, command)
    if watch is not None:
        watch(pipeline.metrics)
    loop = asyncio.get_running_loop()
    for signal_ in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_, pipeline.stop)
    try:
        return await pipeline.run()
    finally:
        for signal_ in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(signal_)
