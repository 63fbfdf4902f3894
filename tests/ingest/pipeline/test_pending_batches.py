"""Pending batches keep their order, and wait for a bounded time."""

from __future__ import annotations

from tests.ingest.pipeline.fakes import raw_batch
from tidelake.checkpoint.offsets import TopicPartition
from tidelake.ingest.formats.base import DecodedBatch, KeyChange
from tidelake.ingest.pipeline.pending_batches import PendingBatch, PendingBatches, WaitLimits
from tidelake.ingest.tables.unavailable_values import AwaitedRow

P0 = TopicPartition("log", 0)
NOTHING = DecodedBatch((), (), {}, {})


def pending(*offsets: int, partition: int = 0, arrived_ms: int = 0) -> PendingBatch:
    return PendingBatch(raw_batch(offsets, partition=partition), NOTHING, arrived_ms)


def awaited(offset: int) -> AwaitedRow:
    return AwaitedRow(offset, "t", KeyChange(b"99", True, "99", "1"))


def block(batch: PendingBatch, offset: int) -> None:
    """The write stage has written the batch up to this offset, where a record waits."""
    batch.start, batch.awaited = offset, awaited(offset)


def test_batches_of_a_partition_stay_in_order() -> None:
    waiting, first, second = PendingBatches(WaitLimits(1_000, 1_000)), pending(1), pending(2)
    assert (waiting.add(first), waiting.add(second)) == (True, False)
    assert waiting.head(P0) is first
    assert waiting.remove(first) is second
    assert waiting.head(P0) is second
    assert (waiting.remove(second), waiting.head(P0)) == (None, None)


def test_a_partition_waits_for_the_row_of_its_first_batch() -> None:
    waiting, first = PendingBatches(WaitLimits(1_000, 1_000)), pending(1, 2, 3)
    waiting.add(first)
    waiting.add(pending(4))
    assert waiting.awaited == {}
    block(first, 2)
    block(first, 3)
    assert waiting.awaited == {P0: first.awaited}


def test_the_oldest_pending_batch_is_due_first() -> None:
    waiting = PendingBatches(WaitLimits(1_000, 1_000))
    late, early = pending(1, arrived_ms=300), pending(1, partition=1, arrived_ms=100)
    waiting.add(late)
    waiting.add(early)
    assert (waiting.longest_waiting(), waiting.due_in_ms(0)) == (None, None)
    block(late, 1)
    block(early, 1)
    assert waiting.longest_waiting() is early
    assert (waiting.due_in_ms(600), waiting.due_in_ms(1_100)) == (500, 0)


def test_a_batch_waits_once_although_several_of_its_records_wait() -> None:
    waiting, batch = PendingBatches(WaitLimits(1_000, 1_000)), pending(1, 2)
    waiting.add(batch)
    block(batch, 1)
    block(batch, 2)
    assert waiting.due_in_ms(900) == 100


def test_too_many_pending_bytes_are_due_at_once() -> None:
    batch = pending(1)
    waiting = PendingBatches(WaitLimits(1_000, batch.raw.nbytes))
    waiting.add(batch)
    block(batch, 1)
    assert waiting.due_in_ms(0) == 1_000
    waiting.add(pending(2))
    assert waiting.due_in_ms(0) == 0
    waiting.clear()
    assert waiting.due_in_ms(0) is None
