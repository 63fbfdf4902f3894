"""The tasks of a run, from the first record to the last commit, in one task group.

    read ──RawBatch──► decode ──DecodedBatch──► write ──► tables
                                                  ▲
                                             checkpoint: due by time, by bytes, at the end

Channels are bounded in bytes, so a slow table pauses the source. CPU-bound work runs in one thread, blocking work in
others (`tidelake.storage.base.threads`). Checkpoints and writes exclude each other: a checkpoint runs between two
batches, and publishes exactly the position that was written. `tidelake.checkpoint.states` explains why a crash at any
point neither loses nor duplicates records.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from tidelake.checkpoint.coordinator import CheckpointCoordinator
from tidelake.checkpoint.offsets import TopicPartition
from tidelake.checkpoint.states import CheckpointState
from tidelake.errors import BadInput, RecordRefused, TableFailed, TableNotInferred
from tidelake.ingest.channel import Channel
from tidelake.ingest.clock import wait_at_most
from tidelake.ingest.decoding.decode_pool import DecodePool
from tidelake.ingest.decoding.decoder_process import DecodeTask
from tidelake.ingest.formats.base import DecodedBatch
from tidelake.ingest.formats.source_table import SourceTable
from tidelake.ingest.monitoring.observations import RunObservations
from tidelake.ingest.pipeline.checkpointer import Checkpointer
from tidelake.ingest.pipeline.freshness import WAITING_READER
from tidelake.ingest.pipeline.pending_batches import PendingBatch
from tidelake.ingest.pipeline.write_stage import WriteStage
from tidelake.ingest.quarantine.catch_up import CatchUp
from tidelake.ingest.quarantine.first_record_parts import Decode, decoded_parts
from tidelake.ingest.raw_batch import RawBatch
from tidelake.ingest.sources.source import Source
from tidelake.ingest.tables.pipeline_tables import FirstRecords
from tidelake.ingest.tables.table_router import TableRouter
from tidelake.storage.base.threads import run_uncancellable

CreateTables: TypeAlias = Callable[[RawBatch, Mapping[SourceTable, int], Sequence[FirstRecords]], bool]
"""(batch, unrouted source tables with a row of each, the same of later batches): creates tables for them. Returns
whether any was created."""


@dataclass(frozen=True, slots=True)
class _DrainMarker:
    """A marker in the channels. When it arrives at the end, all records read before it are written.

    starts: gets the next offsets to read; None if nothing is read again
    source_ended: the source has no more records after those before the marker
    """

    starts: asyncio.Future[dict[TopicPartition, int] | None]
    source_ended: bool


@dataclass(frozen=True, slots=True)
class _Decoded:
    """A decoded batch.

    routing: `Quarantine.routing` when the batch was decoded.
    """

    raw: RawBatch
    batch: DecodedBatch
    routing: int


@dataclass(frozen=True, slots=True)
class Decoding:
    """Where batches are decoded.

    here: decodes a batch in the pipeline's process.
    pool: processes that decode batches ahead; None: the pipeline's process decodes all.
    """

    here: Decode
    pool: DecodePool | None = None


_Undecoded: TypeAlias = Channel[RawBatch | _DrainMarker] | Channel[DecodeTask | _DrainMarker]


@dataclass(slots=True, eq=False)
class _DecodedOnce:
    """Returns a decoded batch once, and decodes after that: a table that was created changes the result."""

    first: DecodedBatch | None
    decode: Decode

    async def __call__(self, batch: RawBatch) -> DecodedBatch:
        first, self.first = self.first, None
        return await self.decode(batch) if first is None else first


class Flow:
    """The flow of one run. Call `run` once. `stop_reading` may be called at any time from the same event loop.

    existing: the tables that exist; it may grow when `create` is called.
    create: called for records that belong to no known table.
    queue_bytes: size of each of the two channels.
    catch_up: the catch-up of tables that fail. None: an error of a table ends the run.
    """

    def __init__(
        self,
        source: Source,
        decoding: Decoding,
        router: TableRouter,
        existing: Collection[str],
        create: CreateTables,
        writes: WriteStage,
        checkpoints: Checkpointer,
        queue_bytes: int,
        observed: RunObservations,
        catch_up: CatchUp | None = None,
    ) -> None:
        self._catch_up = catch_up
        self._quarantine = None if catch_up is None else catch_up.quarantine
        self._source = source
        self._decode_batch = decoding.here
        self._pool = decoding.pool
        self._create_tables = create
        self._router = router
        self._existing = existing
        self._writes = writes
        self._checkpoints = checkpoints
        self._clock = observed.clock
        self._queue_bytes = queue_bytes
        self._observed = observed
        self._writing = asyncio.Lock()  # held during each write and each checkpoint
        self._checkpoint_wakeup = asyncio.Event()  # a checkpoint may have become due
        self._drained = asyncio.Event()  # all records that were read are written
        self._source_error: Exception | None = None
        self._read_task: asyncio.Task[None] | None = None
        self._last_looked_at: RawBatch | DecodeTask | _DrainMarker | None = (
            None  # the last batch that was decoded ahead
        )
        self.is_stopping = False
        self._read_all = asyncio.Event()  # no more records are read from the source
        self._without_first_position: set[str] = set()
        self._read_again_at_end: set[str] = set()  # tables for which the source was read again after its end
        self._catching_up: asyncio.Task[None] | None = None

    async def run(
        self, coordinator: CheckpointCoordinator, starts: Mapping[TopicPartition, int], chosen: Collection[str]
    ) -> None:
        """Run until the source ends, `stop_reading` is called, or a task fails. All records that were read are
        committed.

        starts: the next offset of each partition.
        chosen: tables that get a snapshot with their first position as soon as they exist.

        Raises the errors of tasks, as a group. Raises an error of the source after all records before it are committed.
        """
        self._coordinator = coordinator
        self._observed.reading_started(starts)
        self._without_first_position = set(chosen) - set(self._existing)
        raw = Channel[RawBatch | _DrainMarker](self._queue_bytes)
        decoded = Channel[_Decoded | _DrainMarker](self._queue_bytes)
        async with nullcontext() if self._pool is None else self._pool.running(), asyncio.TaskGroup() as tasks:
            self._read_task = tasks.create_task(self._read(starts, raw), name="read")
            if self._pool is None:
                tasks.create_task(self._decode(raw, decoded), name="decode")
            else:
                begun = Channel[DecodeTask | _DrainMarker](self._queue_bytes * self._pool.size)
                tasks.create_task(self._begin_decoding(self._pool, raw, begun), name="begin decoding")
                tasks.create_task(self._decode(begun, decoded), name="decode")
            tasks.create_task(self._write(decoded), name="write")
            tasks.create_task(self._checkpoint_loop(), name="checkpoint")
            if self._catch_up is not None:
                self._catching_up = tasks.create_task(self._catch_up.run(self, self._read_all), name="catch up")
            tasks.create_task(self._checkpoints.keep_registered(self._drained), name="register")
        await self._checkpoints.end(coordinator)
        if self._quarantine is not None:
            await run_uncancellable(self._quarantine.flush, self._source.identity, at_end=True)
        if self._source_error is not None:
            raise self._source_error
        if self._quarantine is not None and not self.is_stopping:
            self._quarantine.raise_failures()

    @property
    def coordinator(self) -> CheckpointCoordinator:
        return self._coordinator

    def stop_reading(self) -> None:
        """Stop reading; all records read so far are written and committed."""
        self.is_stopping = True
        if self._read_task is not None:
            self._read_task.cancel()

    # ------------------------------------------------------------ records

    async def _read(self, starts: Mapping[TopicPartition, int], raw: Channel[RawBatch | _DrainMarker]) -> None:
        with raw:
            try:
                while True:
                    was_interrupted = await self._read_from(starts, raw)
                    if not was_interrupted and self._quarantine is None:
                        return
                    # A table may also fail at the last records, which are not written yet when the source has ended.
                    marker = _DrainMarker(asyncio.get_running_loop().create_future(), not was_interrupted)
                    await raw.send(marker, 0)
                    again = await marker.starts
                    if again is None:
                        return
                    starts = again
            except Exception as error:
                # It is raised after all records before it are committed. Otherwise the records before a broken line
                # near the start of a source would never be written.
                self._source_error = error

    async def _read_from(self, starts: Mapping[TopicPartition, int], raw: Channel[RawBatch | _DrainMarker]) -> bool:
        """Read from these offsets. Returns whether reading was interrupted to read again from other offsets; otherwise
        the source ended.
        """
        if self._quarantine is None:
            await self._read_batches(starts, raw)
            return False
        reading = asyncio.create_task(self._read_batches(starts, raw))
        wanted = asyncio.create_task(self._quarantine.read_again.wait())
        try:
            await asyncio.wait({reading, wanted}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            wanted.cancel()
            reading.cancel()
            ended, _ = await asyncio.gather(reading, wanted, return_exceptions=True)
        if isinstance(ended, Exception):
            raise ended
        return ended is not None

    async def _read_batches(self, starts: Mapping[TopicPartition, int], raw: Channel[RawBatch | _DrainMarker]) -> None:
        async with aclosing(self._source.read(starts)) as batches:
            async for batch in batches:
                self._observed.was_read(batch)
                with self._observed.activity(WAITING_READER):
                    await raw.send(batch, batch.nbytes)

    async def _begin_decoding(
        self,
        pool: DecodePool,
        raw: Channel[RawBatch | _DrainMarker],
        begun: Channel[DecodeTask | _DrainMarker],
    ) -> None:
        """Let processes decode batches ahead, as far as `begun` has room for these batches."""
        with begun:
            async for batch in raw:
                if isinstance(batch, _DrainMarker):
                    await begun.send(batch, 0)
                    continue
                task = pool.task(batch)
                await begun.send(task, batch.nbytes)
                await pool.begin(task)

    async def _decode(self, undecoded: _Undecoded, decoded: Channel[_Decoded | _DrainMarker]) -> None:
        with decoded:
            async for item in undecoded:
                if isinstance(item, _DrainMarker):
                    await decoded.send(item, 0)
                    continue
                if not undecoded:  # a decoder that lags behind doesn't pause
                    await self._checkpoints.priority.wait_for_flush()
                routing = 0 if self._quarantine is None else self._quarantine.routing
                created = partial(self._created, undecoded)
                batch, decode = await self._with_decoder(item)
                async for part, result in decoded_parts(batch, decode, created, self._writes.tolerates):
                    await decoded.send(_Decoded(part, result, routing), part.nbytes + result.nbytes)

    async def _with_decoder(self, item: RawBatch | DecodeTask) -> tuple[RawBatch, Decode]:
        """Return the batch, and what decodes it. What a process has decoded is returned at its first call."""
        if isinstance(item, RawBatch):
            return item, self._decoded
        return item.batch, _DecodedOnce(await self._from_pool(item), self._decoded)

    async def _from_pool(self, task: DecodeTask) -> DecodedBatch:
        assert self._pool is not None
        with self._observed.activity("decoding a batch"):
            decoded = await self._pool.decoded(task)
        return await self._decoded(task.batch) if decoded is None else decoded

    async def _decoded(self, batch: RawBatch) -> DecodedBatch:
        with self._observed.activity("decoding a batch"):
            return await self._decode_batch(batch)

    async def _created(self, undecoded: _Undecoded, batch: RawBatch, result: DecodedBatch) -> bool:
        """Create tables for records of the batch, and of those that wait in the channel. Creating a table takes many
        requests to the store, and mostly each topic has another table: so tables of several batches are created side by
        side.

        Returns whether any was created, or failed.
        """
        ahead = await self._first_records_of(self._not_looked_at(undecoded)) if self._names_new_table(result) else []
        try:
            return await run_uncancellable(self._create_tables, batch, result.creating, ahead)
        except TableFailed as failed:
            if isinstance(failed.error, TableNotInferred):
                partition, offset = TopicPartition(batch.topic, batch.partition), int(batch.offsets[failed.error.row])
                if self._writes.tolerates(partition, offset):
                    raise failed.error from failed.error.__cause__
            if self._quarantine is None:
                raise failed.error from failed.error.__cause__
            async with self._writing_exclusively():
                added = self._add_tables([failed.table], batch)
                await self._quarantine.fail({failed.table: failed.error})
                await self._checkpoints.store_first_positions(self._coordinator, added)
            await self._created(undecoded, batch, result)
            return True  # other tables may have been created before the failure

    def _names_new_table(self, result: DecodedBatch) -> bool:
        """Return whether a table must be created for records of a batch, as far as this is known."""
        left_out = {} if self._quarantine is None else self._quarantine.failed
        with suppress(BadInput):  # raised when the table is created
            tables = [name for source in result.creating for name in self._router.tables_for(source)]
            return any(name not in self._existing and name not in left_out for name in tables)
        return False

    def _not_looked_at(self, undecoded: _Undecoded) -> list[RawBatch]:
        """Return the waiting batches that were not decoded ahead before. Each is decoded ahead at most once."""
        items = undecoded.waiting(after=self._last_looked_at)
        self._last_looked_at = items[-1] if items else self._last_looked_at
        waiting = [item for item in items if not isinstance(item, _DrainMarker)]
        return [item.batch if isinstance(item, DecodeTask) else item for item in waiting]

    async def _first_records_of(self, waiting: Sequence[RawBatch]) -> list[FirstRecords]:
        """Return the unrouted source tables of batches that are decoded later. An error is raised in their turn."""
        found = list[FirstRecords]()
        with suppress(Exception):
            for batch in waiting:
                if len(batch) and (creating := (await self._decode_batch(batch)).creating):
                    found.append((batch, creating))
        return found

    async def _write(self, decoded: Channel[_Decoded | _DrainMarker]) -> None:
        last: _Decoded | _DrainMarker | None = None  # whose tables' states were read ahead
        async for item in decoded:
            async with self._writing_exclusively():
                if isinstance(item, _DrainMarker):
                    starts = self._restart_reading() if self._must_read_again(item) else None
                    if not item.starts.done():  # after a stop, no reader waits for it
                        item.starts.set_result(starts)
                    continue
                new = decoded.waiting(after=last)
                last = new[-1] if new else last
                await self._writes.restore_ahead([one.batch for one in (item, *new) if isinstance(one, _Decoded)])
                batch = PendingBatch(item.raw, item.batch, self._clock.now_ms(), routing=item.routing)
                with self._observed.activity("writing a batch"):
                    await self._write_batch(batch)
                if self._is_due():
                    await self._checkpoint(holds_back=True)
            self._checkpoint_wakeup.set()
        self._read_all.set()
        if self._catching_up is not None:
            await asyncio.wait({self._catching_up})
        async with self._writing_exclusively():
            if not self.is_stopping and self._source_error is None:
                await self._writes.fail_all_waiting(self._coordinator)
        self._drained.set()
        self._checkpoint_wakeup.set()

    def _must_read_again(self, marker: _DrainMarker) -> bool:
        """Return whether the source is read again for tables that failed. After its end, once for each of them."""
        assert self._quarantine is not None
        if not marker.source_ended:
            return True
        waiting = {entry.name for entry in self._quarantine.failed.values() if entry.waits_for_log}
        new = waiting - self._read_again_at_end
        self._read_again_at_end |= waiting
        return bool(new)

    def _restart_reading(self) -> dict[TopicPartition, int]:
        assert self._quarantine is not None
        reached = self._coordinator.reached
        self._writes.read_again(reached)
        return self._quarantine.begin_logs(reached)

    def _add_tables(self, tables: Collection[str], batch: RawBatch | None = None) -> list[str]:
        """Add the tables that a record named for the first time, and return them. They begin at the reached offsets.

        batch: the first batch with such a record, if it is not written yet. Its partition may be new.
        """
        added = [table for table in tables if table not in self._coordinator.positions]
        reached = self._coordinator.reached
        if added and batch is not None:
            reached = {TopicPartition(batch.topic, batch.partition): int(batch.offsets[0]), **reached}
        for table in added:
            routed = {p: at for p, at in reached.items() if table in self._router.tables_of(p.topic)}
            self._coordinator.add_table(table, routed)
        return added

    async def _write_batch(self, batch: PendingBatch) -> None:
        if added := self._add_tables(self._existing):
            await self._checkpoints.begin_tables(self._coordinator, added)
        if not len(batch.raw):
            tables = self._router.tables_of(batch.partition.topic)
            self._coordinator.add_partition(tables, batch.partition, batch.raw.next_offset)
        await self._publish_first_positions()
        await self._writes.write(batch, self._coordinator)

    @asynccontextmanager
    async def _writing_exclusively(self) -> AsyncIterator[None]:
        async with self._writing:
            if self._coordinator.state is CheckpointState.BROKEN:
                # Another task failed meanwhile. Its error ends the run, and cancels this task.
                raise asyncio.CancelledError
            try:
                yield
            except TableFailed:
                raise  # concerns only this table
            except BaseException as error:
                try:
                    if isinstance(error, RecordRefused):  # all records before it are written
                        await self._checkpoint(is_last=True)
                finally:
                    self._coordinator.failed()  # a batch may be written in part, so no checkpoint may follow
                raise

    # ------------------------------------------------------------ checkpoints

    async def _checkpoint_loop(self) -> None:
        """Take checkpoints that become due while no batch arrives, and one at the end. Fail records that waited too
        long.
        """
        while not self._drained.is_set():
            times = [self._due_in_ms(), self._writes.fail_due_in_ms()]
            limit_ms = min((t for t in times if t is not None), default=None)
            await wait_at_most(self._checkpoint_wakeup, limit_ms, self._clock)
            self._checkpoint_wakeup.clear()
            if self._writes.fail_due_in_ms() == 0 or self._drained.is_set() or self._is_due():
                async with self._writing_exclusively():
                    if self._writes.fail_due_in_ms() == 0:
                        await self._writes.fail_longest_waiting(self._coordinator)
                    if self._drained.is_set() or self._is_due():
                        is_last = self._drained.is_set()
                        await self._checkpoint(holds_back=not is_last, is_last=is_last)
        self._coordinator.closed()

    def _is_due(self) -> bool:
        return self._due_in_ms() == 0

    def _due_in_ms(self) -> int | None:
        """Return the time until a checkpoint is due, or the end of a bootstrap, which one commits; None if neither."""
        bootstraps = self._writes.bootstraps
        times = [
            self._coordinator.due_in_ms(self._clock.now_ms()),
            None if bootstraps is None else bootstraps.due_in_ms(),
        ]
        return min((t for t in times if t is not None), default=None)

    async def _publish_first_positions(self) -> None:
        """Publish the first position of tables that begin at `start`, as soon as these tables exist."""
        existing = self._without_first_position.intersection(self._existing)
        if existing:
            await self._checkpoint(always_publish=existing)
            self._without_first_position -= existing

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        async with self._writing_exclusively():
            yield
        self._checkpoint_wakeup.set()

    async def checkpoint(self, always_publish: Collection[str] = ()) -> None:
        await self._checkpoint(always_publish)

    async def _checkpoint(
        self, always_publish: Collection[str] = (), *, holds_back: bool = False, is_last: bool = False
    ) -> None:
        """Take a checkpoint if rows were written. Call it with `_writing` held, or before records flow.

        holds_back: see `Checkpointer.take`. Only where nothing relies on all rows being committed.
        is_last: no more records are written, so bootstraps end with it.
        """
        bootstraps, has_ended = self._writes.bootstraps, False
        if bootstraps is not None:
            has_ended = bootstraps.end_all() if is_last else bootstraps.end_due()
        if self._coordinator.due_in_ms(self._clock.now_ms()) is not None or always_publish or has_ended:
            await self._checkpoints.take(self._coordinator, always_publish, holds_back=holds_back)
