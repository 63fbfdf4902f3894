"""Places the rows of a one-off commit to a table with `bucket = -2` into buckets at once.

Rows are first staged in files of bucket -2, so that the size of the batch is known before the number of buckets is
chosen. Then they are written, file by file, to level 0 of as many buckets as the partition has, or needs. Nothing is
compacted.

If rows are staged in a partition already, the rows of the batch stay staged after them: a job that moves the older rows
later would give them larger sequence numbers.

Source: Java `table/PostponeUtils.java` (decideFixedBucketNum, tableForFixBucketWrite),
`spark/commands/PaimonSparkWriter.scala`, `flink/sink/FlinkSinkBuilder.java` (buildPostponeBucketSink).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import pyarrow as pa

from tidelake.storage.commit.commit_message import CommitMessage
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.files.postponed_order import in_order_of_writing
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.bucketing import Bucketing, BucketMode, bucket_mode
from tidelake.storage.model.format import BATCH_COMMIT_IDENTIFIER, POSTPONE_BUCKET, SEQUENCE_COLUMN
from tidelake.storage.model.table import TableContext
from tidelake.storage.read.expired_snapshots import newest_live_entries
from tidelake.storage.write.bucket_files import BucketFiles
from tidelake.storage.write.memory_budget import MemoryBudget
from tidelake.storage.write.postpone.bucket_numbers import PostponeOptions
from tidelake.storage.write.table_writer import TableWriter

Rescale = Callable[[TableContext, bytes], object]  # rescales one partition to the number of buckets in the context


def has_batch_write_fixed_bucket(context: TableContext) -> bool:
    """Return whether one-off commits place rows into buckets at once: `postpone.batch-write-fixed-bucket`."""
    is_postponed = bucket_mode(context.schema, context.options) is BucketMode.POSTPONE
    return is_postponed and PostponeOptions.of(context.options).batch_write_fixed_bucket


@dataclass(frozen=True, slots=True)
class FixedBucketWrite:
    """Staged files of one partition, in the order of their rows, and the number of buckets to write."""

    partition: bytes
    files: tuple[DataFileMeta, ...]
    bucket_num: int

    @property
    def size_bytes(self) -> int:
        return sum(file.file_size for file in self.files)


@dataclass(frozen=True, slots=True)
class FixedBucketPlan:
    """The plan for writing postponed rows into buckets.

    writes: what has to be written
    staged: the messages of the staged files. When all is written they are not needed any more, and the caller deletes
        them.
    kept: the other messages, to be committed unchanged
    """

    writes: Sequence[FixedBucketWrite]
    staged: Sequence[CommitMessage]
    kept: Sequence[CommitMessage]


def plan_fixed_bucket_writes(
    context: TableContext, staged: Sequence[CommitMessage], *, rescale: Rescale, replaces: bool
) -> FixedBucketPlan:
    """Plan the writes.

    Partitions that have become too large for their number of buckets are rescaled. See `FixedBucketBatch`.
    """
    options = PostponeOptions.of(context.options)
    numbers, waiting = ({}, set()) if replaces else _partitions(context)
    waits = [message for message in staged if message.bucket.bucket == POSTPONE_BUCKET]
    placed = [message for message in waits if message.partition not in waiting]
    kept = [message for message in staged if message not in placed]
    files: dict[bytes, list[DataFileMeta]] = {}
    for message in placed:
        files.setdefault(message.partition, []).extend(message.increment.new_files)
    writes: list[FixedBucketWrite] = []
    for partition, of_partition in files.items():
        rows, size_bytes = (sum(file.row_count for file in of_partition), sum(file.file_size for file in of_partition))
        number, must_rescale = options.fixed_bucket_num(rows, size_bytes, numbers.get(partition))
        if must_rescale:
            rescale(context.with_options({"bucket": str(number)}), partition)
        writes.append(FixedBucketWrite(partition, tuple(in_order_of_writing(of_partition)), number))
    return FixedBucketPlan(writes, placed, kept)


def _partitions(context: TableContext) -> tuple[Mapping[bytes, int], set[bytes]]:
    """Return the number of buckets of each partition that has buckets, and the partitions with staged rows."""
    numbers: dict[bytes, int] = {}
    waiting: set[bytes] = set()
    for entry in newest_live_entries(context):
        if entry.bucket == POSTPONE_BUCKET:
            waiting.add(entry.partition)
        else:
            numbers[entry.partition] = entry.total_buckets
    return numbers, waiting


class FixedBucketWriter:
    """Writes staged rows to level 0 of buckets. Not thread-safe.

    replaces: rows will replace those of their partitions.
    """

    def __init__(self, context: TableContext, *, replaces: bool, memory: MemoryBudget | None = None) -> None:
        self._context = context
        self._replaces = replaces
        self._memory = memory
        self._writers: dict[int, TableWriter] = {}  # by number of buckets

    def write(self, write: FixedBucketWrite, subtask: int = 0, parallelism: int = 1) -> None:
        """Write the rows of one subtask's buckets.

        subtask: its number, of `parallelism` subtasks that divide the buckets among themselves. Each reads all rows.
        """
        writer = self._writer(write.bucket_num)
        files = BucketFiles(self._context, BucketId(write.partition, POSTPONE_BUCKET))
        bucketing = Bucketing.of(self._context.schema, self._fixed_bucket_context(write.bucket_num).options)
        for file in write.files:
            for batch in files.read(file):
                rows = batch.drop_columns([SEQUENCE_COLUMN])
                if parallelism > 1:
                    buckets = bucketing.bucket_ids([rows.column(name) for name in bucketing.key_columns])
                    rows = rows.filter(pa.array(buckets % parallelism == subtask))
                if rows.num_rows:
                    writer.write(rows)

    def prepare_commit(self) -> list[CommitMessage]:
        """Prepare the commit of all placed rows."""
        return [
            message for writer in self._writers.values() for message in writer.prepare_commit(BATCH_COMMIT_IDENTIFIER)
        ]

    def _fixed_bucket_context(self, bucket_num: int) -> TableContext:
        return self._context.with_options({"bucket": str(bucket_num), "write-only": "true"})

    def _writer(self, bucket_num: int) -> TableWriter:
        if bucket_num not in self._writers:
            target = self._fixed_bucket_context(bucket_num)
            self._writers[bucket_num] = TableWriter(target, memory=self._memory, replaces=self._replaces)
        return self._writers[bucket_num]

    def set_next_sequence_numbers(self, next_numbers: Mapping[BucketId, int]) -> None:
        """See `TableWriter.set_next_sequence_numbers`."""
        for writer in self._writers.values():
            writer.set_next_sequence_numbers(next_numbers)

    def close(self) -> None:
        """End the write, also after a commit.

        The next write starts from the current table. Calling it again has no effect.
        """
        with ExitStack() as steps:
            while self._writers:
                _, writer = self._writers.popitem()
                steps.callback(writer.abort)


class FixedBucketBatch:
    """Places the staged rows of one writer's one-off commits into buckets. Not thread-safe.

    replaces: rows will replace those of their partitions.
    rescale: changes the number of buckets of a partition that has become too large.
    """

    def __init__(
        self, context: TableContext, *, rescale: Rescale, replaces: bool = False, memory: MemoryBudget | None = None
    ) -> None:
        self._context = context
        self._rescale = rescale
        self._replaces = replaces
        self._writer = FixedBucketWriter(context, replaces=replaces, memory=memory)
        self.set_next_sequence_numbers = self._writer.set_next_sequence_numbers
        self.close = self._writer.close

    def into_buckets(self, staged: Sequence[CommitMessage]) -> tuple[list[CommitMessage], list[CommitMessage]]:
        """Return the messages to commit instead of those of bucket -2, and those that are not needed any more.

        The caller deletes the files of the latter. If an error is raised, nothing was returned, and the staged files
        may still be committed unchanged.
        """
        plan = plan_fixed_bucket_writes(self._context, staged, rescale=self._rescale, replaces=self._replaces)
        try:
            for write in plan.writes:
                self._writer.write(write)
            return [*plan.kept, *self._writer.prepare_commit()], list(plan.staged)
        except BaseException:
            self.close()
            raise
