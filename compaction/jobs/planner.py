"""Plans the compaction of a table: tasks, each in one bucket, none touching another's files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from compaction.append.picker import AppendCompactionOptions, Files, pick_consecutive, pick_unordered
from compaction.append.rewriter import AppendRewriter
from compaction.append.sort_rewriter import sort_files
from compaction.cancellation import IsCancelled
from compaction.jobs.request import CompactionRequest
from compaction.merge_tree.compact_unit import PickReason
from compaction.merge_tree.merge_tree import MergeTree
from storage.bucketing import BucketMode, bucket_mode
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
    """One compaction in one bucket. total_buckets: of the partition. files: what it takes.

    run: reads and writes files that are in no snapshot yet; raises CompactionCancelled when it is cancelled. After an
    exception nothing is left behind.
    """

    key: BucketKey
    total_buckets: int
    files: Files
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

    def plan(self, live: Iterable[ManifestEntry], done: Collection[BucketKey] = ()) -> list[CompactTask]:
        """live: files of the table now. done: buckets to leave alone. Partitions and buckets come in order."""
        buckets: dict[BucketKey, list[ManifestEntry]] = defaultdict(list)
        for entry in live:
            buckets[BucketKey(entry.partition, entry.bucket)].append(entry)
        partitions = {key.partition for key in buckets}
        where = self.request.where
        wanted = partitions if where is None else wanted_partitions(self.context, partitions, where)
        tasks: list[CompactTask] = []
        for key, entries in sorted(buckets.items(), key=lambda item: (item[0].partition, item[0].bucket)):
            if key.partition in wanted and key not in done and key.bucket >= 0:  # -2: rows that wait for a bucket
                tasks += self._bucket(key, entries[-1].total_buckets, [entry.file for entry in entries])
        return tasks

    def _bucket(self, key: BucketKey, total_buckets: int, files: Sequence[DataFileMeta]) -> Iterator[CompactTask]:
        if self.context.schema.has_primary_key:
            try:
                tree = MergeTree(self.context, key, files)
            except ValueError as e:
                yield CompactTask(key, total_buckets, tuple(files), self._report_overlap(key, str(e)))
                return
            unit = tree.pick(full=self.request.full)
            if unit is not None:
                yield CompactTask(key, total_buckets, unit.files, lambda is_cancelled: tree.compact(unit, is_cancelled))
        elif self.request.order_by:
            yield CompactTask(key, total_buckets, tuple(files), self._sort(key, files))
        else:
            for picked in self._append_picks(files):
                yield CompactTask(key, total_buckets, picked, self._compact_files(key, picked))

    def _report_overlap(self, key: BucketKey, found: str) -> TaskFunction:
        """Reported like a file that can't be read: this bucket is skipped, the others are compacted."""

        def run(_: IsCancelled) -> CompactResult:
            where = BucketFiles(self.context, key).directory
            raise CorruptFile(where, "levels above 0 in which no files overlap", found)

        return run

    def _append_picks(self, files: Sequence[DataFileMeta]) -> list[Files]:
        settings = AppendCompactionOptions.of(self.context.options)
        is_ordered = bucket_mode(self.context.schema, self.context.options) is BucketMode.FIXED
        pick = pick_consecutive if is_ordered else pick_unordered
        return pick(files, settings, full=self.request.full)

    def _compact_files(self, key: BucketKey, files: Files) -> TaskFunction:
        reason = PickReason.FULL if self.request.full else PickReason.SMALL_FILES
        return lambda is_cancelled: AppendRewriter(self.context, key, is_cancelled).compact(files, reason)

    def _sort(self, key: BucketKey, files: Sequence[DataFileMeta]) -> TaskFunction:
        clustering = self.request.clustering(self.context)

        def run(is_cancelled: IsCancelled) -> CompactResult:
            rewriter = AppendRewriter(self.context, key, is_cancelled)
            return sort_files(rewriter, files, clustering, piece_bytes=self.piece_bytes)

        return run
