"""Compacts a table with `bucket = -2`: places the rows of the postpone bucket into buckets.

In each partition, the staged files are read one writer after another, in the order of their creation. Their rows are
placed into as many buckets as the partition has, or needs. One COMPACT snapshot removes the staged files and adds the
files of the buckets (and their changelog). A crash before it leaves orphans. If two jobs run at once, the second finds
its files gone, and starts again.

Source: Java `flink/postpone/PostponeBucketCompactSplitSource.java`, `RewritePostponeBucketCommittableOperator.java`,
`RemovePostponeBucketFilesOperator.java`, `table/PostponeUtils.java`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tidelake.compaction.cancellation import CancellationToken
from tidelake.compaction.compact_manager import compact_manager_factory
from tidelake.compaction.report import BucketCompaction, CompactionReport
from tidelake.errors import BadInput
from tidelake.storage.commit.commit_increment import CommitIncrement, CompactResult
from tidelake.storage.commit.commit_message import CommitBase, CommitMessage, Committable
from tidelake.storage.commit.commit_steps import retry_on_conflict
from tidelake.storage.commit.table_commit import TableCommit, new_commit_user
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.files.postponed_order import in_order_of_writing
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.format import BATCH_COMMIT_IDENTIFIER, POSTPONE_BUCKET, SEQUENCE_COLUMN
from tidelake.storage.model.table import TableContext
from tidelake.storage.read.expired_snapshots import newest_live_entries
from tidelake.storage.write.bucket_files import BucketFiles
from tidelake.storage.write.postpone.bucket_numbers import PostponeOptions
from tidelake.storage.write.restored_table import restore_files
from tidelake.storage.write.table_writer import TableWriter

_ATTEMPTS: Final = 5
_REASON: Final = "rows that waited for their bucket"


@dataclass(frozen=True, slots=True)
class PostponedFiles:
    """The staged files of one partition.

    files: in the order of their rows.
    bucket_num: the number of buckets that the partition has; None: it has only these files.
    """

    partition: bytes
    files: Sequence[DataFileMeta]
    bucket_num: int | None


def compact_postponed(context: TableContext, cancellation: CancellationToken | None = None) -> CompactionReport:
    """Place all staged rows into buckets. Rows that arrive meanwhile wait for the next call.

    Raises CommitConflict if another job was first too often, and the errors of writing a table.
    """
    token = cancellation or CancellationToken()

    def attempt() -> CompactionReport:
        schema = context.schemas.latest()
        if schema is None:
            raise BadInput(f"{context.name} no longer exists: the table was dropped")
        current = context if schema.id == context.schema.id else context.with_schema(schema)
        return _PostponeCompaction(current, token).run()

    return retry_on_conflict(_ATTEMPTS, attempt)


class _PostponeCompaction:
    def __init__(self, context: TableContext, cancellation: CancellationToken) -> None:
        self._context = context
        self._cancellation = cancellation
        self._options = PostponeOptions.of(context.options)
        self._commit = TableCommit(context, new_commit_user(context.options))

    def run(self) -> CompactionReport:
        snapshot = self._context.snapshots.latest()
        if snapshot is None:
            return CompactionReport(self._context.name)
        messages: list[CommitMessage] = []
        done: list[BucketCompaction] = []
        try:
            for waiting in postponed_files(self._context):
                if self._cancellation.is_cancelled:
                    self._commit.abort(messages)
                    return CompactionReport(self._context.name, snapshot.id, is_cancelled=True)
                written = self._into_buckets(waiting)
                key = BucketId(waiting.partition, POSTPONE_BUCKET)
                messages += [*written, _removal(waiting)]
                after = tuple(file for message in written for file in message.increment.compacted.after)
                result = CompactResult(tuple(waiting.files), after, reason=_REASON)
                done.append(BucketCompaction.of(self._context, key, result))
            published = self._commit.commit(Committable(BATCH_COMMIT_IDENTIFIER, messages)) if messages else None
        except Exception:
            self._commit.abort(messages)
            raise
        snapshots = () if published is None else (published,)
        return CompactionReport(self._context.name, snapshot.id, tuple(done), snapshots)

    def _into_buckets(self, waiting: PostponedFiles) -> list[CommitMessage]:
        rows, size_bytes = (sum(f.row_count for f in waiting.files), sum(f.file_size for f in waiting.files))
        bucket_num = self._options.bucket_num(rows, size_bytes, waiting.bucket_num)
        target = self._context.with_options({"bucket": str(bucket_num)})
        files = BucketFiles(self._context, BucketId(waiting.partition, POSTPONE_BUCKET))
        restored = restore_files(target, with_files=True, partitions=[waiting.partition])  # others have other numbers
        writer = TableWriter(target, compactor_factory=compact_manager_factory(), restored=restored)
        try:
            for file in waiting.files:
                for batch in files.read(file):
                    writer.write(batch.drop_columns([SEQUENCE_COLUMN]))
            # Their rows are not new: they came with the commit that staged them.
            return [
                replace(message, increment=message.increment.with_new_as_compacted_files(_REASON))
                for message in writer.prepare_commit(BATCH_COMMIT_IDENTIFIER)
            ]
        finally:
            writer.abort()


def postponed_files(context: TableContext) -> list[PostponedFiles]:
    """Return the staged files of each partition, in the latest snapshot."""
    waiting: Mapping[bytes, list[DataFileMeta]] = defaultdict(list)
    bucket_nums: dict[bytes, int] = {}
    for entry in newest_live_entries(context):
        if entry.bucket == POSTPONE_BUCKET:
            waiting[entry.partition].append(entry.file)
        else:
            bucket_nums[entry.partition] = entry.total_buckets
    return [
        PostponedFiles(partition, in_order_of_writing(files), bucket_nums.get(partition))
        for partition, files in waiting.items()
    ]


def _removal(waiting: PostponedFiles) -> CommitMessage:
    removed = CompactResult(tuple(waiting.files), reason=_REASON)
    return CommitMessage(
        BucketId(waiting.partition, POSTPONE_BUCKET),
        CommitIncrement(compacted=removed),
        CommitBase(total_buckets=POSTPONE_BUCKET),
    )
