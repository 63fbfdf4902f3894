"""The protocol by which a bucket writer compacts. Package `compaction` implements it.

Source: Java `compact/CompactManager.java`, `compact/CompactResult.java`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from tidelake.storage.base.pickled_values import pickles_as_values
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.files.index_file import IndexFileMeta
from tidelake.storage.model.options import ChangelogProducer
from tidelake.storage.model.table import TableContext
from tidelake.storage.write.bucket_router import BucketKey


@dataclass(frozen=True, slots=True)
class CompactResult:
    """The result of one compaction.

    before: files that were read, or moved to another level
    after: files that replace them. An upgraded file is in both, with two levels and one name.
    changelog: files with the changes that the compaction found
    reason: why the compaction was picked, for people
    tombstones, known_files: see `tidelake.storage.commit.commit_changes`
    new_index_files: deletion vectors of the bucket
    deleted_index_files: index files that these replace

    All new files are durable: those of `after` that are not in `before`, of `changelog`, of `tombstones` and of
    `new_index_files`. No snapshot names them yet.
    """

    before: tuple[DataFileMeta, ...] = ()
    after: tuple[DataFileMeta, ...] = ()
    changelog: tuple[DataFileMeta, ...] = ()
    reason: str = ""
    tombstones: tuple[DataFileMeta, ...] = ()
    known_files: frozenset[str] = frozenset()
    new_index_files: tuple[IndexFileMeta, ...] = ()
    deleted_index_files: tuple[IndexFileMeta, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.before or self.after or self.changelog)

    @property
    def new_files(self) -> list[DataFileMeta]:
        """Files that the compaction wrote: data, changelog and tombstones."""
        kept = {file.file_name for file in self.before}
        return [*(file for file in self.after if file.file_name not in kept), *self.changelog, *self.tombstones]


@pickles_as_values
@dataclass(frozen=True, slots=True)
class RestoredBucket:
    """The data files and index files of a bucket in a snapshot."""

    files: Sequence[DataFileMeta] = ()
    index_files: Sequence[IndexFileMeta] = ()


class Compactor(Protocol):
    """Compacts one bucket while it is written, one task at a time. Called under the lock of the bucket writer."""

    def added(self, files: Sequence[DataFileMeta]) -> None:
        """Called with files that the writer made."""
        ...

    @property
    def excess_runs(self) -> int:
        """The number of sorted runs above `num-sorted-run.stop-trigger`. Further writes would slow down reads."""
        ...

    @property
    def is_stale(self) -> bool:
        """Whether files that the compactor relies on were compacted by others and are gone. It pauses until `reset`."""
        ...

    @property
    def is_busy(self) -> bool:
        """Whether a task is running or waiting, or its result was not taken, or readers wait for a task to start."""
        ...

    def trigger(self, *, full: bool = False) -> None:
        """Starts the next task, if there is work. While a task exists, only a full one after it can be requested."""
        ...

    def take(self, *, wait: bool) -> CompactResult | None:
        """Returns the result of the task if it has ended; None if there is no task, or if it was cancelled.

        Raises the error of the task.

        wait: wait until the task has ended.
        """
        ...

    def cancel(self) -> None:
        """Starts no new task. A running task soon ends without a result. Does not wait; thread-safe."""
        ...

    def reset(self, bucket: RestoredBucket) -> None:
        """Replaces the view of the bucket by this one. A running task is cancelled, and its files are deleted."""
        ...

    def close(self) -> None:
        """Cancels a running or waiting task, and deletes its files. May be called several times."""
        ...


CompactorFactory: TypeAlias = Callable[[TableContext, BucketKey, RestoredBucket], Compactor | None]
"""Called with a bucket and its content. None: the bucket is not compacted (write-only, tables without primary key)."""


def compactor_of_replaced(factory: CompactorFactory, context: TableContext) -> CompactorFactory | None:
    """Returns the compactor for an overwrite, which compacts only the new rows. None if none is needed.

    Without it, readers would not see rows of level 0, or the next compaction would write them to the changelog, though
    an overwrite has no changelog. So even a write-only writer compacts: readers see an overwrite as a whole.
    """
    options = context.options
    if not (options.needs_lookup or options.changelog_producer is ChangelogProducer.FULL_COMPACTION):
        return None
    silent = context.with_options({"changelog-producer": "none", "write-only": "false"})
    return lambda _, key, __: factory(silent, key, RestoredBucket())
