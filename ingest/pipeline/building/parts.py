"""What a pipeline is made of, by what it is about: its source, its tables, records that fail, and checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from checkpoint.coordinator import CheckpointPolicy
from checkpoint.routing import Routing
from ingest.dead_letters import DeadLetters
from ingest.evolution.schema_barrier import NoBarrier, SchemaBarrier
from ingest.formats.base import Decoder
from ingest.formats.source_order import SourceOrderOf
from ingest.pipeline.error_policy import ErrorPolicy
from ingest.pipeline.flow import CreateTables
from ingest.pipeline.pending_batches import PendingBatches
from ingest.pipeline.progress_file import ProgressFile
from ingest.pipeline.recovery_flags import RecoveryFlags
from ingest.sources.base import Earliest, Source, Start
from ingest.tables.moved_rows.moved_row_files import MovedRowsStore
from ingest.tables.moved_rows.moved_rows import MovedRowsBudget, MovedRowsByTable
from ingest.tables.table_lineage import TableLineage
from ingest.tables.table_router import TableRouter
from ingest.tables.table_sink import TableSink
from ingest.tables.truncate_handler import SourceReader
from storage.threads import RunCpuBound, run_cpu_bound

DEFAULT_COMMAND: Final = "tidelake ingest run CONFIG"


@dataclass(frozen=True, slots=True)
class SourceParts:
    """source: is read.
    open_again: opens another one of the same records.
    order_of: where records stand at their source; None where they don't say it.
    start: for tables that have no position yet.
    queue_bytes: what each of the two channels may hold.
    run_decode: runs the decoder.
    run_write: runs what writes a batch, where nothing is waited for.
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
    """sinks: the tables that exist, by name; it may grow when `create` is called.
    routings: what the configuration says of each table.
    moved: rows on their way to another key; `moved_files` keeps them with the snapshots.
    schemas: what becomes of records that don't fit their table.
    applies_truncates: otherwise a truncate that the decoder does not pass over stops the pipeline.
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
        self.routings = {} if routings is None else routings  # one that is empty may grow
        self.moved = MovedRowsByTable(MovedRowsBudget()) if moved is None else moved
        self.moved_files = MovedRowsStore(lambda table: sinks[table].moved_row_files, self.moved)
        self.schemas = schemas or NoBarrier()
        self.lineage = schemas.lineage if isinstance(schemas, SchemaBarrier) else TableLineage(router.sources_of)
        self.applies_truncates = applies_truncates


@dataclass(frozen=True, slots=True)
class FailingRecords:
    """What becomes of records that can't be written as they are, or not yet."""

    policy: ErrorPolicy
    dead_letters: DeadLetters
    pending: PendingBatches


@dataclass(frozen=True, slots=True)
class CheckpointParts:
    """progress: None keeps none.
    flags: what a person decided about positions that can't be proven.
    command: what runs this pipeline, for messages.
    """

    policy: CheckpointPolicy
    progress: ProgressFile | None = None
    flags: RecoveryFlags = field(default_factory=RecoveryFlags)
    command: str = DEFAULT_COMMAND
