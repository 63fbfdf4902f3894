"""Compaction beside writing: what a bucket writer is given.

    TableWriter(context, compactor_of=compactors())

At most one task a bucket. Its result waits until the writer takes it, so that levels only change under the writer's
lock.

Source: Java `compact/CompactFutureManager.java`, `mergetree/compact/MergeTreeCompactManager.java`.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import CancelledError
from functools import partial

from compaction.bucket_tree import BucketTree
from compaction.report import BucketCompaction
from compaction.scheduler import CompactionScheduler, Task, shared_scheduler
from compaction.stopping import CompactionStopped
from storage.errors import CorruptFile
from storage.files.bucket_directory import partition_directory
from storage.files.data_file import DataFileMeta
from storage.logs import get_logger
from storage.snapshots.live_files import live_entries_of
from storage.snapshots.manifest_store import ManifestStore
from storage.snapshots.snapshot import SnapshotStore
from storage.table import TableContext
from storage.write.compactor import CompactorOf, CompactResult
from storage.write.router import BucketKey

_log = get_logger(__name__)


class BucketCompactor:
    """See `storage.write.compactor.Compactor`."""

    def __init__(
        self,
        context: TableContext,
        key: BucketKey,
        files: Sequence[DataFileMeta],
        scheduler: CompactionScheduler,
        spill_directory: str | None = None,
    ) -> None:
        self._context = context
        self._key = key
        self._scheduler = scheduler
        self._stop_trigger = context.options.stop_trigger
        self._spill_directory = spill_directory
        self._tree = BucketTree(context, key, files, spill_directory)
        self._task: Task[CompactResult] | None = None
        self._has_given_up = False
        self.is_overtaken = False

    def added(self, files: Sequence[DataFileMeta]) -> None:
        self._tree.add(files)

    @property
    def excess_runs(self) -> int:
        return max(0, self._tree.run_count - self._stop_trigger)

    @property
    def is_busy(self) -> bool:
        return self._task is not None

    def trigger(self, *, full: bool = False) -> None:
        if self._task is not None:
            assert not full, "a full compaction follows the task that runs; take its result first"
            return
        unit = None if self._has_given_up or self.is_overtaken else self._tree.pick(full=full)
        if unit is None:
            return
        if any(file.schema_id > self._context.schema.id for file in unit.files):
            # rewritten under this writer's schema, they would lose the columns that were added since
            _log.info("compaction left to a writer of the newer schema", **self._where)
        else:
            self._task = self._scheduler.submit(self._context.name, partial(self._tree.compact, unit))
            if self._has_given_up:  # meanwhile
                self._task.ask_to_stop()

    def take(self, *, wait: bool) -> CompactResult | None:
        if self._task is None or not (wait or self._task.is_done):
            return None
        try:
            result = self._task.result()  # while this waits, `give_up` must find the task
        except (CompactionStopped, CancelledError):
            return None
        except CorruptFile as error:
            if self._is_live(error.path):
                raise
            _log.warning("compaction thrown away", **self._where, reason=f"others compacted what it read: {error}")
            self.is_overtaken = True
            return None
        finally:
            self._task = None
        result = self._tree.knowing_all(result)
        self._tree.install(result)
        told = BucketCompaction.of(self._context, self._key, result)
        _log.info("compacted", table=self._context.name, **told.to_members())
        return None if result.is_empty else result

    def give_up(self) -> None:
        self._has_given_up = True
        if (task := self._task) is not None:
            task.ask_to_stop()

    def reset(self, files: Sequence[DataFileMeta]) -> None:
        self.close()
        self._tree = BucketTree(self._context, self._key, files, self._spill_directory)
        self.is_overtaken = False

    def close(self) -> None:
        if self._task is None:
            return
        task, self._task = self._task, None
        if task.stop() is None:
            self._tree.discard(task.result())

    def _is_live(self, path: str) -> bool:
        """Or may still become so: only a file that was compacted, and expired, is neither there nor named."""
        if self._context.io.exists(path):
            return True
        latest = SnapshotStore(self._context.io, self._context.paths).latest()
        live = live_entries_of(ManifestStore(self._context), latest, {self._key.partition}, self._context.name)
        return any(entry.file.file_name == path.rpartition("/")[2] for entry in live)

    @property
    def _where(self) -> dict[str, object]:
        partition = partition_directory(self._context, self._key.partition)
        where: dict[str, object] = {"table": self._context.name, "bucket": self._key.bucket}
        return {**where, "partition": partition} if partition else where


def compactors(scheduler: CompactionScheduler | None = None, spill_directory: str | None = None) -> CompactorOf:
    """For a writer that compacts as its table says. scheduler: None takes the one of the process.

    spill_directory: see `BucketTree`.
    """

    def of(context: TableContext, key: BucketKey, files: Sequence[DataFileMeta]) -> BucketCompactor | None:
        if context.options.write_only or not context.schema.has_primary_key:
            return None
        return BucketCompactor(context, key, files, scheduler or shared_scheduler(), spill_directory)

    return of
