"""Builds a pipeline from its configuration: the parts in their order, each with the others that it uses."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Mapping, MutableMapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from tidelake.checkpoint.coordinator import CheckpointPolicy
from tidelake.checkpoint.offsets import TopicPartition
from tidelake.checkpoint.routing import Routing
from tidelake.compaction.scheduler import shared_scheduler
from tidelake.errors import BadInput
from tidelake.ingest.clock import Clock, SystemClock
from tidelake.ingest.config.lower_case import format_of, lower_case_for_catalog
from tidelake.ingest.dead_letter_table import DeadLetterTable, TableDeadLetters
from tidelake.ingest.dead_letters import DeadLetters
from tidelake.ingest.decoding.decode_pool import DecodePool
from tidelake.ingest.decoding.process_count import decode_processes
from tidelake.ingest.decoding.target_numbers import DecoderSetup
from tidelake.ingest.derived.derived_columns import DerivedColumns
from tidelake.ingest.evolution.schema_barrier import SchemaBarrier
from tidelake.ingest.evolution.table_schemas import TableSchemas
from tidelake.ingest.formats.assumptions import Assumption, assumptions
from tidelake.ingest.formats.base import DecodedBatch, Decoder, OpenedFormat, TargetOf
from tidelake.ingest.formats.format_capabilities import SnapshotMarks, SourceOrderOf
from tidelake.ingest.formats.registry import capabilities_of, transaction_of_format
from tidelake.ingest.monitoring.observations import RunObservations
from tidelake.ingest.pipeline.batch_writer import BatchWriter
from tidelake.ingest.pipeline.bootstraps import Bootstraps
from tidelake.ingest.pipeline.checkpointer import Checkpointer, SnapshotProperties
from tidelake.ingest.pipeline.configured_source import build_source, build_start
from tidelake.ingest.pipeline.configured_tables import ConfiguredTables
from tidelake.ingest.pipeline.error_policy import ErrorPolicy
from tidelake.ingest.pipeline.flow import CreateTables, Decoding, Flow
from tidelake.ingest.pipeline.freshness import FreshnessKeeper, FreshnessParts
from tidelake.ingest.pipeline.freshness_control import FreshnessGoal
from tidelake.ingest.pipeline.handover import Handover
from tidelake.ingest.pipeline.pending_batches import WaitLimits
from tidelake.ingest.pipeline.pipeline import Pipeline
from tidelake.ingest.pipeline.pipeline_recovery import PipelineRecovery
from tidelake.ingest.pipeline.progress_tracker import ProgressFile, ProgressTracker, progress_path
from tidelake.ingest.pipeline.recovery_flags import RecoveryFlags
from tidelake.ingest.pipeline.run_metrics import RunMetrics
from tidelake.ingest.pipeline.startup import Startup
from tidelake.ingest.pipeline.write_stage import WriteStage
from tidelake.ingest.quarantine.catch_up import CatchUp, CatchUpProgress
from tidelake.ingest.quarantine.failures import TableScope, owner_of
from tidelake.ingest.quarantine.quarantine import Quarantine
from tidelake.ingest.quarantine.record_log import kept_sources
from tidelake.ingest.raw_batch import RawBatch
from tidelake.ingest.settings import BootstrapSettings, Config, LineageSettings, TableSettings
from tidelake.ingest.shaping.snapshot_bootstrap import bootstrap_obstacle
from tidelake.ingest.source_settings import KafkaSettings
from tidelake.ingest.sources.source import Earliest, Source, Start
from tidelake.ingest.sources.whole_transactions import WholeTransactions
from tidelake.ingest.tables.existing_tables import ExpandedConfig, with_existing_tables
from tidelake.ingest.tables.moved_row_files import MovedRowsStore
from tidelake.ingest.tables.moved_rows import MovedRowsBudget, MovedRowsByTable
from tidelake.ingest.tables.pipeline_tables import PipelineTables
from tidelake.ingest.tables.routed_decoder import RoutedDecoder
from tidelake.ingest.tables.table_differences import TableDifference, check_differences, differences
from tidelake.ingest.tables.table_errors import CheckpointFailed
from tidelake.ingest.tables.table_history import history_snapshots_of_each
from tidelake.ingest.tables.table_lineage import TableLineage
from tidelake.ingest.tables.table_router import TableRouter
from tidelake.ingest.tables.table_sink import TableSink
from tidelake.ingest.tables.truncate_filter import TruncateFilter
from tidelake.ingest.tables.truncate_handler import SourceReader, TruncateHandler
from tidelake.storage.base.logs import get_logger
from tidelake.storage.base.threads import RunCpuBound, ShortTaskRunner, map_parallel, run_cpu_bound
from tidelake.storage.catalog.base import Catalog
from tidelake.storage.catalog.opening import check_holds_files, open_catalog
from tidelake.storage.fileio import FileIO, open_retrying_file_io
from tidelake.storage.fileio.location import LOCAL_SCHEME, scheme_of
from tidelake.storage.maintenance.maintenance_worker import MaintenanceWorker
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import DataField, parse_type
from tidelake.storage.write.memory_budget import MemoryBudget

if TYPE_CHECKING:
    from tidelake.ingest.monitoring.monitor import PipelineMonitor
    from tidelake.ingest.openlineage.run_reporter import RunReporter
    from tidelake.ingest.openlineage.run_snapshot import TableOrigins

_RUN_WORDS: Final = ("tidelake", "ingest", "run")
DEFAULT_COMMAND: Final = " ".join([*_RUN_WORDS, "CONFIG"])

# How many tables flush, or publish, at the same time. On a local disk they wait less than on an object store, so more
# threads only compete for the GIL. With 100 tables on ext4, a commit took 5.7 ms of CPU with eight tables at once,
# 4.7 ms with four and 5.3 ms with two. A checkpoint took 1.1 s with eight and with four, and 1.5 s with two.
_LOCAL_PARALLELISM: Final = 4
_OBJECT_STORE_PARALLELISM: Final = 64

_log = get_logger(__name__)


def build_pipeline(
    config: Config,
    recovery_flags: RecoveryFlags | None = None,
    command: str = DEFAULT_COMMAND,
    *,
    io: FileIO | None = None,
    open_source: Callable[[], Source] | None = None,
    clock: Clock | None = None,
    contexts: Mapping[str, TableContext] | None = None,
    before: Handover | None = None,
) -> Pipeline:
    """Open the warehouse and the existing tables, and build the pipeline. The pipeline opens the source. Blocks.

    recovery_flags: an operator's decisions about positions that can't be proven.
    command: the command that runs this pipeline, for messages.
    io: replaces the file system of the configuration.
    open_source: replaces the source of the configuration. It is called once for the pipeline's reading, and once more
        each time that some records are read again.
    clock: replaces the system clock.
    contexts: the result of `expanded`, if `config` has it already.
    before: what the process's pipeline with another configuration hands over.

    Raises BadInput or UnsupportedFeature for a configuration that can't be fulfilled.
    """
    options, flags = config.warehouse_options, recovery_flags or RecoveryFlags()
    check_holds_files(config.warehouse, options)
    catalog = _catalog(config, io)
    if contexts is None:
        found = expanded(config, catalog, io)
        config, contexts = found.config, found.contexts

    if before is not None:
        memory, maintenance, observed, monitor = before.memory, before.maintenance, before.observed, before.monitor
        observed.interval_ms, observed.stall_tolerance_ms, observed.freshness = config.first_interval_ms, 0, None
    else:
        memory, maintenance = MemoryBudget(config.write.memory_bytes), MaintenanceWorker()
        observed = RunObservations(config.first_interval_ms, clock or SystemClock())
        monitor = _monitor(config, observed, memory, command)

    format_, configured = format_of(config), ConfiguredTables.of(config)
    tables = PipelineTables(
        config.tables,
        catalog,
        _opener_of_sinks(config, configured, memory, maintenance, observed, monitor),
        format_.infer_table,
        configured.targets,
        configured.column_types,
        configured.add,
        contexts=contexts,
        continued=None if before is None else before.continued({table.name: table for table in config.named_tables}),
        quarantines_unreadable=config.has_quarantine,
    )
    check_differences(tables.differences)
    for difference in tables.differences:
        _log.warning("the table stays as it is", difference=str(difference), remedy=difference.command)
    moved = MovedRowsByTable(MovedRowsBudget(config.moved_rows.keep_ms, config.moved_rows.bytes_max))
    quarantine = None
    if config.has_quarantine:
        location = config.quarantine_location
        quarantine = Quarantine(
            tables,
            io or open_retrying_file_io(location, options),
            location,
            config.quarantine,
            observed.clock,
            moved,
            frozenset(table.name for table in config.named_tables if table.paused),
        )

    open_source = open_source or partial(build_source, config, format_.KEPT_HEADERS)
    # Data from Kafka is received in the event loop's thread, so short work may run there, too.
    run_short: RunCpuBound = ShortTaskRunner() if isinstance(config.source, KafkaSettings) else run_cpu_bound
    checkpoint = config.checkpoint
    lineage = TableLineage(tables.router.sources_of, configured.targets.document_ids)
    errors = ErrorPolicy(config.errors.tolerance, flags.skip, None if before is None else before.errors)
    pipeline = PipelineBuilder(
        source=_without_split_transactions(open_source(), config, observed),
        new_decoder=partial(configured.decoder, format_),
        router=tables.router,
        sinks=tables.sinks,
        create=tables.create,
        schemas=SchemaBarrier(
            TableSchemas(
                catalog,
                tables.router,
                tables.sinks,
                configured.targets,
                moved,
                lambda table: configured.behaviors[table].settings.rewrite_keys_max_bytes,
            ),
            configured.behaviors,
            configured.column_types,
            lineage,
        ),
        moved=moved,
        dead_letters=_dead_letters(config, catalog, io, observed.clock),
        errors=errors,
        wait_limits=WaitLimits(config.errors.waiting_ms_max, config.errors.waiting_bytes_max),
        checkpoint=CheckpointPolicy(config.first_interval_ms, checkpoint.bytes_max, tables_at_once(config)),
        freshness=_freshness(config, memory, observed, tables),
        observed=observed,
        maintenance=maintenance,
        routings=configured.routings,
        start=build_start(config),
        progress=ProgressFile(
            io or open_retrying_file_io(config.warehouse, options), progress_path(config.warehouse, config.pipeline)
        ),
        flags=flags,
        command=command,
        open_again=open_source,
        order_of=format_.CAPABILITIES.order_of,
        applies_truncates=config.format_options.get("truncates", "apply") == "apply",
        withholds=configured.withholds,
        quarantine=quarantine,
        bootstrap_of=lambda table: config.bootstrap_of(configured.settings[table]),
        snapshot_marks=_snapshot_marks(config),
        monitor=monitor,
        queue_bytes=config.write.queue_bytes,
        decoding=_decoding(config, configured, format_),
        run_decode=run_cpu_bound if format_.DECODING_BLOCKS else run_short,
        run_write=run_short,
    ).build()
    if before is None and config.lineage is not None:
        pipeline.reporter = _reporter(config, config.lineage, observed, io)
    if config.lineage is not None:
        pipeline.origins = _origins(tables.router, lineage, configured)
    pipeline.handover = Handover(memory, maintenance, observed, monitor, errors, tables.sinks, tables.settings)
    return pipeline


@dataclass(kw_only=True)
class PipelineBuilder:
    """Makes the inner parts of a pipeline from the outer ones, in their order. Each gets the others that it uses.

    new_decoder: makes a decoder of the source's records.
    sinks: the tables that exist, by name; it may grow when `create` is called.
    create: creates tables for records that belong to no known table.
    routings: the configured routing of each table.
    schemas: handles records that don't fit their table.
    moved: the moved rows of the tables.
    errors: decides about records that can't be written.
    wait_limits: how long, and how many, records may wait for rows of other partitions.
    observed: gets the observations of the parts.
    start: where tables without a position start.
    progress: the progress file; None if progress is not stored.
    flags: an operator's decisions about positions that can't be proven.
    command: the command that runs this pipeline, for messages.
    open_again: opens another source of the same records, to read some of them again.
    order_of: reads the order of a record at its source; None if records don't contain it.
    applies_truncates: whether truncates are applied. Otherwise a truncate that the decoder does not skip stops the
        pipeline.
    withholds: returns whether records of a table must not be kept or shown. See `BatchWriter`.
    quarantine: None stops the pipeline if a table fails.
    bootstrap_of: returns how the source's initial snapshot gets into a table.
    snapshot_marks: tells rows of a snapshot from those of the stream; None: no table is bootstrapped.
    freshness: changes the policy of checkpoints. None: it stays as it is.
    monitor: publishes the observations while the pipeline runs.
    queue_bytes: size of each of the two channels.
    decoding: number of processes that decode, and what with; None: the pipeline's process decodes.
    run_decode: runs the decoder.
    run_write: runs the writing of a batch if it does not block.
    """

    source: Source
    new_decoder: Callable[[TargetOf], Decoder]
    router: TableRouter
    sinks: MutableMapping[str, TableSink]
    create: CreateTables
    routings: Mapping[str, Routing]
    schemas: SchemaBarrier
    moved: MovedRowsByTable
    dead_letters: DeadLetters
    errors: ErrorPolicy
    wait_limits: WaitLimits
    checkpoint: CheckpointPolicy
    observed: RunObservations
    maintenance: MaintenanceWorker
    start: Start = field(default_factory=Earliest)
    progress: ProgressFile | None = None
    flags: RecoveryFlags = field(default_factory=RecoveryFlags)
    command: str = DEFAULT_COMMAND
    open_again: Callable[[], Source] | None = None
    order_of: SourceOrderOf | None = None
    applies_truncates: bool = True
    withholds: Callable[[str | None], bool] = lambda _: False
    quarantine: Quarantine | None = None
    bootstrap_of: Callable[[str], BootstrapSettings] = lambda _: BootstrapSettings()
    snapshot_marks: SnapshotMarks | None = None
    freshness: FreshnessKeeper | None = None
    monitor: PipelineMonitor | None = None
    queue_bytes: int = 1 << 20
    decoding: tuple[int, DecoderSetup] | None = None
    run_decode: RunCpuBound = run_cpu_bound
    run_write: RunCpuBound = run_cpu_bound

    def build(self) -> Pipeline:
        quarantine, lineage = self.quarantine, self.schemas.lineage
        failed = {} if quarantine is None else quarantine.failed
        self.observed.problems = lambda: {
            name: f"in quarantine: {one.error}" for name, one in failed.copy().items() if not one.is_paused
        }

        # Where the pipeline continues, and how it commits.
        moved_files = MovedRowsStore(lambda table: self.sinks[table].moved_row_files, self.moved)
        recovery = PipelineRecovery(
            self.source,
            self.router,
            self.sinks,
            self.start,
            self.routings,
            self.progress,
            self.command,
            quarantine,
        )
        checkpoints = Checkpointer(
            self.source,
            self.sinks,
            self.dead_letters,
            ProgressTracker(self.sinks, self.router.tables, self.routings, self.progress, self.observed.clock, failed),
            moved_files,
            SnapshotProperties(self.routings, lineage),
            self.checkpoint,
            self.observed,
            quarantine,
            self.freshness,
        )

        # What writes the records of all tables, and those of one that catches up.
        decoder, owner = RoutedDecoder(self.router, self.new_decoder), owner_of(self.router)
        reader = None
        if self.open_again is not None and self.order_of is not None:
            reader = SourceReader(self.open_again, self.order_of, decoder.decode)
        truncates = TruncateHandler(self.sinks, lineage, are_applied=self.applies_truncates, reader=reader)
        late_rows = TruncateFilter(lineage, self.order_of)

        def writer_of(scope: TableScope) -> BatchWriter:
            return BatchWriter(
                self.sinks,
                self.dead_letters,
                self.errors,
                self.moved,
                scope,
                lineage.add_topic,
                late_rows,
                withholds=self.withholds,
                is_shared=lambda table: bool(self.router.sharing(table)),
            )

        async def checkpoint_of_all(progress: CatchUpProgress) -> None:
            """Take a checkpoint while a table catches up. Its errors are not that table's."""
            try:
                await checkpoints.take(progress.coordinator)
            except Exception as error:
                raise CheckpointFailed(error) from error

        def write_stage_of(
            table: str, ends: Mapping[TopicPartition, int], decode: Callable[[RawBatch], DecodedBatch]
        ) -> WriteStage:
            """Return the write stage of one table that has all its records below `ends`."""
            of_one = writer_of(TableScope(owner, only=table))
            of_one.start_from({table: ends})
            return WriteStage(
                of_one,
                self.wait_limits,
                self.observed,
                decode,
                self.schemas,
                truncates,
                checkpoint_of_all,
            )

        writer = writer_of(TableScope(owner, failed))
        bootstraps = None
        if self.snapshot_marks is not None:
            bootstraps = Bootstraps(
                self.sinks, self.bootstrap_of, self.snapshot_marks, owner, self.moved, self.observed
            )
        writes = WriteStage(
            writer,
            self.wait_limits,
            self.observed,
            decoder.decode,
            self.schemas,
            truncates,
            checkpoints.take,
            quarantine,
            self.run_write,
            bootstraps,
        )
        catch_up = None
        if quarantine is not None:
            catch_up = CatchUp(
                quarantine,
                self.routings,
                moved_files,
                self.dead_letters,
                write_stage_of,
                self.new_decoder,
                lineage,
            )

        # The run.
        pool = None
        if self.decoding is not None:
            pool = DecodePool(*self.decoding, self.router.target_of, self.observed.decoding)
        flow = Flow(
            self.source,
            Decoding(lambda batch: self.run_decode(decoder.decode, batch), pool),
            self.router,
            self.sinks,
            self.create if quarantine is None else quarantine.create,
            writes,
            checkpoints,
            self.queue_bytes,
            self.observed,
            catch_up,
        )
        startup = Startup(recovery, checkpoints, self.dead_letters, moved_files, writer, self.flags, quarantine)
        metrics = RunMetrics(self.observed, self.errors.unused_skips)
        return Pipeline(startup, flow, self.source, self.sinks, self.maintenance, metrics, self.monitor)


