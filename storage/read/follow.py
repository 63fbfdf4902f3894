"""Following a table: the changes of every new snapshot, for ever.

Source: Java `table/source/DataTableStreamScan.java`, `consumer/ConsumerManager.java`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Protocol, TypeAlias, runtime_checkable

from storage.clock import epoch_ms
from storage.errors import BadInput
from storage.read.changes import ChangeBatch, ChangeReader
from storage.snapshots.consumers import Consumer
from storage.snapshots.snapshot import Snapshot

StartAt: TypeAlias = int | str  # a snapshot id, "latest" or "earliest"

_FIRST_WAIT_MS: Final = 20


class Follower:
    """A state machine with one number, the next snapshot to read. `step` never waits; `wait_ms` says how long to.

    start: a snapshot id; "latest", only what comes from now on; "earliest", all whose changes are still there, with or
    without their snapshot. A consumer that has a position goes on from it, whatever `start` says. Its position moves
    past a snapshot when the next one is asked for: then the caller is done with it, so that a crash repeats changes
    rather than losing them.
    ignores_progress: it begins at `start` nevertheless. delay_ms: how old a snapshot must be before it is read.
    """

    def __init__(
        self,
        reader: ChangeReader,
        start: StartAt,
        consumer: Consumer | None,
        longest_wait_ms: int,
        *,
        ignores_progress: bool = False,
        delay_ms: int = 0,
        now_ms: Callable[[], int] = epoch_ms,
    ) -> None:
        self._reader = reader
        self._ignores_progress = ignores_progress
        self._delay_ms = delay_ms
        self._now_ms = now_ms
        self._consumer = consumer
        self._longest_wait_ms = longest_wait_ms
        self._idle_steps = 0
        self.next_snapshot_id = self._first(start)

    def _first(self, start: StartAt) -> int:
        kept = None
        if self._consumer is not None and not self._ignores_progress:
            kept = self._consumer.next_snapshot_id()
        if kept is not None:
            return kept
        if start == "latest":
            return (self._reader.history.latest_id() or 0) + 1
        if start == "earliest":
            return self._reader.history.earliest_id() or 1
        if isinstance(start, str) or start < 1:
            raise BadInput(f"start is 'latest', 'earliest' or a snapshot id, not {start!r}")
        return start

    def step(self) -> Iterator[ChangeBatch] | None:
        """The changes of the next snapshot, or None when it is not there yet. Raises SnapshotExpired when it is gone,
        BadInput when it never will be there.
        """
        snapshot_id = self.next_snapshot_id
        snapshot = self._reader.history.find(snapshot_id)
        if snapshot is None:
            self._idle_steps += 1
            self._check_reachable(snapshot_id)
            return None
        if self._is_too_young(snapshot):
            self._idle_steps += 1
            return None
        self._idle_steps = 0
        return self._changes(snapshot)

    def _is_too_young(self, snapshot: Snapshot) -> bool:
        return self._delay_ms > 0 and snapshot.time_ms + self._delay_ms > self._now_ms()

    def _changes(self, snapshot: Snapshot) -> Iterator[ChangeBatch]:
        yield from self._reader.read(snapshot)
        self.next_snapshot_id = snapshot.id + 1
        if self._consumer is not None:
            self._consumer.write(snapshot.id + 1)

    @property
    def wait_ms(self) -> int:
        """How long to wait before the next `step`: short after news, longer the longer nothing came."""
        return int(min(_FIRST_WAIT_MS * 2 ** min(self._idle_steps, 20), self._longest_wait_ms))

    def _check_reachable(self, snapshot_id: int) -> None:
        latest = self._reader.history.latest_id()
        if latest is None and snapshot_id > 1:
            raise BadInput(
                f"snapshot {snapshot_id} is wanted next, but the table has none: was it dropped and made again?"
            )
        if latest is not None and latest >= snapshot_id:
            self._reader.get(snapshot_id)  # raises, unless it was published this moment
        if latest is not None and snapshot_id > latest + 1:
            raise BadInput(
                f"snapshot {snapshot_id} is wanted next, but the latest is {latest}: was the table rolled back? "
                f"Read it again and follow from {latest + 1}"
            )


@runtime_checkable
class Stop(Protocol):
    """What ends a follow: a threading.Event; in tests, a clock."""

    def is_set(self) -> bool: ...
    def wait(self, timeout: float | None = None) -> bool: ...


def follow(follower: Follower, stop: Stop) -> Iterator[ChangeBatch]:
    """Until `stop` is set; waiting for a snapshot ends at once when it is."""
    while not stop.is_set():
        changes = follower.step()
        if changes is None:
            stop.wait(follower.wait_ms / 1000)
        else:
            yield from changes
