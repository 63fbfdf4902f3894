"""From a source to committed tables: one task group, from its first record to its last commit.

    read ──RawBatch──► decode ──DecodedBatch──► write ──► tables
                                                  ▲
                                             checkpoint: due by time, by bytes, at the end

Channels are bounded in bytes, so a slow table pauses the source. A checkpoint and a write exclude each other:
checkpoints fall between two batches, and the positions they publish are exactly what was written. Why a crash
anywhere loses nothing and counts nothing twice: `checkpoint.states`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from checkpoint.committable import TableCommittable
from checkpoint.coordinator import CheckpointPolicy, Coordinator
from checkpoint.offsets import SourcePosition, TopicPartition
from checkpoint.recovery import OwnSnapshot, Recovered, check_identity, read_from, recover
from checkpoint.states import State
from ingest.batch_writer import BatchWriter
from ingest.channel import Channel
from ingest.clock import Clock, SystemClock, wait_at_most
from ingest.dead_letters import DeadLetters
from ingest.error_policy import ErrorPolicy
from ingest.formats.base import DecodedBatch, Decoder
from ingest.formats.source_table import SourceTable
from ingest.raw_batch import RawBatch
from ingest.router import Router
from ingest.sources.base import Earliest, Source, Start
from ingest.table_writer import TableSink
from ingest.threads import to_its_end
from ingest.waiting import Pending, Waiting
from storage.logs import get_logger

COMMITS_AT_ONCE: Final = 4  # tables published at the same time: a commit mostly waits for the store

log = get_logger(__name__)


@dataclass(slots=True)
class Progress:
    """What a pipeline has done since it started. Changes while it runs."""

    records: int = 0
    source_bytes: int = 0
    rows: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    dead_letters: int = 0
    checkpoints: int = 0
    snapshots: dict[str, int] = field(default_factory=dict)  # table to its newest one of ours
    ended: str = "running"


TableMaker: TypeAlias = Callable[[RawBatch, Mapping[SourceTable, int]], bool]


@dataclass(frozen=True, slots=True)
class Parts:
    """What a pipeline is made of; see each one's own page.

    sinks: the tables that exist, by name; it may grow when `create` is called (see `ingest.tables`).
    start: for tables that have no position yet. queue_bytes: what each of the two channels may hold.
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


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where a run begins.

    positions: how far each table is. starts: the next offset of each partition there is. fresh: tables that this
    pipeline never committed to. chosen: tables for which `start` chose a place, which is published first.
    """

    positions: Mapping[str, SourcePosition]
    starts: Mapping[TopicPartition, int]
    fresh: Sequence[str]
    chosen: Sequence[str]
    last_identifier: int


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
        self._unpinned: set[str] = set()  # tables whose first position is to be published as soon as they exist

    def stop(self) -> None:
        """First call: read no more, write and commit what was read, end. Second: end at once.

        Nothing is lost either way: what was not committed is read again.
        """
        if self._reading is not None and not self._is_stopping:
            self._is_stopping = True
            self._reading.cancel()
        elif self._whole is not None and not self._is_halted:
            self._is_halted = True
            self._whole.cancel()

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
            raise _only_error(group) from None
        finally:
            for sink in self._parts.sinks.values():
                await to_its_end(sink.abort)
            await self._parts.source.close()
        return self.progress

    async def plan(self) -> Beginning:
        """Where `run` would begin; nothing is written. Instead of `run`, not before it. Raises what `run` would."""
        try:
            return await self._find_beginning()
        finally:
            await self._parts.source.close()

    # ------------------------------------------------------------ before the first record

    async def _run(self) -> None:
        parts = self._parts
        beginning = await self._find_beginning()
        await asyncio.to_thread(parts.dead_letters.recover, beginning.starts)
        self._coordinator = Coordinator(beginning.positions, beginning.last_identifier, parts.checkpoints)
        floors = {table: position.ends for table, position in beginning.positions.items()}
        self._writer = BatchWriter(parts.sinks, floors, parts.dead_letters, parts.errors)
        log.info(
            "reading begins",
            tables=len(beginning.positions),
            partitions=len(beginning.starts),
            fresh_tables=len(beginning.fresh),
        )
        self._unpinned = set(beginning.chosen)
        await self._pin()
        await self._flow(beginning.starts)
        if self._source_error is not None:
            raise self._source_error

    async def _find_beginning(self) -> Beginning:
        parts = self._parts
        newest: dict[str, OwnSnapshot | None] = dict.fromkeys(parts.router.tables)
        newest |= {name: await asyncio.to_thread(sink.newest_own) for name, sink in parts.sinks.items()}
        recovered = recover(newest)
        there = await parts.source.open(read_from(recovered.positions.values()).keys())
        check_identity(recovered.positions, parts.source.identity)
        positions, chosen = await self._positions(recovered, there)
        starts = {partition: at for partition, at in read_from(positions.values()).items() if partition in there}
        return Beginning(positions, starts, recovered.fresh, chosen, recovered.last_identifier)

    async def _positions(
        self, recovered: Recovered, there: Collection[TopicPartition]
    ) -> tuple[dict[str, SourcePosition], list[str]]:
        """Where each table stands, its new partitions included, and the tables for which `start` chose a place.

        A partition that came up since in a topic the table knows is read from its oldest record; a topic that is new
        to the table from where `start` says. What `start` says may be another place tomorrow ("latest"), so it is
        published before anything is read.
        """
        positions: dict[str, SourcePosition] = {}
        chosen = []
        for table in self._parts.router.tables:
            position = recovered.positions.get(table, SourcePosition())
            topics = {partition.topic for partition in position.ranges}
            new = {p for p in there if p not in position.ranges and table in self._parts.router.tables_of(p.topic)}
            grown = {partition for partition in new if partition.topic in topics}
            if grown:
                position = position.including(await self._parts.source.offsets(grown, Earliest()))
            if new - grown:
                position = position.including(await self._parts.source.offsets(new - grown, self._parts.start))
                if self._parts.start != Earliest():
                    chosen.append(table)
            positions[table] = position
        return positions, chosen

    # ------------------------------------------------------------ while records flow

    async def _flow(self, starts: Mapping[TopicPartition, int]) -> None:
        raw = Channel[RawBatch](self._parts.queue_bytes)
        decoded = Channel[tuple[RawBatch, DecodedBatch]](self._parts.queue_bytes)
        async with asyncio.TaskGroup() as tasks:
            self._reading = tasks.create_task(self._read(starts, raw), name="read")
            tasks.create_task(self._decode(raw, decoded), name="decode")
            tasks.create_task(self._write(decoded), name="write")
            tasks.create_task(self._checkpoints(), name="checkpoint")

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
                result = await asyncio.to_thread(self._parts.decoder.decode, batch)
                if result.unrouted:
                    created: bool = await to_its_end(self._parts.create, batch, result.unrouted)
                    if created:
                        result = await asyncio.to_thread(self._parts.decoder.decode, batch)
                await decoded.send((batch, result), batch.nbytes + sum(part.rows.nbytes for part in result.tables))

    async def _write(self, decoded: Channel[tuple[RawBatch, DecodedBatch]]) -> None:
        async for batch, result in decoded:
            async with self._writing_exclusively():
                await self._write_batch(Pending(batch, result))
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
            await self._retry()
        while waiting.due_in_ms(self._parts.clock.now_ms()) == 0:
            await self._give_up_one()

    async def _go_on(self, partition: TopicPartition, *, give_up: bool = False) -> bool:
        """Write what is pending of a partition, up to a record that must wait. Returns whether anything was written.

        give_up: the record it waits for now doesn't come.
        """
        waiting, has_moved = self._parts.waiting, False
        while (head := waiting.head(partition)) is not None:
            written = await to_its_end(self._writer.write, head.raw, head.decoded, head.start, give_up=give_up)
            now_ms = self._parts.clock.now_ms()
            nbytes = head.raw.nbytes if head.since_ms is None else written.rows  # a second try is no second batch
            self._coordinator.wrote(partition, written.next_offset, nbytes=nbytes, now_ms=now_ms)
            self.progress.rows += written.rows
            self.progress.dead_letters = self._parts.dead_letters.count
            if written.refused is not None:
                await self._checkpoint()
                raise written.refused
            if written.is_waiting:
                return waiting.stuck(partition, written.next_offset, now_ms) or has_moved
            waiting.written(partition)
            has_moved, give_up = True, False
        return has_moved

    async def _retry(self) -> None:
        """Let those that wait see what came meanwhile, as long as one of them gets further."""
        while any([await self._go_on(partition) for partition in self._parts.waiting]):
            pass

    async def _give_up_one(self) -> None:
        """The record that has waited longest is a failure now; what comes after it goes on."""
        partition = self._parts.waiting.longest()
        if partition is not None:
            await self._go_on(partition, give_up=True)
            await self._retry()

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
            log.warning("no table takes these records; they are passed over", source=str(source), topic=source.topic)

    # ------------------------------------------------------------ checkpoints

    async def _checkpoints(self) -> None:
        """A checkpoint when one becomes due while nothing arrives, and one at the end; so for records that wait."""
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
        """Everything written so far becomes visible. Call it with `_writing` held, or before records flow.

        1. Dead letters are made durable.  2. Writers turn rows into files.  3. Each table publishes files and position.
        4. The source is told, as a hint.
        """
        if self._coordinator.due_in_ms(self._parts.clock.now_ms()) is None and not pin:
            return
        try:
            self._coordinator.begin()
            await to_its_end(self._parts.dead_letters.flush)
            sinks = list(self._parts.sinks.items())  # one may be added meanwhile; it has no rows yet
            messages = {name: await to_its_end(sink.prepare) for name, sink in sinks}
            committables = self._coordinator.prepared(messages, self._parts.source.identity, pin)
            await self._publish(committables)
            self._coordinator.completed()
        except BaseException:
            self._coordinator.failed()
            raise
        self.progress.checkpoints += 1
        log.info("checkpoint", identifier=self._coordinator.identifier, tables=len(committables))
        await self._parts.source.confirm(read_from(self._coordinator.positions.values()))

    async def _publish(self, committables: Sequence[TableCommittable]) -> None:
        """Publish, a few tables at a time.

        Cancelled: waits until the outcome of each is known, then the cancellation goes on. When one fails the others
        are still waited for; the tables that got through know how far they are.
        """
        limit = asyncio.Semaphore(COMMITS_AT_ONCE)

        async def publish(committable: TableCommittable) -> None:
            async with limit:
                snapshot = await asyncio.to_thread(
                    self._parts.sinks[committable.table].commit, committable.to_storage()
                )
            self._coordinator.committed(committable.table)
            if snapshot is not None:
                self.progress.snapshots[committable.table] = snapshot

        publishing = asyncio.gather(*map(publish, committables), return_exceptions=True)
        try:
            outcomes = await asyncio.shield(publishing)
        except asyncio.CancelledError:
            await asyncio.wait({publishing})
            raise
        errors = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
        if errors:
            raise ExceptionGroup("tables could not be committed", errors)


def _only_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The one error in a group of groups; the group when there are several."""
    while len(group.exceptions) == 1:
        inner = group.exceptions[0]
        if not isinstance(inner, BaseExceptionGroup):
            return inner
        group = inner
    return group