# ---------------------------------------------------------------- parts of a configuration


def expanded(config: Config, catalog: Catalog | None = None, io: FileIO | None = None) -> ExpandedConfig:
    """Add an entry for each existing table of the entries that stand for many tables. Blocks.

    Names are converted to the catalog's case.
    """
    config = lower_case_for_catalog(config)
    if not config.templates:
        return ExpandedConfig(config)
    options = config.warehouse_options
    location = config.quarantine_location
    kept = kept_sources(io or open_retrying_file_io(location, options), location)
    return with_existing_tables(config, catalog or _catalog(config, io), kept)


def _catalog(config: Config, io: FileIO | None) -> Catalog:
    options = config.warehouse_options
    store = io if options.get("metastore") == "rest" else io or open_retrying_file_io(config.warehouse, options)
    return open_catalog(config.warehouse, options, store)


def opened_tables(config: Config) -> dict[str, TableContext]:
    """Open the existing tables of a configuration. Blocks."""
    catalog, names = open_catalog(config.warehouse, config.warehouse_options), [t.name for t in config.named_tables]

    def of(name: str) -> TableContext | None:
        return catalog.load(name) if catalog.table_exists(name) else None

    opened = zip(names, map_parallel(of, names), strict=True)
    return {name: context for name, context in opened if context is not None}


