"""The transitions of a run, and the effect of a stop in each state."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tidelake.ingest.pipeline.pipeline import (
    TRANSITIONS,
    IllegalRunTransition,
    RunEvent,
    RunState,
    next_run_state,
)

STARTED, READING, STOP_REQUESTED, WORK_ENDED, CLEANED_UP = RunEvent


def after(*events: RunEvent) -> RunState:
    state = RunState.CREATED
    for event in events:
        state = next_run_state(state, event)
    return state


@pytest.mark.parametrize(
    ("events", "state"),
    [
        pytest.param([STOP_REQUESTED], RunState.CREATED, id="before it runs nothing is to be stopped"),
        pytest.param([STARTED, STOP_REQUESTED], RunState.CANCELLED, id="before the first record it ends at once"),
        pytest.param([STARTED, READING, STOP_REQUESTED], RunState.STOPPING, id="the first stop commits what was read"),
        pytest.param(
            [STARTED, READING, STOP_REQUESTED, STOP_REQUESTED], RunState.CANCELLED, id="the second ends at once"
        ),
        pytest.param(
            [STARTED, READING, STOP_REQUESTED, STOP_REQUESTED, STOP_REQUESTED],
            RunState.CANCELLED,
            id="a third changes nothing",
        ),
        pytest.param(
            [STARTED, READING, WORK_ENDED, STOP_REQUESTED], RunState.CLEANING_UP_STOPPED, id="while it cleans up"
        ),
        pytest.param(
            [STARTED, READING, STOP_REQUESTED, WORK_ENDED, STOP_REQUESTED],
            RunState.CLEANING_UP_CANCELLED,
            id="the second while it cleans up ends expiry",
        ),
        pytest.param([STARTED, READING, WORK_ENDED, CLEANED_UP, STOP_REQUESTED], RunState.ENDED, id="after the end"),
    ],
)
def test_stop_requests_follow_the_state_table(events: Sequence[RunEvent], state: RunState) -> None:
    assert after(*events) is state


@pytest.mark.parametrize("state", RunState)
def test_a_stop_is_possible_in_every_state(state: RunState) -> None:
    assert (state, STOP_REQUESTED) in TRANSITIONS


def test_every_state_but_the_last_can_be_left_and_every_one_is_reached() -> None:
    left = {state for (state, _), following in TRANSITIONS.items() if following is not state}
    assert left == set(RunState) - {RunState.ENDED}
    assert set(TRANSITIONS.values()) == set(RunState)


def test_a_pipeline_runs_once() -> None:
    with pytest.raises(IllegalRunTransition, match="STARTED is not possible in state ENDED"):
        after(STARTED, READING, WORK_ENDED, CLEANED_UP, STARTED)
