"""Takes the rows of one table and returns commit messages.

Source: Java `table/sink/TableWriteImpl.java`, `operation/AbstractFileStoreWrite.java`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.errors import BadInput, CommitConflict, TidelakeError
from tidelake.storage.base.threads import map_on_cores, map_to_end
from tidelake.storage.commit.commit_message import CommitMessage
from tidelake.storage.commit.owner_process import OwnerProcess
from tidelake.storage.commit.uncommitted_files import check_files_exist, delete_uncommitted_files
from tidelake.storage.fileio.requests import is_remote
from tidelake.storage.files.partition_times import partition_check
from tidelake.storage.merge.merge_functions import check_row_kinds, merge_function_of
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.format import BATCH_COMMIT_IDENTIFIER
from tidelake.storage.model.option_support import check_supported
from tidelake.storage.model.options import Operation
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types.row_kinds import is_retract, row_kinds
from tidelake.storage.write.assigners import BucketAssigner, bucket_assigner_of
from tidelake.storage.write.bucket_files import BucketFiles
from tidelake.storage.write.bucket_router import BucketRouter, RoutedRows, split_by_group
from tidelake.storage.write.bucket_states import BucketEvent, BucketState
from tidelake.storage.write.compactor import CompactorFactory, LongCompaction, compactor_factory_of
from tidelake.storage.write.due_compactions import DueCompactions
from tidelake.storage.write.memory_budget import MemoryBudget, pieces
from tidelake.storage.write.open_buckets import OpenBucket, OpenBuckets
from tidelake.storage.write.restored_table import RestoredState
from tidelake.storage.write.row_converter import RowConverter
from tidelake.storage.write.small_flush import flush_small_buckets

_FLUSHES_MAX: Final = 8  # at the same time, in a store
_FLUSH_BYTES_MAX: Final = 64 << 20  # of rows that they hold together, if more than one a core


class TableWriter:
    """Buffers rows by bucket; `prepare_commit` turns them into durable files that are not visible yet.

    memory: shared with other writers of the process; None: an own budget from option `write-buffer-size`.
    spill_directory: for rows that leave memory before their flush; None: the system's directory for temporary files.
    compactor_factory: compacts buckets during writing; None: all runs stay on level 0.
    replaces: commits will overwrite, so the old content of buckets is ignored, and may have another number of buckets.
        New rows are compacted before they are committed, if readers would not see them on level 0.
    in_full: with `replaces`: they are compacted in any case, so that each key is in one file.
    bootstraps: the table is empty, and one commit (`TableCommit.commit_to_empty`) brings its first rows, which go
        sorted to the highest level. Such a writer takes no deletes, and needs no `compactor_factory`.
    bucket_assigner: chooses the bucket of each row; None: the assigner of the table's bucket mode.
    restored: the state of the buckets that will be written; None: it is read when the first row arrives.
    known_snapshot: returns the newest snapshot that the writer's commits know of; None if they know none. So the store
        need not be asked for it when a bucket is opened again.

    Call it from one thread at a time, in the process that created it. After any error except BadInput of `write` and
    `route` the writer can't be used: open another one, and write again what was not committed.
    """

    def __init__(
        self,
        context: TableContext,
        *,
        memory: MemoryBudget | None = None,
        spill_directory: str | None = None,
        compactor_factory: CompactorFactory | None = None,
        replaces: bool = False,
        in_full: bool = False,
        bootstraps: bool = False,
        bucket_assigner: BucketAssigner | None = None,
        restored: RestoredState | None = None,
        known_snapshot: Callable[[], Snapshot | None] = lambda: None,
    ) -> None:
        check_supported(context, Operation.WRITE)
        self._context = context
        self._row_converter = RowConverter(context.schema, context.options, context.name, location=context.location)
        self._assigner = bucket_assigner or bucket_assigner_of(context, spill_directory, replaces=replaces)
        self._router = BucketRouter(context.schema, self._assigner, partition_check(context))
        self._merge_function = merge_function_of(context) if context.schema.has_primary_key else None
        self._memory = memory or MemoryBudget(context.options.write_buffer_size_bytes)
        compactor_of = compactor_factory_of(context, compactor_factory, replaces=replaces, in_full=in_full)
        given = RestoredState() if replaces else restored
        self._buckets = OpenBuckets(
            context,
            self._merge_function,
            self._memory,
            spill_directory,
            compactor_of,
            given,
            known_snapshot,
            replaces=replaces,
            bootstraps=bootstraps,
        )
        self._bootstraps = bootstraps
        self._compacts_replaced = replaces and compactor_of is not None
        self._due = DueCompactions(context, self._buckets, replaces=replaces)
        self._failure: BaseException | None = None
        self._owner = OwnerProcess(f"{context.name}: a writer")
        self._is_closed = False

    def write(self, rows: pa.RecordBatch | pa.Table) -> None:
        """Write rows; columns are matched by name. Optional int8 column `_VALUE_KIND`: 0 +I, 1 -U, 2 +U, 3 -D.

        Rows keep their order. Raises BadInput if they don't fit the table: then none of them were written.
        """
        batches = self._row_converter.batches(rows)
        self._check_usable()
        for batch in [self._converted(batch) for batch in batches]:
            for piece in pieces(batch):
                self.add(self._router.routed(piece), piece)
                self.make_room()

    def give_up(self, error: BaseException) -> None:
        """End the writer: a part of the rows of one call was written, and must not be committed without the others."""
        self._failure = error

    def write_routed(self, rows: pa.RecordBatch, keys: Sequence[BucketId], buckets: NDArray[np.integer[Any]]) -> None:
        """Do the same as `write` for n rows that were converted and routed elsewhere.

        rows: in the form of `RowConverter`.
        buckets (n,): for each row the index of its bucket in `keys`.
        """
        self._check_usable()
        self._check_row_kinds(rows)
        start = 0
        for piece in pieces(rows):
            groups = buckets[start : start + piece.num_rows]
            parts = split_by_group(piece, groups, len(keys))
            self.add(RoutedRows([(keys[group], part) for group, part in parts]), piece)
            self.make_room()
            start += piece.num_rows

    def route(self, rows: pa.RecordBatch) -> RoutedRows:
        """Do the first part of `write`. It stores nothing and never waits. Raises BadInput as `write` does."""
        return self._router.routed(self._converted(rows))

    @property
    def reads_files(self) -> bool:
        """Whether `route` and `add` may read files for the next rows, even if no bucket is opened."""
        return self._assigner.reads_files

    @property
    def is_restored(self) -> bool:
        """Whether the state of the table was read. Opening a bucket then asks a store for nothing, or little."""
        return self._buckets.is_restored

    def restore(self) -> None:
        """Read the state of the table ahead of the first row. After an error, the first row reads it."""
        self._check_usable()
        self._buckets.restored()

    def opens_buckets(self, routed: RoutedRows) -> bool:
        """Whether `add` must read the table first."""
        return not self._assigner.is_ready or not all(self._buckets.has(bucket) for bucket, _ in routed.parts)

    def add(self, routed: RoutedRows, rows: pa.RecordBatch | None = None) -> None:
        """Do the second part: stores rows in memory, even if it is full. With `rows`, large rows wait for room."""
        with self._fatal_errors():
            if rows is not None:
                self._memory.make_room_for(rows)
            for bucket, part in self._router.parts(routed):
                record = self._buckets.open(bucket)
                record.write(part)
                self._memory.grew(record.opened)

    @property
    def needs_room(self) -> bool:
        """Whether `make_room` must be called before more rows are added."""
        return self._memory.needs_rebalance

    def make_room(self) -> None:
        """Flush full buffers, then flush or spill the largest ones, of any table, until all fit into memory. Waits for
        disks, stores, and compactions that are late.
        """
        with self._fatal_errors():
            self._memory.rebalance()

    def prepare_commit(
        self, identifier: int = BATCH_COMMIT_IDENTIFIER, *, is_last: bool = False
    ) -> list[CommitMessage]:
        """Flush all buckets, in threads. Returns a message for each bucket with new files, and hands the files over.
        After an error, nothing was handed over. Idle buckets are closed: a table with one partition per day must not
        keep all of them open. Running compactions join a later commit. The call waits for them if no later commit may
        follow (a one-off commit or is_last), or if options require it: `commit.force-compact`,
        `full-compaction.delta-commits`, `lookup-wait`. Raises CommitConflict if somebody deleted one of the files.

        identifier: the identifier of the commit.
        is_last: this writer ends, and is one of many.
        """
        waits = is_last or identifier == BATCH_COMMIT_IDENTIFIER or self._due.wait_for_lookups
        with self._fatal_errors():
            full = self._due.in_full(identifier, only_written=is_last)
            if not self._compacts_replaced and not is_last:
                self._due.open_with_level_0()
            if not (opened := list(self._buckets)):
                return []
            if self._compacts_replaced:
                full = set(opened)

            def prepare(bucket: OpenBucket) -> None:
                bucket.opened.prepare_commit(wait_compaction=waits, full_compaction=bucket in full)

            flush_small_buckets(self._context, self._merge_function, [bucket.opened for bucket in opened])
            self._for_each(prepare, opened)
            # Only after all were prepared: if one fails, `abort` deletes the files of the others, too.
            messages = [*self._assigner.prepare_commit(identifier)]
            messages += [message for bucket in opened if (message := self._handed_over(bucket)) is not None]
            for bucket in full:
                bucket.is_full_prepared = True
            try:
                check_files_exist(self._context, messages)
            except CommitConflict:
                delete_uncommitted_files(self._context, messages)
                raise
            return messages

    def begin_compactions(self, identifier: int) -> list[LongCompaction]:
        """Begin the compactions that `prepare_commit` with this identifier would wait for. Returns those that are long.

        A caller with other tables leaves this one out of its commit until they are done; rows may be written meanwhile.
        """
        with self._fatal_errors():
            if self._compacts_replaced:
                return []
            full = self._due.in_full(identifier, only_written=False)
            self._due.open_with_level_0()
            large = [bucket for bucket in self._buckets if bucket.opened.may_compact_long]
            begun: list[LongCompaction] = []

            def begin(bucket: OpenBucket) -> None:
                compaction = bucket.opened.begin_compaction(
                    wait_compaction=self._due.wait_for_lookups, full_compaction=bucket in full
                )
                if compaction is not None:
                    begun.append(compaction)

            if large:
                self._for_each(begin, large)
            return begun

    def _for_each(self, prepare: Callable[[OpenBucket], None], buckets: Sequence[OpenBucket]) -> None:
        """Prepare buckets in threads: one a core, or more if files go to a store and the rows of each are few."""
        at_once = os.cpu_count() or 1
        if len(buckets) > 1 and is_remote(self._context.location):
            most_bytes = max(bucket.opened.buffered.nbytes for bucket in buckets)
            at_once = max(at_once, min(_FLUSHES_MAX, _FLUSH_BYTES_MAX // max(1, most_bytes)))
            map_to_end(prepare, buckets, at_once)
        else:
            map_on_cores(prepare, buckets)

    def _handed_over(self, bucket: OpenBucket) -> CommitMessage | None:
        """Return the files of a prepared bucket; None if it has none. Then it is closed if nothing is left to do."""
        increment = bucket.opened.take_increment()
        if self._compacts_replaced:
            increment, unneeded = increment.with_compacted_as_new_files()
            BucketFiles(self._context, bucket.bucket).discard(unneeded)
        bucket.prepared(increment)
        if not increment.is_empty:
            return self._buckets.message(bucket, increment)
        if bucket.state is BucketState.OPEN and bucket.opened.is_idle:
            self._buckets.close(bucket)
        return None

    def committed(self, snapshot_id: int) -> None:
        """Learn that the files of `prepare_commit` are in this snapshot, and no other commit changed their buckets.

        Other buckets keep their base: others may have written to them, which their sequence numbers don't include.
        Raises nothing, because the commit is final: the writer's next call raises what failed here.
        """
        self._buckets.settle(BucketEvent.COMMITTED, snapshot_id)
        self._assigner.committed(snapshot_id)
        self._after_commit()

    def dropped(self) -> None:
        """Learn that the files of `prepare_commit` will not be committed: their identifier is committed already."""
        self._buckets.settle(BucketEvent.DROPPED)
        self._assigner.dropped()
        self._after_commit()

    def _after_commit(self) -> None:
        try:
            for bucket in self._buckets if self._compacts_replaced else ():
                self._buckets.close(bucket).abort()  # the next commit replaces everything that it knows
            self._buckets.restore_lost()
        except Exception as error:
            self._failure = error

    def set_next_sequence_numbers(self, next_numbers: Mapping[BucketId, int]) -> None:
        """Learn that the rows of `prepare_commit` will be committed in other files, with higher sequence numbers.

        next_numbers: for each bucket concerned, the number of its next row. No row was written in the meantime.
        """
        self._buckets.continue_at(next_numbers)

    def restart_compaction(self, messages: Sequence[CommitMessage]) -> None:
        """Restart the compaction of these buckets from the table's files, which include files unknown to it."""
        for message in messages:
            if message.increment.compacted.before:
                self._buckets.lost(message.bucket)

    def compact_level_0(self) -> list[CommitMessage]:
        """Return compactions to publish after a commit whose compaction was lost, by a conflict or a crash. Call it
        again after each commit until it returns none.

        Only if commits wait for lookups: readers don't see the rows that stayed on level 0. Otherwise the next commit
        compacts them.
        """
        if self._failure is not None:
            return []
        self._check_usable()
        return self._due.of_level_0()

    def cancel_compactions(self) -> None:
        """Stop compaction. Running compactions soon end without a result, and waiting callers continue. Fast; may be
        called from any thread. Writing and committing are still possible.
        """
        self._buckets.cancel_compactions()

    def uncommitted(self) -> Iterator[pa.RecordBatch]:
        """Yield all written rows that are in no snapshot: table columns, `_SEQUENCE_NUMBER`, `_VALUE_KIND`.

        Only for primary-key tables; batches of one bucket come oldest first. A bucket is opened after the rows of the
        previous one were read. Must not be continued after a commit or `abort`.
        """
        for writer in [bucket.opened for bucket in self._buckets]:
            yield from writer.uncommitted()

    def abort(self) -> None:
        """Drop all rows and files that `prepare_commit` did not hand over, and close the writer. May be called again.
        Raises the first error of deleting files, after it tried all.

        Does nothing in a process that was forked from the writer's process.
        """
        if not self.is_in_owner_process:
            return
        self._is_closed = True
        self._buckets.abort()

    @property
    def is_in_owner_process(self) -> bool:
        """False in a child process after a fork: rows and files belong to the parent."""
        return self._owner.is_current_process

    def _converted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        converted = self._row_converter.to_table_schema(batch)
        self._check_row_kinds(converted)
        return converted

    def _check_row_kinds(self, converted: pa.RecordBatch) -> None:
        if self._merge_function is not None:
            check_row_kinds(self._merge_function, row_kinds(converted), self._context.name)
        if self._bootstraps and is_retract(row_kinds(converted)).any():
            raise BadInput(
                f"{self._context.name}: a bootstrap takes the rows of a dump, and these have deletes (row kind -U or "
                "-D). Leave deleted rows out of the dump, or write these rows with append()"
            )

    def _check_usable(self) -> None:
        self._owner.check()
        if self._is_closed:
            raise BadInput(
                f"{self._context.name}: this writer is closed, and its uncommitted rows are dropped. Open a new "
                "writer, and write these rows again"
            )

    @contextmanager
    def _fatal_errors(self) -> Iterator[None]:
        self._check_usable()
        if self._failure is not None:
            raise TidelakeError(
                f"{self._context.name}: this writer failed before ({self._failure}). Nothing was committed since. "
                "Open a new writer, and write the uncommitted rows again"
            ) from self._failure
        try:
            yield
        except BaseException as e:
            self._failure = e
            raise
