"""Writes the rows of one bucket to data files.

The two kinds of writers have one protocol. The writer of a primary-key bucket sorts and merges the rows between two
flushes. The writer of an append bucket only collects them. The memory budget may flush a writer at any time, from any
thread.

Source: Java `mergetree/MergeTreeWriter.java`, `append/AppendOnlyWriter.java`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final, Protocol

import pyarrow as pa

from tidelake.storage.base import env
from tidelake.storage.base.logs import get_logger
from tidelake.storage.commit.commit_increment import CommitIncrement, CompactResult
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.files.writer import RollingFileWriter
from tidelake.storage.merge.merge_functions import MergeFunction
from tidelake.storage.merge.merge_reader import MergeOrder
from tidelake.storage.model.options import ChangelogProducer
from tidelake.storage.model.table import TableContext
from tidelake.storage.write.bucket_files import BucketFiles
from tidelake.storage.write.buffered_rows import BufferedRows
from tidelake.storage.write.compactor import Compactor, LongCompaction, RestoredBucket
from tidelake.storage.write.write_buffer import WriteBuffer

_log = get_logger(__name__)

# A buffer of this size gives a file of useful size. It is flushed, because spilling would write the rows twice.
MIN_SPILL_BYTES: Final = 32 * 1024 * 1024


class BucketWriter(Protocol):
    """Writes one bucket. Thread-safe."""

    @property
    def buffered(self) -> BufferedRows:
        """The rows in memory."""
        ...

    @property
    def next_sequence_number(self) -> int:
        """The sequence number of the next row."""
        ...

    def write(self, rows: pa.RecordBatch) -> None:
        """Add converted rows of this bucket, in order of arrival."""
        ...

    def flush(self) -> None:
        """Write all rows to a data file, which waits for `prepare_commit`."""
        ...

    def flush_memory(self) -> None:
        """Free the memory of the rows: flush them, or spill them to the local disk."""
        ...

    def prepare_commit(self, *, wait_compaction: bool = False, full_compaction: bool = False) -> None:
        """Flush all rows. The files wait for `take_increment`.

        wait_compaction: also wait for running compactions.
        full_compaction: compact all files, and wait for it.
        """
        ...

    @property
    def may_compact_long(self) -> bool:
        """Whether the bucket is so large that `prepare_commit` may wait for a long compaction. Fast."""
        ...

    def begin_compaction(
        self, *, wait_compaction: bool = False, full_compaction: bool = False
    ) -> LongCompaction | None:
        """Begin the compaction that `prepare_commit` with these arguments would wait for. Returns it if it is long:
        then `prepare_commit` waits for its end. Rows may be written meanwhile.
        """
        ...

    def take_increment(self) -> CommitIncrement:
        """Return the files finished since the last call; `abort` no longer deletes them. Fast; never fails."""
        ...

    def increment_settled(self) -> None:
        """Learn that the last increment is in a snapshot, or will never be committed."""
        ...

    def set_next_sequence_number(self, next_sequence_number: int) -> None:
        """Set the number of the next row, unless the current one is higher. The buffer must be empty."""
        ...

    @property
    def is_idle(self) -> bool:
        """Whether it has no rows, no files to hand over and no running compaction."""
        ...

    def cancel_compaction(self) -> None:
        """Stop compaction. A running one soon ends without a result. Fast; may be called from any thread."""
        ...

    @property
    def is_compaction_stale(self) -> bool:
        """Whether the compaction's view of the bucket is outdated, so that `reset_compaction` is needed."""
        ...

    def reset_compaction(self, bucket: RestoredBucket) -> None:
        """Replace an outdated view of the bucket.

        bucket: its content in a snapshot. Everything handed over before is in this snapshot, or never will be.
        """
        ...

    def compact_level_0(self) -> CompactResult:
        """Compact what commits left on level 0, and wait for it.

        Does nothing if rows were written since the last increment: their own commit compacts.
        """
        ...

    def uncommitted(self) -> Iterator[pa.RecordBatch]:
        """Yield all versions of rows that are in no snapshot, oldest first: table columns, `_SEQUENCE_NUMBER`,
        `_VALUE_KIND`. Only for primary-key tables.

        Later writes and flushes don't change the result. `abort` deletes the files that it reads.
        """
        ...

    def abort(self) -> None:
        """Drop the rows and delete the files that were not handed over."""
        ...


