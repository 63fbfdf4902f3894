"""Snapshots committed under the lock of their table.

Source: Java `catalog/RenamingSnapshotCommit.java` (with a lock).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeVar

from storage.backoff import ExponentialBackoff
from storage.catalog.identifier import Identifier
from storage.commit.file_system_commit import FileSystemSnapshotCommit
from storage.errors import CommitConflict
from storage.snapshots.snapshot import Snapshot
from storage.snapshots.snapshot_commit import Statistics
from storage.table import TableContext

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LockWaiting:
    """How one waits for a lock that others hold.

    sleep_ms, monotonic_ms: which tests replace.
    """

    first_sleep_ms: float
    sleep_ms_max: float
    timeout_ms: float
    sleep_ms: Callable[[float], None] = lambda wait_ms: time.sleep(wait_ms / 1000)
    monotonic_ms: Callable[[], float] = lambda: time.monotonic() * 1000

    def until(self, acquire: Callable[[], T | None], what: str, where: str) -> T:
        """What `acquire` gives, as soon as that isn't None.

        what: `shop.t: others held its lock`, for messages. where: the lock is.

        Raises CommitConflict.
        """
        backoff = ExponentialBackoff(self.first_sleep_ms, self.sleep_ms_max, jitter=(0.5, 1.0))
        started_ms, failures = self.monotonic_ms(), 0
        while (acquired := acquire()) is None:
            if self.monotonic_ms() - started_ms > self.timeout_ms:
                raise CommitConflict(
                    f"{what} for {self.timeout_ms / 1000:.0f} s ({where}); nothing was changed. Try again, or raise "
                    "lock-acquire-timeout"
                )
            self.sleep_ms(backoff.wait_ms(failures))
            failures += 1
        return acquired


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
