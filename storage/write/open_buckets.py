"""The buckets that a table writer writes to: one record for each, from its first row until the writer ends.

`bucket_states` has the life of a record. A closed bucket keeps its record: the next writer of the bucket continues its
sequence numbers, on the snapshot that they belong to.

Source: Java `operation/AbstractFileStoreWrite.java` (WriterContainer).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from tidelake.storage.commit.commit_increment import CommitIncrement
from tidelake.storage.commit.commit_message import CommitBase, CommitMessage
from tidelake.storage.files.data_file import is_fully_compacted
from tidelake.storage.merge.merge_functions import MergeFunction
from tidelake.storage.merge.merge_reader import MergeOrder
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.bucketing import Bucketing
from tidelake.storage.model.format import POSTPONE_BUCKET
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.storage.write.bootstrap_writer import BootstrapBucketWriter
from tidelake.storage.write.bucket_files import BucketFiles
from tidelake.storage.write.bucket_states import BucketEvent, BucketState, next_state
from tidelake.storage.write.bucket_writer import BucketWriter, PrimaryKeyBucketWriter
from tidelake.storage.write.compactor import CompactorFactory, RestoredBucket
from tidelake.storage.write.evolution.tracked_bucket_writer import append_bucket_writer
from tidelake.storage.write.memory_budget import MemoryBudget
from tidelake.storage.write.postpone.postpone_writer import PostponeBucketWriter
from tidelake.storage.write.restored_table import RestoredState, RestoredTable, restore_bucket, restore_files


@dataclass(slots=True, eq=False)
class OpenBucket:
    """One bucket of a table writer.

    base_id: the snapshot whose sequence numbers our rows continue; None: the table had none. Another writer's rows in a
        later snapshot are a conflict.
    next_sequence_number: that of the next writer's first row, while no writer is open.
    writer: None in state CLOSED, and in state LOST if no writer was open.
    needs_full: whether rows were written since its last full compaction, by us or an earlier writer.
    is_full_prepared: whether the last prepared commit compacted it in full.
    may_have_level_0: whether a commit may have left rows on level 0; see `due_compactions`.
    """

    bucket: BucketId
    base_id: int | None = None
    next_sequence_number: int = 0
    writer: BucketWriter | None = None
    state: BucketState = BucketState.CLOSED
    needs_full: bool = False
    is_full_prepared: bool = False
    may_have_level_0: bool = False
    _has_new_rows: bool = False  # in the files that were handed over

    @property
    def opened(self) -> BucketWriter:
        assert self.writer is not None, f"{self.bucket} has no writer"
        return self.writer

    def start_from(self, table: RestoredTable) -> None:
        self.base_id = table.snapshot_id
        self.next_sequence_number = table.next_sequence_numbers.get(self.bucket, 0)

    def happened(self, event: BucketEvent) -> None:
        """Raise IllegalBucketEvent, and change nothing, for an event that can't happen now."""
        self.state = next_state(self.state, event)

    def write(self, rows: pa.RecordBatch) -> None:
        self.opened.write(rows)
        self.happened(BucketEvent.WRITTEN)
        self.needs_full = True

    def prepared(self, increment: CommitIncrement) -> None:
        """Take the increment of a commit. Its files belong to the commit from now on."""
        self.happened(BucketEvent.EMPTY if increment.is_empty else BucketEvent.PREPARED)
        self._has_new_rows |= bool(increment.new_files)

    def settled(self, event: BucketEvent, snapshot_id: int | None) -> None:
        """Take the outcome of a prepared commit: COMMITTED, in a snapshot, or DROPPED.

        A bucket without new rows keeps its base: others may have written to it, which its numbers don't include.
        """
        if self.state in (BucketState.CLOSED, BucketState.OPEN, BucketState.WRITTEN):
            return  # it handed over nothing
        self.happened(event)
        if event is BucketEvent.COMMITTED and self._has_new_rows:
            self.base_id = snapshot_id
        self._has_new_rows = False
        if self.writer is not None:
            self.writer.increment_settled()

    def continue_at(self, next_sequence_number: int) -> None:
        """Learn that the rows that were handed over get other numbers, below this one. So do their files, to which
        compactions refer.
        """
        self.next_sequence_number = max(next_sequence_number, self.next_sequence_number)
        self.happened(BucketEvent.LOST)
        if self.writer is not None:
            self.writer.set_next_sequence_number(next_sequence_number)


