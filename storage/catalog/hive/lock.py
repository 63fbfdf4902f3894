"""The metastore's exclusive locks of tables, as Java Paimon takes them.

Source: Java `hive/HiveCatalogLock.java`.
"""

from __future__ import annotations

import getpass
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from pymetastore.hive_metastore import ttypes

from storage.catalog.hive.client import MetastoreClient
from storage.catalog.identifier import Identifier
from storage.catalog.locked_commits import LockWaiting
from storage.errors import CommitConflict
from storage.logs import get_logger

_FIRST_SLEEP_MS: Final = 50

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class MetastoreLocks:
    """See `TableLocks`. Branches of a table share its lock. A lock whose holder died ends after `hive.txn.timeout` of
    the metastore.

    sleep_ms_max: between two looks (`lock-check-max-sleep`).
    timeout_ms: how long one waits (`lock-acquire-timeout`).
    """

    client: MetastoreClient
    sleep_ms_max: int = 8_000
    timeout_ms: int = 8 * 60_000

    @contextmanager
    def held(
        self,
        table: Identifier,
        *,
        sleep_ms: Callable[[float], None] = lambda wait_ms: time.sleep(wait_ms / 1000),
        monotonic_ms: Callable[[], float] = lambda: time.monotonic() * 1000,
    ) -> Iterator[None]:
        """table: or a branch of it.

        Raises CommitConflict when others hold it all the time; then the block was not entered.
        """
        request = _request(table)
        answer = self.client.change(lambda c: c.lock(request))
        lock_id = int(answer.lockid)
        states = self._states(lock_id, answer.state)
        waiting = LockWaiting(_FIRST_SLEEP_MS, self.sleep_ms_max, self.timeout_ms, sleep_ms, monotonic_ms)
        where = f"Hive metastore {self.client.address}, lock {lock_id}"
        try:
            state = waiting.until(
                lambda: None if (state := next(states)) == ttypes.LockState.WAITING else state,
                f"{table}: others held its lock",
                where,
            )
            if state != ttypes.LockState.ACQUIRED:
                raise CommitConflict(
                    f"{table}: the metastore gave up its lock ({where}); nothing was changed. Try again"
                )
            yield
        finally:
            self._release(lock_id)

    def _states(self, lock_id: int, first: int) -> Iterator[int]:
        """The one that the request was answered with, then what the metastore says at each look."""
        yield first
        while True:
            yield int(self.client.read(lambda c: c.check_lock(ttypes.CheckLockRequest(lockid=lock_id))).state)

    def _release(self, lock_id: int) -> None:
        """What it guarded stands in any case."""
        try:
            self.client.change(lambda c: c.unlock(ttypes.UnlockRequest(lockid=lock_id)))
        except (ConnectionError, ttypes.NoSuchLockException, ttypes.TxnOpenException) as e:
            _log.warning("a lock could not be released; it ends by itself", lock=lock_id, error=str(e))


def _request(table: Identifier) -> Any:
    """operationType=None: a kind of operation would make the metastore look for a transaction."""
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
    except (KeyError, OSError):  # a user id without a name, as containers have them
        return "tidelake"
