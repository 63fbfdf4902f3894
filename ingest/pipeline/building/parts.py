"""The parts of a pipeline, in four groups: source, tables, failing records, and checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from tidelake.checkpoint.coordinator import CheckpointPolicy
from tidelake.checkpoint.routing import Routing
from tidelake.ingest.dead_letters import DeadLetters
from tidelake.ingest.evolution.schema_barrier import NoBarrier, SchemaBarrier
from tidelake.ingest.formats.base import Decoder
from tidelake.ingest.formats.format_capabilities import SourceOrderOf
from tidelake.ingest.pipeline.error_policy import ErrorPolicy
from tidelake.ingest.pipeline.flow import CreateTables
from tidelake.ingest.pipeline.pending_batches import PendingBatches
from tidelake.ingest.pipeline.progress_tracker import ProgressFile
from tidelake.ingest.pipeline.recovery_flags import RecoveryFlags
from tidelake.ingest.sources.base import Earliest, Source, Start
from tidelake.ingest.tables.moved_rows.moved_row_files import MovedRowsStore
from tidelake.ingest.tables.moved_rows.moved_rows import MovedRowsBudget, MovedRowsByTable
from tidelake.ingest.tables.table_lineage import TableLineage
from tidelake.ingest.tables.table_router import TableRouter
from tidelake.ingest.tables.table_sink import TableSink
from tidelake.ingest.tables.truncate_handler import SourceReader
from tidelake.storage.base.threads import RunCpuBound, run_cpu_bound

DEFAULT_COMMAND: Final = "tidelake ingest run CONFIG"


@dataclass(frozen=True, slots=True)
class SourceParts:
    """The parts that read and decode records.

    source: the source that the pipeline reads.
    open_again: opens another source of the same records.
    order_of: reads the order of a record at its source; None if records don't contain it.
    start: where tables without a position start.
    queue_bytes: size of each of the two channels.
    run_decode: runs the decoder.
    run_write: runs the writing of a batch if it does not block.
    """

    source: Source
    open_again: Callable[[], Source]
    decoder: Decoder
    order_of: SourceOrderOf | None = None
    start: Start = field(default_factory=Earliest)
    queue_bytes: int = 1 << 20
    run_decode: RunCpuBound = run_cpu_bound
    run_write: RunCpuBound = run_cpu_bound

    @property
    def reader(self) -> SourceReader | None:
        return None if self.order_of is None else SourceReader(self.open_again, self.order_of, self.decoder.decode)


class TableParts:
    """The parts that handle tables.

    sinks: the tables that exist, by name; it may grow when `create` is called.
    routings: the configured routing of each table.
    moved: the moved rows; `moved_files` stores them with the snapshots.
    schemas: handles records that don't fit their table.
    applies_truncates: whether truncates are applied. Otherwise a truncate that the decoder does not skip stops the
        pipeline.
    """

    def __init__(
        self,
        router: TableRouter,
        sinks: Mapping[str, TableSink],
        create: CreateTables,
        routings: Mapping[str, Routing] | None = None,
        moved: MovedRowsByTable | None = None,
        schemas: SchemaBarrier | NoBarrier | None = None,
        *,
        applies_truncates: bool = True,
    ) -> None:
        self.router = router
        self.sinks = sinks
        self.create = create
        self.routings = {} if routings is None else routings  # an empty mapping is kept, because it may grow
        self.moved = MovedRowsByTable(MovedRowsBudget()) if moved is None else moved
        self.moved_files = MovedRowsStore(lambda table: sinks[table].moved_row_files, self.moved)
        self.schemas = schemas or NoBarrier()
        self.lineage = schemas.lineage if isinstance(schemas, SchemaBarrier) else TableLineage(router.sources_of)
        self.applies_truncates = applies_truncates


@dataclass(frozen=True, slots=True)
class FailingRecords:
    """The parts that handle records that can't be written, or not yet."""

    policy: ErrorPolicy
    dead_letters: DeadLetters
    pending: PendingBatches


@dataclass(frozen=True, slots=True)
class CheckpointParts:
    """The parts that checkpoints need.

    progress: the progress file; None if progress is not stored.
    flags: an operator's decisions about positions that can't be proven.
    command: the command that runs this pipeline, for messages.
    """

    policy: CheckpointPolicy
    progress: ProgressFile | None = None
    flags: RecoveryFlags = field(default_factory=RecoveryFlags)
    command: str = DEFAULT_COMMAND
