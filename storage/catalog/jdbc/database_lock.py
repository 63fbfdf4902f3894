"""The lock of a table: a row that only one process can insert.

A row contains the time of its insertion and how long it is valid. A process that finds an expired row deletes it,
because its holder must have died.

Source: Java `jdbc/JdbcCatalogLock.java`, `jdbc/*DistributedLockDialect.java`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from tidelake.storage.base import env
from tidelake.storage.base.logs import get_logger
from tidelake.storage.catalog.identifier import Identifier
from tidelake.storage.catalog.jdbc.database_address import DatabaseAddress
from tidelake.storage.catalog.locked_commits import LockWaiting

_FIRST_SLEEP_MS: Final = 20  # Java: 100
_AGE_SECONDS: Final = {
    "sqlite": "strftime('%s', 'now') - strftime('%s', acquired_at)",
    "postgresql": "EXTRACT(EPOCH FROM AGE(NOW(), acquired_at))",
}

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LockSettings:
    """The options of the locks.

    sleep_ms_max: the longest sleep between two attempts (`lock-check-max-sleep`).
    timeout_ms: how long a process tries to get a lock, and how long a lock is valid (`lock-acquire-timeout`).
    key_length_max: the maximum length of a lock's name (`lock-key-max-length`).
    """

    sleep_ms_max: int = 8_000
    timeout_ms: int = 8 * 60_000
    key_length_max: int = 255


@dataclass(frozen=True, slots=True)
class LockTable:
    """The locks of one catalog. A lock is not reentrant, and it excludes other threads of the same process, too."""

    address: DatabaseAddress
    catalog_key: str
    settings: LockSettings

    @contextmanager
    def held(
        self,
        table: Identifier,
        *,
        sleep_ms: Callable[[float], None] = lambda wait_ms: env.sleep(wait_ms / 1000),
        monotonic_ms: Callable[[], float] = lambda: env.monotonic_s() * 1000,
    ) -> Iterator[None]:
        """Hold the lock of a table while the block runs.

        table: a table, or a branch of it. Each branch has a separate lock.

        Raises CommitConflict if others hold the lock until the timeout; then the block was not entered.
        """
        lock_id = f"{self.catalog_key}.{table}"
        waiting = LockWaiting(
            _FIRST_SLEEP_MS, self.settings.sleep_ms_max, self.settings.timeout_ms, sleep_ms, monotonic_ms
        )
        what = f"{table}: other writers held the lock {lock_id!r}"
        where = f"{self.address.shown}, table paimon_distributed_locks"
        acquired_at = waiting.acquire_with_retries(lambda: self._acquire(lock_id), what, where)
        try:
            yield
        finally:
            self._release(lock_id, acquired_at)

    def _acquire(self, lock_id: str) -> object | None:
        """Return the time of acquisition by the database's clock. None if another process holds the lock."""
        expired = f"DELETE FROM paimon_distributed_locks WHERE lock_id = :id AND {_AGE_SECONDS[self.address.system]} > "
        try:
            with self.address.transaction() as connection:
                connection.execute(text(expired + "expire_time_seconds"), {"id": lock_id})
                connection.execute(
                    text("INSERT INTO paimon_distributed_locks (lock_id, expire_time_seconds) VALUES (:id, :seconds)"),
                    {"id": lock_id, "seconds": self.settings.timeout_ms // 1000},
                )
                found = text("SELECT acquired_at FROM paimon_distributed_locks WHERE lock_id = :id")
                acquired_at: object = connection.execute(found, {"id": lock_id}).scalar_one()
                return acquired_at
        except IntegrityError:
            return None

    def _release(self, lock_id: str, acquired_at: object) -> None:
        """Delete our row only: our lock may have expired, and another process may hold a newer one.

        A failure is only logged, because what the lock protected is done.
        """
        own_lock = text("DELETE FROM paimon_distributed_locks WHERE lock_id = :id AND acquired_at = :at")
        try:
            with self.address.transaction() as connection:
                connection.execute(own_lock, {"id": lock_id, "at": acquired_at})
        except OSError as e:
            _log.warning("a lock could not be released; it ends by itself", lock=lock_id, error=str(e))
