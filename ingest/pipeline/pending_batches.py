"""Batches of partitions that wait for a row from another partition.

A moved row may arrive before the record with its unavailable values, because partitions have no common order. Its
partition then waits, with all later records, while the other partitions are read. The partition's position stays
before the record. When a record deletes the awaited row under its old key, the waiting record is tried again. Waiting
is limited: the record fails some time after its batch arrived, or if too many bytes wait. The time is counted from the
arrival of the batch, not of each record, so a partition never lags by more than the limit, however many records wait.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

from tidelake.checkpoint.offsets import TopicPartition
from tidelake.ingest.formats.base import DecodedBatch
from tidelake.ingest.raw_batch import RawBatch
from tidelake.ingest.tables.unavailable_values import AwaitedRow


@dataclass(frozen=True, slots=True)
class PendingBatch:
    """A batch whose records from offset `start` on are not written.

    came_ms: when the batch arrived.
    awaited: the row that the first of these records waits for; None before the first try.
    routing: `Quarantine.routing` when the batch was decoded.
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
    """Batches that wait for a row from another partition.

    limit_ms: how long a batch may wait after its arrival
    limit_bytes: how many bytes may wait in total
    """

    def __init__(self, limit_ms: int, limit_bytes: int) -> None:
        self._limit_ms = limit_ms
        self._limit_bytes = limit_bytes
        self._bytes = 0
        self._queues: dict[TopicPartition, deque[PendingBatch]] = {}

    def new(self) -> PendingBatches:
        """Return an empty instance with the same limits."""
        return PendingBatches(self._limit_ms, self._limit_bytes)

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self._queues

    @property
    def awaited(self) -> dict[TopicPartition, AwaitedRow]:
        """The rows that partitions wait for."""
        return {p: queue[0].awaited for p, queue in self._queues.items() if queue[0].awaited is not None}

    def longest_waiting(self) -> TopicPartition | None:
        """Return the waiting partition whose first batch arrived earliest; None if none waits."""
        return min(self.awaited, key=lambda p: self._queues[p][0].came_ms, default=None)

    def add(self, pending: PendingBatch) -> None:
        """Append a batch after the waiting batches of its partition."""
        self._queues.setdefault(pending.partition, deque()).append(pending)
        self._bytes += pending.raw.nbytes

    def head(self, partition: TopicPartition) -> PendingBatch | None:
        """Return the batch to write next; None if no batch of the partition is pending."""
        queue = self._queues.get(partition)
        return queue[0] if queue else None

    def remove_head(self, partition: TopicPartition) -> None:
        """Remove the head, which is written completely."""
        queue = self._queues[partition]
        self._bytes -= queue.popleft().raw.nbytes
        if not queue:
            del self._queues[partition]

    def block_head(self, partition: TopicPartition, start: int, awaited: AwaitedRow) -> None:
        """Record that the head is written up to `start`, where a record waits."""
        queue = self._queues[partition]
        queue[0] = replace(queue[0], start=start, awaited=awaited)

    def replace_head(
        self, partition: TopicPartition, decoded: DecodedBatch, start: int, routing: int = 0
    ) -> PendingBatch:
        """Replace the head by the same batch, decoded again. It is written up to `start`."""
        queue = self._queues[partition]
        queue[0] = replace(queue[0], decoded=decoded, start=start, routing=routing)
        return queue[0]

    def clear(self) -> None:
        """Drop all waiting batches. Their records are read again."""
        self._queues, self._bytes = {}, 0

    def due_in_ms(self, now_ms: int) -> int | None:
        """Return the time until a waiting record must fail; None if none waits."""
        partition = self.longest_waiting()
        if partition is None:
            return None
        came_ms = self._queues[partition][0].came_ms
        return 0 if self._bytes > self._limit_bytes else max(0, came_ms + self._limit_ms - now_ms)
