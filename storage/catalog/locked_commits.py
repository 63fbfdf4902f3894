"""Snapshots committed under the lock of their table.

Source: Java `catalog/RenamingSnapshotCommit.java` (with a lock).
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import ClassVar, Protocol

from storage.catalog.identifier import Identifier
from storage.commit.file_system_commit import FileSystemSnapshotCommit
from storage.snapshots.snapshot import Snapshot
from storage.snapshots.snapshot_commit import Statistics
from storage.table import TableContext


class TableLocks(Protocol):
    """The locks of one catalog. They pickle; not reentrant."""

    def held(self, table: Identifier) -> AbstractContextManager[None]:
        """table: or a branch of it.

        Raises CommitConflict when others hold it all the time; then the block was not entered.
        """
        ...


@dataclass(frozen=True, slots=True)
class LockedCommits:
    """Snapshots committed while the table's lock is held: others, Java's among them, see each id free or taken."""

    locks: TableLocks
    keeps_partitions: ClassVar[bool] = False

    def __call__(self, context: TableContext) -> LockedSnapshotCommit:
        return LockedSnapshotCommit(context, self.locks)


class LockedSnapshotCommit:
    """See `SnapshotCommit`. Creating only if absent stays: a lock that expired under us excludes no other writer."""

    def __init__(self, context: TableContext, locks: TableLocks) -> None:
        self._unlocked = FileSystemSnapshotCommit(context)
        self._locks = locks
        database, _, table = context.name.partition(".")
        self._table = Identifier(database, table, context.branch)

    def commit(self, base: Snapshot | None, snapshot: Snapshot, statistics: Statistics) -> bool:
        with self._locks.held(self._table):
            return self._unlocked.commit(base, snapshot, statistics)

    def is_committed(self, base: Snapshot | None, snapshot: Snapshot) -> bool:
        with self._locks.held(self._table):
            return self._unlocked.is_committed(base, snapshot)
