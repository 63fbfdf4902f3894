"""Batches of partitions that can't go on before another partition has.

A row that moved to another key may come before the record that its left-out values lie in: partitions have no order
among each other. Its partition then waits, with all that comes after, while the others are read on; its position
stays before the record. Waiting is bounded: after a while, or when too much waits, the record is given up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace

from checkpoint.offsets import TopicPartition
from ingest.formats.base import DecodedBatch
from ingest.raw_batch import RawBatch


@dataclass(frozen=True, slots=True)
class Pending:
    """A batch whose records from offset `start` on are not written. since_ms: when the first of them began to wait."""

    raw: RawBatch
    decoded: DecodedBatch
    start: int = 0
    since_ms: int | None = None

    @property
    def partition(self) -> TopicPartition:
        return TopicPartition(self.raw.topic, self.raw.partition)


class Waiting:
    """limit_ms: how long a partition may wait. limit_bytes: how much may wait in all."""

    def __init__(self, limit_ms: int, limit_bytes: int) -> None:
        self._limit_ms = limit_ms
        self._limit_bytes = limit_bytes
        self._bytes = 0
        self._queues: dict[TopicPartition, deque[Pending]] = {}

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self._queues

    def __iter__(self) -> Iterator[TopicPartition]:
        """The partitions that have something to be written; they may change meanwhile."""
        return iter(list(self._queues))

    def longest(self) -> TopicPartition | None:
        """The partition whose next record has waited longest."""
        stuck = [queue[0] for queue in self._queues.values() if queue[0].since_ms is not None]
        return min(stuck, key=lambda head: head.since_ms or 0).partition if stuck else None

    def add(self, pending: Pending) -> None:
        """Behind what waits already."""
        self._queues.setdefault(pending.partition, deque()).append(pending)
        self._bytes += pending.raw.nbytes

    def head(self, partition: TopicPartition) -> Pending | None:
        """What is to be written next; None when the partition doesn't wait any more."""
        queue = self._queues.get(partition)
        return queue[0] if queue else None

    def written(self, partition: TopicPartition) -> None:
        """The head is written whole."""
        queue = self._queues[partition]
        self._bytes -= queue.popleft().raw.nbytes
        if not queue:
            del self._queues[partition]

    def stuck(self, partition: TopicPartition, start: int, now_ms: int) -> bool:
        """The head is written up to `start`, where a record waits. Returns whether it got further than before."""
        queue = self._queues[partition]
        moved = queue[0].start < start or queue[0].since_ms is None
        if moved:
            queue[0] = replace(queue[0], start=start, since_ms=now_ms)
        return moved

    def due_in_ms(self, now_ms: int) -> int | None:
        """How long until a record is to be given up; None when none waits."""
        partition = self.longest()
        if partition is None:
            return None
        since_ms = self._queues[partition][0].since_ms or 0
        return 0 if self._bytes > self._limit_bytes else max(0, since_ms + self._limit_ms - now_ms)