class PrimaryKeyBucketWriter:
    """Writes a primary-key bucket. Every flush makes one sorted run on level 0.

    compactor: None: runs stay on level 0.
    replaces: the commits will overwrite, and an overwrite has no changelog.
    """

    def __init__(
        self,
        context: TableContext,
        files: BucketFiles,
        order: MergeOrder,
        merge_function: MergeFunction,
        next_sequence_number: int,
        spill_directory: str | None,
        compactor: Compactor | None = None,
        *,
        replaces: bool = False,
    ) -> None:
        self._table_name = context.name
        self._writes_changelog = context.options.changelog_producer is ChangelogProducer.INPUT and not replaces
        # The changelog needs every row as it arrived, but segments on disk are merged.
        self._may_spill = context.options.write_buffer_spillable and not self._writes_changelog
        self._waits_for_compaction = context.options.commit_force_compact
        self._stop_trigger = context.options.stop_trigger
        self.files = files
        self.order = replace(order, sequence_follows_run_order=True)  # arrival order is sequence order
        self._buffer = WriteBuffer(order, merge_function, next_sequence_number, spill_directory)
        self._compactor = compactor
        self._new_files: list[DataFileMeta] = []
        self._changelog_files: list[DataFileMeta] = []
        self._compacted = CompactResult()
        self._handed_over: list[DataFileMeta] = []
        self.lock = env.Lock()

    @property
    def buffered(self) -> BufferedRows:
        return self._buffer.buffered

    @property
    def next_sequence_number(self) -> int:
        return self._buffer.next_sequence_number

    def write(self, rows: pa.RecordBatch) -> None:
        with self.lock:
            self._buffer.add(rows)

    def small_rows(self, bytes_max: int) -> Sequence[pa.RecordBatch]:
        """Return the buffered rows in order of arrival if they are few and only a flush is due; otherwise nothing.

        The caller must hold `lock` until it called `flushed`, or decided to leave the rows in the buffer.
        """
        must_wait_for_compaction = self._compactor is not None and self._compactor.excess_runs > 0
        if self._writes_changelog or must_wait_for_compaction or self.buffered.nbytes > bytes_max:
            return ()
        return self._buffer.batches

    def flushed(self, files: Sequence[DataFileMeta]) -> None:
        """Replace the rows of `small_rows` by these files. The caller must hold `lock`."""
        self._buffer.clear()
        self._added(files)

    def flush(self) -> None:
        with self.lock:
            self._flush(for_memory=True)

    def flush_memory(self) -> None:
        with self.lock:
            # With large rows, the flush would hold one row of each segment in memory.
            is_small = self.buffered.nbytes < MIN_SPILL_BYTES and not self.buffered.has_large_rows
            if self._may_spill and is_small and self._buffer.may_spill_again:
                self._buffer.spill()
            else:
                self._flush(for_memory=True)

    def prepare_commit(self, *, wait_compaction: bool = False, full_compaction: bool = False) -> None:
        with self.lock:
            self._flush(wait_compaction=wait_compaction or full_compaction, full_compaction=full_compaction)
            if self._compactor is not None:
                # One more than at a flush: runs may have accumulated over commits whose compactions were lost.
                must_wait_for_compaction = self._waits_for_compaction or self._compactor.excess_runs > 1
                self._take_compacted(wait=wait_compaction or full_compaction or must_wait_for_compaction)

    @property
    def may_compact_long(self) -> bool:
        return self._compactor is not None and self._compactor.may_be_long(self.buffered.nbytes)

    def begin_compaction(
        self, *, wait_compaction: bool = False, full_compaction: bool = False
    ) -> LongCompaction | None:
        compactor = self._compactor
        if compactor is None:
            return None
        waits = wait_compaction or full_compaction or self._waits_for_compaction
        with self.lock:
            if compactor.long_task is None and waits:
                self._flush(wait_compaction=full_compaction, full_compaction=full_compaction)
            elif compactor.long_task is None and compactor.excess_runs > 0:
                self._take_compacted(wait=False)
                compactor.trigger()
            return compactor.long_task if waits or compactor.excess_runs > 0 else None

    def take_increment(self) -> CommitIncrement:
        with self.lock:
            increment = CommitIncrement(
                new_files=tuple(self._new_files),
                changelog_files=tuple(self._changelog_files),
                compacted=self._compacted,
            )
            self._handed_over += self._new_files
            self._new_files, self._changelog_files, self._compacted = [], [], CompactResult()
            return increment

    def increment_settled(self) -> None:
        with self.lock:
            self._handed_over = []

    def set_next_sequence_number(self, next_sequence_number: int) -> None:
        with self.lock:
            assert self._buffer.is_empty, "rows have numbers already"
            self._buffer.next_sequence_number = max(self._buffer.next_sequence_number, next_sequence_number)

    @property
    def is_idle(self) -> bool:
        is_compacting = self._compactor is not None and self._compactor.is_busy
        return self._buffer.is_empty and not self._new_files and not is_compacting

    def cancel_compaction(self) -> None:
        if self._compactor is not None:  # without the lock: a thread that waits for compaction holds it
            self._compactor.cancel()

    @property
    def is_compaction_stale(self) -> bool:
        return self._compactor is not None and self._compactor.is_stale

    def reset_compaction(self, bucket: RestoredBucket) -> None:
        with self.lock:
            if self._compactor is not None:
                self.files.discard(self._compacted)
                self._compacted = CompactResult()
                self._compactor.reset(replace(bucket, files=[*bucket.files, *self._new_files]))

    def compact_level_0(self) -> CompactResult:
        with self.lock:
            compactor = self._compactor
            if compactor is None or self._new_files or not self._buffer.is_empty or not self._compacted.is_empty:
                return CompactResult()
            self._take_compacted(wait=True)
            compactor.trigger()
            self._take_compacted(wait=True)
            compacted, self._compacted = self._compacted, CompactResult()
            return compacted

    def uncommitted(self) -> Iterator[pa.RecordBatch]:
        with self.lock:  # not during the read, which is long, may pause, or write to this bucket
            files = [*self._handed_over, *self._new_files]
            versions = self._buffer.versions()
        return chain(chain.from_iterable(map(self.files.read, files)), versions)

    def abort(self) -> None:
        with self.lock:
            if self._compactor is not None:
                self._compactor.close()
            self._buffer.clear()
            self.files.delete(self._new_files + self._changelog_files)
            self.files.discard(self._compacted)
            self._new_files, self._changelog_files, self._compacted = [], [], CompactResult()

    def _flush(self, *, wait_compaction: bool = False, full_compaction: bool = False, for_memory: bool = False) -> None:
        """Flush the rows, take the result of the last compaction, and start the next one.

        for_memory: only memory is needed. Other tables should not wait for a long compaction then: up to
            `num-sorted-run.stop-trigger` runs more are made meanwhile, which no reader sees before the next commit.
        """
        must_wait_for_compaction = False
        if not self._buffer.is_empty:
            must_wait_for_compaction = self._compactor is not None and self._compactor.excess_runs > (
                self._stop_trigger if for_memory and self._compactor.long_task is not None else 0
            )
            if self.buffered.has_large_rows:
                self._take_compacted(wait=True)  # a flush and a compaction both hold large rows: never at once
            self._write_files()
        if self._compactor is not None:
            if must_wait_for_compaction:
                self._wait_for_fewer_runs(self._compactor)
            self._take_compacted(wait=wait_compaction)
            self._compactor.trigger(full=full_compaction)

    def _wait_for_fewer_runs(self, compactor: Compactor) -> None:
        """Back-pressure: a writer that is faster than compaction waits. Otherwise reads would become slow."""
        started = env.monotonic_s()
        excess_runs = compactor.excess_runs
        self._take_compacted(wait=True)
        _log.info(
            "writing waited for compaction",
            table=self._table_name,
            directory=self.files.directory,
            waited_ms=int((env.monotonic_s() - started) * 1000),
            reason=f"{excess_runs} sorted runs more than num-sorted-run.stop-trigger allows",
        )

    def _take_compacted(self, *, wait: bool) -> None:
        result = self._compactor.take(wait=wait) if self._compactor is not None else None
        if result is not None:
            self._compacted, unneeded = self._compacted.followed_by(result)
            self.files.discard(unneeded)

    def _write_files(self) -> None:
        changelog = _write_all(self.files.changelog(), self._changelog()) if self._writes_changelog else []
        data: list[DataFileMeta] = []
        try:
            for run in self._buffer.runs():
                data += _write_all(self.files.data(), map(self.files.file_rows, run))
        except BaseException:
            self.files.delete([*changelog, *data])
            raise
        self._changelog_files += changelog
        self._added(data)

    def _added(self, files: Sequence[DataFileMeta]) -> None:
        self._new_files += files
        if self._compactor is not None and files:
            self._compactor.added(files)

    def _changelog(self) -> Iterator[pa.RecordBatch]:
        """Return every row that arrived, ordered by key and arrival."""
        return map(self.files.file_rows, self._buffer.rows_in_arrival_order())


