"""What is to be done in a table now: units of work, each in one bucket, none touching another's files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from compaction.append_picker import AppendSettings, Files, pick_neighbours, pick_unordered
from compaction.append_rewriter import AppendRewriter
from compaction.bucket_tree import BucketTree
from compaction.compact_unit import PickReason
from compaction.request import CompactionRequest
from compaction.sort_rewriter import sort_files
from compaction.stopping import ShouldStop
from storage.bucketing import BucketMode, bucket_mode
from storage.errors import CorruptFile
from storage.files.data_file import DataFileMeta
from storage.read.scan import wanted_partitions
from storage.snapshots.manifest_entry import ManifestEntry
from storage.table import TableContext
from storage.write.bucket_files import BucketFiles
from storage.write.compactor import CompactResult
from storage.write.router import BucketKey

Run: TypeAlias = Callable[[ShouldStop], CompactResult]


@dataclass(frozen=True, slots=True)
class Work:
    """One compaction in one bucket. total_buckets: of the partition. files: what it takes.

    run: reads and writes files that nobody sees yet; raises CompactionStopped when it is told to stop. After an
    exception nothing is left behind.
    """

    key: BucketKey
    total_buckets: int
    files: Files
    run: Run

    @property
    def size_bytes(self) -> int:
        return sum(file.file_size for file in self.files)


@dataclass(frozen=True)
class Planner:
    """context: as `CompactionRequest.accept` gave it. piece_bytes: what a sort may hold; see `sort_files`."""

    context: TableContext
    request: CompactionRequest
    piece_bytes: int

    def plan(self, live: Iterable[ManifestEntry], done: Collection[BucketKey] = ()) -> list[Work]:
        """live: files of the table now. done: buckets to leave alone. Partitions and buckets come in order."""
        buckets: dict[BucketKey, list[ManifestEntry]] = defaultdict(list)
        for entry in live:
            buckets[BucketKey(entry.partition, entry.bucket)].append(entry)
        partitions = {key.partition for key in buckets}
        where = self.request.where
        wanted = partitions if where is None else wanted_partitions(self.context, partitions, where)
        works: list[Work] = []
        for key, entries in sorted(buckets.items(), key=lambda item: (item[0].partition, item[0].bucket)):
            if key.partition in wanted and key not in done and key.bucket >= 0:  # -2: rows that wait for a bucket
                works += self._bucket(key, entries[-1].total_buckets, [entry.file for entry in entries])
        return works

    def _bucket(self, key: BucketKey, total_buckets: int, files: Sequence[DataFileMeta]) -> Iterator[Work]:
        if self.context.schema.has_primary_key:
            try:
                tree = BucketTree(self.context, key, files)
            except ValueError as e:
                yield Work(key, total_buckets, tuple(files), self._refuse(key, str(e)))
                return
            unit = tree.pick(full=self.request.full)
            if unit is not None:
                yield Work(key, total_buckets, unit.files, lambda should_stop: tree.compact(unit, should_stop))
        elif self.request.order_by:
            yield Work(key, total_buckets, tuple(files), self._sort(key, files))
        else:
            for picked in self._append_picks(files):
                yield Work(key, total_buckets, picked, self._join(key, picked))

    def _refuse(self, key: BucketKey, found: str) -> Run:
        """Told like a file that can't be read: this bucket is left alone, the others are compacted."""

        def run(_: ShouldStop) -> CompactResult:
            where = BucketFiles(self.context, key).directory
            raise CorruptFile(where, "levels above 0 in which no files overlap", found)

        return run

    def _append_picks(self, files: Sequence[DataFileMeta]) -> list[Files]:
        settings = AppendSettings.of(self.context.options)
        is_ordered = bucket_mode(self.context.schema, self.context.options) is BucketMode.FIXED
        pick = pick_neighbours if is_ordered else pick_unordered
        return pick(files, settings, full=self.request.full)

    def _join(self, key: BucketKey, files: Files) -> Run:
        reason = PickReason.FULL if self.request.full else PickReason.SMALL_FILES
        return lambda should_stop: AppendRewriter(self.context, key, should_stop).join(files, reason)

    def _sort(self, key: BucketKey, files: Sequence[DataFileMeta]) -> Run:
        layout = self.request.layout(self.context)

        def run(should_stop: ShouldStop) -> CompactResult:
            rewriter = AppendRewriter(self.context, key, should_stop)
            return sort_files(rewriter, files, layout, piece_bytes=self.piece_bytes)

        return run