def configuration_differences(config: Config, contexts: Mapping[str, TableContext]) -> list[TableDifference]:
    """Return the differences between the configuration and the existing tables."""
    tables = [table for table in config.named_tables if table.name in contexts]
    return [difference for table in tables for difference in differences(table, contexts[table.name])]


def assumed_of_columns(
    config: Config, contexts: Mapping[str, TableContext], unreadable: Collection[str] = ()
) -> dict[str, list[Assumption]]:
    """Return by table what is assumed about columns if records have no schema.

    The columns are those of the table that come from records; if it does not exist, the configured ones.
    """
    settings_of = capabilities_of(config.format).connector_settings_of
    if settings_of is None:
        return {}
    connector = settings_of(config.format_options)

    def of(table: TableSettings) -> list[Assumption]:
        if (context := contexts.get(table.name)) is not None:
            fields = DerivedColumns.of(table, config.format).without_derived_columns(context.schema).fields
        else:
            fields = tuple(DataField(0, name, parse_type(text)) for name, text in table.columns.items())
        return assumptions(fields, table.source_types, None, connector)

    return {table.name: of(table) for table in config.named_tables if table.name not in unreadable}


def _opener_of_sinks(
    config: Config,
    configured: ConfiguredTables,
    memory: MemoryBudget,
    maintenance: MaintenanceWorker,
    observed: RunObservations,
    monitor: PipelineMonitor | None,
) -> Callable[[TableContext], TableSink]:
    """Return the function that creates the sink of a table."""
    history = history_snapshots_of_each(len(config.tables))

    def open_sink(context: TableContext) -> TableSink:
        if monitor is not None:
            monitor.watch_table(context)
        settings = configured.settings[context.name]
        return TableSink(
            context,
            config.pipeline,
            memory,
            config.write.spill_directory,
            maintenance,
            configured.shared_with[context.name],
            history,
            observed.table_compacted,
            may_bootstrap=config.bootstrap_of(settings).enabled and bootstrap_obstacle(settings, context) is None,
        )

    return open_sink


