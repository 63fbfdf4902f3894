"""What waits keeps its order, and not for ever."""

from __future__ import annotations

from checkpoint.offsets import TopicPartition
from ingest.formats.base import DecodedBatch, KeyChange
from ingest.unchanged_values import Wanted
from ingest.waiting import Pending, Waiting
from tests.ingest.fakes import raw_batch

P0, P1 = TopicPartition("log", 0), TopicPartition("log", 1)
NOTHING = DecodedBatch((), (), {}, {})


def pending(*offsets: int, partition: int = 0, came_ms: int = 0) -> Pending:
    return Pending(raw_batch(offsets, partition=partition), NOTHING, came_ms)


def wanted(offset: int) -> Wanted:
    return Wanted(offset, "t", KeyChange(b"99", True, "99", "1"))


def test_batches_of_a_partition_stay_in_order() -> None:
    waiting, first, second = Waiting(1_000, 1_000), pending(1), pending(2)
    waiting.add(first)
    waiting.add(second)
    assert waiting.head(P0) is first
    waiting.written(P0)
    assert waiting.head(P0) is second
    waiting.written(P0)
    assert (waiting.head(P0), P0 in waiting) == (None, False)


def test_a_stuck_batch_goes_on_where_it_ended() -> None:
    waiting = Waiting(1_000, 1_000)
    waiting.add(pending(1, 2, 3))
    waiting.stuck(P0, 2, wanted(2))
    waiting.stuck(P0, 3, third := wanted(3))
    head = waiting.head(P0)
    assert head is not None
    assert (head.start, waiting.wanted) == (3, {P0: third})


def test_the_batch_that_came_first_is_due_first() -> None:
    waiting = Waiting(1_000, 1_000)
    waiting.add(pending(1, came_ms=300))
    waiting.add(pending(1, partition=1, came_ms=100))
    assert (waiting.longest(), waiting.due_in_ms(0)) == (None, None)
    waiting.stuck(P0, 1, wanted(1))
    waiting.stuck(P1, 1, wanted(1))
    assert (waiting.longest(), waiting.due_in_ms(600), waiting.due_in_ms(1_100)) == (P1, 500, 0)


def test_a_batch_waits_no_longer_when_several_of_its_records_wait_in_turn() -> None:
    waiting = Waiting(1_000, 1_000)
    waiting.add(pending(1, 2))
    waiting.stuck(P0, 1, wanted(1))
    waiting.stuck(P0, 2, wanted(2))
    assert waiting.due_in_ms(900) == 100


def test_too_much_is_due_at_once() -> None:
    size = pending(1).raw.nbytes
    waiting = Waiting(1_000, size)
    waiting.add(pending(1))
    waiting.stuck(P0, 1, wanted(1))
    assert waiting.due_in_ms(0) == 1_000
    waiting.add(pending(2))
    assert waiting.due_in_ms(0) == 0
