"""Takes the rows of one table and returns commit messages.

Source: Java `table/sink/TableWriteImpl.java`, `operation/AbstractFileStoreWrite.java`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.storage.base.errors import BadInput, TidelakeError
from tidelake.storage.base.threads import map_on_cores
from tidelake.storage.commit.commit_message import CommitMessage
from tidelake.storage.commit.owner_process import OwnerProcess
from tidelake.storage.files.data_file import is_fully_compacted
from tidelake.storage.files.partition_times import partition_check
from tidelake.storage.merge.merge_functions import check_row_kinds, merge_function_of
from tidelake.storage.merge.merge_reader import MergeOrder
from tidelake.storage.model.bucketing import Bucketing, BucketMode
from tidelake.storage.model.format import BATCH_COMMIT_IDENTIFIER, POSTPONE_BUCKET
from tidelake.storage.model.option_support import check_supported
from tidelake.storage.model.options import Operation
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types.row_kinds import row_kinds
from tidelake.storage.write.assigners import BucketAssigner, bucket_assigner_of
from tidelake.storage.write.bucket_files import BucketFiles
from tidelake.storage.write.bucket_router import BucketKey, BucketRouter, RoutedRows, split_by_group
from tidelake.storage.write.bucket_writer import BucketWriter, PrimaryKeyBucketWriter
from tidelake.storage.write.commit_increment import CommitIncrement, with_compacted_as_new_files
from tidelake.storage.write.compactor import CompactorFactory, RestoredBucket, compactor_of_replaced
from tidelake.storage.write.evolution.tracked_bucket_writer import append_bucket_writer
from tidelake.storage.write.memory_budget import MemoryBudget, pieces
from tidelake.storage.write.postpone.postpone_writer import PostponeBucketWriter
from tidelake.storage.write.restored_table import RestoredState, RestoredTable, restore_bucket, restore_files
from tidelake.storage.write.row_converter import RowConverter
from tidelake.storage.write.small_flush import flush_small_buckets


class TableWriter:
    """Buffers rows by bucket; `prepare_commit` turns them into durable files that are not visible yet.

    memory: shared with other writers of the process; None: an own budget from option `write-buffer-size`.
    spill_directory: for rows that leave memory before their flush; None: the system's directory for temporary files.
    compactor_factory: compacts buckets during writing; None: all runs stay on level 0.
    replaces: commits will overwrite, so the old content of buckets is ignored, and may have another number of buckets.
        New rows are compacted before they are committed, if readers would not see them on level 0.
    bucket_assigner: chooses the bucket of each row; None: the assigner of the table's bucket mode.
    restored: the state of the buckets that will be written; None: it is read when the first row arrives.

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
        bucket_assigner: BucketAssigner | None = None,
        restored: RestoredState | None = None,
    ) -> None:
        check_supported(context, Operation.WRITE)
        self._context = context
        self._bucketing = Bucketing.of(context.schema, context.options)
        self._row_converter = RowConverter(context.schema, context.options, context.name, location=context.location)
        self._assigner = bucket_assigner or bucket_assigner_of(context, spill_directory, replaces=replaces)
        self._router = BucketRouter(context.schema, self._assigner, partition_check(context))
        self._merge_function = merge_function_of(context) if context.schema.has_primary_key else None
        self._memory = memory or MemoryBudget(context.options.write_buffer_size_bytes)
        self._spill_directory = spill_directory
        others_compact = context.options.write_only or self._bucketing.mode is BucketMode.POSTPONE
        self._compactor_of = None if others_compact and not replaces else compactor_factory
        if replaces and compactor_factory is not None:
            self._compactor_of = compactor_of_replaced(compactor_factory, context)
        self._compacts_replaced = replaces and self._compactor_of is not None
        self._given = RestoredState() if replaces else restored
        self._state: RestoredTable | None = None
        self._restored_buckets: dict[BucketKey, RestoredBucket] = {}  # content of buckets in the snapshot of `_state`
        self._bases: dict[BucketKey, int | None] = {}  # base snapshots, if not that of `_state`
        self._prepared: list[CommitMessage] = []
        self._lost_compactions: set[BucketKey] = set()
        self._buckets_with_level_0: set[BucketKey] = set()  # buckets that may have such rows; see `compact_level_0`
        self._waits_for_lookups = context.options.needs_lookup and context.options.lookup_wait
        compacts_all = self._compactor_of is not None and not replaces
        self._full_every = context.options.full_compaction_delta_commits if compacts_all else None
        self._has_opened_level_0 = False  # see `_open_buckets_with_level_0`
        self._not_full: set[BucketKey] = set()  # buckets that need a full compaction
        self._full_prepared: set[BucketKey] = set()  # those that the last commit compacted in full
        self._next_sequence_numbers: dict[BucketKey, int] = {}
        self._buckets: dict[BucketKey, BucketWriter] = {}
        self._failure: BaseException | None = None
        self._owner = OwnerProcess(f"{context.name}: a writer")
        self._is_closed = False

    def write(self, rows: pa.RecordBatch | pa.Table) -> None:
        """Writes rows; columns are matched by name. Optional int8 column `_VALUE_KIND`: 0 +I, 1 -U, 2 +U, 3 -D.

        Rows keep their order. Raises BadInput if they don't fit the table: then none of them were written.
        """
        batches = self._row_converter.batches(rows)
        self._check_usable()
        for batch in [self._converted(batch) for batch in batches]:
            for piece in pieces(batch):
                self.add(self._router.routed(piece), piece)
                self.make_room()

    def write_routed(self, rows: pa.RecordBatch, keys: Sequence[BucketKey], buckets: NDArray[np.integer[Any]]) -> None:
        """Does the same as `write` for n rows that were converted and routed elsewhere.

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
        """Does the first part of `write`. It stores nothing and never waits. Raises BadInput as `write` does."""
        return self._router.routed(self._converted(rows))

    @property
    def reads_files(self) -> bool:
        """Whether `route` and `add` may read files for the next rows, even if no bucket is opened."""
        return self._assigner.reads_files

    def opens_buckets(self, routed: RoutedRows) -> bool:
        """Whether `add` must read the table first."""
        return not self._assigner.is_ready or any(key not in self._buckets for key, _ in routed.parts)

    def add(self, routed: RoutedRows, rows: pa.RecordBatch | None = None) -> None:
        """Does the second part: stores rows in memory, even if it is full. With `rows`, large rows wait for room."""
        with self._fatal_errors():
            if rows is not None:
                self._memory.make_room_for(rows)
            for key, part in self._router.parts(routed):
                self._bucket(key).write(part)
                if self._full_every is not None:
                    self._not_full.add(key)

    @property
    def is_memory_short(self) -> bool:
        """Whether `make_room` has something to do."""
        return self._memory.is_exceeded

    def make_room(self) -> None:
        """Flushes or spills the largest buffers, of any table, until all fit into memory. Waits for disks, stores, and
        compactions that are late.
        """
        with self._fatal_errors():
            self._memory.rebalance()

    def prepare_commit(
        self, identifier: int = BATCH_COMMIT_IDENTIFIER, *, is_last: bool = False
    ) -> list[CommitMessage]:
        """Flushes all buckets, in threads. Returns a message for each bucket with new files, and hands the files over.
        After an error, nothing was handed over. Idle buckets are closed: a table with one partition per day must not
        keep all of them open. Running compactions join a later commit. The call waits for them if no later commit may
        follow (a one-off commit or is_last), or if options require it: `commit.force-compact`,
        `full-compaction.delta-commits`, `lookup-wait`.

        identifier: the identifier of the commit.
        is_last: this writer ends, and is one of many.
        """
        waits = is_last or identifier == BATCH_COMMIT_IDENTIFIER or self._waits_for_lookups
        with self._fatal_errors():
            full = self._due_for_full_compaction(identifier, only_written=is_last)
            if self._compacts_replaced:
                full = set(self._buckets)
            elif not is_last:
                self._open_buckets_with_level_0()
            if not (writers := list(self._buckets.items())):
                return []

            def prepare(item: tuple[BucketKey, BucketWriter]) -> None:
                item[1].prepare_commit(wait_compaction=waits, full_compaction=item[0] in full)

            flush_small_buckets(self._context, self._merge_function, [writer for _, writer in writers])
            map_on_cores(prepare, writers)
            # Only after all were prepared: if one fails, `abort` deletes the files of the others, too.
            messages = [*self._assigner.prepare_commit(identifier)]
            for key, writer in writers:
                increment = writer.take_increment()
                if self._compacts_replaced:
                    increment, unneeded = with_compacted_as_new_files(increment)
                    BucketFiles(self._context, key).discard(unneeded)
                if not increment.is_empty:
                    messages.append(self._message(key, increment))
                elif writer.is_idle:
                    self._close_bucket(key, writer)
            self._prepared += messages
            self._full_prepared |= full
            return messages

    def committed(self, snapshot_id: int) -> None:
        """Called when the files of `prepare_commit` are in this snapshot, and no other commit changed their buckets.

        Other buckets keep their base: others may have written to them, which their sequence numbers don't include.
        Raises nothing, because the commit is final: the writer's next call raises what failed here.
        """
        self._bases.update({BucketKey(m.partition, m.bucket): snapshot_id for m in self._prepared if m.new_files})
        self._assigner.committed(snapshot_id)
        self._reset_after_commit()

    def dropped(self) -> None:
        """Called when the files of `prepare_commit` will not be committed: their identifier is committed already."""
        self._assigner.dropped()
        self._lost_compactions |= {BucketKey(m.partition, m.bucket) for m in self._prepared}
        self._reset_after_commit()

    def set_next_sequence_numbers(self, next_numbers: Mapping[BucketKey, int]) -> None:
        """Called when the rows of `prepare_commit` will be committed in other files, with higher sequence numbers.

        next_numbers: for each bucket concerned, the number of its next row. No row was written in the meantime.
        """
        self._lost_compactions |= next_numbers.keys()  # their compactions refer to the old files
        for key, number in next_numbers.items():
            self._next_sequence_numbers[key] = max(number, self._next_sequence_numbers.get(key, 0))
            if key in self._buckets:
                self._buckets[key].set_next_sequence_number(number)

    def restart_compaction(self, messages: Sequence[CommitMessage]) -> None:
        """Restarts the compaction of these buckets from the table's files, which include files unknown to it."""
        self._lost_compactions |= {BucketKey(m.partition, m.bucket) for m in messages if m.compact_before}

    def compact_level_0(self) -> list[CommitMessage]:
        """Returns compactions to publish after a commit whose compaction was lost, by a conflict or a crash. Call it
        again after each commit until it returns none.

        Only if commits wait for lookups: readers don't see the rows that stayed on level 0. Otherwise the next commit
        compacts them.
        """
        lost, left = set(self._lost_compactions), self._buckets_with_level_0 | self._lost_compactions
        self._buckets_with_level_0 = set()
        if self._compactor_of is None or not self._waits_for_lookups or self._failure is not None:
            return []
        self._check_usable()
        self._lost_compactions |= left  # kept in case of an error
        messages = []
        for key in left:
            bucket = self._bucket(key)
            if key in lost:
                bucket.reset_compaction(restore_bucket(self._context, key))
            if not (compacted := bucket.compact_level_0()).is_empty:
                messages.append(self._message(key, CommitIncrement(compacted=compacted)))
                self._buckets_with_level_0.add(key)
        self._lost_compactions -= left
        return messages

    def cancel_compactions(self) -> None:
        """Stops compaction. Running compactions soon end without a result, and waiting callers continue. Fast; may be
        called from any thread. Writing and committing are still possible.
        """
        self._compactor_of = None
        for bucket in list(self._buckets.values()):
            bucket.cancel_compaction()

    def _reset_after_commit(self) -> None:
        self._prepared = []
        for key, bucket in list(self._buckets.items()) if self._compacts_replaced else ():
            bucket.abort()  # the next commit replaces everything that it knows
            self._close_bucket(key, bucket)
        for key, bucket in self._buckets.items():
            bucket.increment_settled()
            if bucket.is_compaction_stale:
                self._lost_compactions.add(key)
        try:
            for key in self._lost_compactions & self._buckets.keys():
                self._buckets[key].reset_compaction(restore_bucket(self._context, key))
        except Exception as error:
            self._failure = error
        self._not_full -= self._full_prepared - self._lost_compactions
        self._buckets_with_level_0 = self._lost_compactions & self._buckets.keys()
        self._full_prepared, self._lost_compactions = set(), set()

    def uncommitted(self) -> Iterator[pa.RecordBatch]:
        """Yields all written rows that are in no snapshot: table columns, `_SEQUENCE_NUMBER`, `_VALUE_KIND`.

        Only for primary-key tables; batches of one bucket come oldest first. A bucket is opened after the rows of the
        previous one were read. Must not be continued after a commit or `abort`.
        """
        for bucket in list(self._buckets.values()):
            yield from bucket.uncommitted()

    def abort(self) -> None:
        """Drops all rows and files that `prepare_commit` did not hand over, and closes the writer. May be called again.
        Raises the first error of deleting files, after it tried all.

        Does nothing in a process that was forked from the writer's process.
        """
        if not self.is_in_owner_process:
            return
        self._is_closed = True
        for bucket in self._buckets.values():
            self._memory.unregister(bucket)
        failure: Exception | None = None
        for bucket in self._buckets.values():
            try:
                bucket.abort()
            except Exception as error:
                failure = failure or error
        self._buckets = {}
        if failure is not None:
            raise failure

    @property
    def is_in_owner_process(self) -> bool:
        """False in a child process after a fork: rows and files belong to the parent."""
        return self._owner.is_current_process

    @property
    def held_bytes(self) -> int:
        return sum(bucket.held_bytes for bucket in self._buckets.values())

    def _converted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        converted = self._row_converter.to_table_schema(batch)
        self._check_row_kinds(converted)
        return converted

    def _check_row_kinds(self, converted: pa.RecordBatch) -> None:
        if self._merge_function is not None:
            check_row_kinds(self._merge_function, row_kinds(converted), self._context.name)

    def _bucket(self, key: BucketKey) -> BucketWriter:
        if key not in self._buckets:
            bucket = self._buckets[key] = self._open_bucket(key)
            if self._compactor_of is None:  # compactions were cancelled while this bucket was opened
                bucket.cancel_compaction()
            self._memory.register(bucket)
        return self._buckets[key]

    def _message(self, key: BucketKey, increment: CommitIncrement) -> CommitMessage:
        return CommitMessage(
            partition=key.partition,
            bucket=key.bucket,
            total_buckets=self._bucketing.total_buckets,
            new_files=increment.new_files,
            changelog_files=increment.changelog_files,
            compact_before=increment.compacted.before,
            compact_after=increment.compacted.after,
            compact_changelog=increment.compacted.changelog,
            base_snapshot_id=self._bases.get(key, self._restored().snapshot_id),
            compact_reason=increment.compacted.reason,
            compact_tombstones=increment.compacted.tombstones,
            known_files=increment.known_files,
            compact_new_index_files=increment.compacted.new_index_files,
            compact_deleted_index_files=increment.compacted.deleted_index_files,
        )

    def _due_for_full_compaction(self, identifier: int, *, only_written: bool) -> set[BucketKey]:
        """only_written: skip what earlier writers left, because its buckets may belong to other tasks."""
        every = self._full_every
        if self._compactor_of is None or every is None:
            return set()
        if identifier != BATCH_COMMIT_IDENTIFIER and identifier % every:
            return set()
        if not only_written:
            levels = self._context.options.num_levels
            self._restored()
            self._not_full |= {k for k, b in self._restored_buckets.items() if not is_fully_compacted(b.files, levels)}
        for key in self._not_full:
            self._bucket(key)
        return set(self._not_full)

    def _open_buckets_with_level_0(self) -> None:
        """Opens buckets with rows on level 0 that an earlier writer did not compact before it ended. Otherwise these
        rows and their changes would be invisible until the next write to their buckets.
        """
        if self._compactor_of is None or self._has_opened_level_0 or not self._context.options.needs_lookup:
            return
        self._restored()
        for key in [k for k, bucket in self._restored_buckets.items() if any(f.level == 0 for f in bucket.files)]:
            self._bucket(key)
        self._has_opened_level_0 = True

    def _close_bucket(self, key: BucketKey, writer: BucketWriter) -> None:
        self._memory.unregister(writer)
        self._next_sequence_numbers[key] = writer.next_sequence_number
        del self._buckets[key]

    def _open_bucket(self, key: BucketKey) -> BucketWriter:
        if key.bucket == POSTPONE_BUCKET:
            return PostponeBucketWriter(self._context, key)
        state = self._restored()
        state.check_total_buckets(key.partition, self._bucketing.total_buckets, self._context.name)
        next_sequence_number, files = self._next_sequence_numbers.get(key, 0), BucketFiles(self._context, key)
        if self._merge_function is None:
            return append_bucket_writer(self._context, files, next_sequence_number)
        factory = self._compactor_of  # another thread may set it to None at any time
        return PrimaryKeyBucketWriter(
            self._context,
            files,
            MergeOrder.of(self._context.schema.trimmed_primary_keys, self._context.options),
            self._merge_function,
            next_sequence_number,
            self._spill_directory,
            factory and factory(self._context, key, self._restored_bucket(key)),
        )

    def _restored_bucket(self, key: BucketKey) -> RestoredBucket:
        """Returns the content of a bucket that is opened."""
        state = self._restored()
        if (bucket := self._restored_buckets.pop(key, None)) is not None:
            return bucket
        if key not in state.next_sequence_numbers and key not in self._next_sequence_numbers:
            return RestoredBucket()  # it was empty, and this writer wrote nothing to it
        return restore_bucket(self._context, key)

    def _restored(self) -> RestoredTable:
        """Reads the table's state when it is first needed, so that opening a writer costs nothing."""
        if self._state is None:
            restored = self._given or restore_files(self._context, with_files=self._compactor_of is not None)
            self._state, self._restored_buckets = restored.table, dict(restored.buckets)
            self._next_sequence_numbers = dict(self._state.next_sequence_numbers)
        return self._state

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
