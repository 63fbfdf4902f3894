"""How a table's catalog makes a snapshot the next one of a branch.

The file system's is `storage.commit.file_system_commit`. A catalog with locks holds the table's lock around that one; a
catalog that keeps snapshots itself (REST) sends the snapshot to its server.

Source: Java `catalog/SnapshotCommit.java`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from storage.snapshots.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class PartitionStatistics:
    """What one commit changes in one partition. Numbers of files that it removes count negative.

    partition: serialized BinaryRow.
    record_count: unmerged rows.
    file_size_bytes: of data files.
    file_count: of data files.
    last_file_creation_time_ms: of its newest file; None when no file records it.
    total_buckets: of the files that came last.

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
    """Of one branch of one table (the TableContext that it was made of). One thread at a time.

    Both calls say True when the snapshot is the next after `base`, and readers will find it. They say False when it
    surely isn't and never will be: another one is in its place. Then the files that only it names may be deleted.
    UnsupportedFeature says the same, and why no snapshot can ever be committed here; so does CommitConflict, where more
    attempts now would not help (others hold the lock). CommitOutcomeUnknown ends the attempts. After any other error
    the outcome is unknown: the snapshot may appear at any time.

    base: the snapshot that it was built on; None for the first of a branch.
    """

    def commit(self, base: Snapshot | None, snapshot: Snapshot, statistics: Statistics) -> bool:
        """Publish the snapshot, unless its id is taken.

        statistics: what it changes in each partition, for catalogs that count; made when asked.
        """
        ...

    def is_committed(self, base: Snapshot | None, snapshot: Snapshot) -> bool:
        """The same question of a snapshot whose `commit` ended in an error, and which the table shows now."""
        ...
