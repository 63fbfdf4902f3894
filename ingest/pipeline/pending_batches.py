"""Batches of partitions that can't go on before another partition has.

A row that moved to another key may come before the record that its left-out values are in: partitions have no order
among each other. Its partition then waits, with all that comes after, while the others are read on; its position
stays before the record. When a row under the awaited key is written, the record is tried again. Waiting is
bounded: some time after its batch came, or when too much waits, the record is given up. Time is counted for batches,
not for records: however many wait in vain, a partition is never further behind.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

from checkpoint.offsets import TopicPartition
from ingest.formats.base import DecodedBatch
from ingest.raw_batch import RawBatch
from ingest.tables.unavailable_values import AwaitedRow


@dataclass(frozen=True, slots=True)
class PendingBatch:
    """A batch whose records from offset `start` on are not written.

    came_ms: when it came.
    awaited: what the first of them waits for; None before it was tried.
    routing: of the quarantine when it was decoded.
    """

    raw: RawBatch
    decoded: DecodedBatch
    came_ms: int
    start: int = 0
    awaited: AwaitedRow | None = None
    routing: int = 0

    @property
    def partition(self) -> TopicPartition:
        return TopicPartition(self.raw.topic, self.raw.partition)


class PendingBatches:
    """Batches that wait for a value from another partition.

    limit_ms: how long after it came a batch may wait
    limit_bytes: how much may wait in all
    """

    def __init__(self, limit_ms: int, limit_bytes: int) -> None:
        self._limit_ms = limit_ms
        self._limit_bytes = limit_bytes
        self._bytes = 0
        self._queues: dict[TopicPartition, deque[PendingBatch]] = {}

    def new(self) -> PendingBatches:
        """Empty ones with the same limits."""
        return PendingBatches(self._limit_ms, self._limit_bytes)

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self._queues

    @property
    def awaited(self) -> dict[TopicPartition, AwaitedRow]:
        """The rows that partitions wait for."""
        return {p: queue[0].awaited for p, queue in self._queues.items() if queue[0].awaited is not None}

    def longest_waiting(self) -> TopicPartition | None:
        """The partition that waits and whose next batch came first."""
        return min(self.awaited, key=lambda p: self._queues[p][0].came_ms, default=None)

    def add(self, pending: PendingBatch) -> None:
        """Behind what waits already."""
        self._queues.setdefault(pending.partition, deque()).append(pending)
        self._bytes += pending.raw.nbytes

    def head(self, partition: TopicPartition) -> PendingBatch | None:
        """What is to be written next; None when the partition doesn't wait any more."""
        queue = self._queues.get(partition)
        return queue[0] if queue else None

    def remove_head(self, partition: TopicPartition) -> None:
        """The head is written whole."""
        queue = self._queues[partition]
        self._bytes -= queue.popleft().raw.nbytes
        if not queue:
            del self._queues[partition]

    def block_head(self, partition: TopicPartition, start: int, awaited: AwaitedRow) -> None:
        """The head is written up to `start`, where a record waits."""
        queue = self._queues[partition]
        queue[0] = replace(queue[0], start=start, awaited=awaited)

    def replace_head(
        self, partition: TopicPartition, decoded: DecodedBatch, start: int, routing: int = 0
    ) -> PendingBatch:
        """The head was decoded again, and is written up to `start`."""
        queue = self._queues[partition]
        queue[0] = replace(queue[0], decoded=decoded, start=start, routing=routing)
        return queue[0]

    def clear(self) -> None:
        """Drop all waiting batches: they are read again."""
        self._queues, self._bytes = {}, 0

    def due_in_ms(self, now_ms: int) -> int | None:
        """How long until a record is to be given up; None when none waits."""
        partition = self.longest_waiting()
        if partition is None:
            return None
        came_ms = self._queues[partition][0].came_ms
        return 0 if self._bytes > self._limit_bytes else max(0, came_ms + self._limit_ms - now_ms)
