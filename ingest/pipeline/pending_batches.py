"""Batches that wait to be written, in the order of each partition. A batch may wait for a row from another partition.

A moved row may arrive before the record with its unavailable values, because partitions have no common order. Its
partition then waits, with all later records, while the other partitions are read. The partition's position stays
before the record. When a record deletes the awaited row under its old key, the waiting record is tried again. Waiting
is limited: the record fails some time after its batch arrived, or if too many bytes wait. The time is counted from the
arrival of the batch, not of each record, so a partition never lags by more than the limit, however many records wait.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from tidelake.checkpoint.offsets import TopicPartition
from tidelake.ingest.formats.base import DecodedBatch
from tidelake.ingest.raw_batch import RawBatch
from tidelake.ingest.tables.unavailable_values import AwaitedRow


@dataclass(slots=True, eq=False)
class PendingBatch:
    """A batch whose records from offset `start` on are not written. The write stage moves `start` on.

    came_ms: when the batch arrived.
    awaited: the row that the first of these records waits for; None before the first try.
    routing: `Quarantine.routing` when the batch was decoded.
    handled: (offset, table) of the records without rows, as truncates and DDL, that were handled for the table.
    """

    raw: RawBatch
    decoded: DecodedBatch
    came_ms: int
    start: int = 0
    awaited: AwaitedRow | None = None
    routing: int = 0
    handled: set[tuple[int, str | None]] = field(default_factory=set)

    @property
    def partition(self) -> TopicPartition:
        return TopicPartition(self.raw.topic, self.raw.partition)


@dataclass(frozen=True, slots=True)
class WaitLimits:
    """The limits of waiting.

    ms: how long a batch may wait after its arrival
    nbytes: how many bytes may wait in total
    """

    ms: int
    nbytes: int


class PendingBatches:
    """A queue of batches for each partition. The first batch of a queue is the one to write next."""

    def __init__(self, limits: WaitLimits) -> None:
        self._limits = limits
        self._bytes = 0
        self._queues: dict[TopicPartition, deque[PendingBatch]] = {}

    def add(self, batch: PendingBatch) -> bool:
        """Append a batch to its partition. Returns whether it is the one to write next."""
        queue = self._queues.setdefault(batch.partition, deque())
        queue.append(batch)
        self._bytes += batch.raw.nbytes
        return len(queue) == 1

    def head(self, partition: TopicPartition) -> PendingBatch | None:
        """Return the batch to write next; None if no batch of the partition is pending."""
        queue = self._queues.get(partition)
        return queue[0] if queue else None

    def remove(self, head: PendingBatch) -> PendingBatch | None:
        """Remove the first batch of a partition, which is written completely. Returns the next one."""
        queue = self._queues[head.partition]
        assert queue[0] is head
        self._bytes -= queue.popleft().raw.nbytes
        if queue:
            return queue[0]
        del self._queues[head.partition]
        return None

    @property
    def awaited(self) -> dict[TopicPartition, AwaitedRow]:
        """The rows that partitions wait for."""
        return {p: queue[0].awaited for p, queue in self._queues.items() if queue[0].awaited is not None}

    def longest_waiting(self) -> PendingBatch | None:
        """Return the waiting batch that arrived earliest; None if none waits."""
        heads = (queue[0] for queue in self._queues.values() if queue[0].awaited is not None)
        return min(heads, key=lambda head: head.came_ms, default=None)

    def clear(self) -> None:
        """Drop all batches. Their records are read again."""
        self._queues, self._bytes = {}, 0

    def due_in_ms(self, now_ms: int) -> int | None:
        """Return the time until a waiting record must fail; None if none waits."""
        longest = self.longest_waiting()
        if longest is None:
            return None
        return 0 if self._bytes > self._limits.nbytes else max(0, longest.came_ms + self._limits.ms - now_ms)
