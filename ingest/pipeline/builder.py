"""A pipeline made from its configuration."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from checkpoint.coordinator import CheckpointPolicy
from checkpoint.offsets import TopicPartition
from checkpoint.routing import Routing
from compaction.scheduler import shared_scheduler
from ingest.clock import Clock, SystemClock
from ingest.dead_letter_table import DeadLetterTable, TableDeadLetters
from ingest.dead_letters import DeadLetters
from ingest.evolution.schema_fence import NoFence, SchemaFence
from ingest.evolution.table_schemas import TableSchemas
from ingest.formats.base import DecodedBatch, Decoder
from ingest.formats.registry import source_order_of, transaction_of_format
from ingest.formats.source_order import SourceOrderOf
from ingest.formats.source_table import SourceTable
from ingest.monitoring.observations import RunObservations
from ingest.pipeline.batch_writer import BatchWriter
from ingest.pipeline.building.configured_tables import ConfiguredTables
from ingest.pipeline.building.letter_case import format_of, in_letters_of_catalog
from ingest.pipeline.building.quarantine_parts import QuarantineParts
from ingest.pipeline.building.sources import build_source, build_start
from ingest.pipeline.building.tables_at_once import tables_at_once
from ingest.pipeline.building.whole_transactions import WholeTransactions
from ingest.pipeline.checkpointer import Checkpointer, SnapshotFacts
from ingest.pipeline.error_policy import ErrorPolicy
from ingest.pipeline.flow import CreateTables, Flow, FlowTables
from ingest.pipeline.pending_batches import PendingBatches
from ingest.pipeline.pipeline import Pipeline
from ingest.pipeline.pipeline_recovery import PipelineRecovery
from ingest.pipeline.progress_file import ProgressFile, progress_path
from ingest.pipeline.progress_tracker import ProgressTracker
from ingest.pipeline.recovery_flags import RecoveryFlags
from ingest.pipeline.run_metrics import RunMetrics
from ingest.pipeline.startup import Startup
from ingest.pipeline.write_stage import Fences, WriteStage
from ingest.quarantine.catch_up import CatchUp
from ingest.quarantine.failures import TableScope, failures_of, owner_of
from ingest.quarantine.quarantine import Quarantine
from ingest.quarantine.record_log import tables_with_directory
from ingest.raw_batch import RawBatch
from ingest.settings import Config, KafkaSettings, TableSettings
from ingest.sources.base import Source, Start
from ingest.tables.existing_tables import with_existing_tables
from ingest.tables.moved_rows.moved_row_files import MovedRowsStore
from ingest.tables.moved_rows.moved_rows import MovedRowsBudget, MovedRowsByTable
from ingest.tables.pipeline_tables import PipelineTables
from ingest.tables.rows_before_truncates import RowsBeforeTruncates
from ingest.tables.table_differences import TableDifference, check_differences, differences
from ingest.tables.table_history import history_snapshots_of_each
from ingest.tables.table_origins import TableOrigins
from ingest.tables.table_router import TableRouter
from ingest.tables.table_sink import StorageTableSink, TableSink
from ingest.tables.table_targets import TableTargets
from ingest.tables.truncates import LogAgain, Truncates
from storage.catalog.base import Catalog
from storage.catalog.opening import check_holds_files, open_catalog
from storage.fileio import FileIO, open_retrying_file_io
from storage.logs import get_logger
from storage.maintenance.maintenance_worker import MaintenanceWorker
from storage.table import TableContext
from storage.threads import RunCpuBound, ShortWork, map_parallel, run_cpu_bound
from storage.write.memory_budget import MemoryBudget

if TYPE_CHECKING:
    from ingest.monitoring.monitor import PipelineMonitor

DEFAULT_COMMAND: Final = "tidelake ingest run CONFIG"

_log = get_logger(__name__)


def build_pipeline(
    config: Config,
    recovery_flags: RecoveryFlags | None = None,
    command: str = DEFAULT_COMMAND,
    *,
    io: FileIO | None = None,
    source: Source | None = None,
    source_again: Callable[[], Source] | None = None,
    clock: Clock | None = None,
) -> Pipeline:
    """Open the warehouse and the tables that exist; the source is opened by the pipeline. Blocks.

    recovery_flags: what a person decided about positions that can't be proven.
    command: what runs this pipeline, for messages.
    io, source, clock: in place of those that the configuration names, and of the system's clock.
    source_again: makes more of `source`.

    Raises BadInput or UnsupportedFeature for what the configuration asks and can't be had.
    """
    options = config.warehouse_options
    check_holds_files(config.warehouse, options)
    store = io if options.get("metastore") == "rest" else io or open_retrying_file_io(config.warehouse, options)
    catalog = open_catalog(config.warehouse, options, store)
    config = expanded(config, catalog, io)
    format_ = format_of(config)
    memory = MemoryBudget(config.write.memory_bytes)
    expiry = MaintenanceWorker()
    configured = ConfiguredTables.of(config)
    targets = TableTargets(configured.settings, configured.following_types, configured.derived)
    moved = MovedRowsByTable(MovedRowsBudget(config.moved_rows.keep_ms, config.moved_rows.bytes_max))
    history = history_snapshots_of_each(len(config.tables))
    clock = clock or SystemClock()
    observed = RunObservations(config.checkpoint.interval_ms, clock)
    monitor = None if config.metrics.port is None else _monitor(config, observed, memory)

    def open_sink(context: TableContext) -> StorageTableSink:
        if monitor is not None:
            monitor.watch_table(context)
        return StorageTableSink(
            context,
            config.pipeline,
            memory,
            config.write.spill_directory,
            expiry,
            configured.shared_with[context.name],
            history,
            observed.table_compacted,
        )

    has_quarantine = config.quarantine.enabled and (len(config.tables) > 1 or bool(config.templates))
    tables = PipelineTables(
        config.tables,
        catalog,
        open_sink,
        format_.infer_table,
        targets,
        configured.column_types,
        configured.add,
        sets_aside=has_quarantine,
    )
    check_differences(tables.differences)
    for difference in tables.differences:
        _log.warning("the table stays as it is", difference=str(difference), remedy=difference.command)
    again = partial(build_source, config, format_.KEPT_HEADERS) if source is None else source_again
    source = source or build_source(config, format_.KEPT_HEADERS)
    if config.checkpoint.whole_transactions:
        checkpoint, of_record = config.checkpoint, transaction_of_format(config.format)
        limits = checkpoint.transaction_ms_max, checkpoint.transaction_bytes_max
        source = WholeTransactions(source, of_record, *limits, clock, observed.transactions)
    # What is read from Kafka is received in the event loop's thread.
    short_work: RunCpuBound = ShortWork() if isinstance(config.source, KafkaSettings) else run_cpu_bound
    return connect_parts(
        source=source,
        run_decode=run_cpu_bound if format_.DECODING_WAITS else short_work,
        run_write=short_work,
        decoder=configured.decoder(format_, tables.router.target_of),
        router=tables.router,
        sinks=tables.sinks,
        create_tables=tables.create,
        dead_letters=_dead_letters(config, catalog, io, clock),
        errors=ErrorPolicy(config.errors.tolerance, () if recovery_flags is None else recovery_flags.skip),
        start=build_start(config),
        policy=CheckpointPolicy(config.checkpoint.interval_ms, config.checkpoint.bytes_max, tables_at_once(config)),
        queue_bytes=config.write.queue_bytes,
        pending=PendingBatches(config.errors.waiting_ms_max, config.errors.waiting_bytes_max),
        routings=configured.routings,
        progress=ProgressFile(
            io or open_retrying_file_io(config.warehouse, options), progress_path(config.warehouse, config.pipeline)
        ),
        recovery_flags=recovery_flags or RecoveryFlags(),
        command=command,
        expiry=expiry,
        moved=moved,
        clock=clock,
        observed=observed,
        monitor=monitor,
        truncates=str(config.format_options.get("truncates", "apply")),
        order_of=source_order_of(config.format),
        open_again=again,
        schemas=SchemaFence(
            TableSchemas(catalog, tables.router, tables.sinks, targets, moved),
            configured.behaviors,
            configured.column_types,
            TableOrigins(tables.router.sources_of),
        ),
        quarantine=QuarantineParts(
            config.quarantine,
            io or open_retrying_file_io(config.quarantine_location, options),
            config.quarantine_location,
            tables.sinks,
            tables,
            format_.decoder,
            tables.unreadable,
        )
        if has_quarantine
        else None,
    )


def expanded(config: Config, catalog: Catalog | None = None, io: FileIO | None = None) -> Config:
    """With an entry for each table that entries of many tables have made already, and names as the catalog takes them.
    Blocks.
    """
    config = in_letters_of_catalog(config)
    if not config.templates:
        return config
    options = config.warehouse_options
    location = config.quarantine_location
    kept = tables_with_directory(io or open_retrying_file_io(location, options), location)
    return with_existing_tables(config, catalog or open_catalog(config.warehouse, options, io), kept)


def _dead_letters(config: Config, catalog: Catalog, io: FileIO | None, clock: Clock) -> DeadLetters:
    logs_reasons = config.errors.log_include_messages
    if config.dead_letters_table is not None:
        table = DeadLetterTable(catalog, config.dead_letters_table, config.pipeline)
        if table.exists:
            table.open()
        return TableDeadLetters(table, config.pipeline, clock, logs_reasons=logs_reasons)
    folder = config.dead_letters
    io = io or open_retrying_file_io(folder, config.warehouse_options)
    return DeadLetters(io, folder, clock, logs_reasons=logs_reasons)


def _monitor(config: Config, observed: RunObservations, memory: MemoryBudget) -> PipelineMonitor:
    # a pipeline without an endpoint need not wait for the HTTP server's import
    from ingest.monitoring.metrics import ProcessGauges  # noqa: PLC0415
    from ingest.monitoring.monitor import PipelineMonitor  # noqa: PLC0415

    scheduler = shared_scheduler()
    gauges = ProcessGauges(
        lambda: memory.held_bytes, memory.limit_bytes, lambda: scheduler.waiting, lambda: scheduler.running
    )
    return PipelineMonitor(config.metrics, config.pipeline, config.warehouse, observed, gauges)


def connect_parts(  # noqa: PLR0913 - the one place that knows all parts
    *,
    source: Source,
    decoder: Decoder,
    router: TableRouter,
    sinks: Mapping[str, TableSink],
    create_tables: CreateTables,
    dead_letters: DeadLetters,
    errors: ErrorPolicy,
    start: Start,
    policy: CheckpointPolicy,
    queue_bytes: int,
    pending: PendingBatches,
    routings: Mapping[str, Routing],
    progress: ProgressFile | None,
    recovery_flags: RecoveryFlags,
    command: str,
    expiry: MaintenanceWorker,
    moved: MovedRowsByTable,
    clock: Clock,
    observed: RunObservations | None = None,
    monitor: PipelineMonitor | None = None,
    schemas: SchemaFence | None = None,
    quarantine: QuarantineParts | None = None,
    truncates: str = "apply",
    order_of: SourceOrderOf | None = None,
    open_again: Callable[[], Source] | None = None,
    run_decode: RunCpuBound = run_cpu_bound,
    run_write: RunCpuBound = run_cpu_bound,
) -> Pipeline:
    """A pipeline of these parts: each is handed what it uses.

    sinks: the tables that exist, by name; it may grow when `create_tables` is called.
    start: for tables that have no position yet.
    queue_bytes: what each of the two channels may hold.
    routings: what the configuration says of each table.
    progress: None keeps none.
    observed: what the parts tell what they see; None makes one.
    monitor: tells others of it while the pipeline runs.
    schemas: None stops at records that don't fit their table.
    quarantine: None stops the pipeline when a table fails.
    truncates: as `format_options` says.
    order_of: where records stand at their source; None where they don't say it.
    open_again: another source of the same records; None: there is none.
    run_decode: runs the decoder.
    run_write: runs what writes a batch, where nothing is waited for.
    """
    metrics = RunMetrics(unused_skips=errors.unused_skips)
    observed = observed or RunObservations(policy.interval_ms, clock)
    moved_rows = MovedRowsStore(lambda table: sinks[table].moved_row_files, moved)
    owner = owner_of(router)
    kept = None if quarantine is None else quarantine.connect(router, moved, clock)
    failed = {} if kept is None else kept.failed
    observed.problems = lambda: {name: f"in quarantine: {one.error}" for name, one in failed.copy().items()}
    tracker = ProgressTracker(sinks, router.tables, routings, progress, clock, failed)
    origins = TableOrigins(router.sources_of) if schemas is None else schemas.origins
    facts = SnapshotFacts(routings, origins)
    again = None if open_again is None else LogAgain(open_again, order_of, decoder.decode)
    fences = Fences(schemas or NoFence(), Truncates(sinks, origins, are_applied=truncates == "apply", again=again))
    emptied = RowsBeforeTruncates(origins, order_of)
    writer = BatchWriter(sinks, dead_letters, errors, moved, TableScope(owner, failed), origins.brought, emptied)
    checkpoints = Checkpointer(source, sinks, dead_letters, tracker, moved_rows, facts, policy, metrics, observed, kept)

    def recovery(flags: RecoveryFlags) -> PipelineRecovery:
        logs = dict if quarantine is None else partial(quarantine.open_logs, router.tables)
        unreadable = None if quarantine is None else quarantine.unreadable
        return PipelineRecovery(source, router, sinks, start, routings, progress, flags, command, logs, unreadable)

    def writes(
        writer: BatchWriter, pending: PendingBatches, decode: Decode, quarantine: Quarantine | None
    ) -> WriteStage:
        return WriteStage(
            writer,
            pending,
            dead_letters,
            metrics,
            observed,
            decode,
            fences,
            checkpoints.take,
            quarantine,
            run_write,
        )

    def writes_of(table: str, ends: Mapping[TopicPartition, int], decode: Decode) -> WriteStage:
        scope = TableScope(owner, only=table)
        alone = BatchWriter(sinks, dead_letters, errors, moved, scope, origins.brought, emptied)
        alone.start_from({table: ends})
        return WriteStage(
            alone,
            pending.new(),
            dead_letters,
            RunMetrics(),
            observed,
            decode,
            fences,
            lambda progress: checkpoints.take(progress.coordinator),
        )

    catch_up = None
    if quarantine is not None and kept is not None:
        create_tables = creation_by_table(create_tables, router, failed)
        catch_up = CatchUp(
            kept,
            quarantine.opener,
            kept.sinks,
            routings,
            moved_rows,
            dead_letters,
            writes_of,
            quarantine.decoder,
            clock,
            origins,
            errors.may_set_aside,
        )

    return Pipeline(
        startup=Startup(
            recovery(recovery_flags), checkpoints, dead_letters, moved_rows, writer, recovery_flags.tables, kept
        ),
        flow=Flow(
            source,
            decoder,
            FlowTables(create_tables, router.tables_of, sinks.keys(), errors.may_set_aside),
            writes(writer, pending, decoder.decode, kept),
            checkpoints,
            tracker,
            queue_bytes,
            observed,
            catch_up,
            run_decode,
        ),
        next_start=recovery(RecoveryFlags()),
        source=source,
        sinks=sinks,
        expiry=expiry,
        metrics=metrics,
        observed=observed,
        monitor=monitor,
    )


Decode: TypeAlias = Callable[[RawBatch], DecodedBatch]


def creation_by_table(create: CreateTables, router: TableRouter, failed: Collection[str]) -> CreateTables:
    """Raises TableFailed for a table that can't be made; those in quarantine are left alone."""

    def create_each(batch: RawBatch, unrouted: Mapping[SourceTable, int]) -> bool:
        created = False
        for source, row in unrouted.items():
            table = router.table_of(source)
            if table is not None and table not in failed:
                with failures_of(table):
                    created |= create(batch, {source: row})
        return created

    return create_each


def configuration_differences(config: Config, unreadable: Collection[str] = ()) -> list[TableDifference]:
    """Where the configuration contradicts tables that exist, and can be read. Blocks."""
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
    """Run a pipeline until its source ends, it fails, or SIGTERM or SIGINT comes (see `Pipeline.stop`).

    watch: gets the progress once, at the start; it changes while the pipeline runs. The rest: see `build_pipeline`.
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
