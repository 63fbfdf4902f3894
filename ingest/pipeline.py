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
from checkpoint.states import State
from ingest.batch_writer import BatchWriter, Written
from ingest.beginning import Beginning, BeginningFinder
from ingest.channel import Channel
from ingest.checkpoint_times import CheckpointTimes
from ingest.checkpoints import Checkpoints
from ingest.clock import Clock, SystemClock, wait_at_most
from ingest.dead_letters import DeadLetters
from ingest.error_policy import ErrorPolicy
from ingest.formats.base import DecodedBatch, Decoder
from ingest.formats.source_table import SourceTable
from ingest.keeper import Keeper
from ingest.moved_rows import MovedRowsBudget, MovedRowsByTable
from ingest.moved_rows_keeper import MovedRowsKeeper
from ingest.progress_file import ProgressFile
from ingest.raw_batch import RawBatch
from ingest.router import Router
from ingest.run_progress import Progress
from ingest.sources.base import Source, SourceUnavailable, Start
from ingest.table_writer import TableSink
from ingest.take_over import TakeOver
from ingest.threads import in_turn, only_error, to_its_end
from ingest.waiting import Pending, Waiting
from ingest.ways_out import WaysOut
from storage.errors import BadInput, PositionRefused
from storage.logs import get_logger
from storage.snapshots.expire_worker import ExpiryWorker

_log = get_logger(__name__)


TableMaker: TypeAlias = Callable[[RawBatch, Mapping[SourceTable, int]], bool]


@dataclass(frozen=True, slots=True)
class Parts:
    """What a pipeline is made of; see each one's own page.

    sinks: the tables that exist, by name; it may grow when `create` is called (see `ingest.tables`).
    start: for tables that have no position yet. queue_bytes: what each of the two channels may hold.
    routings: what the configuration says of each table. progress: None keeps none. ways_out: what a person decided
    about a position that can't be proven. command: runs this pipeline, for messages. expiry: of the tables' snapshots,
    beside the commits. moved: bounds for what is kept of rows on their way to another key.
    """

    source: Source
    decoder: Decoder
    router: Router
    sinks: Mapping[str, TableSink]
    create: TableMaker
    dead_letters: DeadLetters
    errors: ErrorPolicy
    start: Start
    checkpoints: CheckpointPolicy
    queue_bytes: int
    waiting: Waiting
    clock: Clock = field(default_factory=SystemClock)
    routings: Mapping[str, Routing] = field(default_factory=dict)
    progress: ProgressFile | None = None
    ways_out: WaysOut = field(default_factory=WaysOut)
    command: str = "tidelake ingest run CONFIG"
    expiry: ExpiryWorker = field(default_factory=ExpiryWorker)
    moved: MovedRowsBudget = field(default_factory=MovedRowsBudget)


