"""The protocol by which a bucket writer compacts. Package `compaction` implements it.

Source: Java `compact/CompactManager.java`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from tidelake.storage.base.pickled_values import pickles_as_values
from tidelake.storage.commit.commit_increment import CompactResult
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.files.index_file import IndexFileMeta
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.bucketing import BucketMode, bucket_mode
from tidelake.storage.model.options import ChangelogProducer
from tidelake.storage.model.table import TableContext


@pickles_as_values
@dataclass(frozen=True, slots=True)
class RestoredBucket:
    """The data files and index files of a bucket in a snapshot."""

    files: Sequence[DataFileMeta] = ()
    index_files: Sequence[IndexFileMeta] = ()


class LongCompaction(Protocol):
    """A compaction that takes so long that other tables should not wait for it.

    nbytes: how much it reads.
    """

    nbytes: int

    @property
    def is_done(self) -> bool: ...


class Compactor(Protocol):
    """Compacts one bucket while it is written, one task at a time. Called under the lock of the bucket writer."""

    def added(self, files: Sequence[DataFileMeta]) -> None:
        """Take files that the writer made."""
        ...

    @property
    def excess_runs(self) -> int:
        """The number of sorted runs above `num-sorted-run.stop-trigger`. Further writes would slow down reads."""
        ...

    def may_be_long(self, incoming_bytes: int) -> bool:
        """Return whether a compaction can be long, with so many bytes more in the bucket."""
        ...

    @property
    def long_task(self) -> LongCompaction | None:
        """The task if it is long and not done."""
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
        """Start the next task, if there is work. While a task exists, only a full one after it can be requested."""
        ...

    def take(self, *, wait: bool) -> CompactResult | None:
        """Return the result of the task if it has ended; None if there is no task, or if it was cancelled.

        Raises the error of the task.

        wait: wait until the task has ended.
        """
        ...

    def cancel(self) -> None:
        """Start no new task. A running task soon ends without a result. Does not wait; thread-safe."""
        ...

    def reset(self, bucket: RestoredBucket) -> None:
        """Replace the view of the bucket by this one. A running task is cancelled, and its files are deleted."""
        ...

    def close(self) -> None:
        """Cancel a running or waiting task, and delete its files. May be called several times."""
        ...


CompactorFactory: TypeAlias = Callable[[TableContext, BucketId, RestoredBucket], Compactor | None]
"""Called with a bucket and its content. None: the bucket is not compacted (write-only, tables without primary key)."""


def compactor_factory_of(
    context: TableContext, factory: CompactorFactory | None, *, replaces: bool, in_full: bool = False
) -> CompactorFactory | None:
    """Return what compacts the buckets of a writer; None if nothing does.

    replaces: for an overwrite, which compacts only the new rows. Otherwise readers would not see rows of level 0, or
        the next compaction would write them to the changelog, though an overwrite has no changelog. So even a
        write-only writer compacts: readers see an overwrite as a whole.
    in_full: such an overwrite is compacted in any case
    """
    options = context.options
    if factory is None:
        return None
    if not replaces:
        is_postponed = bucket_mode(context.schema, options) is BucketMode.POSTPONE
        return None if options.write_only or is_postponed else factory
    is_needed = options.needs_lookup or options.changelog_producer is ChangelogProducer.FULL_COMPACTION
    if not (is_needed or in_full):
        return None
    silent = context.with_options({"changelog-producer": "none", "write-only": "false"})
    return lambda _, key, __: factory(silent, key, RestoredBucket())
