"""The protocol by which a bucket writer compacts. Package `compaction` implements it, and is handed in.

Source: Java `compact/CompactManager.java`, `compact/CompactResult.java`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from storage.files.data_file import DataFileMeta
from storage.files.index_file import IndexFileMeta
from storage.options import ChangelogProducer
from storage.pickled_values import pickles_as_values
from storage.table import TableContext
from storage.write.bucket_router import BucketKey


@dataclass(frozen=True, slots=True)
class CompactResult:
    """The result of one compaction.

    before: files that were read, or raised to another level
    after: what takes their place. An upgraded file is in both, with its two levels and one name.
    changelog: files with the changes that compaction found
    reason: why it was picked, for people
    tombstones, known_files: see `storage.commit.tombstones`
    new_index_files, deleted_index_files: deletion vectors of the bucket, and those that they replace

    Files of `after` that aren't in `before`, of changelog, of tombstones and new index files are durable; no snapshot
    names them yet.
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
    """Compacts one bucket during writing, at most one task at a time. Called under the bucket writer's lock."""

    def added(self, files: Sequence[DataFileMeta]) -> None:
        """The writer made these."""
        ...

    @property
    def excess_runs(self) -> int:
        """How many more sorted runs than `num-sorted-run.stop-trigger` allows; writing on would let reads decay."""
        ...

    @property
    def is_stale(self) -> bool:
        """Others compacted files that this one counts on, and they are gone. It rests until it is `reset`."""
        ...

    @property
    def is_busy(self) -> bool:
        """A task runs or waits for its turn, or its result was not taken; or one has yet to begin that readers wait
        for.
        """
        ...

    def trigger(self, *, full: bool = False) -> None:
        """Begin what is to be done next, if anything. While a task is there, only a full compaction that follows it may
        be asked for.
        """
        ...

    def take(self, *, wait: bool) -> CompactResult | None:
        """The result of the task, when it has ended (wait: when it ends); None when there is none, or it was cancelled.
        Raises what the task raised.
        """
        ...

    def cancel(self) -> None:
        """Start no new task; a running one ends soon, without a result. Does not wait; thread-safe."""
        ...

    def reset(self, bucket: RestoredBucket) -> None:
        """Forget what is known; this is in the bucket. A running task is cancelled, its files are deleted."""
        ...

    def close(self) -> None:
        """Cancel a task that runs or waits, and delete what it wrote. Calling again is harmless."""
        ...


CompactorFactory: TypeAlias = Callable[[TableContext, BucketKey, RestoredBucket], Compactor | None]
"""For a bucket and what is in it. None: this one is not compacted (write-only, tables without primary key)."""


def compactor_of_replaced(factory: CompactorFactory, context: TableContext) -> CompactorFactory | None:
    """The compactor of buckets whose rows will be replaced: it compacts only new rows. None if that is not needed.

    Rows of level 0 would not be seen, or be changes in the changelog of the next compaction, though an overwrite has
    none. Then also a write-only writer compacts: readers see an overwrite as a whole.
    """
    options = context.options
    if not (options.needs_lookup or options.changelog_producer is ChangelogProducer.FULL_COMPACTION):
        return None
    silent = context.with_options({"changelog-producer": "none", "write-only": "false"})
    return lambda _, key, __: factory(silent, key, RestoredBucket())
