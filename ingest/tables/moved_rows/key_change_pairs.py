"""Finds the two halves of each key change, in whatever order partitions bring them.

Halves of one change have one id. Where an id may stand for several changes (`KeyChange.is_exact`), the first row that
left belongs to the first that came: all halves of one kind are in one partition, so their order is that of the source.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ingest.formats.base import KeyChange

T = TypeVar("T")


@dataclass(slots=True)
class KeyChangePairs(Generic[T]):
    """Halves whose other half has not come yet. T: what is kept of a row that left.

    left: by id, oldest first.
    early: ids of rows that came before they were seen leaving, and how many.
    """

    left: dict[bytes, deque[T]] = field(default_factory=dict)
    early: Counter[bytes] = field(default_factory=Counter)

    def __iter__(self) -> Iterator[T]:
        """What is kept of rows that left, by and large oldest first."""
        for queue in self.left.values():
            yield from queue

    def add_departure(self, change: KeyChange, kept: T) -> bool:
        """Returns whether it is kept: not when the other half came already, or when the same record did (a connector
        that restarts sends records again).
        """
        if self.early[change.id] > 0:
            self.early[change.id] -= 1
            self._drop_if_zero(change.id)
            return False
        self._drop_if_zero(change.id)
        if change.is_exact and change.id in self.left:
            return False
        self.left.setdefault(change.id, deque()).append(kept)
        return True

    def match_arrival(self, change: KeyChange) -> T | None:
        """A row came: what was kept when it left, None when that was not seen yet."""
        queue = self.left.get(change.id)
        if not queue:
            self.early[change.id] = 1 if change.is_exact else self.early[change.id] + 1
            return None
        kept = queue.popleft()
        if not queue:
            del self.left[change.id]
        return kept

    def subset(self, ids: Collection[bytes]) -> KeyChangePairs[T | int]:
        """A copy of what is known of these ids, to try out what rows of a batch do; those are kept by their number."""
        return KeyChangePairs(
            {id_: deque[T | int](self.left[id_]) for id_ in ids if id_ in self.left},
            Counter({id_: self.early[id_] for id_ in ids if id_ in self.early}),
        )

    def _drop_if_zero(self, id_: bytes) -> None:
        if not self.early[id_]:
            del self.early[id_]
