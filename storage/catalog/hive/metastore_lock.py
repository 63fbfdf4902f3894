"""Exclusive locks of tables in the metastore, as Java Paimon takes them.

Source: Java `hive/HiveCatalogLock.java`.
"""

from __future__ import annotations

import getpass
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from pymetastore.hive_metastore import ttypes

from tidelake.errors import CommitConflict
from tidelake.storage.base import env
from tidelake.storage.base.logs import get_logger
from tidelake.storage.catalog.hive.metastore_client import MetastoreClient
from tidelake.storage.catalog.identifier import Identifier
from tidelake.storage.catalog.locked_commits import LockWaiting

_FIRST_SLEEP_MS: Final = 50

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class MetastoreLocks:
    """The locks of a metastore, see `TableLocks`.

    All branches of a table share one lock. If its holder dies, the lock ends after the metastore's `hive.txn.timeout`.

    sleep_ms_max: the longest sleep between two checks of the lock (`lock-check-max-sleep`).
    timeout_ms: how long a process waits for a lock (`lock-acquire-timeout`).
    """

    client: MetastoreClient
    sleep_ms_max: int = 8_000
    timeout_ms: int = 8 * 60_000

    @contextmanager
    def held(
        self,
        table: Identifier,
        *,
        sleep_ms: Callable[[float], None] = lambda wait_ms: env.sleep(wait_ms / 1000),
        monotonic_ms: Callable[[], float] = lambda: env.monotonic_s() * 1000,
    ) -> Iterator[None]:
        """Hold the lock of a table while the block runs.

        table: a table, or a branch of it.

        Raises CommitConflict if others hold the lock until the timeout; then the block was not entered.
        """
        request = _request(table)
        answer = self.client.change(lambda c: c.lock(request))
        lock_id = int(answer.lockid)
        states = self._states(lock_id, answer.state)
        waiting = LockWaiting(_FIRST_SLEEP_MS, self.sleep_ms_max, self.timeout_ms, sleep_ms, monotonic_ms)
        where = f"Hive metastore {self.client.address}, lock {lock_id}"
        try:
            state = waiting.acquire_with_retries(
                lambda: None if (state := next(states)) == ttypes.LockState.WAITING else state,
                f"{table}: other writers held its lock",
                where,
            )
            if state != ttypes.LockState.ACQUIRED:
                raise CommitConflict(
                    f"{table}: the metastore aborted the request for the lock ({where}); nothing was changed. Try again"
                )
            yield
        finally:
            self._release(lock_id)

    def _states(self, lock_id: int, first: int) -> Iterator[int]:
        """Yield the first state, which answered the lock request, then ask the metastore for each further state."""
        yield first
        while True:
            yield int(self.client.read(lambda c: c.check_lock(ttypes.CheckLockRequest(lockid=lock_id))).state)

    def _release(self, lock_id: int) -> None:
        """Release the lock. A failure is only logged, because what the lock protected is done."""
        try:
            self.client.change(lambda c: c.unlock(ttypes.UnlockRequest(lockid=lock_id)))
        except (ConnectionError, ttypes.NoSuchLockException, ttypes.TxnOpenException) as e:
            _log.warning("a lock could not be released; it ends by itself", lock=lock_id, error=str(e))


def _request(table: Identifier) -> Any:
    """Return a lock request without an operation type: with one, the metastore would look for a transaction."""
    component = ttypes.LockComponent(
        type=ttypes.LockType.EXCLUSIVE,
        level=ttypes.LockLevel.TABLE,
        dbname=table.database,
        tablename=table.table,
        operationType=None,
    )
    return ttypes.LockRequest(component=[component], user=user_name(), hostname=socket.gethostname())


def user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, which is common in containers
        return "tidelake"
