"""Catch-up of quarantined tables: each is opened again after a while, and gets the records that were kept for it.

It writes during the main flow, one batch at a time, alternating with batches of the source, so that the other tables
are not delayed. The same checkpoints commit its rows, with a separate position.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Final, Protocol

import numpy as np

from tidelake.checkpoint.coordinator import CheckpointCoordinator
from tidelake.checkpoint.epoch import Epoch, epoch_of
from tidelake.checkpoint.idle_progress import IdleProgress
from tidelake.checkpoint.moved_rows_state import moved_rows_of
from tidelake.checkpoint.offsets import SourcePosition, TopicPartition
from tidelake.checkpoint.recovery import recover_table
from tidelake.checkpoint.routing import Routing
from tidelake.checkpoint.table_state import MISSING_TABLE, SnapshotSummary, TableState
from tidelake.errors import BadInput, TableFailed, TableNotInferred
from tidelake.ingest.clock import wait_at_most
from tidelake.ingest.dead_letters import DeadLetters
from tidelake.ingest.formats.base import DecodedBatch, Decoder, TargetOf
from tidelake.ingest.quarantine.first_record_parts import decoded_parts
from tidelake.ingest.quarantine.own_position import join_log
from tidelake.ingest.quarantine.quarantine import Quarantine, QuarantinedTable
from tidelake.ingest.raw_batch import RawBatch, join_batches
from tidelake.ingest.tables.moved_row_files import MovedRowsStore
from tidelake.ingest.tables.routed_decoder import RoutedDecoder
from tidelake.ingest.tables.table_errors import CheckpointFailed, failures_of
from tidelake.ingest.tables.table_lineage import TableLineage
from tidelake.storage.base.threads import run_cpu_bound, run_uncancellable

_FINAL_WRITE_BYTES: Final = 4 << 20  # bytes of records that are written without interruption before the table rejoins
_JOINED_BYTES: Final = 8 << 20  # bytes of records that are written as one batch
_WAIT_MS: Final = 100
REQUESTS_INTERVAL_MS: Final = 5_000  # time between two looks for requests of an operator


class BatchSink(Protocol):
    """Writes batches to one table: `tidelake.ingest.pipeline.write_stage.WriteStage`, only for that table.

    Methods raise TableFailed. The error of a record that stops the table is returned.
    """

    def tolerates(self, partition: TopicPartition, offset: int) -> bool:
        """Return whether a bad record at this offset may become a dead letter."""
        ...

    async def write_kept(self, raw: RawBatch, decoded: DecodedBatch, progress: CatchUpProgress) -> Exception | None: ...

    async def give_up_waiting(self, progress: CatchUpProgress, *, all_of_it: bool) -> Exception | None:
        """Fail records that have waited too long for others, or all waiting records."""
        ...

    @property
    def is_waiting(self) -> bool:
        """Whether records wait for rows that have not arrived yet."""
        ...


@dataclass(slots=True)
class CatchUpProgress:
    """Reports to the coordinator how far one table was written."""

    coordinator: CheckpointCoordinator
    table: str

    def due_in_ms(self, now_ms: int) -> int | None:
        return self.coordinator.due_in_ms(now_ms)

    def partitions_of(self, table: str) -> frozenset[TopicPartition]:
        return self.coordinator.partitions_of(table)

    def written_position_of(self, table: str) -> Mapping[TopicPartition, int]:
        return self.coordinator.written_position_of(table)

    def record_write(self, partition: TopicPartition, next_offset: int, *, nbytes: int, now_ms: int) -> None:
        self.coordinator.record_detached_write(self.table, partition, next_offset, nbytes=nbytes, now_ms=now_ms)


@dataclass(slots=True)
class CatchUp:
    """The catch-up of a pipeline's quarantined tables.

    new_batch_sink: returns the sink that writes a table from the given offsets on.
    new_decoder: returns a decoder of the pipeline's format.
    """

    quarantine: Quarantine
    routings: Mapping[str, Routing]
    moved: MovedRowsStore
    dead_letters: DeadLetters
    new_batch_sink: Callable[[str, Mapping[TopicPartition, int], Callable[[RawBatch], DecodedBatch]], BatchSink]
    new_decoder: Callable[[TargetOf], Decoder]
    lineage: TableLineage
    _next_look_ms: int = 0

    async def run(self, flow: FlowControl, end: asyncio.Event) -> None:
        """Retry tables until `end` is set. Then every table that can be tried is tried once more."""
        self._next_look_ms = self.quarantine.clock.now_ms() + REQUESTS_INTERVAL_MS  # the start has looked
        while True:
            await self._follow_requests(flow)
            for entry in self.quarantine.due(at_end=end.is_set()):
                try:
                    if entry.is_unreadable:
                        await self._find_position(entry, flow)
                    else:
                        await _Attempt(self, entry, flow, end).run()
                except _FailedInCheckpoint:
                    pass
                except CheckpointFailed as failed:
                    raise failed.error from failed.error.__cause__
                except TableFailed as failed:
                    async with flow.exclusive():
                        await self.quarantine.fail({failed.table: failed.error})
            if end.is_set():
                return
            await self._wait(end)

    async def _follow_requests(self, flow: FlowControl) -> None:
        """Look for requests of an operator, if the last look was a while ago."""
        now_ms = self.quarantine.clock.now_ms()
        if now_ms >= self._next_look_ms:
            self._next_look_ms = now_ms + REQUESTS_INTERVAL_MS
            async with flow.exclusive():
                await self.quarantine.follow_requests()

    async def _find_position(self, entry: QuarantinedTable, flow: FlowControl) -> None:
        """Find the position of a table that was unreadable at the start. Raises TableFailed if it still is."""
        table = entry.name
        with failures_of(table):
            opened = await run_uncancellable(self.quarantine.tables.reopen, table)
            state = MISSING_TABLE if opened is None else await run_uncancellable(opened[0].read_state)
            if opened is not None:
                await run_uncancellable(opened[0].writer.abort)
            recovered = recover_table(table, state, IdleProgress(), self.routings.get(table))
            ends = recovered.position.ends
            routed = [p for p in flow.coordinator.reached if table in self.quarantine.router.tables_of(p.topic)]
            if recovered.problems or recovered.is_fresh or any(p not in ends for p in routed):
                raise BadInput(
                    f"{table} can be read again. Start the pipeline again: it reports where the table continues"
                )
            newest = state.own[0]
            log = (await run_uncancellable(self.quarantine.open_logs, [table])).get(table)
            if log is not None and join_log(log, recovered.position, newest) is None:
                log = None
        async with flow.exclusive():
            self.lineage.restore_one(table, newest.properties)
            await self.quarantine.continue_at(table, ends, (newest.id, newest.manifest_list), log)

    async def _wait(self, end: asyncio.Event) -> None:
        self.quarantine.changed.clear()
        due = self.quarantine.due_in_ms()
        due_in_ms = REQUESTS_INTERVAL_MS if due is None else min(due, REQUESTS_INTERVAL_MS)
        ended = asyncio.ensure_future(end.wait())
        changed = asyncio.ensure_future(wait_at_most(self.quarantine.changed, due_in_ms, self.quarantine.clock))
        try:
            await asyncio.wait({ended, changed}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended.cancel()
            changed.cancel()
            await asyncio.gather(ended, changed, return_exceptions=True)


class FlowControl(Protocol):
    """The methods that the catch-up needs of a run's flow (`tidelake.ingest.pipeline.flow`)."""

    @property
    def coordinator(self) -> CheckpointCoordinator: ...
    @property
    def is_stopping(self) -> bool: ...

    def exclusive(self) -> AbstractAsyncContextManager[None]:
        """Return a context in which nothing else is written or committed."""
        ...

    async def checkpoint(self, always_publish: Collection[str] = ()) -> None:
        """Take a checkpoint. Call it in the context of `exclusive`."""
        ...


