"""Pending batches keep their order, and wait for a bounded time."""

from __future__ import annotations

from tests.ingest.pipeline.fakes import raw_batch
from tidelake.checkpoint.offsets import TopicPartition
from tidelake.ingest.formats.base import DecodedBatch, KeyChange
from tidelake.ingest.pipeline.pending_batches import PendingBatch, PendingBatches
from tidelake.ingest.tables.unavailable_values import AwaitedRow

P0, P1 = TopicPartition("log", 0), TopicPartition("log", 1)
NOTHING = DecodedBatch((), (), {}, {})


def pending(*offsets: int, partition: int = 0, arrived_ms: int = 0) -> PendingBatch:
    return PendingBatch(raw_batch(offsets, partition=partition), NOTHING, arrived_ms)


def awaited(offset: int) -> AwaitedRow:
    return AwaitedRow(offset, "t", KeyChange(b"99", True, "99", "1"))


def test_batches_of_a_partition_stay_in_order() -> None:
    waiting, first, second = PendingBatches(1_000, 1_000), pending(1), pending(2)
    waiting.add(first)
    waiting.add(second)
    assert waiting.head(P0) is first
    waiting.remove_head(P0)
    assert waiting.head(P0) is second
    waiting.remove_head(P0)
    assert (waiting.head(P0), P0 in waiting) == (None, False)


def test_a_pending_batch_continues_at_its_record() -> None:
    waiting = PendingBatches(1_000, 1_000)
    waiting.add(pending(1, 2, 3))
    waiting.block_head(P0, 2, awaited(2))
    waiting.block_head(P0, 3, third := awaited(3))
    head = waiting.head(P0)
    assert head is not None
    assert (head.start, waiting.awaited) == (3, {P0: third})


def test_the_oldest_pending_batch_is_due_first() -> None:
    waiting = PendingBatches(1_000, 1_000)
    waiting.add(pending(1, arrived_ms=300))
    waiting.add(pending(1, partition=1, arrived_ms=100))
    assert (waiting.longest_waiting(), waiting.due_in_ms(0)) == (None, None)
    waiting.block_head(P0, 1, awaited(1))
    waiting.block_head(P1, 1, awaited(1))
    assert (waiting.longest_waiting(), waiting.due_in_ms(600), waiting.due_in_ms(1_100)) == (P1, 500, 0)


def test_a_batch_waits_once_although_several_of_its_records_wait() -> None:
    waiting = PendingBatches(1_000, 1_000)
    waiting.add(pending(1, 2))
    waiting.block_head(P0, 1, awaited(1))
    waiting.block_head(P0, 2, awaited(2))
    assert waiting.due_in_ms(900) == 100


def test_too_many_pending_bytes_are_due_at_once() -> None:
    size = pending(1).raw.nbytes
    waiting = PendingBatches(1_000, size)
    waiting.add(pending(1))
    waiting.block_head(P0, 1, awaited(1))
    assert waiting.due_in_ms(0) == 1_000
    waiting.add(pending(2))
    assert waiting.due_in_ms(0) == 0