class UncompactedBucket:
    """The part of a `BucketWriter` that has nothing to do for a bucket that is not compacted while it is written."""

    def increment_settled(self) -> None:
        """Do nothing: files that were handed over are not remembered."""

    def cancel_compaction(self) -> None: ...

    @property
    def is_compaction_stale(self) -> bool:
        return False

    def reset_compaction(self, bucket: RestoredBucket) -> None: ...

    def compact_level_0(self) -> CompactResult:
        return CompactResult()


class AppendBucketWriter(UncompactedBucket):
    """Writes rows to files in order of arrival. A file continues over several flushes, until a commit takes it."""

    def __init__(self, context: TableContext, files: BucketFiles, next_sequence_number: int) -> None:
        self._table_columns = list(context.schema.names)
        self._files = files
        self.buffered = BufferedRows()
        self._open: RollingFileWriter | None = None
        self._new_files: list[DataFileMeta] = []
        self.next_sequence_number = next_sequence_number
        self._lock = env.Lock()

    def write(self, rows: pa.RecordBatch) -> None:
        with self._lock:
            self.buffered.add(rows.select(self._table_columns))

    def flush(self) -> None:
        with self._lock:
            self._flush()

    def flush_memory(self) -> None:
        self.flush()

    def prepare_commit(self, *, wait_compaction: bool = False, full_compaction: bool = False) -> None:
        with self._lock:
            self._flush()
            if self._open is not None:
                self._new_files += self._closed(self._open)
                self._open = None

    @property
    def may_compact_long(self) -> bool:
        return False

    def begin_compaction(
        self, *, wait_compaction: bool = False, full_compaction: bool = False
    ) -> LongCompaction | None:
        return None

    def take_increment(self) -> CommitIncrement:
        with self._lock:
            increment = CommitIncrement(tuple(self._new_files))
            self._new_files = []
            return increment

    def set_next_sequence_number(self, next_sequence_number: int) -> None:
        self.next_sequence_number = max(self.next_sequence_number, next_sequence_number)

    @property
    def is_idle(self) -> bool:
        return not self.buffered.batches and self._open is None and not self._new_files

    def uncommitted(self) -> Iterator[pa.RecordBatch]:
        raise AssertionError("rows of an append table have no key to be looked up by")

    def abort(self) -> None:
        with self._lock:
            self.buffered.clear()
            open_file, self._open = self._open, None
            new_files, self._new_files = self._new_files, []
            if open_file is not None:
                open_file.abort()
            self._files.delete(new_files)

    def _flush(self) -> None:
        if not self.buffered.batches:
            return
        if self._open is None:
            self._open = self._new_file_writer()
        for batch in self.buffered.batches:
            self._write_batch(self._open, batch)
        self.buffered.clear()

    def _new_file_writer(self) -> RollingFileWriter:
        return self._files.data()

    def _closed(self, output: RollingFileWriter) -> Sequence[DataFileMeta]:
        return output.close()

    def _write_batch(self, output: RollingFileWriter, batch: pa.RecordBatch) -> None:
        output.write(batch, first_sequence_number=self.next_sequence_number)
        self.next_sequence_number += batch.num_rows


def _write_all(writer: RollingFileWriter, batches: Iterator[pa.RecordBatch]) -> list[DataFileMeta]:
    try:
        for batch in batches:
            writer.write(batch)
        return writer.close()
    except BaseException:
        writer.abort()
        raise
