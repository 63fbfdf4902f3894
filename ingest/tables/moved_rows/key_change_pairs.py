"""Matches the two halves of each key change, in any order of arrival from partitions.

Both halves of a change have the same id. If several changes may have one id (see `KeyChange.is_exact`), the first half
with the old key belongs to the first half with the new key: all halves of one kind are in one partition, so they are in
the source's order.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tidelake.ingest.formats.base import KeyChange

T = TypeVar("T")


@dataclass(slots=True)
class KeyChangePairs(Generic[T]):
    """Halves of key changes whose other half has not arrived yet. T: the data that is kept of a row with the old key.

    left: the data of rows that were deleted under their old key, by id, oldest first.
    early: the number of rows, by id, that arrived under their new key before they were deleted under the old one.
    """

    left: dict[bytes, deque[T]] = field(default_factory=dict)
    early: Counter[bytes] = field(default_factory=Counter)

    def __iter__(self) -> Iterator[T]:
        """Iterate over the kept data, approximately oldest first."""
        for queue in self.left.values():
            yield from queue

    def add_departure(self, change: KeyChange, kept: T) -> bool:
        """Add a row that was deleted under its old key. Returns whether its data is kept.

        It is not kept if the other half has arrived already, or if the same record has arrived before: a connector that
        restarts sends records again.
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

    def match_new_half(self, change: KeyChange) -> T | None:
        """Match a row that arrived under its new key. Returns the kept data; None if the other half is missing yet."""
        queue = self.left.get(change.id)
        if not queue:
            self.early[change.id] = 1 if change.is_exact else self.early[change.id] + 1
            return None
        kept = queue.popleft()
        if not queue:
            del self.left[change.id]
        return kept

    def subset(self, ids: Collection[bytes]) -> KeyChangePairs[T | int]:
        """Return a copy with these ids, to simulate the changes of a batch. For its rows, the row number is kept."""
        return KeyChangePairs(
            {id_: deque[T | int](self.left[id_]) for id_ in ids if id_ in self.left},
            Counter({id_: self.early[id_] for id_ in ids if id_ in self.early}),
        )

    def _drop_if_zero(self, id_: bytes) -> None:
        if not self.early[id_]:
            del self.early[id_]
