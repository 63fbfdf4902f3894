"""A one-off commit into a table with `bucket = -2` gives its rows buckets at once.

Rows are staged in files of bucket -2, so that the size of the batch is known before the number of buckets is; then they
go, file by file, into level 0 of as many buckets as the partition has, or needs. Nothing is compacted.

Where rows wait already, those of the batch wait behind them: a job that moves the older ones later would number them
as newer.

Source: Java `table/PostponeUtils.java` (decideFixedBucketNum, tableForFixBucketWrite),
`spark/commands/PaimonSparkWriter.scala`, `flink/sink/FlinkSinkBuilder.java` (buildPostponeBucketSink).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

from compaction.postpone_rescue import in_order
from storage.bucketing import BucketMode, bucket_mode
from storage.commit.commit_message import CommitMessage
from storage.format import BATCH_COMMIT_IDENTIFIER, POSTPONE_BUCKET, SEQUENCE_COLUMN
from storage.manifests.snapshot_files import live_entries
from storage.table import TableContext
from storage.write.bucket_files import BucketFiles
from storage.write.bucket_router import BucketKey
from storage.write.memory_budget import MemoryBudget
from storage.write.postpone.bucket_numbers import PostponeOptions
from storage.write.table_writer import TableWriter

Rescale = Callable[[TableContext, bytes], object]  # of one partition, into the number of buckets of the context


def gives_buckets_at_once(context: TableContext) -> bool:
    """Whether one-off commits do."""
    is_postponed = bucket_mode(context.schema, context.options) is BucketMode.POSTPONE
    return is_postponed and PostponeOptions.of(context.options).gives_buckets_at_once


class PostponedBatch:
    """What one writer's one-off commits stage, on its way into buckets. One thread at a time.

    replaces: rows will replace those of their partitions.
    rescale: another number of buckets for a partition that has become too large for its own.
    """

    def __init__(
        self, context: TableContext, *, rescale: Rescale, replaces: bool = False, memory: MemoryBudget | None = None
    ) -> None:
        self._context = context
        self._options = PostponeOptions.of(context.options)
        self._rescale = rescale
        self._replaces = replaces
        self._memory = memory
        self._writers: dict[int, TableWriter] = {}  # by number of buckets

    def into_buckets(self, staged: Sequence[CommitMessage]) -> tuple[list[CommitMessage], list[CommitMessage]]:
        """Messages to be committed instead of those of bucket -2, and those that are not needed any more: their files
        are the caller's to delete.

        When it raises, nothing was handed over, and the staged files may still be committed as they are.
        """
        numbers, waiting = ({}, set()) if self._replaces else self._partitions()
        placed = [
            message for message in staged if message.bucket == POSTPONE_BUCKET and message.partition not in waiting
        ]
        kept = [message for message in staged if message not in placed]
        try:
            for message in placed:
                self._place(message, numbers.get(message.partition))
            for writer in self._writers.values():
                kept += writer.prepare_commit(BATCH_COMMIT_IDENTIFIER)
        except BaseException:
            self.close()
            raise
        return kept, placed

    def _partitions(self) -> tuple[Mapping[bytes, int], set[bytes]]:
        """The number of buckets of each partition that has any, and the partitions in which rows wait."""
        numbers: dict[bytes, int] = {}
        waiting: set[bytes] = set()
        latest = self._context.snapshots.latest()
        for entry in live_entries(self._context, latest) if latest is not None else ():
            if entry.bucket == POSTPONE_BUCKET:
                waiting.add(entry.partition)
            else:
                numbers[entry.partition] = entry.total_buckets
        return numbers, waiting

    def _place(self, message: CommitMessage, existing: int | None) -> None:
        rows, size_bytes = (
            sum(file.row_count for file in message.new_files),
            sum(file.file_size for file in message.new_files),
        )
        number, must_rescale = self._options.bucket_num_at_once(rows, size_bytes, existing)
        if must_rescale:
            self._rescale(self._context.with_options({"bucket": str(number)}), message.partition)
        writer = self._writer(number)
        files = BucketFiles(self._context, BucketKey(message.partition, POSTPONE_BUCKET))
        for file in in_order(message.new_files):
            for batch in files.read(file):
                writer.write(batch.drop_columns([SEQUENCE_COLUMN]))

    def _writer(self, bucket_num: int) -> TableWriter:
        if bucket_num not in self._writers:
            target = self._context.with_options({"bucket": str(bucket_num), "write-only": "true"})
            self._writers[bucket_num] = TableWriter(target, memory=self._memory, replaces=self._replaces)
        return self._writers[bucket_num]

    def set_next_sequence_numbers(self, next_numbers: Mapping[BucketKey, int]) -> None:
        """See `TableWriter.set_next_sequence_numbers`."""
        for writer in self._writers.values():
            writer.set_next_sequence_numbers(next_numbers)

    def close(self) -> None:
        """After a commit, too: the next one begins from what the table has then. Calling again is harmless."""
        with ExitStack() as steps:
            while self._writers:
                _, writer = self._writers.popitem()
                steps.callback(writer.abort)
