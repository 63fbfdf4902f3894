"""Follows a table: reads the changes of every new snapshot, forever or up to a bound.

Source: Java `table/source/DataTableStreamScan.java`, `table/source/snapshot/BoundedChecker.java`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from tidelake.storage.base import env
from tidelake.storage.base.clock import epoch_ms
from tidelake.storage.fileio.file_watch import call_when_exists
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.storage.read.changes.change_reader import ChangeBatch, ChangeReader, change_batches, without_first
from tidelake.storage.read.changes.position import ChangePosition
from tidelake.storage.read.changes.read_ahead import read_ahead
from tidelake.storage.read.changes.subtask import ALL, Subtask
from tidelake.storage.read.stream.consumer_progress import ConsumerProgress
from tidelake.storage.read.stream.full_read import FullRead
from tidelake.storage.read.stream.next_snapshot import NextSnapshot
from tidelake.storage.read.stream.start import Start, StartAt, first_position

_FIRST_WAIT_MS: Final = 20
_FEW_ROWS: Final = 65_536  # one or two batches: too few to start a thread


@dataclass(frozen=True, slots=True)
class Bound:
    """The end of a stream.

    end: the last snapshot that is read.
    watermark_ms: the stream ends before the first snapshot with a later watermark.
    """

    end: int | None = None
    watermark_ms: int | None = None

    def is_behind(self, snapshot: Snapshot) -> bool:
        if self.watermark_ms is None or snapshot.watermark is None:
            return False
        return snapshot.watermark > self.watermark_ms


class Follower:
    """Reads a table step by step from one position. `step` never waits; `wait_ms` says how long the caller should wait.

    start: where it starts. A consumer that has a position continues from it, unless `start` is a position itself.
    progress: stores the position of a consumer. A batch counts as processed when the next one is requested, so a crash
        repeats changes and does not lose them. A snapshot, also one without changes, counts at the next `step`.
    ignores_progress: start at `start`, even if the consumer has a position.
    bound: `is_done` becomes true when everything before it was read.
    share: which of several readers this one is.
    sequence_numbers: rows have the column `_SEQUENCE_NUMBER`.
    longest_wait_ms: longest time between two checks, also while the next snapshot is watched (`call_when_exists`)
    shown: transforms each batch before it is returned.
    """

    def __init__(
        self,
        context: TableContext,
        start: StartAt,
        progress: ConsumerProgress | None = None,
        *,
        ignores_progress: bool = False,
        bound: Bound | None = None,
        share: Subtask = ALL,
        sequence_numbers: bool = False,
        shown: Callable[[ChangeBatch], ChangeBatch] | None = None,
        now_ms: Callable[[], int] = epoch_ms,
    ) -> None:
        self._context = context
        self._reader = ChangeReader(context, share, sequence_numbers=sequence_numbers)
        self._snapshots = NextSnapshot(context, self._reader)
        self._sequence_numbers = sequence_numbers
        self._shown = shown
        self._share = share
        self._progress = progress
        self._bound = bound or Bound()
        self._delay_ms = context.options.snapshot_delay_ms
        self.longest_wait_ms = context.options.discovery_interval_ms
        self._now_ms = now_ms
        self._idle_steps = 0
        self._is_beyond = False
        self._is_delayed = False
        self._has_ended_snapshot = False
        self._start = Start.of(start)
        self.position = self._first(ignores_progress)

    def _first(self, ignores_progress: bool) -> ChangePosition | None:
        start = self._start
        if self._progress is None:
            return first_position(self._context, start)
        if not ignores_progress and not isinstance(start, ChangePosition):
            kept = self._progress.read()
            if kept is not None:
                return kept
        position = first_position(self._context, start)
        if position is not None and not (isinstance(start, Start) and start.is_strict):
            self._progress.moved(position)  # snapshots committed from now on are kept for this consumer
        return position

    @property
    def next_snapshot_id(self) -> int:
        """The snapshot that is read next, or whose reading continues."""
        return 1 if self.position is None else self.position.next_snapshot_id

    @property
    def is_done(self) -> bool:
        """Whether everything before the bound was read."""
        return self._is_beyond or (self._bound.end is not None and self.next_snapshot_id > self._bound.end)

    def step(self) -> Iterator[ChangeBatch] | None:
        """Return the next batches: a snapshot's changes, or all rows of the snapshot that the stream starts with.

        Returns None if the snapshot does not exist yet, or if the bound is reached. Raises SnapshotExpired if the
        snapshot expired, and BadInput if it can never exist.
        """
        if self._has_ended_snapshot and self._progress is not None and self.position is not None:
            self._progress.moved(self.position)
        self._has_ended_snapshot = False
        if self.is_done:
            return None
        if self.position is None:
            self.position = first_position(self._context, self._start)
        snapshot = None if self.position is None else self._snapshots.find(self.position)
        self._is_delayed = snapshot is not None and self._is_too_young(snapshot)
        if self.position is None or snapshot is None or self._is_delayed:
            self._idle_steps += 1
            return None
        self._idle_steps = 0
        if not self.position.is_full and self._bound.is_behind(snapshot):
            self._is_beyond = True
            return None
        return self._deliver(snapshot, self.position)

    def _is_too_young(self, snapshot: Snapshot) -> bool:
        return self._delay_ms > 0 and snapshot.time_ms + self._delay_ms > self._now_ms()

    def _deliver(self, snapshot: Snapshot, begin: ChangePosition) -> Iterator[ChangeBatch]:
        """Yield the batches. The position moves when the next batch is requested: then the last one is processed."""
        end = ChangePosition.behind(snapshot)
        if begin.is_full:
            full = FullRead(self._context, self._share, begin.files_since_ms, sequence_numbers=self._sequence_numbers)
            rows = full.read(full.plan(snapshot))
            if snapshot.total_record_count > _FEW_ROWS:
                rows = read_ahead(rows)
            batches = change_batches(without_first(rows, begin.rows), begin, end)
        else:
            batches = self._reader.read(snapshot, skip_rows=begin.rows)
        for batch in batches:
            yield batch if self._shown is None else self._shown(batch)
            assert batch.position is not None
            self._move_to(batch.position)
        # The consumer learns of the end of the snapshot at the next step: the caller may store the position first.
        self.position, self._has_ended_snapshot = end, True
        self._is_beyond = begin.is_full and self._bound.is_behind(snapshot)

    def _move_to(self, position: ChangePosition) -> None:
        self.position = position
        if self._progress is not None:
            self._progress.moved(position)

    def close(self) -> None:
        """Store the last position of the consumer."""
        if self._progress is not None and self.position is not None:
            self._progress.moved(self.position, is_end=True)

    @property
    def wait_ms(self) -> int:
        """How long to wait before the next `step`. The time grows with the number of steps without a new snapshot."""
        return int(min(_FIRST_WAIT_MS * 2 ** min(self._idle_steps, 20), self.longest_wait_ms))

    def call_when_exists(
        self, call: Callable[[], None], or_when: Callable[[], bool] | None = None
    ) -> Callable[[], None] | None:
        """Call `call` in another thread when the next snapshot exists or when `or_when` returns true.

        Returns a function that ends the waiting; None if the storage can't watch files, for example an object store.
        """
        # Held back: the snapshot exists, but it is younger than the configured delay.
        if self._is_delayed:
            return None
        path = self._context.paths.snapshot(self.next_snapshot_id)
        return call_when_exists(self._context.io, path, call, or_when)


@runtime_checkable
class CancelEvent(Protocol):
    """An event that ends a follow: a threading.Event; in tests, a clock."""

    def is_set(self) -> bool: ...
    def wait(self, timeout: float | None = None) -> bool: ...


def follow(follower: Follower, stop: CancelEvent) -> Generator[ChangeBatch]:
    """Yield changes until `stop` is set or the bound is reached. Setting `stop` also ends the wait for a snapshot."""
    try:
        while not stop.is_set() and not follower.is_done:
            changes = follower.step()
            if changes is not None:
                yield from changes
            elif not follower.is_done:
                _wait(follower, stop)
    finally:
        follower.close()


def _wait(follower: Follower, stop: CancelEvent) -> None:
    """Wait until the next snapshot exists, or until it is time for the next check."""
    snapshot_exists = env.Event()
    cancel = follower.call_when_exists(snapshot_exists.set, stop.is_set) if isinstance(stop, env.Event) else None
    if cancel is None:
        stop.wait(follower.wait_ms / 1000)
        return
    try:
        snapshot_exists.wait(follower.longest_wait_ms / 1000)
    finally:
        cancel()
