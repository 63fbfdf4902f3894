"""The lock of a table: a row that only one process can insert.

A row says when it was inserted and for how long it counts. Who finds one that is older deletes it: its holder died.

Source: Java `jdbc/JdbcCatalogLock.java`, `jdbc/*DistributedLockDialect.java`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from storage.catalog.identifier import Identifier
from storage.catalog.jdbc.address import DatabaseAddress
from storage.catalog.locked_commits import LockWaiting
from storage.logs import get_logger

_FIRST_SLEEP_MS: Final = 20  # Java: 100
_AGE_SECONDS: Final = {
    "sqlite": "strftime('%s', 'now') - strftime('%s', acquired_at)",
    "postgresql": "EXTRACT(EPOCH FROM AGE(NOW(), acquired_at))",
}

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LockSettings:
    """sleep_ms_max: between two attempts (`lock-check-max-sleep`).
    timeout_ms: how long one tries, and for how long a lock counts (`lock-acquire-timeout`).
    key_length_max: of the name of a lock (`lock-key-max-length`).
    """

    sleep_ms_max: int = 8_000
    timeout_ms: int = 8 * 60_000
    key_length_max: int = 255


@dataclass(frozen=True, slots=True)
class LockTable:
    """The locks of one catalog. Not reentrant; other threads are others, too."""

    address: DatabaseAddress
    catalog_key: str
    settings: LockSettings

    @contextmanager
    def held(
        self,
        table: Identifier,
        *,
        sleep_ms: Callable[[float], None] = lambda wait_ms: time.sleep(wait_ms / 1000),
        monotonic_ms: Callable[[], float] = lambda: time.monotonic() * 1000,
    ) -> Iterator[None]:
        """table: or a branch of it; each has a lock of its own.

        Raises CommitConflict when others hold it all the time; then the block was not entered.
        """
        lock_id = f"{self.catalog_key}.{table}"
        waiting = LockWaiting(
            _FIRST_SLEEP_MS, self.settings.sleep_ms_max, self.settings.timeout_ms, sleep_ms, monotonic_ms
        )
        what = f"{table}: others held the lock {lock_id!r}"
        where = f"{self.address.shown}, table paimon_distributed_locks"
        acquired_at = waiting.until(lambda: self._acquire(lock_id), what, where)
        try:
            yield
        finally:
            self._release(lock_id, acquired_at)

    def _acquire(self, lock_id: str) -> object | None:
        """When it was acquired, by the database's clock; None when another holds it, or the database is busy."""
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
        """Ours, and no later one: it may have expired, and be another's now. What it guarded stands in any case."""
        ours = text("DELETE FROM paimon_distributed_locks WHERE lock_id = :id AND acquired_at = :at")
        try:
            with self.address.transaction() as connection:
                connection.execute(ours, {"id": lock_id, "at": acquired_at})
        except OSError as e:
            _log.warning("a lock could not be released; it ends by itself", lock=lock_id, error=str(e))
