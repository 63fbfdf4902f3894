"""Plans the compaction of a table: tasks, each in one bucket, with disjoint files. A task's result is durable, but not
in a snapshot yet.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tidelake.compaction.append.picker import AppendCompactionOptions, Files, pick_consecutive, pick_unordered
from tidelake.compaction.append.rewriter import AppendRewriter
from tidelake.compaction.append.sort_rewriter import Clustering, sort_files
from tidelake.compaction.cancellation import IsCancelled
from tidelake.compaction.jobs.request import CompactionRequest
from tidelake.compaction.jobs.table_files import TableFiles
from tidelake.compaction.merge_tree.compact_unit import CompactUnit, PickReason
from tidelake.compaction.merge_tree.merge_tree import MergeTree
from tidelake.errors import CorruptFile
from tidelake.storage.commit.commit_increment import CommitIncrement, CompactResult
from tidelake.storage.commit.commit_message import CommitBase, CommitMessage
from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.files.index_file import IndexFileMeta
from tidelake.storage.maintenance.partition_expiry import expired_by_value
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.bucketing import BucketMode, bucket_mode
from tidelake.storage.model.deletion_vectors.vector_file import DeletionFile
from tidelake.storage.model.table import TableContext
from tidelake.storage.read.scan import wanted_partitions
from tidelake.storage.write.bucket_files import BucketFiles

TaskFunction: TypeAlias = Callable[[IsCancelled], CompactResult]
Deletions: TypeAlias = Mapping[str, DeletionFile]  # the deletion vector by data file of the bucket


@dataclass(frozen=True, slots=True)
class CompactTask:
    """One compaction in one bucket. Pickles.

    total_buckets: of the partition
    files: the input
    deletion_files: by data file of the bucket, the deletion vector whose rows are left out
    run: reads the files, and writes files that are not in a snapshot yet. Raises CompactionCancelled if it is
        cancelled.
        After an exception no file is left.
    """

    key: BucketId
    total_buckets: int
    files: Files
    deletion_files: Deletions
    run: TaskFunction

    @property
    def size_bytes(self) -> int:
        return sum(file.file_size for file in self.files)


def plan_tasks(
    context: TableContext,
    request: CompactionRequest,
    table: TableFiles,
    done: Collection[BucketId] = (),
    *,
    piece_bytes: int,
) -> list[CompactTask]:
    """Plan the tasks, sorted by partition and bucket.

    context: returned by `CompactionRequest.prepare`.
    table: its current files.
    done: buckets to skip.
    piece_bytes: the memory of a sort; see `sort_files`.
    """
    buckets: dict[BucketId, list[ManifestEntry]] = defaultdict(list)
    for entry in table.entries:
        buckets[entry.bucket_id].append(entry)
    partitions = {key.partition for key in buckets}
    wanted = partitions if request.where is None else wanted_partitions(context, partitions, request.where)
    if context.options.compaction_skip_expired_partitions:
        wanted = wanted.difference(expired_by_value(context, table.entries))
    tasks: list[CompactTask] = []
    for key, entries in sorted(buckets.items(), key=lambda item: (item[0].partition, item[0].bucket)):
        if key.partition in wanted and key not in done and key.bucket >= 0:  # -2: staged rows without a bucket
            files, deletions = tuple(entry.file for entry in entries), table.deletion_files(key)
            if context.schema.has_primary_key:
                work = _compact_tree(context, request, key, files, table.index_files(key))
            elif request.order_by:
                work = [(files, _SortTask(context, key, files, deletions, request.clustering(context), piece_bytes))]
            else:
                work = _append_tasks(context, request, key, files, deletions)
            total_buckets = entries[-1].total_buckets
            tasks += [CompactTask(key, total_buckets, picked, deletions, run) for picked, run in work]
    return tasks


_Work: TypeAlias = Sequence[tuple[Files, TaskFunction]]


def _compact_tree(
    context: TableContext,
    request: CompactionRequest,
    key: BucketId,
    files: Files,
    index_files: Sequence[IndexFileMeta],
) -> _Work:
    try:
        tree = MergeTree(context, key, files, index_files=index_files)
    except ValueError as e:
        return [(files, _OverlapReport(BucketFiles(context, key).directory, str(e)))]
    try:
        unit = tree.pick(full=request.full)
    finally:
        tree.close()
    return [] if unit is None else [(unit.files, _TreeCompaction(context, key, files, tuple(index_files), unit))]


def _append_tasks(
    context: TableContext, request: CompactionRequest, key: BucketId, files: Files, deletions: Deletions
) -> _Work:
    settings = AppendCompactionOptions.of(context.options)
    is_ordered = bucket_mode(context.schema, context.options) is BucketMode.FIXED
    pick = pick_consecutive if is_ordered else pick_unordered
    deleted_rows = {name: deletion.vector.cardinality for name, deletion in deletions.items()}

    def task(picked: Files) -> TaskFunction:
        own = {file.file_name: deletions[file.file_name] for file in picked if file.file_name in deletions}
        reason = PickReason.FULL if request.full else PickReason.SMALL_FILES
        return _AppendRewrite(
            context, key, picked, own, PickReason.DELETED_ROWS if own and not request.full else reason
        )

    return [(picked, task(picked)) for picked in pick(files, settings, deleted_rows, full=request.full)]


# ---------------------------------------------------------------- functions of tasks, which pickle


@dataclass(frozen=True, slots=True)
class _OverlapReport:
    """Reports overlapping files like an unreadable file: this bucket is skipped, the others are compacted."""

    directory: str
    found: str

    def __call__(self, _: IsCancelled) -> CompactResult:
        raise CorruptFile(self.directory, "levels above 0 in which no files overlap", self.found)


@dataclass(frozen=True, slots=True)
class _TreeCompaction:
    context: TableContext
    key: BucketId
    files: Files
    index_files: Sequence[IndexFileMeta]
    unit: CompactUnit

    def __call__(self, is_cancelled: IsCancelled) -> CompactResult:
        tree = MergeTree(self.context, self.key, self.files, index_files=self.index_files)
        try:
            return tree.compact(self.unit, is_cancelled)
        finally:
            tree.close()  # frees its lookup files, as a job may have many trees


@dataclass(frozen=True, slots=True)
class _AppendRewrite:
    context: TableContext
    key: BucketId
    picked: Files
    deletions: Deletions
    reason: PickReason

    def __call__(self, is_cancelled: IsCancelled) -> CompactResult:
        return AppendRewriter(self.context, self.key, self.deletions, is_cancelled).compact(self.picked, self.reason)


@dataclass(frozen=True, slots=True)
class _SortTask:
    context: TableContext
    key: BucketId
    files: Files
    deletions: Deletions
    clustering: Clustering
    piece_bytes: int

    def __call__(self, is_cancelled: IsCancelled) -> CompactResult:
        rewriter = AppendRewriter(self.context, self.key, self.deletions, is_cancelled)
        return sort_files(rewriter, self.files, self.clustering, piece_bytes=self.piece_bytes)


TaskRunner: TypeAlias = Callable[[Sequence[CompactTask]], Sequence[CompactResult | CorruptFile]]
"""Returns for each task, in their order, its result or the file that it could not read. Raises any other error."""


@dataclass(frozen=True, slots=True)
class TaskResult:
    """The result of one compaction task."""

    task: CompactTask
    result: CompactResult

    @property
    def message(self) -> CommitMessage:
        base = CommitBase(total_buckets=self.task.total_buckets)
        return CommitMessage(self.task.key, CommitIncrement(compacted=self.result), base)
