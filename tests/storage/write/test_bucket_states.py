"""Every pair of state and event: transitions of the table happen, all others raise; and the lives of buckets."""

from __future__ import annotations

from itertools import product

import pytest

from tidelake.storage.write.bucket_states import TRANSITIONS, BucketEvent, BucketState, IllegalBucketEvent, next_state

ILLEGAL = [pair for pair in product(BucketState, BucketEvent) if pair not in TRANSITIONS]


def name(value: BucketState | BucketEvent) -> str:
    return value.name


@pytest.mark.parametrize(("state", "event"), ILLEGAL, ids=name)
def test_an_event_without_a_transition_raises(state: BucketState, event: BucketEvent) -> None:
    with pytest.raises(IllegalBucketEvent, match=f"{event.name} is not possible.*{state.name}") as raised:
        next_state(state, event)
    assert (raised.value.state, raised.value.event) == (state, event)


LIVES = {
    "one commit": "CLOSED opened OPEN written WRITTEN prepared PREPARED committed OPEN closed CLOSED",
    "rows that need no file": "OPEN written WRITTEN written WRITTEN empty OPEN closed CLOSED",
    "a compaction alone": "OPEN prepared PREPARED committed OPEN",
    "nothing to commit": "OPEN empty OPEN",
    "the commit met a conflict; the next one has its files and more": (
        "PREPARED written EXTENDED written EXTENDED prepared PREPARED prepared PREPARED committed OPEN"
    ),
    "more rows that need no file": "EXTENDED empty PREPARED",
    "rows of the next commit": "PREPARED written EXTENDED committed WRITTEN prepared PREPARED committed OPEN",
    "rows of the next commit, while this one was not needed": "PREPARED written EXTENDED dropped LOST restored OPEN",
    "the same commit again": "PREPARED empty PREPARED committed OPEN",
    "the rows won, their compaction lost": "PREPARED lost LOST committed LOST restored OPEN",
    "committed by an earlier process": "PREPARED dropped LOST restored OPEN",
    "lost, then committed by an earlier process": "PREPARED lost LOST dropped LOST restored OPEN",
    "lost between two commits": "OPEN lost LOST written LOST prepared LOST committed LOST restored OPEN",
    "lost while rows are written": "WRITTEN lost LOST",
    "lost while more rows are written": "EXTENDED lost LOST",
    "lost twice": "LOST lost LOST empty LOST",
    "lost by another task, and compacted here": "CLOSED lost LOST opened LOST restored OPEN",
    "lost by another task, and not written here": "CLOSED lost LOST closed CLOSED",
}


def steps(life: str) -> list[tuple[BucketState, BucketEvent, BucketState]]:
    words = life.split()
    return [
        (BucketState[before], BucketEvent[event.upper()], BucketState[after])
        for before, event, after in zip(words[::2], words[1::2], words[2::2], strict=False)
    ]


@pytest.mark.parametrize("life", LIVES.values(), ids=list(LIVES))
def test_the_lives_of_a_bucket(life: str) -> None:
    for before, event, after in steps(life):
        assert next_state(before, event) is after, f"{event.name} in {before.name}"


def test_every_transition_is_part_of_a_life() -> None:
    assert {(before, event) for life in LIVES.values() for before, event, _ in steps(life)} == set(TRANSITIONS)


def test_a_bucket_with_uncommitted_files_is_never_closed() -> None:
    """Another writer of the bucket would continue from its files before the commit."""
    assert {state for state, event in TRANSITIONS if event is BucketEvent.CLOSED} == {
        BucketState.OPEN,
        BucketState.LOST,  # restored when it is opened again
    }


def test_only_files_that_were_handed_over_are_settled() -> None:
    settled = {BucketEvent.COMMITTED, BucketEvent.DROPPED}
    assert {state for state, event in TRANSITIONS if event in settled} == {
        BucketState.PREPARED,
        BucketState.EXTENDED,
        BucketState.LOST,
    }


def test_a_lost_bucket_needs_its_files_before_it_is_in_any_other_state() -> None:
    leaving = {event for (state, event), after in TRANSITIONS.items() if state is BucketState.LOST is not after}
    assert leaving == {BucketEvent.RESTORED, BucketEvent.CLOSED}
