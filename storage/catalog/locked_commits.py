"""Commits snapshots while holding the lock of their table.

Source: Java `catalog/RenamingSnapshotCommit.java` (with a lock).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeVar

from tidelake.errors import CommitConflict
from tidelake.storage.base import env
from tidelake.storage.base.backoff import ExponentialBackoff
from tidelake.storage.catalog.identifier import Identifier
from tidelake.storage.commit.file_system_commit import FileSystemSnapshotCommit
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.snapshots.snapshot_commit import Statistics
from tidelake.storage.model.table import TableContext

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LockWaiting:
    """How a process waits for a lock that another one holds.

    first_sleep_ms: the sleep after the first attempt; it grows from there.
    sleep_ms_max: the longest sleep between two attempts.
    timeout_ms: how long the process waits in total.
    sleep_ms: the function that sleeps; tests replace it.
    monotonic_ms: the clock; tests replace it.
    """

    first_sleep_ms: float
    sleep_ms_max: float
    timeout_ms: float
    sleep_ms: Callable[[float], None] = lambda wait_ms: env.sleep(wait_ms / 1000)
    monotonic_ms: Callable[[], float] = lambda: env.monotonic_s() * 1000

    def acquire_with_retries(self, acquire: Callable[[], T | None], what: str, where: str) -> T:
        """Call `acquire` until it returns something other than None, and return that.

        what: the first words of the error message, such as `shop.t: others held its lock`.
        where: where the lock is kept, for the error message.

        Raises CommitConflict after the timeout.
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
    """The locks of one catalog. They can be pickled. They are not reentrant."""

    def held(self, table: Identifier) -> AbstractContextManager[None]:
        """Hold the lock of a table while the block runs.

        table: a table, or a branch of it.

        Raises CommitConflict if others hold the lock until the timeout; then the block was not entered.
        """
        ...


@dataclass(frozen=True, slots=True)
class LockedCommits:
    """Commits snapshots while holding the table's lock.

    Other writers, Java's included, therefore see each snapshot id either free or taken.
    """

    locks: TableLocks
    keeps_partitions: ClassVar[bool] = False

    def __call__(self, context: TableContext) -> LockedSnapshotCommit:
        return LockedSnapshotCommit(context, self.locks)


class LockedSnapshotCommit:
    """See `SnapshotCommit`.

    The snapshot file is still created only if absent: our lock may expire, and then it excludes no other writer.
    """

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
