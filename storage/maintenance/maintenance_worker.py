"""Maintenance after commits, in threads for all tables of a process, so that commits don't wait for it.

The order of the steps is: automatic tags are created, expired tags are deleted, partitions expire, then snapshots and
changelogs expire. The table's options select them. A commit only reports that it happened. It never waits for
maintenance, and never fails because of it. An error is logged once until it changes, and the work is tried again after
a later commit.

Source: Java `table/sink/TableCommitImpl.java` (maintain), which does it as a part of the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Final, Protocol, TypeAlias, TypeVar

from tidelake.storage.base import env
from tidelake.storage.base.clock import epoch_ms
from tidelake.storage.base.logs import get_logger
from tidelake.storage.commit.expire.changelog_expiry import ChangelogExpiry
from tidelake.storage.commit.expire.retained_states import Pins
from tidelake.storage.commit.expire.snapshot_expiry import ExpiryRound, SnapshotExpiry
from tidelake.storage.fileio.requests import is_remote
from tidelake.storage.maintenance.automatic_tags import AutomaticTags, TagExpiry
from tidelake.storage.maintenance.partition_expiry import PartitionExpiry
from tidelake.storage.model.table import TableContext


class MaintenanceStep(Protocol):
    """A maintenance step after commits. Not thread-safe.

    name: for the log.
    """

    @property
    def name(self) -> str: ...

    def is_due(self, *, respect_interval: bool = True) -> bool:
        """Return whether `run` may find something to do. Reads nothing.

        respect_interval: False also returns True for work that could wait a little longer.
        """
        ...

    def run(self) -> None:
        """Do what is due. After an error, the next run does the rest."""
        ...


def maintenance_steps(context: TableContext, now_ms: Callable[[], int]) -> Sequence[MaintenanceStep]:
    """Return the steps in their order.

    now_ms: wall clock.

    Raises BadInput for invalid options.
    """
    steps: list[MaintenanceStep] = []
    if AutomaticTags.is_enabled_for(context):
        steps.append(AutomaticTags(context, now_ms=now_ms))
    if context.options.tag_time_expire_enabled:
        steps.append(TagExpiry(context, now_ms=now_ms))
    if PartitionExpiry.is_enabled_for(context):
        steps.append(PartitionExpiry(context, now_ms=now_ms))
    return steps


_log = get_logger(__name__)

T = TypeVar("T")

_REMOTE_THREADS: Final = 16

_EFFECTS: Final = {
    "automatic_tags": "the tag is created later; commits continue",
    "tag_expiry": "the tags are kept; commits continue",
    "partition_expiry": "the partitions are kept; commits continue",
    "expiry": "the snapshots are kept; commits continue",
}

Committed: TypeAlias = Callable[[int], None]  # called with the id of a snapshot that was just committed


class MaintenanceWorker:
    """Maintains all tables of a process. Its threads start when there is work. Thread-safe.

    A round of a table in an object store mostly waits for it, so several tables have their rounds side by side. Tables
    on local disks have them one after the other.

    is_closing: no more work is accepted.
    """

    def __init__(self, *, now_ms: Callable[[], int] = epoch_ms) -> None:
        self._now_ms = now_ms
        self._tables: list[_MaintainedTable] = []
        self._waiting: list[_MaintainedTable] = []
        self._changed = env.Condition()
        self._threads: list[env.Thread] = []
        self._threads_max = 1
        self.is_closing = False
        self._is_cancelled = False
        self._running: list[_MaintainedTable] = []

    @property
    def is_busy(self) -> bool:
        """Whether a round is running, or a table waits for one."""
        with self._changed:
            return bool(self._running or self._waiting)

    def watch(self, context: TableContext, *, pins: Pins = tuple) -> Committed:
        """Return the function to call after each commit to a table.

        pins: see SnapshotExpiry.

        The function does nothing for a write-only table: another job maintains that table then (as in Java).
        """
        if context.options.write_only:
            return lambda _: None
        table = _MaintainedTable(context, pins, self._now_ms, lambda: self._is_cancelled)
        self._tables.append(table)
        if is_remote(context.location):
            self._threads_max = _REMOTE_THREADS

        def committed(snapshot_id: int) -> None:
            table.latest_id = snapshot_id
            if table.is_due(snapshot_id):
                self._submit(table)

        return committed

    def close(self, *, finish: bool = False) -> None:
        """End the threads. Calling it again has no effect. A later process does what running rounds leave undone.

        finish: complete the running rounds, and give each table one more. For a process that ends after its
            commit, such as a batch job.
        """
        with self._changed:
            if self.is_closing:
                return
            self._is_cancelled = not finish
            self.is_closing = not finish
        if finish:
            for table in self._tables:
                if table.latest_id is not None and table.is_due(table.latest_id, respect_interval=False):
                    self._submit(table)
        with self._changed:
            self.is_closing = True
            self._changed.notify_all()
            threads = list(self._threads)
        for thread in threads:
            thread.join()

    def cancel(self) -> None:
        """Let `close` return as soon as the current step is done. Thread-safe; doesn't wait."""
        self._is_cancelled = True

    def _submit(self, table: _MaintainedTable) -> None:
        with self._changed:
            if self.is_closing or table in self._waiting:
                return
            self._waiting.append(table)
            if len(self._threads) < min(self._threads_max, len(self._running) + len(self._waiting)):
                thread = env.Thread(target=self._work, name="tidelake-maintenance", daemon=True)
                self._threads.append(thread)
                thread.start()
            self._changed.notify_all()

    def _work(self) -> None:
        while (table := self._next()) is not None:
            try:
                expired = table.round()
            finally:  # also if the thread dies: otherwise others would wait for the round
                self._ended(table)
            if expired is not None and not self.is_closing and table.is_still_due():
                self._submit(table)  # after the other waiting tables

    def _next(self) -> _MaintainedTable | None:
        """Wait for a table that has work, and no running round. None if the thread should end."""
        with self._changed:
            while True:
                if self._waiting and self._is_cancelled:
                    return None
                table = next((table for table in self._waiting if table not in self._running), None)
                if table is not None:
                    self._waiting.remove(table)
                    self._running.append(table)
                    return table
                if self.is_closing and not self._waiting:
                    return None
                self._changed.wait()

    def _ended(self, table: _MaintainedTable) -> None:
        """Record the end of a round. Others may wait for it."""
        with self._changed:
            self._running.remove(table)
            self._changed.notify_all()


