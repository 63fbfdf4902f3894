"""Stores the position of a follower in the table under a consumer's name.

Option `consumer.mode` decides how often the position is written:

    exactly-once   Each time the reader requests the next batch. After a crash, only the batch that it was processing is
                   read again.
    at-least-once  At most once a second, and only between snapshots. After a crash, everything read since then is read
                   again.

While a stream reads its first, full snapshot, the position is in `consumer-<name>.full`, which also keeps that snapshot
from expiring. It is not in `consumer-<name>`, because there Java would continue with only the changes of that snapshot.

Source: Java `consumer/ConsumerManager.java`, `flink/source/ConsumerProgressCalculator.java`.
"""

from __future__ import annotations

from typing import Final

from tidelake.errors import BadInput, CorruptFile
from tidelake.storage.base import env
from tidelake.storage.model.options import TableOptions
from tidelake.storage.model.options.scan_options import ConsumerMode
from tidelake.storage.model.snapshots.consumers import NEXT_SNAPSHOT, Consumer, consumer_names
from tidelake.storage.model.table import TableContext
from tidelake.storage.read.changes.position import ChangePosition
from tidelake.storage.read.changes.subtask import Subtask

_FULL_SUFFIX: Final = ".full"
_WRITE_INTERVAL_S: Final = 1.0  # in mode at-least-once


class ConsumerProgress:
    """The progress of one reader with a consumer's name. Used by one thread."""

    def __init__(self, context: TableContext, name: str, share: Subtask) -> None:
        options: TableOptions = context.options
        self._context = context
        self._name = name
        self._share = share
        self._is_lazy = options.consumer_mode is ConsumerMode.AT_LEAST_ONCE
        self._changes = self._consumer(share.consumer(name))
        self._full = self._consumer(share.consumer(name) + _FULL_SUFFIX)
        self._written: ChangePosition | None = None
        self._may_have_full = True
        self._next_write_s = 0.0

    def read(self) -> ChangePosition | None:
        """Return the consumer's position; None if it has none. Raises CorruptFile."""
        for consumer in (self._changes, self._full):
            if (members := consumer.read()) is not None:
                try:
                    return ChangePosition.of_members(members)
                except ValueError as error:
                    path = self._context.paths.consumer(consumer.name)
                    raise CorruptFile(path, 'JSON such as {"nextSnapshot": 17}', str(error)) from None
        return self._of_another_count()

    def moved(self, position: ChangePosition, *, is_end: bool = False) -> None:
        """Record that the reader has processed everything before this position.

        is_end: the reader ends.
        """
        if position == self._written or (self._is_lazy and not self._is_due(position, is_end)):
            return
        members = position.to_members()
        del members[NEXT_SNAPSHOT]
        if position.is_full:
            self._full.write(position.next_snapshot_id, members)
            self._may_have_full = True
        else:
            self._changes.write(position.next_snapshot_id, members)
            if self._may_have_full:
                self._full.forget()
                self._may_have_full = False
        self._written = position

    def _is_due(self, position: ChangePosition, is_end: bool) -> bool:
        now_s = env.monotonic_s()
        is_due = self._written is None or is_end or (now_s >= self._next_write_s and not position.rows)
        if is_due:
            self._next_write_s = now_s + _WRITE_INTERVAL_S
        return is_due

    def _of_another_count(self) -> ChangePosition | None:
        """Return the earliest position of readers from a time with another number of readers; None if none exists."""
        names = consumer_names(self._context.io, self._context.paths)
        others = [name for name in names if self._share.has_other_reader_count(name, of=self._name)]
        found = {name: members for name in others if (members := self._consumer(name).read()) is not None}
        if not found:
            return None
        positions = [ChangePosition.of_members(members) for members in found.values()]
        first = min(positions, key=lambda position: position.next_snapshot_id)
        if not self._is_lazy and any(p.rows or p.next_snapshot_id != first.next_snapshot_id for p in positions):
            raise BadInput(
                f"consumer {self._name!r} of {self._context.name} was read by another number of readers, which stopped "
                f"at different positions ({', '.join(found)}): changes would be repeated. Let these readers reach the "
                "same snapshot first, allow repeated changes with consumer.mode = at-least-once, or pass a position as "
                "start="
            )
        return ChangePosition(first.next_snapshot_id, after=first.after)

    def _consumer(self, name: str) -> Consumer:
        return Consumer(self._context.io, self._context.paths, name)
