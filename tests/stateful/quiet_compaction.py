"""Compaction during writing without threads, observed by the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from tests.stateful.naive_tree import NaiveTree
from tidelake.compaction.compact_manager import BucketCompactManager
from tidelake.compaction.scheduler import CompactionScheduler, ScheduledTask
from tidelake.storage.commit.commit_increment import CompactResult
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.table import TableContext
from tidelake.storage.write.compactor import CompactorFactory, RestoredBucket

T = TypeVar("T")


class _Turn(ScheduledTask[T]):
    """A task that runs when a caller waits for it."""

    def result(self) -> T:
        if not self.is_done:
            self.run()
        return super().result()


class Turns(CompactionScheduler):
    """Tasks run when a test starts them, or when a caller waits. Nothing depends on time."""

    def __init__(self) -> None:
        super().__init__(threads=1)
        self._tasks: list[ScheduledTask[object]] = []

    def submit(self, table: str, work: Callable[[Callable[[], bool]], T], nbytes: int = 0) -> ScheduledTask[T]:
        task = _Turn(work)
        self._tasks.append(task)  # type: ignore[arg-type]
        return task

    def run_all(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            if not task.is_done:
                task.run()

    def forget(self) -> None:
        self._tasks = []


class WatchedCompactor(BucketCompactManager):
    """Reports flushes and compactions to the model, when the bucket's writer learns of them."""

    def __init__(
        self, model: NaiveTree, context: TableContext, key: BucketId, bucket: RestoredBucket, turns: Turns
    ) -> None:
        super().__init__(context, key, bucket, turns)
        self._model, self._of = model, key
        self._levels = _levels(bucket.files)

    def added(self, files: Sequence[DataFileMeta]) -> None:
        self._model.flushed(self._of, files)
        self._levels |= _levels(files)
        super().added(files)

    def take(self, *, wait: bool) -> CompactResult | None:
        result = super().take(wait=wait)
        if result is not None:
            for name in _levels(result.before):
                del self._levels[name]
            self._model.compacted(self._of, result.before, result.after, self._levels)
            self._levels |= _levels(result.after)
        return result

    def reset(self, bucket: RestoredBucket) -> None:
        super().reset(bucket)
        self._levels = _levels(bucket.files)


def _levels(files: Sequence[DataFileMeta]) -> dict[str, int]:
    return {file.file_name: file.level for file in files}


def watched(model: NaiveTree, turns: Turns) -> CompactorFactory:
    def of(context: TableContext, key: BucketId, bucket: RestoredBucket) -> WatchedCompactor:
        return WatchedCompactor(model, context, key, bucket, turns)

    return of
