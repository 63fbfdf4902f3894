"""Plans the compaction of a table: tasks, each in one bucket, none touching another's files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from compaction.append.picker import AppendCompactionOptions, Files, pick_consecutive, pick_unordered
from compaction.append.rewriter import AppendRewriter
from compaction.append.sort_rewriter import sort_files
from compaction.cancellation import IsCancelled
from compaction.jobs.request import CompactionRequest
from compaction.jobs.table_files import TableFiles
from compaction.merge_tree.compact_unit import CompactUnit, PickReason
from compaction.merge_tree.merge_tree import MergeTree
from storage.bucketing import BucketMode, bucket_mode
from storage.deletion_vectors.index_file import DeletionFile
from storage.errors import CorruptFile
from storage.files.data_file import DataFileMeta
from storage.manifests.manifest_entry import ManifestEntry
from storage.read.scan import wanted_partitions
from storage.table import TableContext
from storage.write.bucket_files import BucketFiles
from storage.write.bucket_router import BucketKey
from storage.write.compactor import CompactResult

TaskFunction: TypeAlias = Callable[[IsCancelled], CompactResult]


@dataclass(frozen=True, slots=True)
class CompactTask:
    """One compaction in one bucket. total_buckets: of the partition. files: what it takes. deletion_files: by data
    file of the bucket, which rows it leaves out.

    run: reads and writes files that are in no snapshot yet; raises CompactionCancelled when it is cancelled. After an
    exception nothing is left behind.
    """

    key: BucketKey
    total_buckets: int
    files: Files
    deletion_files: Mapping[str, DeletionFile]
    run: TaskFunction

    @property
    def size_bytes(self) -> int:
        return sum(file.file_size for file in self.files)


@dataclass(frozen=True)
class CompactPlanner:
    """context: as `CompactionRequest.prepare` gave it. piece_bytes: what a sort may hold; see `sort_files`."""

    context: TableContext
    request: CompactionRequest
    piece_bytes: int

    def plan(self, table: TableFiles, done: Collection[BucketKey] = ()) -> list[CompactTask]:
        """table: as it is now. done: buckets to leave alone. Partitions and buckets come in order."""
        buckets: dict[BucketKey, list[ManifestEntry]] = defaultdict(list)
        for entry in table.entries:
            buckets[BucketKey(entry.partition, entry.bucket)].append(entry)
        partitions = {key.partition for key in buckets}
        where = self.request.where
        wanted = partitions if where is None else wanted_partitions(self.context, partitions, where)
        tasks: list[CompactTask] = []
        for key, entries in sorted(buckets.items(), key=lambda item: (item[0].partition, item[0].bucket)):
            if key.partition in wanted and key not in done and key.bucket >= 0:  # -2: rows that wait for a bucket
                tasks += self._bucket(key, entries[-1].total_buckets, [entry.file for entry in entries], table)
        return tasks

    def _bucket(
        self, key: BucketKey, total_buckets: int, files: Sequence[DataFileMeta], table: TableFiles
    ) -> Iterator[CompactTask]:
        deletions = table.deletion_files(key)
        if self.context.schema.has_primary_key:
            try:
                tree = MergeTree(self.context, key, files, index_files=table.index_files(key))
            except ValueError as e:
                yield CompactTask(key, total_buckets, tuple(files), deletions, self._report_overlap(key, str(e)))
                return
            unit = tree.pick(full=self.request.full)
            if unit is not None:
                yield CompactTask(key, total_buckets, unit.files, deletions, _run_once(tree, unit))
        elif self.request.order_by:
            yield CompactTask(key, total_buckets, tuple(files), deletions, self._sort(key, files, deletions))
        else:
            for picked in self._append_picks(files, deletions):
                yield CompactTask(key, total_buckets, picked, deletions, self._compact_files(key, picked, deletions))

    def _report_overlap(self, key: BucketKey, found: str) -> TaskFunction:
        """Reported like a file that can't be read: this bucket is skipped, the others are compacted."""

        def run(_: IsCancelled) -> CompactResult:
            where = BucketFiles(self.context, key).directory
            raise CorruptFile(where, "levels above 0 in which no files overlap", found)

        return run

    def _append_picks(self, files: Sequence[DataFileMeta], deletions: Mapping[str, DeletionFile]) -> list[Files]:
        settings = AppendCompactionOptions.of(self.context.options)
        is_ordered = bucket_mode(self.context.schema, self.context.options) is BucketMode.FIXED
        pick = pick_consecutive if is_ordered else pick_unordered
        deleted_rows = {name: deletion.vector.cardinality for name, deletion in deletions.items()}
        return pick(files, settings, deleted_rows, full=self.request.full)

    def _compact_files(self, key: BucketKey, files: Files, deletions: Mapping[str, DeletionFile]) -> TaskFunction:
        reason = PickReason.FULL if self.request.full else PickReason.SMALL_FILES
        if not self.request.full and any(file.file_name in deletions for file in files):
            reason = PickReason.DELETED_ROWS
        return lambda is_cancelled: AppendRewriter(self.context, key, deletions, is_cancelled).compact(files, reason)

    def _sort(
        self, key: BucketKey, files: Sequence[DataFileMeta], deletions: Mapping[str, DeletionFile]
    ) -> TaskFunction:
        clustering = self.request.clustering(self.context)

        def run(is_cancelled: IsCancelled) -> CompactResult:
            rewriter = AppendRewriter(self.context, key, deletions, is_cancelled)
            return sort_files(rewriter, files, clustering, piece_bytes=self.piece_bytes)

        return run


def _run_once(tree: MergeTree, unit: CompactUnit) -> TaskFunction:
    """The tree is not asked again: what it kept ready for lookups goes, for a job may have many."""

    def run(is_cancelled: IsCancelled) -> CompactResult:
        try:
            return tree.compact(unit, is_cancelled)
        finally:
            tree.close()

    return run