class _MaintainedTable:
    def __init__(
        self, context: TableContext, pins: Pins, now_ms: Callable[[], int], is_cancelled: Callable[[], bool]
    ) -> None:
        self.latest_id: int | None = None
        self._name = context.name
        self._logged_errors: dict[str, str] = {}
        self._steps = maintenance_steps(context, now_ms)
        self._snapshots = SnapshotExpiry(context, pins=pins, now_ms=now_ms, is_cancelled=is_cancelled)
        self._new_changelogs = partial(ChangelogExpiry, context, pins=pins, now_ms=now_ms, is_cancelled=is_cancelled)

    @cached_property
    def _changelogs(self) -> ChangelogExpiry:
        """Return the changelog expiry. It is created on demand, as few tables keep changelogs longer than snapshots."""
        return self._new_changelogs()

    def is_due(self, latest_id: int, *, respect_interval: bool = True) -> bool:
        """Return whether there may be something to do. Reads nothing.

        patient: see SnapshotExpiry.
        """
        return any(step.is_due(respect_interval=respect_interval) for step in self._steps) or self._snapshots.is_due(
            latest_id, respect_interval=respect_interval
        )

    def is_still_due(self) -> bool:
        return self.latest_id is not None and self._snapshots.is_due(self.latest_id)

    def round(self) -> ExpiryRound | None:
        """Run all steps that follow a commit. A failed step doesn't stop the others."""
        for step in self._steps:
            if step.is_due(respect_interval=False):
                self._try(step.name, step.run)
        assert self.latest_id is not None
        if not self._snapshots.is_due(self.latest_id, respect_interval=False):
            return None
        expired = self._try("expiry", self._expire)
        if expired is not None:
            _log.debug("expired", table=self._name, first=expired.first, end=expired.end, snapshots=expired.snapshots)
        return expired

    def _expire(self) -> ExpiryRound | None:
        assert self.latest_id is not None
        expired = self._snapshots.run(self.latest_id)
        if self._snapshots.keeps_changelogs():
            self._changelogs.run(self.latest_id)
        return expired

    def _try(self, what: str, step: Callable[[], T]) -> T | None:
        try:
            done = step()
        except Exception as error:
            if self._logged_errors.get(what) != str(error):
                self._logged_errors[what] = str(error)
                _log.warning(f"{what}_failed", table=self._name, error=str(error), effect=_EFFECTS[what])
            return None
        self._logged_errors.pop(what, None)
        return done