class OpenBuckets:
    """The buckets of one table writer. Not thread-safe, except `cancel_compactions`.

    merge_function: None for an append table.
    compactor_of: None: buckets are not compacted.
    given: the state of the table; None: it is read when the first bucket is opened. So opening a table writer costs
        nothing.
    known: returns the newest snapshot that is known, which has all commits of this writer; None if none is known.
    replaces: the commits will overwrite.
    bootstraps: the table is empty, and its first rows go to the highest level.
    """

    def __init__(
        self,
        context: TableContext,
        merge_function: MergeFunction | None,
        memory: MemoryBudget,
        spill_directory: str | None,
        compactor_of: CompactorFactory | None,
        given: RestoredState | None,
        known: Callable[[], Snapshot | None] = lambda: None,
        *,
        replaces: bool = False,
        bootstraps: bool = False,
    ) -> None:
        self._context = context
        self._bootstraps = bootstraps
        self._replaces = replaces
        self._total_buckets = Bucketing.of(context.schema, context.options).total_buckets
        self._merge_function = merge_function
        self._memory = memory
        self._spill_directory = spill_directory
        self._compactor_of = compactor_of
        self._given = given
        self._known = known
        self._table: RestoredTable | None = None
        self._unopened: dict[BucketId, RestoredBucket] = {}  # content of other buckets in the snapshot of `_table`
        self._records: dict[BucketId, OpenBucket] = {}

    def __iter__(self) -> Iterator[OpenBucket]:
        """Yield the buckets that have a writer."""
        return iter([record for record in self.records() if record.writer is not None])

    @property
    def are_compacted(self) -> bool:
        return self._compactor_of is not None

    def has(self, bucket: BucketId) -> bool:
        """Return whether the bucket has a writer."""
        return (record := self._records.get(bucket)) is not None and record.writer is not None

    def open(self, bucket: BucketId) -> OpenBucket:
        """Return the bucket with a writer. Opening one may read the table. Raises BadInput if it can't be written."""
        is_new = bucket not in self._records
        record = self._record(bucket)
        if record.writer is not None:
            return record
        table = self.restored()
        if bucket.bucket != POSTPONE_BUCKET:
            table.check_total_buckets(bucket.partition, self._total_buckets, self._context.name)
        record.writer = writer = self._open_writer(record, is_new=is_new)
        record.happened(BucketEvent.OPENED)
        if record.state is BucketState.LOST:
            record.happened(BucketEvent.RESTORED)  # the writer knows the files of now
        if self._compactor_of is None:  # compactions were cancelled while this bucket was opened
            writer.cancel_compaction()
        self._memory.register(writer)
        return record

    def close(self, record: OpenBucket) -> BucketWriter:
        """Forget the writer, and return it."""
        record.happened(BucketEvent.CLOSED)
        writer, record.writer = record.opened, None
        self._memory.unregister(writer)
        record.next_sequence_number = writer.next_sequence_number
        return writer

    def message(self, record: OpenBucket, increment: CommitIncrement) -> CommitMessage:
        return CommitMessage(record.bucket, increment, CommitBase(record.base_id, self._total_buckets))

    def records(self) -> list[OpenBucket]:
        """Return all buckets with a record; not all of them have a writer."""
        return list(self._records.values())

    @property
    def is_restored(self) -> bool:
        """Whether the state of the table was read."""
        return self._table is not None

    def unopened_incomplete(self) -> list[BucketId]:
        """Return the buckets, not opened yet, with files that an earlier writer did not compact in full."""
        self.restored()
        levels = self._context.options.num_levels
        return [bucket for bucket, found in self._unopened.items() if not is_fully_compacted(found.files, levels)]

    def unopened_with_level_0(self) -> list[BucketId]:
        """Return the buckets, not opened yet, with rows on level 0."""
        self.restored()
        return [bucket for bucket, found in self._unopened.items() if any(file.level == 0 for file in found.files)]

    # ------------------------------------------------------------ the outcome of a commit

    def settle(self, event: BucketEvent, snapshot_id: int | None = None) -> None:
        """Take the outcome of the last prepared commit: COMMITTED, in a snapshot, or DROPPED."""
        for record in self._records.values():
            record.settled(event, snapshot_id)

    def lost(self, bucket: BucketId) -> None:
        """Learn that a compaction of the bucket was lost to another commit."""
        self._record(bucket).happened(BucketEvent.LOST)

    def continue_at(self, next_numbers: Mapping[BucketId, int]) -> None:
        """See `TableWriter.set_next_sequence_numbers`."""
        if self._table is not None:  # otherwise the numbers will be read from the table
            for bucket, number in next_numbers.items():
                self._record(bucket).continue_at(number)

    def restore_lost(self) -> None:
        """Read the files of all lost buckets again, so that their compactions continue from them."""
        for record in self:
            if record.opened.is_compaction_stale:
                record.happened(BucketEvent.LOST)
        for record in self._records.values():
            if record.is_full_prepared and record.state is not BucketState.LOST:
                record.needs_full = False
            record.is_full_prepared = False
            record.may_have_level_0 = record.writer is not None and record.state is BucketState.LOST
        for record in self.records():
            if record.state is BucketState.LOST:
                self.restore(record)

    def restore(self, record: OpenBucket) -> None:
        """Read the files of a lost bucket again. Without a writer, the next one reads them."""
        if record.writer is None:
            self._unopened.pop(record.bucket, None)
            record.happened(BucketEvent.CLOSED)
        else:
            latest = self._context.snapshots.latest()
            record.writer.reset_compaction(restore_bucket(self._context, record.bucket, latest))
            record.happened(BucketEvent.RESTORED)

    def cancel_compactions(self) -> None:
        """See `TableWriter.cancel_compactions`."""
        self._compactor_of = None
        for record in self.records():
            if (writer := record.writer) is not None:
                writer.cancel_compaction()

    def abort(self) -> None:
        """Drop all rows and files that were not handed over. Raises the first error of deleting files, after it tried
        all. May be called again.
        """
        writers = [record.opened for record in self]
        self._records = {}
        for writer in writers:
            self._memory.unregister(writer)
        failure: Exception | None = None
        for writer in writers:
            try:
                writer.abort()
            except Exception as error:
                failure = failure or error
        if failure is not None:
            raise failure

    # ------------------------------------------------------------ records and writers

    def _record(self, bucket: BucketId) -> OpenBucket:
        if bucket not in self._records:
            self._records[bucket] = record = OpenBucket(bucket)
            if self._table is not None:
                record.start_from(self._table)
        return self._records[bucket]

    def _open_writer(self, record: OpenBucket, *, is_new: bool) -> BucketWriter:
        context, bucket = self._context, record.bucket
        if bucket.bucket == POSTPONE_BUCKET:
            return PostponeBucketWriter(context, bucket)
        files = BucketFiles(context, bucket)
        if self._merge_function is None:
            return append_bucket_writer(context, files, record.next_sequence_number)
        order = MergeOrder.of(context.schema.trimmed_primary_keys, context.options)
        if self._bootstraps:
            return BootstrapBucketWriter(
                context, files, order, self._merge_function, record.next_sequence_number, self._spill_directory
            )
        factory = self._compactor_of  # another thread may set it to None at any time
        return PrimaryKeyBucketWriter(
            context,
            files,
            order,
            self._merge_function,
            record.next_sequence_number,
            self._spill_directory,
            factory and factory(context, bucket, self._content(record, is_new=is_new)),
            replaces=self._replaces,
        )

    def _content(self, record: OpenBucket, *, is_new: bool) -> RestoredBucket:
        """Return the content of a bucket that is opened.

        is_new: it is opened for the first time.
        """
        bucket, table = record.bucket, self.restored()
        found = self._unopened.pop(bucket, None)
        if found is not None and record.state is not BucketState.LOST:
            return found
        if is_new and bucket not in table.next_sequence_numbers:
            return RestoredBucket()  # it was empty, and this writer wrote nothing to it
        # A bucket that was closed is opened as if it had stayed open: with what its last commit left. If others changed
        # its files since, the next commit finds out.
        known = None if record.state is BucketState.LOST else self._known()
        return restore_bucket(self._context, bucket, known)

    def restored(self) -> RestoredTable:
        """Return the state of the table, which is read once."""
        if self._table is None:
            restored = self._given or restore_files(
                self._context, with_files=self._compactor_of is not None, known=self._known()
            )
            self._table, self._unopened = restored.table, dict(restored.buckets)
            for record in self._records.values():  # lost before the table was read
                record.start_from(self._table)
        return self._table