class _FailedInCheckpoint(TableFailed):
    """A checkpoint found that the table fails again."""


class _Attempt:
    """One attempt to catch up with one table."""

    def __init__(self, parts: CatchUp, entry: QuarantinedTable, flow: FlowControl, end: asyncio.Event) -> None:
        assert entry.log is not None
        self._parts = parts
        self._entry = entry
        self._log = entry.log
        self._table = entry.name
        self._tables, self._clock = parts.quarantine.tables, parts.quarantine.clock
        self._flow = flow
        self._end = end
        self._batch_sink: BatchSink
        self._decoder = RoutedDecoder(parts.quarantine.router, parts.new_decoder, only=entry.name)
        self._progress = CatchUpProgress(flow.coordinator, entry.name)
        self._segments_read = 0
        self._given: dict[TopicPartition, int] = {}  # next offsets after the records passed to `_batch_sink`

    async def run(self) -> None:
        """Run the attempt. Raises the table's errors as TableFailed."""
        await self._begin()
        while not self._flow.is_stopping:
            async for batch in self._kept():
                async with self._flow.exclusive():
                    await self._write(batch)
                if self._flow.is_stopping:
                    return
            async with self._flow.exclusive():
                if await self._join():
                    return
            if self._batch_sink.is_waiting:
                await self._wait_for_records()
            elif self._must_reread_source() or self._is_ahead() or self._is_table_missing():
                if self._end.is_set():
                    return  # the next process reads the missing records
                await self._clock.sleep_ms(_WAIT_MS)

    async def _begin(self) -> None:
        with failures_of(self._table):
            opened = await run_uncancellable(self._tables.reopen, self._table)
            position, newest, moved = self._flow.coordinator.positions.get(self._table, SourcePosition()), None, None
            if opened is not None:
                state = await run_uncancellable(opened[0].read_state)
                position, newest = self._own_position(state, position)
                moved = None if newest is None else moved_rows_of(newest.properties, newest.path)
        async with self._flow.exclusive():
            with failures_of(self._table):
                joined = join_log(self._log, position, newest)
                if joined is None:
                    raise BadInput(
                        f"{self._table}: the kept records begin after the table's position: the table was rolled back "
                        "or created again. Start the pipeline again: it lists the options"
                    )
                if newest is not None:
                    self._flow.coordinator.skip_identifiers(newest.identifier)
                self._flow.coordinator.detach(self._table, position, joined.position.ends)
                self._given = dict(joined.position.ends)
                if opened is not None:
                    self._tables.sinks[self._table], target = opened
                    self._parts.quarantine.router.add_target(target)
                if moved is not None:
                    await run_uncancellable(self._parts.moved.restore_one, self._table, moved)
            await run_uncancellable(self._parts.dead_letters.recover, self._given)
            self._batch_sink = self._parts.new_batch_sink(self._table, joined.position.ends, self._decoder.decode)
            self._entry.is_catching_up = True

    def _own_position(self, state: TableState, first: SourcePosition) -> tuple[SourcePosition, SnapshotSummary | None]:
        recovered = recover_table(self._table, state, IdleProgress(), self._parts.routings.get(self._table))
        if recovered.is_fresh:
            return first, None
        if recovered.problems:
            raise BadInput(f"{recovered.problems[0]}. Start the pipeline again: it lists the options")
        newest = state.own[0]
        self._check_epoch(epoch_of(newest.properties, newest.path))
        return recovered.position, newest

    def _check_epoch(self, found: Epoch) -> None:
        epoch = self._flow.coordinator.epoch
        if found.supersedes(epoch):
            raise BadInput(
                f"{self._table} belongs to another process of this pipeline ({found}); this one is {epoch}. Stop the "
                "one that should not run"
            )

    async def _kept(self) -> AsyncIterator[RawBatch]:
        with failures_of(self._table):
            self._segments_read = self._log.segments_written
            batches = self._log.read_after(dict(self._given))
            # In a large batch, a record with an unavailable value may have a later record of its key, and is not
            # needed then.
            joined = join_batches(batches, _JOINED_BYTES)
            while found := await run_uncancellable(next, joined, None):
                yield found

    async def _write(self, batch: RawBatch) -> None:
        """Write the records of the batch that the table was not given yet. Call it with writing excluded."""
        self._check_catching_up()
        partition = TopicPartition(batch.topic, batch.partition)
        batch = batch.slice(int(np.searchsorted(batch.offsets, self._given.get(partition, 0))), len(batch))
        if not len(batch):
            return
        # Other records may follow before the batch's next offset: earlier releases kept it from the source's batch.
        batch = replace(batch, next_offset=int(batch.offsets[-1]) + 1)
        try:
            async for part, decoded in decoded_parts(batch, self._decoded, self._created, self._batch_sink.tolerates):
                await self._write_part(part, decoded, partition)
        except TableNotInferred as error:
            raise TableFailed(self._table, error) from error

    async def _write_part(self, batch: RawBatch, decoded: DecodedBatch, partition: TopicPartition) -> None:
        self._flow.coordinator.add_partition([self._table], partition, self._log.starts[partition])
        self._given[partition] = batch.next_offset
        with failures_of(self._table):
            refused = await self._batch_sink.write_kept(batch, decoded, self._progress)
        await self._check(refused)

    async def _check(self, refused: Exception | None) -> None:
        if refused is not None:
            await self._flow.checkpoint()  # makes the rows before the record visible
            self._check_catching_up()
            raise TableFailed(self._table, refused) from refused

    def _check_catching_up(self) -> None:
        if not self._entry.is_catching_up:
            raise _FailedInCheckpoint(self._table, self._entry.error)

    async def _decoded(self, batch: RawBatch) -> DecodedBatch:
        with failures_of(self._table):
            return await run_cpu_bound(self._decoder.decode, batch)

    async def _created(self, batch: RawBatch, decoded: DecodedBatch) -> bool:
        router = self._parts.quarantine.router
        own_unrouted = {
            source: row for source, row in decoded.creating.items() if self._table in router.tables_for(source)
        }
        if not own_unrouted or self._table in self._tables.sinks:
            return False
        try:
            with failures_of(self._table):
                others = set(router.tables) - {self._table}
                return await run_uncancellable(self._tables.create_except, others, batch, own_unrouted)
        except TableFailed as failed:
            if isinstance(failed.error, TableNotInferred):
                raise failed.error from None
            raise

    def _must_reread_source(self) -> bool:
        """Return whether the source must still be read again: the log lacks records that the other tables have."""
        coordinator, ends = self._flow.coordinator, self._log.ends
        known = coordinator.positions[self._table].ranges
        return any(end > ends.get(p, end) for p, end in coordinator.reached.items() if p in known)

    def _is_ahead(self) -> bool:
        """Return whether the log has records that the other tables lack, and that will be read again.

        The table must not rejoin before the others have them, or it would get these records twice.
        """
        reached = self._flow.coordinator.reached
        return any(end > reached.get(p, end) for p, end in self._log.ends.items())

    def _is_table_missing(self) -> bool:
        """Return whether the table must still be created, which only its kept records do.

        Batches in the channels were decoded without the table.
        """
        return self._table not in self._tables.sinks and not self._end.is_set()

    async def _wait_for_records(self) -> None:
        """Wait for rows from other partitions that records need."""
        if not self._end.is_set():
            await self._clock.sleep_ms(_WAIT_MS)
        async with self._flow.exclusive():
            self._check_catching_up()
            with failures_of(self._table):
                refused = await self._batch_sink.give_up_waiting(self._progress, all_of_it=self._end.is_set())
            await self._check(refused)

    async def _join(self) -> bool:
        """Write the records that are only in memory. Then the table has all records of the others, and rejoins them.

        Call it with writing excluded. Returns whether the table rejoined.
        """
        if self._log.segments_written != self._segments_read:
            return False  # a checkpoint wrote the records in memory to a new segment
        if self._must_reread_source() or self._is_ahead():
            return False
        if self._log.held_bytes > _FINAL_WRITE_BYTES:
            await run_uncancellable(self._log.flush, self._log.identity)
            return False
        for batch in list(self._log.held):
            await self._write(batch)
        self._check_catching_up()
        if self._batch_sink.is_waiting or self._is_table_missing():
            return False
        for partition, end in self._log.ends.items():
            self._flow.coordinator.add_partition([self._table], partition, self._log.starts[partition])
            self._progress.record_write(partition, end, nbytes=1, now_ms=self._clock.now_ms())
        self._flow.coordinator.join(self._table)
        self._parts.quarantine.rejoin(self._table)
        return True