def _snapshot_marks(config: Config) -> SnapshotMarks | None:
    """Return what recognizes rows of a snapshot; None if no entry has a bootstrap."""
    if not any(config.bootstrap_of(table).enabled for table in config.tables):
        return None
    marks_of = capabilities_of(config.format).snapshot_marks_of
    return None if marks_of is None else marks_of(config.format_options)


def _decoding(config: Config, configured: ConfiguredTables, format_: OpenedFormat) -> tuple[int, DecoderSetup] | None:
    """Return how many processes decode, and what with; None if the pipeline's process decodes."""
    size = decode_processes(config)
    return (size, configured.decoder_setup(format_)) if size else None


def _without_split_transactions(source: Source, config: Config, observed: RunObservations) -> Source:
    checkpoint = config.checkpoint
    if not checkpoint.whole_transactions:
        return source
    limits = checkpoint.transaction_ms_max, checkpoint.transaction_bytes_max
    of_record = transaction_of_format(config.format)
    return WholeTransactions(source, of_record, *limits, observed.clock, observed.transactions)


def _freshness(
    config: Config, memory: MemoryBudget, observed: RunObservations, tables: PipelineTables
) -> FreshnessKeeper | None:
    """Return what keeps the freshness of the tables, if any of them has a target."""
    if (ruling := config.ruling_target) is None:
        return None
    goal = FreshnessGoal(
        ruling[1], config.checkpoint.bytes_max, config.write.memory_bytes, config.freshness.price_an_hour_max
    )

    def target_of(table: str) -> int | None:
        settings = tables.settings.get(table)
        return None if settings is None else config.freshness_target_of(settings)

    parts = FreshnessParts(ruling[0], target_of, config.request_prices, observed, memory, shared_scheduler())
    return FreshnessKeeper(goal, config.first_interval_ms, parts)


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


