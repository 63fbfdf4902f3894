"""Writes the batches of a run: each partition's in their order, as far as they need not wait for another partition."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from checkpoint.coordinator import CheckpointCoordinator
from checkpoint.offsets import TopicPartition
from ingest.clock import Clock
from ingest.dead_letters import DeadLetters
from ingest.evolution.schema_fence import NoFence, SchemaFence
from ingest.formats.base import DecodedBatch
from ingest.formats.source_table import SourceTable
from ingest.monitoring.observations import RunObservations
from ingest.pipeline.batch_writer import BatchWriter, WriteResult
from ingest.pipeline.error_policy import RecordRefused
from ingest.pipeline.pending_batches import PendingBatch, PendingBatches
from ingest.pipeline.run_metrics import RunMetrics
from ingest.raw_batch import RawBatch
from storage.logs import get_logger
from storage.threads import run_cpu_bound, run_uncancellable

_log = get_logger(__name__)


class WriteStage:
    """Nothing may be committed while a method runs, but by itself, where a table's schema changes. The coordinator
    learns how far each partition was written.

    pending: what partitions hold back.
    decode: as the batches were; for tables that change.
    schemas: what becomes of records that don't fit their table.
    commit: makes a checkpoint.
    metrics: counts records, rows and dead letters.
    """

    def __init__(
        self,
        writer: BatchWriter,
        pending: PendingBatches,
        dead_letters: DeadLetters,
        metrics: RunMetrics,
        clock: Clock,
        observed: RunObservations,
        decode: Callable[[RawBatch], DecodedBatch],
        schemas: SchemaFence | NoFence,
        commit: Callable[[CheckpointCoordinator], Awaitable[None]],
    ) -> None:
        self._writer = writer
        self._pending = pending
        self._dead_letters = dead_letters
        self._metrics = metrics
        self._clock = clock
        self._observed = observed
        self._decode = decode
        self._schemas = schemas
        self._commit = commit
        self._unrouted: set[SourceTable] = set()

    async def write(self, batch: PendingBatch, coordinator: CheckpointCoordinator) -> None:
        """Write a batch, and what waited for a row that it may have.

        Raises RecordRefused for a record that stops the pipeline; everything before it is written.
        """
        self._count(batch)
        was_waiting = batch.partition in self._pending
        self._pending.add(batch)
        if not was_waiting:
            await self._write_partition(batch.partition, coordinator)
        while self.fail_due_in_ms() == 0:
            await self.fail_longest_waiting(coordinator)

    def fail_due_in_ms(self) -> int | None:
        """How long until a record has waited too long; None when none waits."""
        return self._pending.due_in_ms(self._clock.now_ms())

    async def fail_longest_waiting(self, coordinator: CheckpointCoordinator) -> None:
        """What has waited longest is a failure now, and so is all of its batch that nothing helps; the rest goes on."""
        partition = self._pending.longest_waiting()
        if partition is not None:
            await self._write_partition(partition, coordinator, fail_waiting=True)

    async def fail_all_waiting(self, coordinator: CheckpointCoordinator) -> None:
        """Nothing more comes: what still waits waits in vain."""
        while self._pending.longest_waiting() is not None:
            await self.fail_longest_waiting(coordinator)

    async def _write_partition(
        self, partition: TopicPartition, coordinator: CheckpointCoordinator, *, fail_waiting: bool = False
    ) -> None:
        """Write what is pending of a partition, up to a record that must wait; then of those that waited for that.

        fail_waiting: the record it waits for now doesn't come.
        """
        found = await self._write_pending(partition, coordinator, fail_waiting=fail_waiting)
        while found:
            next_one = min(found)
            found.remove(next_one)
            found |= await self._write_pending(next_one, coordinator)

    async def _write_pending(
        self, partition: TopicPartition, coordinator: CheckpointCoordinator, *, fail_waiting: bool = False
    ) -> set[TopicPartition]:
        """Returns the partitions that may find now what they wait for."""
        found = set[TopicPartition]()
        while (head := self._pending.head(partition)) is not None:
            if self._schemas.is_outdated(head.decoded):
                head = await self._decode_head_again(partition, head.start)
            written = await self._write_head(head, fail_waiting=fail_waiting)
            now_ms = self._clock.now_ms()
            # a second try is no second batch
            nbytes = head.raw.nbytes if head.awaited is None else written.rows + written.dead_letters
            coordinator.wrote(partition, written.next_offset, nbytes=nbytes, now_ms=now_ms)
            self._metrics.rows += written.rows
            for table, rows, newest_ms in written.tables:
                self._observed.was_written(table, rows, newest_ms)
            self._observed.dead_letters.update(written.dead_letter_codes)
            self._metrics.dead_letters = self._dead_letters.count
            if written.refused is not None:
                await self._change_schema(written.refused, coordinator)
                await self._decode_head_again(partition, written.next_offset)
                continue
            found.update(written.unblocked)
            if written.awaited is not None:
                self._pending.block_head(partition, written.next_offset, written.awaited)
                break
            self._pending.remove_head(partition)
            fail_waiting = False
        return found

    async def _change_schema(self, refused: RecordRefused, coordinator: CheckpointCoordinator) -> None:
        """Have the table fit the record. Raises `refused` where that can't be."""

        async def commit() -> None:
            if coordinator.due_in_ms(self._clock.now_ms()) is not None:
                await self._commit(coordinator)

        reason = "" if refused.failure is None else await self._schemas.follow(refused.failure, commit)
        if reason is not None:
            raise RecordRefused(f"{refused}. The schema can't follow: {reason}") if reason else refused

    async def _decode_head_again(self, partition: TopicPartition, start: int) -> PendingBatch:
        """Its tables have changed."""
        head = self._pending.head(partition)
        assert head is not None
        return self._pending.replace_head(partition, await run_cpu_bound(self._decode, head.raw), start)

    async def _write_head(self, head: PendingBatch, *, fail_waiting: bool) -> WriteResult:
        """Write it as far as it goes. What may have to wait is not done where others take turns."""
        stage = run_uncancellable if head.decoded.needs_lookups else run_cpu_bound
        waiting = self._pending.awaited
        staged = await stage(
            self._writer.stage, head.raw, head.decoded, head.start, fail_waiting=fail_waiting, waiting=waiting.values()
        )
        write = run_uncancellable if staged.opens_buckets else run_cpu_bound
        written = await write(self._writer.write, staged, waiting)
        if written.is_memory_short:
            await run_uncancellable(self._writer.make_room)
        return written

    def _count(self, batch: PendingBatch) -> None:
        self._metrics.records += len(batch.raw)
        self._metrics.source_bytes += batch.raw.nbytes
        skipped = {kind.value: count for kind, count in batch.decoded.skipped.items()}
        self._metrics.skipped.update(skipped)
        self._observed.skipped.update(skipped)
        for source in batch.decoded.unrouted.keys() - self._unrouted:
            self._unrouted.add(source)
            _log.warning("no table takes these records; they are skipped", source=str(source), topic=source.topic)
