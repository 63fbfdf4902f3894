"""Expiry beside the commits: one thread for all tables of a process.

A commit only says that it happened; it never waits, and never fails because of what is done here. What goes wrong is
logged, once until it changes, and tried again after a later commit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cached_property, partial
from typing import TypeAlias

from storage.clock import epoch_ms
from storage.expire.changelog_expiry import ChangelogExpiry
from storage.expire.retained_states import Pins
from storage.expire.snapshot_expiry import ExpiryRound, SnapshotExpiry
from storage.logs import get_logger
from storage.table import TableContext

_log = get_logger(__name__)

Committed: TypeAlias = Callable[[int], None]  # called with the id of a snapshot that was just published


class ExpiryWorker:
    """The thread starts when there is something to do. Thread-safe.

    is_closing: no more is taken on.
    """

    def __init__(self, *, now_ms: Callable[[], int] = epoch_ms) -> None:
        self._now_ms = now_ms
        self._tables: list[_ExpiringTable] = []
        self._waiting: list[_ExpiringTable] = []
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self.is_closing = False
        self._is_cancelled = False
        self._working: _ExpiringTable | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a round is under way, or a table waits for one."""
        with self._changed:
            return self._working is not None or bool(self._waiting)

    def watch(self, context: TableContext, *, pins: Pins = tuple) -> Committed:
        """What to call after each commit to a table.

        pins: as of SnapshotExpiry.

        Does nothing for a table that is write-only: maintenance is another job's then (as in Java).
        """
        if context.options.write_only:
            return lambda _: None
        table = _ExpiringTable(context, pins, self._now_ms, lambda: self._is_cancelled)
        self._tables.append(table)

        def committed(snapshot_id: int) -> None:
            table.latest_id = snapshot_id
            if table.snapshots.is_due(snapshot_id):
                self._submit(table)

        return committed

    def close(self, *, finish: bool = False) -> None:
        """Ends the thread; calling again is harmless. What a round under way has not done, a later one will do.

        finish: let it be done, and give each table one more round: for a process that ends after its commit, as each
        run of a batch job does.
        """
        with self._changed:
            if self.is_closing:
                return
            self._is_cancelled = not finish
            self.is_closing = not finish
        if finish:
            for table in self._tables:
                if table.latest_id is not None and table.snapshots.is_due(table.latest_id, patient=False):
                    self._submit(table)
        with self._changed:
            self.is_closing = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join()

    def cancel(self) -> None:
        """Whoever waits in `close` goes on as soon as the step at hand is done. From any thread, and quick."""
        self._is_cancelled = True

    def _submit(self, table: _ExpiringTable) -> None:
        with self._changed:
            if self.is_closing or table in self._waiting:
                return
            self._waiting.append(table)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="tidelake-expiry", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def _work(self) -> None:
        while (table := self._next()) is not None:
            expired = table.round()
            if expired is not None and not self.is_closing and table.is_still_due():
                self._submit(table)  # behind the others

    def _next(self) -> _ExpiringTable | None:
        """Waits for a table. None when it is time to end."""
        with self._changed:
            self._working = None
            while not self._waiting:
                if self.is_closing:
                    return None
                self._changed.wait()
            self._working = None if self._is_cancelled else self._waiting.pop(0)
            return self._working


class _ExpiringTable:
    def __init__(
        self, context: TableContext, pins: Pins, now_ms: Callable[[], int], is_cancelled: Callable[[], bool]
    ) -> None:
        self.snapshots = SnapshotExpiry(context, pins=pins, now_ms=now_ms, is_cancelled=is_cancelled)
        self.latest_id: int | None = None
        self._name = context.name
        self._logged_error = ""
        self._new_changelogs = partial(ChangelogExpiry, context, pins=pins, now_ms=now_ms, is_cancelled=is_cancelled)

    @cached_property
    def _changelogs(self) -> ChangelogExpiry:
        """Made when it is needed: few tables keep changelogs longer than snapshots."""
        return self._new_changelogs()

    def round(self) -> ExpiryRound | None:
        latest_id = self.latest_id
        assert latest_id is not None
        try:
            expired = self.snapshots.run(latest_id)
            if self.snapshots.keeps_changelogs():
                self._changelogs.run(latest_id)
        except Exception as error:
            if self._logged_error != str(error):
                self._logged_error = str(error)
                _log.warning(
                    "expiry_failed", table=self._name, error=self._logged_error, effect="snapshots stay; commits go on"
                )
            return None
        self._logged_error = ""
        if expired is not None:
            _log.debug("expired", table=self._name, first=expired.first, end=expired.end, snapshots=expired.snapshots)
        return expired

    def is_still_due(self) -> bool:
        return self.latest_id is not None and self.snapshots.is_due(self.latest_id)
