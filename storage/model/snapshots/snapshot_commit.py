"""The protocol by which a table's catalog makes a snapshot the next one of a branch.

`tidelake.storage.commit.file_system_commit` implements it for the file system. A catalog with locks holds the table's
lock while it calls that implementation. A catalog that stores snapshots itself (REST) sends the snapshot to its server.

Source: Java `catalog/SnapshotCommit.java`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

from tidelake.storage.model.snapshots.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class PartitionStatistics:
    """What one commit changes in one partition. Removed files count as negative numbers.

    partition: serialized BinaryRow.
    record_count: unmerged rows.
    file_size_bytes: size of data files.
    file_count: number of data files.
    last_file_creation_time_ms: creation time of its newest file; None if no file records it.
    total_buckets: number of buckets of its last files.

    Source: Java `partition/PartitionStatistics.java`, `manifest/PartitionEntry.java`.
    """

    partition: bytes
    record_count: int
    file_size_bytes: int
    file_count: int
    last_file_creation_time_ms: int | None
    total_buckets: int


Statistics: TypeAlias = Callable[[], Sequence[PartitionStatistics]]


class SnapshotCommit(Protocol):
    """Commits snapshots of one branch of one table (that of its TableContext). Not thread-safe.

    Both calls return True if the snapshot is the next one after `base`, and readers will find it. They return False if
    it surely is not and never will be, because another one has its id. Then files that only it names may be deleted.
    UnsupportedFeature means the same, and why no snapshot can ever be committed here. CommitConflict also means the
    same, if more attempts would not help now (others hold the lock). CommitOutcomeUnknown ends the attempts. After any
    other error the outcome is unknown: the snapshot may appear at any time.

    base: the snapshot that it was built on; None for the first of a branch.
    """

    def commit(self, base: Snapshot | None, snapshot: Snapshot, statistics: Statistics) -> bool:
        """Publish the snapshot, unless its id is taken.

        statistics: returns what it changes in each partition, for catalogs that count. Computed only if needed.
        """
        ...

    def is_committed(self, base: Snapshot | None, snapshot: Snapshot) -> bool:
        """Answer the same question for a snapshot whose `commit` failed with an error, and which the table has now."""
        ...


@runtime_checkable
class StepwiseCommit(SnapshotCommit, Protocol):
    """A `SnapshotCommit` of two steps. So a second snapshot can be built on the first one before that is confirmed.

    After an error of `create` the outcome is unknown, as above. After an error of `confirm` as well.
    """

    def create(self, snapshot: Snapshot) -> bool:
        """Create the file of the snapshot. Returns False if its id is taken."""
        ...

    def confirm(
        self, base: Snapshot | None, created: Sequence[Snapshot], doubtful: Snapshot | None = None
    ) -> Sequence[Snapshot]:
        """Return those of the created snapshots that belong to the table's history. Withdraws the others.

        base: the snapshot that the first of them was built on.
        created: one or two, the second one built on the first one.
        doubtful: built on the last one of them, with a failed `create`. It may exist now, and proves nothing.
        """
        ...
