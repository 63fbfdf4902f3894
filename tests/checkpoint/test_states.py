"""Every (state, event) pair: what is in the table happens, what is not raises."""

from __future__ import annotations

from itertools import product

import pytest

from checkpoint.states import TRANSITIONS, Event, IllegalEvent, State, next_state

ILLEGAL = [pair for pair in product(State, Event) if pair not in TRANSITIONS]


def name(value: State | Event) -> str:
    return value.name


@pytest.mark.parametrize(("state", "event"), ILLEGAL, ids=name)
def test_an_event_that_is_not_in_the_table_is_illegal(state: State, event: Event) -> None:
    with pytest.raises(IllegalEvent) as raised:
        next_state(state, event)
    assert (raised.value.state, raised.value.event) == (state, event)


def test_a_checkpoint_goes_round() -> None:
    state = State.WRITING
    for event in (
        Event.BEGUN,
        Event.PREPARED,
        Event.TABLE_COMMITTED,
        Event.TABLE_COMMITTED,
        Event.COMPLETED,
        Event.CLOSED,
    ):
        state = next_state(state, event)
    assert state is State.CLOSED


def test_every_state_but_the_last_two_can_fail() -> None:
    assert {state for state, event in TRANSITIONS if event is Event.FAILED} == set(State) - {State.CLOSED}
    assert {after for (_, event), after in TRANSITIONS.items() if event is Event.FAILED} == {State.BROKEN}


def test_nothing_leads_out_of_closed_and_broken() -> None:
    assert {after for (state, _), after in TRANSITIONS.items() if state in (State.CLOSED, State.BROKEN)} == {
        State.BROKEN
    }
    assert not any(state is State.CLOSED for state, _ in TRANSITIONS)
