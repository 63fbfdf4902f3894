"""Every pair of state and event: transitions of the table happen, all others raise."""

from __future__ import annotations

from itertools import product

import pytest

from tidelake.checkpoint.states import TRANSITIONS, CheckpointEvent, CheckpointState, IllegalTransition, next_state

ILLEGAL = [pair for pair in product(CheckpointState, CheckpointEvent) if pair not in TRANSITIONS]


def name(value: CheckpointState | CheckpointEvent) -> str:
    return value.name


@pytest.mark.parametrize(("state", "event"), ILLEGAL, ids=name)
def test_an_event_without_a_transition_raises(state: CheckpointState, event: CheckpointEvent) -> None:
    with pytest.raises(IllegalTransition) as raised:
        next_state(state, event)
    assert (raised.value.state, raised.value.event) == (state, event)
    assert str(raised.value) == f"{event.name} is not possible in state {state.name}: {state.value}"


def test_a_checkpoint_returns_to_its_first_state() -> None:
    state = CheckpointState.WRITING
    for event in (
        CheckpointEvent.BEGUN,
        CheckpointEvent.PREPARED,
        CheckpointEvent.TABLE_COMMITTED,
        CheckpointEvent.TABLE_COMMITTED,
        CheckpointEvent.COMPLETED,
        CheckpointEvent.CLOSED,
    ):
        state = next_state(state, event)
    assert state is CheckpointState.CLOSED


def test_every_state_but_the_last_two_can_fail() -> None:
    assert {state for state, event in TRANSITIONS if event is CheckpointEvent.FAILED} == set(CheckpointState) - {
        CheckpointState.CLOSED
    }
    assert {after for (_, event), after in TRANSITIONS.items() if event is CheckpointEvent.FAILED} == {
        CheckpointState.BROKEN
    }


def test_closed_and_broken_are_final_states() -> None:
    assert {
        after for (state, _), after in TRANSITIONS.items() if state in (CheckpointState.CLOSED, CheckpointState.BROKEN)
    } == {CheckpointState.BROKEN}
    assert not any(state is CheckpointState.CLOSED for state, _ in TRANSITIONS)
