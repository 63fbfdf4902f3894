"""Writes the batches of a run, in the order of each partition. A batch may wait for a row from another partition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from tidelake.checkpoint.offsets import TopicPartition
from tidelake.errors import RecordRefused, TableFailed
from tidelake.ingest.evolution.schema_barrier import SchemaBarrier
from tidelake.ingest.formats.base import DecodedBatch, DecodeFailure, FailureKind, Skipped
from tidelake.ingest.formats.source_table import SourceTable
from tidelake.ingest.monitoring.observations import RunObservations
from tidelake.ingest.pipeline.batch_writer import WITHOUT_ROWS, BatchWriter, StagedBatch, WriteResult
from tidelake.ingest.pipeline.bootstraps import Bootstraps
from tidelake.ingest.pipeline.pending_batches import PendingBatch, PendingBatches, WaitLimits
from tidelake.ingest.quarantine.quarantine import Quarantine
from tidelake.ingest.raw_batch import RawBatch
from tidelake.ingest.tables.truncate_handler import InexactTruncate, KnownPartitions, TruncateHandler
from tidelake.storage.base.logs import get_logger
from tidelake.storage.base.threads import (
    IO_THREADS_MAX,
    RunCpuBound,
    map_uncancellable,
    run_cpu_bound,
    run_uncancellable,
)

_NEEDS_COLUMNS: Final = (FailureKind.UNKNOWN_COLUMN, FailureKind.NARROW_COLUMN)

_log = get_logger(__name__)


class WriteProgress(KnownPartitions, Protocol):
    """Gets how far each partition was written: the coordinator, or `CatchUpProgress` for one table that catches up."""

    def record_write(self, partition: TopicPartition, next_offset: int, *, nbytes: int, now_ms: int) -> None: ...
    def due_in_ms(self, now_ms: int) -> int | None: ...


class _CommitFailed(Exception):
    """A commit failed before a schema change or a truncate. The failure does not concern the changed table."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class WriteStage:
    """Writes batches, and reports to `WriteProgress` how far each partition was written.

    While a method runs, nothing else may commit. The stage itself commits before schema changes and after truncates.

    limits: how long, and how many, records may wait for rows of other partitions.
    decode: decodes a batch again, after a table changed or left the quarantine.
    schemas: handles records that don't fit their table.
    truncates: empties tables.
    commit: takes a checkpoint.
    quarantine: takes tables that fail, and keeps their records. None: the errors of tables are raised.
    run_cpu_bound: runs work that never blocks.
    bootstraps: the tables whose first rows are sorted. None: all rows are merged.
    """

    def __init__(
        self,
        writer: BatchWriter,
        limits: WaitLimits,
        observed: RunObservations,
        decode: Callable[[RawBatch], DecodedBatch],
        schemas: SchemaBarrier,
        truncates: TruncateHandler,
        commit: Callable[[Any], Awaitable[None]],
        quarantine: Quarantine | None = None,
        run_cpu_bound: RunCpuBound = run_cpu_bound,
        bootstraps: Bootstraps | None = None,
    ) -> None:
        self.bootstraps = bootstraps
        self._quarantine = quarantine
        self._run_cpu_bound = run_cpu_bound
        self._writer = writer
        self._pending = PendingBatches(limits)
        self._clock = observed.clock
        self._observed = observed
        self._decode = decode
        self._schemas = schemas
        self._truncates = truncates
        self._commit = commit
        self._unrouted: set[SourceTable] = set()

    async def write(self, batch: PendingBatch, progress: WriteProgress) -> None:
        """Write a batch, and batches that waited for a row in it.

        Raises RecordRefused for a record that stops the pipeline. All records before it are written.
        """
        if self._is_outdated(batch):
            await self._decode_again(batch)
        self._count(batch)
        await self._add(batch, progress)

    async def restore_ahead(self, batches: Sequence[DecodedBatch]) -> None:
        """Let the writers of all tables in these batches read their table's state, side by side.

        Otherwise each table's first row would wait for the store alone, and delay the rows of all tables behind it.
        """
        if unread := self._writer.unrestored(batches):
            await map_uncancellable(self._writer.restore, unread, IO_THREADS_MAX)

    def tolerates(self, partition: TopicPartition, offset: int) -> bool:
        """Return whether a bad record at this offset may become a dead letter."""
        return self._writer.tolerates(partition, offset)

    async def _add(self, batch: PendingBatch, progress: WriteProgress) -> None:
        if self._pending.add(batch):
            await self._write_from(batch, progress)
        while self.fail_due_in_ms() == 0:
            await self.fail_longest_waiting(progress)

    def fail_due_in_ms(self) -> int | None:
        """Return the time until a record exceeds the wait limit; None if none waits."""
        return self._pending.due_in_ms(self._clock.now_ms())

    async def fail_longest_waiting(self, progress: WriteProgress) -> None:
        """Fail the record that has waited longest, and those of its batch that can't be completed; write the rest."""
        batch = self._pending.longest_waiting()
        if batch is not None:
            await self._write_from(batch, progress, fail_waiting=True)

    async def fail_all_waiting(self, progress: WriteProgress) -> None:
        """Fail all waiting records, because no more input arrives."""
        while self._pending.longest_waiting() is not None:
            await self.fail_longest_waiting(progress)

    async def _write_from(self, head: PendingBatch, progress: WriteProgress, *, fail_waiting: bool = False) -> None:
        """Write the pending batches of a partition, up to a record that must wait; then those of unblocked partitions.

        fail_waiting: the record that waits now fails.
        """
        unblocked = await self._write_partition(head, progress, fail_waiting=fail_waiting)
        while unblocked:
            partition = min(unblocked)
            unblocked.remove(partition)
            waiting = self._pending.head(partition)
            if waiting is not None:
                unblocked |= await self._write_partition(waiting, progress)

    async def _write_partition(
        self, head: PendingBatch, progress: WriteProgress, *, fail_waiting: bool = False
    ) -> set[TopicPartition]:
        """Write the pending batches of one partition. Returns the partitions whose awaited rows have arrived."""
        unblocked = set[TopicPartition]()
        batch: PendingBatch | None = head
        while batch is not None:
            unblocked |= await self._write_batch(batch, progress, fail_waiting=fail_waiting)
            if batch.awaited is not None:
                break
            batch, fail_waiting = self._pending.remove(batch), False
        return unblocked

    async def _write_batch(
        self, batch: PendingBatch, progress: WriteProgress, *, fail_waiting: bool
    ) -> set[TopicPartition]:
        """Write a batch, up to a record that must wait for `batch.awaited`. Returns the partitions that need not wait
        any longer.
        """
        unblocked = set[TopicPartition]()
        while True:
            if self._is_outdated(batch):
                await self._decode_again(batch)
            if self.bootstraps is not None and await self._ends_bootstrap(self.bootstraps, batch, progress):
                continue  # a table may have failed in the commit
            staged, written = await self._stage_and_write(batch, fail_waiting=fail_waiting)
            await self._keep_records(batch, staged.next_offset)
            # The bytes of a batch are counted only at its first try.
            nbytes = batch.raw.nbytes if batch.awaited is None else written.rows + len(staged.dead_letters)
            progress.record_write(batch.partition, staged.next_offset, nbytes=nbytes, now_ms=self._clock.now_ms())
            for table, rows, times in written.tables:
                self._observed.was_written(table, rows, times)
            if self.bootstraps is not None:
                self.bootstraps.written(staged.tables)
            self._observed.dead_letters.update(written.dead_letter_codes)
            unblocked.update(written.unblocked)
            if staged.refused is None:
                batch.start, batch.awaited = staged.next_offset, staged.awaited
                return unblocked
            await self._refused(staged.refused, staged.refused_by, batch, progress)
            failure = staged.refused.failure
            batch.start = staged.next_offset
            if failure is not None and failure.kind in WITHOUT_ROWS:  # the record may be one of other tables, too
                batch.handled.add((failure.offset, failure.table_name))
            await self._decode_again(batch)

    async def _ends_bootstrap(self, bootstraps: Bootstraps, batch: PendingBatch, progress: WriteProgress) -> bool:
        """Commit the bootstraps that end before the batch. Returns whether the batch must be looked at again.

        *Crash before the commit: the table has no row, and its records are read again. After it: as after any commit.*
        """
        try:
            has_ended = await bootstraps.before_write(batch.raw, batch.decoded, batch.start)
        except TableFailed as failed:
            await self._fail({failed.table: failed.error})
            return True
        if has_ended:
            await self._commit(progress)
        return has_ended

    async def _refused(
        self, refused: RecordRefused, table: str | None, batch: PendingBatch, progress: WriteProgress
    ) -> None:
        """Change the table for the refused record, or quarantine it. Raises the error if neither is possible.

        table: the table of the record, if known.
        """
        try:
            failure = refused.failure
            if failure is not None and failure.kind is FailureKind.TRUNCATE:
                await self._truncate(refused, failure, batch, progress)
            else:
                await self._change_schema(refused, batch, progress)
        except _CommitFailed as failed:
            raise failed.error from failed.error.__cause__
        except Exception as error:
            quarantine = self._quarantine
            if table is None or quarantine is None or not quarantine.can_quarantine([table]):
                raise
            await quarantine.fail({table: error})

    async def _truncate(
        self, refused: RecordRefused, failure: DecodeFailure, batch: PendingBatch, progress: WriteProgress
    ) -> None:
        """Empty the table, in a snapshot whose position passes the truncate. Raises `refused` if this is impossible.

        *Crash before the commit: rows and truncate are read again. After it: the table's position is past both.*
        """
        try:
            truncation = await self._truncates.plan(failure, batch.raw, progress)
        except InexactTruncate as error:
            if not str(error):
                raise refused from None
            raise RecordRefused(f"{refused}. The truncate can't be applied: {error}", failure) from error
        if truncation.is_outdated:
            return
        await run_uncancellable(self._truncates.execute, truncation)
        if self._truncates_another(failure, batch):
            return  # the position passes the record when all its tables are empty
        progress.record_write(batch.partition, failure.offset + 1, nbytes=1, now_ms=self._clock.now_ms())
        try:
            await self._commit(progress)
        except Exception as error:
            raise _CommitFailed(error) from error

    def _truncates_another(self, failure: DecodeFailure, batch: PendingBatch) -> bool:
        """Return whether the record of a truncate also has to empty another table."""
        return any(
            one.offset == failure.offset
            and one.kind is FailureKind.TRUNCATE
            and one.table_name != failure.table_name
            and (one.offset, one.table_name) not in batch.handled
            and self._writer.takes_failure(one, batch.raw)
            for one in batch.decoded.failures
        )

    async def _change_schema(self, refused: RecordRefused, batch: PendingBatch, progress: WriteProgress) -> None:
        """Change the table's schema so that the record fits. Raises `refused` if this is impossible.

        Other tables that need changes for later records of the batch are changed, too. Otherwise each change would cost
        a commit of all tables, and another decoding of the batch.
        """

        async def commit() -> None:
            if progress.due_in_ms(self._clock.now_ms()) is not None:
                try:
                    await self._commit(progress)
                except Exception as error:
                    raise _CommitFailed(error) from error

        reason = "" if refused.failure is None else await self._schemas.follow(refused.failure, commit)
        if reason is not None:
            raise RecordRefused(f"{refused}. {reason}") if reason else refused
        failure = refused.failure
        if failure is not None and failure.kind in _NEEDS_COLUMNS:
            takes = self._writer.takes_failure
            ahead = [f for f in batch.decoded.failures if f.offset > failure.offset and f.kind in _NEEDS_COLUMNS]
            await self._schemas.alter_ahead([f for f in ahead if takes(f, batch.raw)], commit)

    @property
    def _routing(self) -> int:
        return 0 if self._quarantine is None else self._quarantine.routing

    def _is_outdated(self, batch: PendingBatch) -> bool:
        """Return whether tables have changed, or have left the quarantine, since the batch was decoded."""
        return batch.routing != self._routing or self._schemas.is_outdated(batch.decoded)

    async def _decode_again(self, batch: PendingBatch) -> None:
        batch.decoded, batch.routing = await run_cpu_bound(self._decode, batch.raw), self._routing

    async def _stage_and_write(self, batch: PendingBatch, *, fail_waiting: bool) -> tuple[StagedBatch, WriteResult]:
        """Write the batch as far as possible. Work that may block runs outside of the thread for CPU-bound work."""
        in_memory = run_cpu_bound if self._writer.reads_files(batch.decoded) else self._run_cpu_bound
        stage = run_uncancellable if batch.decoded.needs_lookups else in_memory
        while True:
            waiting = self._pending.awaited
            try:
                staged = await stage(
                    self._writer.stage,
                    batch.raw,
                    batch.decoded,
                    batch.start,
                    fail_waiting=fail_waiting,
                    waiting=waiting.values(),
                    handled=batch.handled,
                )
            except TableFailed as failed:
                await self._fail({failed.table: failed.error})
            else:
                break
        write = run_uncancellable if staged.opens_buckets else in_memory
        written = await write(self._writer.write, staged, waiting)
        if written.failed:
            await self._fail(written.failed)
        if written.needs_room:
            await run_uncancellable(self._writer.make_room)
        return staged, written

    # ------------------------------------------------------------ tables that fail

    async def _fail(self, failed: Mapping[str, Exception]) -> None:
        """Quarantine the failed tables, or raise an error if the pipeline can't continue without them."""
        if self._quarantine is None:
            raise next(iter(failed.values()))
        await self._quarantine.fail(failed)

    async def _keep_records(self, batch: PendingBatch, stop: int) -> None:
        if self._quarantine is not None and self._quarantine.failed:
            await run_cpu_bound(self._quarantine.keep, batch.raw, batch.decoded, batch.start, stop)

    def read_again(self, reached: Mapping[TopicPartition, int]) -> None:
        """Prepare to read the source again for tables in quarantine. The others have all records below `reached`."""
        self._pending.clear()
        self._writer.read_again(reached)

    # ------------------------------------------------------------ one table that catches up

    async def write_kept(self, raw: RawBatch, decoded: DecodedBatch, progress: WriteProgress) -> Exception | None:
        """Write a batch that was kept for a quarantined table. Returns the error of a record that stops the table."""
        try:
            batch = PendingBatch(raw, decoded, self._clock.now_ms())
            await self._add(batch, progress)  # its records were counted when they were kept
        except RecordRefused as refused:
            return refused
        return None

    async def give_up_waiting(self, progress: WriteProgress, *, all_of_it: bool) -> Exception | None:
        """Fail records that waited too long, or all waiting ones. Returns the error of one that stops the table."""
        try:
            if all_of_it:
                await self.fail_all_waiting(progress)
            elif self.fail_due_in_ms() == 0:
                await self.fail_longest_waiting(progress)
        except RecordRefused as refused:
            return refused
        return None

    @property
    def is_waiting(self) -> bool:
        return self.fail_due_in_ms() is not None

    def _count(self, batch: PendingBatch) -> None:
        decoded = batch.decoded
        kept = {source for source in decoded.unrouted if self._is_quarantined(source)}
        skipped = Counter({kind.value: n for kind, n in decoded.skipped.items()})
        skipped -= Counter({Skipped.UNROUTED.value: sum(decoded.unrouted_records.get(source, 0) for source in kept)})
        self._observed.batch_decoded(batch.raw, skipped)
        for source in decoded.creating.keys() - self._unrouted - kept:
            self._unrouted.add(source)
            _log.warning("no table takes these records; they are skipped", source=str(source), topic=source.topic)

    def _is_quarantined(self, source: SourceTable) -> bool:
        quarantine = self._quarantine
        if not quarantine or not quarantine.failed:
            return False
        return not quarantine.failed.keys().isdisjoint(quarantine.router.tables_for(source))
