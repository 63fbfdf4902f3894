"""Compaction during writing, for a bucket writer.

    TableWriter(context, compactor_factory=compact_manager_factory())

A bucket has at most one task. Its result waits until the writer takes it, so that levels change only under the writer's
lock.

Source: Java `compact/CompactFutureManager.java`, `mergetree/compact/MergeTreeCompactManager.java`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from functools import partial
from typing import TypeAlias

from tidelake.compaction.cancellation import CompactionCancelled
from tidelake.compaction.merge_tree.merge_tree import MergeTree
from tidelake.compaction.report import BucketCompaction
from tidelake.compaction.scheduler import CompactionScheduler, ScheduledTask, is_long, shared_scheduler
from tidelake.errors import CorruptFile
from tidelake.storage.base.logs import get_logger
from tidelake.storage.commit.commit_increment import CompactResult
from tidelake.storage.files.bucket_directory import partition_directory
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.table import TableContext
from tidelake.storage.read.expired_snapshots import newest_live_entries
from tidelake.storage.write.compactor import CompactorFactory, RestoredBucket
from tidelake.storage.write.lookup.lookup_cache import LookupCache

_log = get_logger(__name__)

CompactionListener: TypeAlias = Callable[[str, CompactResult, float], None]
"""(table, result, seconds that it ran): called with each compaction whose result was taken, in any thread."""


class BucketCompactManager:
    """Compacts one bucket during writing. See `tidelake.storage.write.compactor.Compactor`."""

    def __init__(
        self,
        context: TableContext,
        key: BucketId,
        bucket: RestoredBucket,
        scheduler: CompactionScheduler,
        spill_directory: str | None = None,
        lookup_cache: LookupCache | None = None,
        listener: CompactionListener | None = None,
    ) -> None:
        self._listener = listener
        self._context = context
        self._key = key
        self._scheduler = scheduler
        self._stop_trigger = context.options.stop_trigger
        self._spill_directory = spill_directory
        self._lookup_cache = lookup_cache
        self._tree = self._tree_of(bucket)
        self._task: ScheduledTask[CompactResult] | None = None
        self._is_cancelled = False
        self.is_stale = False

    def added(self, files: Sequence[DataFileMeta]) -> None:
        self._tree.add(files)

    @property
    def excess_runs(self) -> int:
        return max(0, self._tree.run_count - self._stop_trigger)

    def may_be_long(self, incoming_bytes: int) -> bool:
        return is_long(incoming_bytes + sum(run.size_bytes for run in self._tree.levels.runs))

    @property
    def long_task(self) -> ScheduledTask[CompactResult] | None:
        task = self._task
        return task if task is not None and task.is_long and not task.is_done else None

    @property
    def is_busy(self) -> bool:
        return self._task is not None or self._has_level_0_to_compact

    @property
    def _has_level_0_to_compact(self) -> bool:
        """Whether rows of level 0 are still invisible, or their changes are not in the changelog yet."""
        if self._is_cancelled or self.is_stale or not self._context.options.needs_lookup:
            return False
        return any(file.level == 0 for file in self._tree.levels.files)

    def trigger(self, *, full: bool = False) -> None:
        if self._task is not None:
            assert not full, "a full compaction can't start while a task runs; take its result first"
            return
        unit = None if self._is_cancelled or self.is_stale else self._tree.pick(full=full)
        if unit is None:
            return
        nbytes = sum(file.file_size for file in unit.files)
        self._task = self._scheduler.submit(self._context.name, partial(self._tree.compact, unit), nbytes)
        if self._is_cancelled:  # cancelled meanwhile
            self._task.cancel()

    def take(self, *, wait: bool) -> CompactResult | None:
        if self._task is None or not (wait or self._task.is_done):
            return None
        task = self._task
        try:
            result = task.result()  # while this waits, `cancel` must find the task
        except (CompactionCancelled, CancelledError):
            return None
        except CorruptFile as error:
            if self._is_live(error.path):
                raise
            _log.warning("compaction discarded", **self._where, reason=f"another job compacted the same files: {error}")
            self.is_stale = True
            return None
        finally:
            self._task = None
        result = self._tree.with_known_files(result)
        self._tree.install(result)
        compacted = BucketCompaction.of(self._context, self._key, result)
        _log.info("compacted", table=self._context.name, **compacted.to_members())
        if self._listener is not None:
            self._listener(self._context.name, result, task.ran_s)
        return None if result.is_empty else result

    def cancel(self) -> None:
        self._is_cancelled = True
        if (task := self._task) is not None:
            task.cancel()

    def reset(self, bucket: RestoredBucket) -> None:
        self.close()
        self._tree = self._tree_of(bucket)
        self.is_stale = False

    def close(self) -> None:
        task, self._task = self._task, None
        if task is not None and task.cancel_and_wait() is None:
            self._tree.discard(task.result())
        self._tree.close()

    def _tree_of(self, bucket: RestoredBucket) -> MergeTree:
        if any(file.schema_id > self._context.schema.id for file in bucket.files):
            # Under the writer's older schema, the rewritten rows would lose columns that were added since.
            newest = self._context.schemas.latest()
            self._context = self._context if newest is None else self._context.with_schema(newest)
            _log.info("compactions follow the table's newer schema", schema=self._context.schema.id, **self._where)
        return MergeTree(
            self._context,
            self._key,
            bucket.files,
            self._spill_directory,
            lookup_cache=self._lookup_cache,
            index_files=bucket.index_files,
        )

    def _is_live(self, path: str) -> bool:
        """Return whether a file exists or is live. Only a compacted and expired file neither exists nor is named."""
        if self._context.io.exists(path):
            return True
        name = path.rpartition("/")[2]
        return any(entry.file.file_name == name for entry in newest_live_entries(self._context))

    @property
    def _where(self) -> dict[str, object]:
        partition = partition_directory(self._context, self._key.partition)
        where: dict[str, object] = {"table": self._context.name, "bucket": self._key.bucket}
        return {**where, "partition": partition} if partition else where


def compact_manager_factory(
    scheduler: CompactionScheduler | None = None,
    spill_directory: str | None = None,
    listener: CompactionListener | None = None,
) -> CompactorFactory:
    """Return the compactor factory of a writer, by the table's options.

    scheduler: None takes the shared one of the process
    spill_directory: see `MergeTree`
    listener: called after each compaction
    """

    cache: LookupCache | None = None

    def of(context: TableContext, key: BucketId, bucket: RestoredBucket) -> BucketCompactManager | None:
        nonlocal cache
        if context.options.write_only or not context.schema.has_primary_key:
            return None
        if cache is None:
            cache = LookupCache(context.options, spill_directory)
        return BucketCompactManager(
            context, key, bucket, scheduler or shared_scheduler(), spill_directory, cache, listener
        )

    return of