class Pipeline:
    """One run of a pipeline. `run` it once; `stop` may be called at any time from the same event loop."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.progress = Progress()
        self._unrouted: set[SourceTable] = set()
        self._writing = asyncio.Lock()  # held for a write, and for a checkpoint
        self._look = asyncio.Event()  # a checkpoint may have become due
        self._drained = asyncio.Event()  # everything that was read is written
        self._source_error: Exception | None = None
        self._whole: asyncio.Task[object] | None = None
        self._reading: asyncio.Task[None] | None = None
        self._is_stopping = False
        self._is_halted = False
        self._is_cleaning_up = False
        self._unpinned: set[str] = set()  # tables whose first position is to be published as soon as they exist
        self._finder = self._finder_with(parts.ways_out)
        self._keeper = Keeper(parts.sinks, parts.router.tables, parts.routings, parts.progress, parts.clock)
        self._moved = MovedRowsByTable(parts.moved)
        self._moved_keeper = MovedRowsKeeper(parts.sinks, self._moved)
        self._checkpoints = Checkpoints(
            parts.source,
            parts.sinks,
            parts.dead_letters,
            self._keeper,
            self._moved_keeper,
            self.progress,
            CheckpointTimes(parts.checkpoints.interval_ms, parts.clock),
        )
        self._take_over = TakeOver(
            parts.source,
            parts.sinks,
            parts.routings,
            parts.checkpoints,
            self._finder,
            self._keeper,
            self._moved_keeper,
            self._checkpoints.publish,
        )

    def _finder_with(self, ways_out: WaysOut) -> BeginningFinder:
        parts = self._parts
        return BeginningFinder(
            parts.source,
            parts.router,
            parts.sinks,
            parts.start,
            parts.routings,
            parts.progress,
            ways_out,
            parts.command,
        )

    def stop(self) -> None:
        """First call: read no more, write and commit what was read, end. Second: end at once.

        Nothing is lost either way: what was not committed is read again.
        """
        if self._reading is not None and not self._is_stopping:
            self._is_stopping = True
            self._reading.cancel()
        elif self._is_cleaning_up:
            self._parts.expiry.hurry()
        elif self._whole is not None and not self._is_halted:
            self._is_halted = True
            self._whole.cancel()
            for sink in list(self._parts.sinks.values()):  # a checkpoint that waits for them would hold up the end
                sink.hurry()

    async def run(self) -> Progress:
        """Until the source ends, `stop` is called, or something fails.

        Raises what a part raised: RecordRefused, PositionRefused, SourceUnavailable, CommitConflict and so on;
        several at once come as a group. Cancelled: as after the second `stop`, and the cancellation goes on.
        """
        self._whole = asyncio.current_task()
        try:
            await self._run()
            self.progress.ended = "stopped" if self._is_stopping else "end of source"
        except asyncio.CancelledError:
            if not self._is_halted or self._whole is None or self._whole.uncancel():
                raise
            self.progress.ended = "stopped at once"
        except BaseExceptionGroup as group:
            one = only_error(group)
            raise one from one.__cause__  # not None: that would take the cause away
        finally:
            self._is_cleaning_up = True
            await self._clean_up(is_expiry_finished=self.progress.ended in ("stopped", "end of source"))
        return self.progress

    async def _clean_up(self, *, is_expiry_finished: bool) -> None:
        """Each step is tried, whatever became of the others; what is raised stays how the run itself ended.

        Cancelled: the other steps are done first.
        """
        parts, cancellation = self._parts, None
        steps: dict[str, Callable[[], Awaitable[None]]] = {
            f"drop what {name} holds": partial(to_its_end, sink.abort) for name, sink in list(parts.sinks.items())
        }
        steps["end expiry"] = partial(to_its_end, parts.expiry.close, finish=is_expiry_finished)
        steps["close the source"] = parts.source.close
        for what, step in steps.items():
            try:
                await step()
            except asyncio.CancelledError as error:
                cancellation = error
            except Exception as error:
                _log.warning("clean-up failed", step=what, error=str(error), effect="what was committed stays")
        if cancellation is not None:
            raise cancellation

    async def plan(self) -> Beginning:
        """Where `run` would begin; nothing is written. Instead of `run`, not before it. Raises what `run` would."""
        try:
            return await self._finder.find()
        finally:
            await self._parts.source.close()

    # ------------------------------------------------------------ before the first record

    async def _run(self) -> None:
        parts = self._parts
        beginning, self._coordinator = await self._take_over()
        await asyncio.to_thread(parts.dead_letters.recover, beginning.starts)
        restore = self._moved_keeper.restore
        await asyncio.to_thread(restore, beginning.moved_row_files, parts.ways_out.tables)
        floors = {table: position.ends for table, position in beginning.positions.items()}
        self._writer = BatchWriter(parts.sinks, floors, parts.dead_letters, parts.errors, self._moved)
        _log.info(
            "reading begins",
            tables=len(beginning.positions),
            partitions=len(beginning.starts),
            fresh_tables=len(beginning.fresh),
        )
        self._unpinned = set(beginning.chosen) - parts.sinks.keys()
        try:
            await self._flow(beginning.starts)
            await self._keeper.end(parts.source.identity, self._coordinator.reached)
            await self._keeper.register()
            if self._source_error is not None:
                raise self._source_error
        except* PositionRefused:
            await self._tell_by_table()
            raise

    async def _tell_by_table(self) -> None:
        """Raise what the next start would refuse with, if it would: that says for each table what each way out does."""
        await self._parts.source.close()
        with suppress(BadInput, SourceUnavailable):
            await self._finder_with(WaysOut()).find()

    # ------------------------------------------------------------ while records flow

    async def _flow(self, starts: Mapping[TopicPartition, int]) -> None:
        raw = Channel[RawBatch](self._parts.queue_bytes)
        decoded = Channel[tuple[RawBatch, DecodedBatch]](self._parts.queue_bytes)
        async with asyncio.TaskGroup() as tasks:
            self._reading = tasks.create_task(self._read(starts, raw), name="read")
            tasks.create_task(self._decode(raw, decoded), name="decode")
            tasks.create_task(self._write(decoded), name="write")
            tasks.create_task(self._take_checkpoints(), name="checkpoint")
            tasks.create_task(self._keeper.keep_registered(self._drained), name="register")

    async def _read(self, starts: Mapping[TopicPartition, int], raw: Channel[RawBatch]) -> None:
        with raw:
            try:
                async with aclosing(self._parts.source.read(starts)) as batches:
                    async for batch in batches:
                        await raw.send(batch, batch.nbytes)
            except Exception as error:
                # Raised once everything before it is committed: otherwise a broken line near the start of a source
                # would keep the records before it from ever getting into a table.
                self._source_error = error

    async def _decode(self, raw: Channel[RawBatch], decoded: Channel[tuple[RawBatch, DecodedBatch]]) -> None:
        with decoded:
            async for batch in raw:
                result = await in_turn(self._parts.decoder.decode, batch)
                if result.unrouted:
                    created: bool = await to_its_end(self._parts.create, batch, result.unrouted)
                    if created:
                        result = await in_turn(self._parts.decoder.decode, batch)
                await decoded.send((batch, result), batch.nbytes + result.nbytes)

    async def _write(self, decoded: Channel[tuple[RawBatch, DecodedBatch]]) -> None:
        async for batch, result in decoded:
            async with self._writing_exclusively():
                await self._write_batch(Pending(batch, result, self._parts.clock.now_ms()))
                if self._is_due():
                    await self._checkpoint()
            self._look.set()
        async with self._writing_exclusively():
            if not self._is_stopping and self._source_error is None:
                await self._write_the_rest()
        self._drained.set()
        self._look.set()

    @asynccontextmanager
    async def _writing_exclusively(self) -> AsyncIterator[None]:
        async with self._writing:
            try:
                yield
            except BaseException:
                self._coordinator.failed()  # part of a batch may be written: no checkpoint may follow
                raise

    async def _write_batch(self, pending: Pending) -> None:
        """Write a batch, and what waited for a row that it may have."""
        waiting, partition = self._parts.waiting, pending.partition
        if not len(pending.raw):
            self._coordinator.found(self._parts.router.tables_of(partition.topic), partition, pending.raw.next_offset)
        await self._pin()
        self._note(pending)
        was_waiting = partition in waiting
        waiting.add(pending)
        if not was_waiting:
            await self._go_on(partition)
        while waiting.due_in_ms(self._parts.clock.now_ms()) == 0:
            await self._give_up_one()

    async def _go_on(self, partition: TopicPartition, *, give_up: bool = False) -> None:
        """Write what is pending of a partition, up to a record that must wait; then of those that waited for that.

        give_up: the record it waits for now doesn't come.
        """
        found = await self._write_pending(partition, give_up=give_up)
        while found:
            next_one = min(found)
            found.remove(next_one)
            found |= await self._write_pending(next_one)

    async def _write_pending(self, partition: TopicPartition, *, give_up: bool = False) -> set[TopicPartition]:
        """Returns the partitions that may find now what they wait for."""
        waiting, found = self._parts.waiting, set[TopicPartition]()
        while (head := waiting.head(partition)) is not None:
            written = await self._written(head, give_up=give_up)
            now_ms = self._parts.clock.now_ms()
            # a second try is no second batch
            nbytes = head.raw.nbytes if head.wanted is None else written.rows + written.letters
            self._coordinator.wrote(partition, written.next_offset, nbytes=nbytes, now_ms=now_ms)
            self.progress.rows += written.rows
            self.progress.dead_letters = self._parts.dead_letters.count
            if written.refused is not None:
                await self._checkpoint()
                raise written.refused
            found.update(written.found)
            if written.wanted is not None:
                waiting.stuck(partition, written.next_offset, written.wanted)
                break
            waiting.written(partition)
            give_up = False
        return found

    async def _written(self, head: Pending, *, give_up: bool) -> Written:
        """Write it as far as it goes. What may have to wait is not done where others take turns."""
        stage = to_its_end if head.decoded.needs_lookups else in_turn
        waiting = self._parts.waiting.wanted
        staged = await stage(
            self._writer.stage, head.raw, head.decoded, head.start, give_up=give_up, waiting=waiting.values()
        )
        write = to_its_end if staged.opens_buckets else in_turn
        written = await write(self._writer.write, staged, waiting)
        if written.is_memory_short:
            await to_its_end(self._writer.make_room)
        return written

    async def _give_up_one(self) -> None:
        """What has waited longest is a failure now, and so is all of its batch that nothing helps; the rest goes on."""
        partition = self._parts.waiting.longest()
        if partition is not None:
            await self._go_on(partition, give_up=True)

    async def _write_the_rest(self) -> None:
        """Nothing more comes: what still waits waits in vain."""
        while self._parts.waiting.longest() is not None:
            await self._give_up_one()

    async def _pin(self) -> None:
        """Publish the first position of tables for which `start` chose it, as soon as they exist."""
        existing = self._unpinned & self._parts.sinks.keys()
        if existing:
            await self._checkpoint(pin=existing)
            self._unpinned -= existing

    def _note(self, pending: Pending) -> None:
        self.progress.records += len(pending.raw)
        self.progress.source_bytes += pending.raw.nbytes
        self.progress.skipped.update({kind.value: count for kind, count in pending.decoded.skipped.items()})
        for source in pending.decoded.unrouted.keys() - self._unrouted:
            self._unrouted.add(source)
            _log.warning("no table takes these records; they are passed over", source=str(source), topic=source.topic)

    # ------------------------------------------------------------ checkpoints

    async def _take_checkpoints(self) -> None:
        """A checkpoint when one becomes due while nothing arrives, and one at the end; records that waited too long."""
        clock = self._parts.clock
        while not self._drained.is_set():
            now_ms = clock.now_ms()
            times = [self._coordinator.due_in_ms(now_ms), self._parts.waiting.due_in_ms(now_ms)]
            await wait_at_most(self._look, min((t for t in times if t is not None), default=None), clock)
            self._look.clear()
            if self._parts.waiting.due_in_ms(clock.now_ms()) == 0 or self._drained.is_set() or self._is_due():
                async with self._writing_exclusively():
                    if self._coordinator.state is State.BROKEN:
                        return
                    if self._parts.waiting.due_in_ms(clock.now_ms()) == 0:
                        await self._give_up_one()
                    if self._drained.is_set() or self._is_due():
                        await self._checkpoint()
        self._coordinator.closed()

    def _is_due(self) -> bool:
        return self._coordinator.due_in_ms(self._parts.clock.now_ms()) == 0

    async def _checkpoint(self, pin: Collection[str] = ()) -> None:
        """Call it with `_writing` held, or before records flow."""
        if self._coordinator.due_in_ms(self._parts.clock.now_ms()) is not None or pin:
            await self._checkpoints.take(self._coordinator, pin)
