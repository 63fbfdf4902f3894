"""The merge tree of one bucket: picks files to compact by the table's options, and rewrites them.

    tree = MergeTree(context, key, files)          # files: the live ones of the bucket
    unit = tree.pick(full=True)                     # reads no files; None: nothing to do
    result = tree.compact(unit)                     # slow: reads and writes files, changes nothing else
    tree.install(result)                            # the tree after it; publish the result with a commit

One thread at a time may call `pick` and `install`; `compact` may run at the same time.

Source: Java `mergetree/compact/MergeTreeCompactManager.java`, `MergeTreeCompactManagerFactory.java`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tidelake.compaction.cancellation import IsCancelled
from tidelake.compaction.merge_tree.changelog_merge import OlderRowsNeeded
from tidelake.compaction.merge_tree.compact_unit import CompactUnit, PickReason
from tidelake.compaction.merge_tree.compaction_merges import CompactionMerges
from tidelake.compaction.merge_tree.levels import Levels
from tidelake.compaction.merge_tree.lookup_merge import Find
from tidelake.compaction.merge_tree.record_level_expire import RecordLevelExpire
from tidelake.compaction.merge_tree.rewrite_plan import Step, Upgrade, can_drop_deletes, plan_rewrite
from tidelake.compaction.merge_tree.rewriter import MergeTreeRewriter, RewriteResult
from tidelake.compaction.merge_tree.universal_compaction import (
    UniversalCompaction,
    UniversalCompactionOptions,
    pick_all_runs,
    pick_full_compaction,
)
from tidelake.storage.base.clock import epoch_ms
from tidelake.storage.commit.commit_increment import CompactResult
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.files.index_file import IndexFileMeta
from tidelake.storage.merge.sequence_groups import sequence_numbers_decide
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.schema.table_schema import KIND_FIELD
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types.row_kinds import is_retract, row_kinds
from tidelake.storage.write.bucket_files import BucketFiles
from tidelake.storage.write.deletion_vector_maintainer import DeletionVectorMaintainer, IndexChange
from tidelake.storage.write.lookup.deletion_marks import DeletionMarks
from tidelake.storage.write.lookup.lookup_cache import LookupCache
from tidelake.storage.write.lookup.lookup_file import FileLookupResult
from tidelake.storage.write.lookup.lookup_levels import IsVisible, LookupLevels


class MergeTree:
    """The sorted runs of one bucket, and their compaction.

    context: of a table with a primary key
    files: the current files of the bucket
    spill_directory: for runs of wide tables during a merge; None is the system's temporary directory
    now_ms: called once for each pick and each compaction, so that all rows of one compaction expire by the same time
    lookup_cache: shared with other buckets of the table
    index_files: of the bucket; those with deletion vectors are updated
    """

    def __init__(
        self,
        context: TableContext,
        key: BucketId,
        files: Iterable[DataFileMeta],
        spill_directory: str | None = None,
        now_ms: Callable[[], int] = epoch_ms,
        lookup_cache: LookupCache | None = None,
        index_files: Iterable[IndexFileMeta] = (),
    ) -> None:
        options = context.options
        self._context = context
        self._key = key
        self._index_files = tuple(index_files)
        self._files = BucketFiles(context, key)
        self._spill_directory = spill_directory
        self._now_ms = now_ms
        self._merges = CompactionMerges(context)
        self._lookup_cache = lookup_cache or LookupCache(context.options, spill_directory)
        self._sequence_numbers_decide = sequence_numbers_decide(context.schema, options)
        self._expiry = RecordLevelExpire.of(context)
        self.levels = Levels.of(files, [f.type for f in context.schema.key_fields], options.num_levels)
        oldest_level = [file for file in self.levels.files if file.level == self.levels.max_level]
        last_full_ms = max((file.created_epoch_ms or 0 for file in oldest_level), default=None)
        self._picker = UniversalCompaction(UniversalCompactionOptions.of(options), last_full_ms)

    @property
    def run_count(self) -> int:
        return len(self.levels.runs)

    def pick(self, *, full: bool = False) -> CompactUnit | None:
        """Pick the next compaction.

        full: everything, to the highest level; None if all files are there already, and no row in them must be dropped.
        """
        levels = self.levels
        now_ms = self._now_ms()
        if full:
            return pick_full_compaction(levels, must_rewrite=self._must_rewrite_in_full(now_ms // 1000))
        local_hour = time.localtime(now_ms / 1000).tm_hour
        unit = self._picker.pick(levels.runs, levels.max_level, now_ms=now_ms, local_hour=local_hour)
        return None if unit is None or unit.changes_nothing else unit

    def compact(self, unit: CompactUnit, is_cancelled: IsCancelled = lambda: False) -> CompactResult:
        """Run a compaction. After an exception no file is left.

        If a retract among these files would be lost without the older rows of its key, everything is compacted.

        unit: returned by `pick`
        is_cancelled: polled often; if true, CompactionCancelled is raised.
        """
        levels = self.levels
        try:
            return self._compact(unit, levels, is_cancelled)
        except OlderRowsNeeded:
            everything = pick_all_runs(levels.runs, levels.max_level, PickReason.RETRACTS)
            return self._compact(everything, levels, is_cancelled)

    def _compact(self, unit: CompactUnit, levels: Levels, is_cancelled: IsCancelled) -> CompactResult:
        task = self._task(unit.output_level, is_cancelled)
        must_rewrite = self._must_rewrite(task.now_s)
        steps = plan_rewrite(
            unit,
            levels.key_types,
            levels.max_level,
            min_file_size_bytes=self._context.options.compaction_file_size_bytes(has_primary_key=True),
            must_rewrite=lambda file: must_rewrite(file) or self._has_uncounted_deletes(file),
            upgrade_strategy=lambda file: self._merges.upgrade(levels, file, unit.output_level),
        )
        before: list[DataFileMeta] = []
        after: list[DataFileMeta] = []
        changelog: list[DataFileMeta] = []
        tombstones: list[DataFileMeta] = []
        written: list[DataFileMeta] = []
        try:
            for step in steps:
                rewritten = self._execute(step, task)
                written += rewritten.all_files
                changelog += rewritten.changelog
                tombstones += rewritten.tombstones
                if isinstance(step, Upgrade):
                    before.append(step.file)
                    after.append(replace(step.file, level=unit.output_level))
                else:
                    before += step.files
                    after += rewritten.files
            index = task.index_change(before, after)
        except BaseException:
            self._files.delete(written)
            raise
        return CompactResult(
            tuple(before),
            tuple(after),
            tuple(changelog),
            reason=unit.reason.value,
            tombstones=tuple(tombstones),
            known_files=frozenset(file.file_name for file in levels.files) if tombstones else frozenset(),
            new_index_files=index.new,
            deleted_index_files=index.deleted,
            relied_on=levels.upper_places if self._context.options.needs_lookup else None,
        )

    def _task(self, output_level: int, is_cancelled: IsCancelled) -> _Task:
        context, has_vectors = self._context, self._context.options.deletion_vectors_enabled
        return _Task(
            output_level,
            can_drop_deletes(output_level, self.levels.highest_level, has_deletion_vectors=has_vectors),
            self._now_ms() // 1000,
            is_cancelled,
            DeletionMarks(DeletionVectorMaintainer(context, self._key, self._index_files)) if has_vectors else None,
        )

    def add(self, files: Sequence[DataFileMeta]) -> None:
        """Add files that a flush wrote."""
        self.levels = self.levels.updated(after=files)

    def with_known_files(self, result: CompactResult) -> CompactResult:
        """Return a result of `compact`, before `install`, with the files added meanwhile as known_files."""
        if not result.tombstones:
            return result
        return replace(result, known_files=result.known_files.union(file.file_name for file in self.levels.files))

    def install(self, result: CompactResult) -> None:
        self.levels = self.levels.updated(result.before, result.after)
        index_files = [file for file in self._index_files if file not in result.deleted_index_files]
        self._index_files = (*index_files, *result.new_index_files)
        kept = {file.file_name for file in result.after}
        self._lookup_cache.drop(self._files.path(file) for file in result.before if file.file_name not in kept)

    def close(self) -> None:
        """End lookups, and delete the lookup files from disk."""
        self._lookup_cache.drop(map(self._files.path, self.levels.files))

    def discard(self, result: CompactResult) -> None:
        """Delete the files of a compaction whose result will not be published."""
        self._files.discard(result)

    def _has_uncounted_deletes(self, file: DataFileMeta) -> bool:
        """Return whether a file of level 0 has deletes but counts none, such as pypaimon's.

        The count of higher levels is trusted.
        """
        if file.level != 0 or file.may_hold_deletes:
            return False
        return any(is_retract(row_kinds(batch)).any() for batch in self._files.read(file, [KIND_FIELD]))

    def _execute(self, step: Step, task: _Task) -> RewriteResult:
        if isinstance(step, Upgrade) and not step.produces_changelog:
            return RewriteResult()
        rewriter = MergeTreeRewriter(
            self._context,
            self._files,
            self._merges.merge(
                self.levels,
                step.files,
                task.output_level,
                partial(self._lookup_upper_levels, task),
                writes_rows=not isinstance(step, Upgrade),
            ),
            self._expiry,
            task.now_s,
            task.is_cancelled,
            self._spill_directory,
            keeps_dropped_deletes=not self._sequence_numbers_decide,
            deletion_files=task.marks.deletion_files if task.marks is not None else {},
        )
        if isinstance(step, Upgrade):
            return rewriter.read_changes(step.sections, task.output_level)
        return rewriter.rewrite(step.sections, task.output_level, drop_deletes=task.drop_deletes)

    def _lookup_upper_levels(self, task: _Task, levels: Levels, output_level: int) -> Find:
        runs = [run.files for run in levels.runs if run.level > output_level]
        key_fields = self._context.schema.select(self._context.schema.trimmed_primary_keys)
        return LookupLevels(self._files, runs, key_fields, self._lookup_cache, self._is_visible(task)).find

    def _is_visible(self, task: _Task) -> IsVisible | None:
        """Return a function that tells which found rows a lookup may use: not expired or deleted ones.

        It also marks found rows.

        None if all rows are visible. Only in a table with deletion vectors rows are marked.
        """
        expiry, marks = self._expiry, task.marks
        if marks is None:
            return None if expiry is None else lambda _, found: expiry.keeps(found.rows.rows, task.now_s)

        def is_visible(file: DataFileMeta, found: FileLookupResult) -> NDArray[np.bool_]:
            is_live = marks.mark(file.file_name, found.positions)
            return is_live if expiry is None else is_live & expiry.keeps(found.rows.rows, task.now_s)

        return is_visible

    def _must_rewrite(self, now_s: int) -> Callable[[DataFileMeta], bool]:
        def must_rewrite(file: DataFileMeta) -> bool:
            if self._context.options.force_rewrite_all_files:
                return True
            return self._expiry is not None and bool(self._expiry.has_expired_rows([file], now_s)[0])

        return must_rewrite

    def _must_rewrite_in_full(self, now_s: int) -> Callable[[DataFileMeta], bool]:
        """Return whether a full compaction rewrites a file of the highest level, also in order to drop marked rows."""
        must_rewrite = self._must_rewrite(now_s)
        marked = {vector.data_file for file in self._index_files for vector in file.vectors}
        return lambda file: file.file_name in marked or must_rewrite(file)


@dataclass(frozen=True, slots=True)
class _Task:
    """The common state of all steps of one compaction.

    marks: of a table with deletion vectors
    """

    output_level: int
    drop_deletes: bool
    now_s: int
    is_cancelled: IsCancelled
    marks: DeletionMarks | None

    def index_change(self, before: Sequence[DataFileMeta], after: Sequence[DataFileMeta]) -> IndexChange:
        """Return the index files that were written, and those that they replace."""
        if self.marks is None:
            return IndexChange()
        kept = {file.file_name for file in after}
        removed = [file.file_name for file in before if file.file_name not in kept]
        return self.marks.write(removed) or IndexChange()