def tables_at_once(config: Config) -> int:
    """Return how many tables flush, or publish, at the same time.

    For a REST catalog the warehouse is a name, so the tables' location is unknown.
    """
    has_location = config.warehouse_options.get("metastore") != "rest"
    is_local = has_location and scheme_of(config.warehouse) == LOCAL_SCHEME
    return _LOCAL_PARALLELISM if is_local else _OBJECT_STORE_PARALLELISM


def _reporter(config: Config, settings: LineageSettings, observed: RunObservations, io: FileIO | None) -> RunReporter:
    """Return what reports the run to OpenLineage. Raises BadInput if the client refuses its transport."""
    try:
        from tidelake.ingest.openlineage.run_reporter import RunReporter  # noqa: PLC0415 - an optional package
    except ImportError as error:
        raise BadInput(
            "`lineage` needs the package openlineage-python: `pip install 'tidelake[openlineage]'`"
        ) from error

    def open_io() -> FileIO:
        return io or open_retrying_file_io(config.warehouse, config.warehouse_options)

    return RunReporter(config, settings, observed, observed.clock, open_io)


def _origins(router: TableRouter, lineage: TableLineage, configured: ConfiguredTables) -> TableOrigins:
    from tidelake.ingest.openlineage.run_snapshot import TableOrigins  # noqa: PLC0415 - only if it is configured

    return TableOrigins(router, lineage, configured.shapes, configured.derived)


def _monitor(config: Config, observed: RunObservations, memory: MemoryBudget, command: str) -> PipelineMonitor | None:
    """Return the HTTP endpoint of the pipeline, if it is configured."""
    if config.metrics.port is None:
        return None
    # Imported here, because importing the HTTP server takes time that a pipeline without an endpoint should not spend.
    from tidelake.ingest.monitoring.metrics import ProcessGauges  # noqa: PLC0415
    from tidelake.ingest.monitoring.monitor import PipelineMonitor  # noqa: PLC0415

    scheduler = shared_scheduler()
    gauges = ProcessGauges(
        lambda: memory.held_bytes, memory.limit_bytes, lambda: scheduler.waiting, lambda: scheduler.running
    )
    config_name = next(iter(shlex.split(command)[len(_RUN_WORDS) :]), "CONFIG")
    return PipelineMonitor(config.metrics, config.pipeline, config.warehouse, observed, gauges, config_name)
