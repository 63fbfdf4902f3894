"""From a source to committed tables: one task group, from its first record to its last commit.

    read ──RawBatch──► decode ──DecodedBatch──► write ──► tables
                                                  ▲
                                             checkpoint: due by time, by bytes, at the end

Channels are bounded in bytes, so a slow table pauses the source. Work that makes objects takes turns in one thread,
work that waits has others (`ingest.threads`). A checkpoint and a write exclude each other: checkpoints fall between two
batches, and the positions they publish are exactly what was written. Why a crash anywhere loses nothing and counts
nothing twice: `checkpoint.states`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from checkpoint.coordinator import CheckpointPolicy
from checkpoint.offsets import TopicPartition
from checkpoint.routing import Routing
from checkpoint.states import CheckpointState
from ingest.clock import Clock, SystemClock, wait_at_most
from ingest.dead_letters import DeadLetters
from ingest.formats.base import DecodedBatch, Decoder
from ingest.formats.source_table import SourceTable
from ingest.pipeline.batch_writer import BatchWriter, WriteResult
from ingest.pipeline.channel import Channel
from ingest.pipeline.checkpoint_timer import CheckpointTimer
from ingest.pipeline.checkpointer import Checkpointer
from ingest.pipeline.error_policy import ErrorPolicy
from ingest.pipeline.fencing import Fencing
from ingest.pipeline.pending_batches import PendingBatch, PendingBatches
from ingest.pipeline.pipeline_recovery import PipelineRecovery, RecoveredPipeline
from ingest.pipeline.progress_file import ProgressFile
from ingest.pipeline.progress_tracker import ProgressTracker
from ingest.pipeline.recovery_flags import RecoveryFlags
from ingest.pipeline.run_metrics import RunMetrics
from ingest.raw_batch import RawBatch
from ingest.sources.base import Source, SourceUnavailable, Start
from ingest.tables.moved_rows import MovedRowsBudget, MovedRowsByTable
from ingest.tables.moved_rows_store import MovedRowsStore
from ingest.tables.table_router import TableRouter
from ingest.tables.table_sink import TableSink
from ingest.threads import run_cpu_bound, run_uncancellable, sole_error
from storage.errors import BadInput, PositionRefused
from storage.expire.expiry_worker import ExpiryWorker
from storage.logs import get_logger

_log = get_logger(__name__)


TableMaker: TypeAlias = Callable[[RawBatch, Mapping[SourceTable, int]], bool]


@dataclass(frozen=True, slots=True)
class PipelineDependencies:
    """What a pipeline is made of; see each one's own page.

    sinks: the tables that exist, by name; it may grow when `create` is called (see `ingest.tables.pipeline_tables`).
    start: for tables that have no position yet. queue_bytes: what each of the two channels may hold.
    routings: what the configuration says of each table. progress: None keeps none. recovery_flags: what a person
    decided about a position that can't be proven. command: runs this pipeline, for messages. expiry: of the tables'
    snapshots, beside the commits. moved: bounds for what is kept of rows on their way to another key.
    """

    source: Source
    decoder: Decoder
    router: TableRouter
    sinks: Mapping[str, TableSink]
    create: TableMaker
    dead_letters: DeadLetters
    errors: ErrorPolicy
    start: Start
    checkpoints: CheckpointPolicy
    queue_bytes: int
    waiting: PendingBatches
    clock: Clock = field(default_factory=SystemClock)
    routings: Mapping[str, Routing] = field(default_factory=dict)
    progress: ProgressFile | None = None
    recovery_flags: RecoveryFlags = field(default_factory=RecoveryFlags)
    command: str = "tidelake ingest run CONFIG"
    expiry: ExpiryWorker = field(default_factory=ExpiryWorker)
    moved: MovedRowsBudget = field(default_factory=MovedRowsBudget)


class Pipeline:
    """One run of a pipeline. `run` it once; `stop` may be called at any time from the same event loop."""

    def __init__(self, deps: PipelineDependencies) -> None:
        self._deps = deps
        self.metrics = RunMetrics()
        self._unrouted: set[SourceTable] = set()
        self._writing = asyncio.Lock()  # held for a write, and for a checkpoint
        self._checkpoint_wakeup = asyncio.Event()  # a checkpoint may have become due
        self._drained = asyncio.Event()  # everything that was read is written
        self._source_error: Exception | None = None
        self._run_task: asyncio.Task[object] | None = None
        self._read_task: asyncio.Task[None] | None = None
        self._is_stopping = False
        self._is_cancelled = False
        self._is_cleaning_up = False
        self._without_first_position: set[str] = (
            set()
        )  # tables whose first position is to be published as soon as they exist
        self._recovery = self._recovery_with(deps.recovery_flags)
        self._tracker = ProgressTracker(deps.sinks, deps.router.tables, deps.routings, deps.progress, deps.clock)
        self._moved = MovedRowsByTable(deps.moved)
        self._moved_store = MovedRowsStore(deps.sinks, self._moved)
        self._checkpoints = Checkpointer(
            deps.source,
            deps.sinks,
            deps.dead_letters,
            self._tracker,
            self._moved_store,
            self.metrics,
            CheckpointTimer(deps.checkpoints.interval_ms, deps.clock),
        )
        self._fencing = Fencing(
            deps.source,
            deps.sinks,
            deps.routings,
            deps.checkpoints,
            self._recovery,
            self._tracker,
            self._moved_store,
            self._checkpoints.publish,
        )

    def _recovery_with(self, recovery_flags: RecoveryFlags) -> PipelineRecovery:
        deps = self._deps
        return PipelineRecovery(
            deps.source,
            deps.router,
            deps.sinks,
            deps.start,
            deps.routings,
            deps.progress,
            recovery_flags,
            deps.command,
        )

    def stop(self) -> None:
        """First call: read no more, write and commit what was read, end. Second: end at once.

        Nothing is lost either way: what was not committed is read again.
        """
        if self._read_task is not None and not self._is_stopping:
            self._is_stopping = True
            self._read_task.cancel()
        elif self._is_cleaning_up:
            self._deps.expiry.cancel()
        elif self._run_task is not None and not self._is_cancelled:
            self._is_cancelled = True
            self._run_task.cancel()
            for sink in list(self._deps.sinks.values()):  # a checkpoint that waits for them would hold up the end
                sink.cancel_compactions()

    async def run(self) -> RunMetrics:
        """Until the source ends, `stop` is called, or something fails.

        Raises what a part raised: RecordRefused, PositionRefused, SourceUnavailable, CommitConflict and so on;
        several at once come as a group. Cancelled: as after the second `stop`, and the cancellation goes on.
        """
        self._run_task = asyncio.current_task()
        try:
            await self._run()
            self.metrics.ended = "stopped" if self._is_stopping else "end of source"
        except asyncio.CancelledError:
            if not self._is_cancelled or self._run_task is None or self._run_task.uncancel():
                raise
            self.metrics.ended = "stopped at once"
        except BaseExceptionGroup as group:
            one = sole_error(group)
            raise one from one.__cause__  # not None: that would take the cause away
        finally:
            self._is_cleaning_up = True
            await self._clean_up(is_expiry_finished=self.metrics.ended in ("stopped", "end of source"))
        return self.metrics

    async def _clean_up(self, *, is_expiry_finished: bool) -> None:
        """Each step is tried, whatever became of the others; what is raised stays how the run itself ended.

        Cancelled: the other steps are done first.
        """
        deps, cancellation = self._deps, None
        steps: dict[str, Callable[[], Awaitable[None]]] = {
            f"drop what {name} holds": partial(run_uncancellable, sink.abort) for name, sink in list(deps.sinks.items())
        }
        steps["end expiry"] = partial(run_uncancellable, deps.expiry.close, finish=is_expiry_finished)
        steps["close the source"] = deps.source.close
        for what, step in steps.items():
            try:
                await step()
            except asyncio.CancelledError as error:
                cancellation = error
            except Exception as error:
                _log.warning("clean-up failed", step=what, error=str(error), effect="what was committed stays")
        if cancellation is not None:
            raise cancellation

    async def plan(self) -> RecoveredPipeline:
        """Where `run` would begin; nothing is written. Instead of `run`, not before it. Raises what `run` would."""
        try:
            return await self._recovery.recover()
        finally:
            await self._deps.source.close()

    # ------------------------------------------------------------ before the first record

    async def _run(self) -> None:
        deps = self._deps
        recovered, self._coordinator = await self._fencing()
        await asyncio.to_thread(deps.dead_letters.recover, recovered.starts)
        restore = self._moved_store.restore
        await asyncio.to_thread(restore, recovered.moved_row_files, deps.recovery_flags.tables)
        floors = {table: position.ends for table, position in recovered.positions.items()}
        self._writer = BatchWriter(deps.sinks, floors, deps.dead_letters, deps.errors, self._moved)
        _log.info(
            "reading begins",
            tables=len(recovered.positions),
            partitions=len(recovered.starts),
            fresh_tables=len(recovered.fresh),
        )
        self._without_first_position = set(recovered.chosen) - deps.sinks.keys()
        try:
            await self._flow(recovered.starts)
            await self._tracker.end(deps.source.identity, self._coordinator.reached)
            await self._tracker.register()
            if self._source_error is not None:
                raise self._source_error
        except* PositionRefused:
            await self._raise_refusal_of_next_start()
            raise

    async def _raise_refusal_of_next_start(self) -> None:
        """Raise what the next start would refuse with, if it would: that says for each table what each option does."""
        await self._deps.source.close()
        with suppress(BadInput, SourceUnavailable):
            await self._recovery_with(RecoveryFlags()).recover()

    # ------------------------------------------------------------ while records flow

    async def _flow(self, starts: Mapping[TopicPartition, int]) -> None:
        raw = Channel[RawBatch](self._deps.queue_bytes)
        decoded = Channel[tuple[RawBatch, DecodedBatch]](self._deps.queue_bytes)
        async with asyncio.TaskGroup() as tasks:
            self._read_task = tasks.create_task(self._read_source(starts, raw), name="read")
            tasks.create_task(self._decode(raw, decoded), name="decode")
            tasks.create_task(self._write(decoded), name="write")
            tasks.create_task(self._checkpoint_loop(), name="checkpoint")
            tasks.create_task(self._tracker.keep_registered(self._drained), name="register")

    async def _read_source(self, starts: Mapping[TopicPartition, int], raw: Channel[RawBatch]) -> None:
        with raw:
            try:
                async with aclosing(self._deps.source.read(starts)) as batches:
                    async for batch in batches:
                        await raw.send(batch, batch.nbytes)
            except Exception as error:
                # Raised once everything before it is committed: otherwise a broken line near the start of a source
                # would keep the records before it from ever getting into a table.
                self._source_error = error

    async def _decode(self, raw: Channel[RawBatch], decoded: Channel[tuple[RawBatch, DecodedBatch]]) -> None:
        with decoded:
            async for batch in raw:
                result = await run_cpu_bound(self._deps.decoder.decode, batch)
                if result.unrouted:
                    created: bool = await run_uncancellable(self._deps.create, batch, result.unrouted)
                    if created:
                        result = await run_cpu_bound(self._deps.decoder.decode, batch)
                await decoded.send((batch, result), batch.nbytes + result.nbytes)

    async def _write(self, decoded: Channel[tuple[RawBatch, DecodedBatch]]) -> None:
        async for batch, result in decoded:
            async with self._writing_exclusively():
                await self._write_batch(PendingBatch(batch, result, self._deps.clock.now_ms()))
                if self._is_due():
                    await self._checkpoint()
            self._checkpoint_wakeup.set()
        async with self._writing_exclusively():
            if not self._is_stopping and self._source_error is None:
                await self._write_waiting()
        self._drained.set()
        self._checkpoint_wakeup.set()

    @asynccontextmanager
    async def _writing_exclusively(self) -> AsyncIterator[None]:
        async with self._writing:
            try:
                yield
            except BaseException:
                self._coordinator.failed()  # part of a batch may be written: no checkpoint may follow
                raise

    async def _write_batch(self, pending: PendingBatch) -> None:
        """Write a batch, and what waited for a row that it may have."""
        waiting, partition = self._deps.waiting, pending.partition
        if not len(pending.raw):
            self._coordinator.add_partition(
                self._deps.router.tables_of(partition.topic), partition, pending.raw.next_offset
            )
        await self._publish_first_positions()
        self._count(pending)
        was_waiting = partition in waiting
        waiting.add(pending)
        if not was_waiting:
            await self._write_partition(partition)
        while waiting.due_in_ms(self._deps.clock.now_ms()) == 0:
            await self._fail_longest_waiting()

    async def _write_partition(self, partition: TopicPartition, *, fail_waiting: bool = False) -> None:
        """Write what is pending of a partition, up to a record that must wait; then of those that waited for that.

        fail_waiting: the record it waits for now doesn't come.
        """
        found = await self._write_pending(partition, fail_waiting=fail_waiting)
        while found:
            next_one = min(found)
            found.remove(next_one)
            found |= await self._write_pending(next_one)

    async def _write_pending(self, partition: TopicPartition, *, fail_waiting: bool = False) -> set[TopicPartition]:
        """Returns the partitions that may find now what they wait for."""
        waiting, found = self._deps.waiting, set[TopicPartition]()
        while (head := waiting.head(partition)) is not None:
            written = await self._write_head(head, fail_waiting=fail_waiting)
            now_ms = self._deps.clock.now_ms()
            # a second try is no second batch
            nbytes = head.raw.nbytes if head.awaited is None else written.rows + written.dead_letters
            self._coordinator.wrote(partition, written.next_offset, nbytes=nbytes, now_ms=now_ms)
            self.metrics.rows += written.rows
            self.metrics.dead_letters = self._deps.dead_letters.count
            if written.refused is not None:
                await self._checkpoint()
                raise written.refused
            found.update(written.unblocked)
            if written.awaited is not None:
                waiting.block_head(partition, written.next_offset, written.awaited)
                break
            waiting.remove_head(partition)
            fail_waiting = False
        return found

    async def _write_head(self, head: PendingBatch, *, fail_waiting: bool) -> WriteResult:
        """Write it as far as it goes. What may have to wait is not done where others take turns."""
        stage = run_uncancellable if head.decoded.needs_lookups else run_cpu_bound
        waiting = self._deps.waiting.awaited
        staged = await stage(
            self._writer.stage, head.raw, head.decoded, head.start, fail_waiting=fail_waiting, waiting=waiting.values()
        )
        write = run_uncancellable if staged.opens_buckets else run_cpu_bound
        written = await write(self._writer.write, staged, waiting)
        if written.is_memory_short:
            await run_uncancellable(self._writer.make_room)
        return written

    async def _fail_longest_waiting(self) -> None:
        """What has waited longest is a failure now, and so is all of its batch that nothing helps; the rest goes on."""
        partition = self._deps.waiting.longest_waiting()
        if partition is not None:
            await self._write_partition(partition, fail_waiting=True)

    async def _write_waiting(self) -> None:
        """Nothing more comes: what still waits waits in vain."""
        while self._deps.waiting.longest_waiting() is not None:
            await self._fail_longest_waiting()

    async def _publish_first_positions(self) -> None:
        """Publish the first position of tables for which `start` chose it, as soon as they exist."""
        existing = self._without_first_position & self._deps.sinks.keys()
        if existing:
            await self._checkpoint(always_publish=existing)
            self._without_first_position -= existing

    def _count(self, pending: PendingBatch) -> None:
        self.metrics.records += len(pending.raw)
        self.metrics.source_bytes += pending.raw.nbytes
        self.metrics.skipped.update({kind.value: count for kind, count in pending.decoded.skipped.items()})
        for source in pending.decoded.unrouted.keys() - self._unrouted:
            self._unrouted.add(source)
            _log.warning("no table takes these records; they are skipped", source=str(source), topic=source.topic)

    # ------------------------------------------------------------ checkpoints

    async def _checkpoint_loop(self) -> None:
        """A checkpoint when one becomes due while nothing arrives, and one at the end; records that waited too long."""
        clock = self._deps.clock
        while not self._drained.is_set():
            now_ms = clock.now_ms()
            times = [self._coordinator.due_in_ms(now_ms), self._deps.waiting.due_in_ms(now_ms)]
            await wait_at_most(self._checkpoint_wakeup, min((t for t in times if t is not None), default=None), clock)
            self._checkpoint_wakeup.clear()
            if self._deps.waiting.due_in_ms(clock.now_ms()) == 0 or self._drained.is_set() or self._is_due():
                async with self._writing_exclusively():
                    if self._coordinator.state is CheckpointState.BROKEN:
                        return
                    if self._deps.waiting.due_in_ms(clock.now_ms()) == 0:
                        await self._fail_longest_waiting()
                    if self._drained.is_set() or self._is_due():
                        await self._checkpoint()
        self._coordinator.closed()

    def _is_due(self) -> bool:
        return self._coordinator.due_in_ms(self._deps.clock.now_ms()) == 0

    async def _checkpoint(self, always_publish: Collection[str] = ()) -> None:
        """Call it with `_writing` held, or before records flow."""
        if self._coordinator.due_in_ms(self._deps.clock.now_ms()) is not None or always_publish:
            await self._checkpoints.take(self._coordinator, always_publish)
