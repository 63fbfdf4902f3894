"""What waits keeps its order, and not for ever."""

from __future__ import annotations

from checkpoint.offsets import TopicPartition
from ingest.formats.base import DecodedBatch
from ingest.waiting import Pending, Waiting
from tests.ingest.fakes import raw_batch

P0, P1 = TopicPartition("log", 0), TopicPartition("log", 1)
NOTHING = DecodedBatch((), (), {}, {})


def pending(*offsets: int, partition: int = 0) -> Pending:
    return Pending(raw_batch(offsets, partition=partition), NOTHING)


def test_batches_of_a_partition_stay_in_order() -> None:
    waiting, first, second = Waiting(1_000, 1_000), pending(1), pending(2)
    waiting.add(first)
    waiting.add(second)
    assert waiting.head(P0) is first
    waiting.written(P0)
    assert waiting.head(P0) is second
    waiting.written(P0)
    assert (waiting.head(P0), P0 in waiting, list(waiting)) == (None, False, [])


def test_a_stuck_batch_goes_on_where_it_ended() -> None:
    waiting = Waiting(1_000, 1_000)
    waiting.add(pending(1, 2, 3))
    assert waiting.stuck(P0, 2, now_ms=10)
    assert not waiting.stuck(P0, 2, now_ms=20)
    assert waiting.stuck(P0, 3, now_ms=30)
    head = waiting.head(P0)
    assert head is not None
    assert (head.start, head.since_ms) == (3, 30)


def test_the_one_that_waited_longest_is_due_first() -> None:
    waiting = Waiting(1_000, 1_000)
    waiting.add(pending(1))
    waiting.add(pending(1, partition=1))
    assert (waiting.longest(), waiting.due_in_ms(0)) == (None, None)
    waiting.stuck(P1, 1, now_ms=100)
    waiting.stuck(P0, 1, now_ms=300)
    assert (waiting.longest(), waiting.due_in_ms(600), waiting.due_in_ms(1_100)) == (P1, 500, 0)


def test_too_much_is_due_at_once() -> None:
    size = pending(1).raw.nbytes
    waiting = Waiting(1_000, size)
    waiting.add(pending(1))
    waiting.stuck(P0, 1, now_ms=0)
    assert waiting.due_in_ms(0) == 1_000
    waiting.add(pending(2))
    assert waiting.due_in_ms(0) == 0
