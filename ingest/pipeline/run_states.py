"""The states of one run of a pipeline, and the transitions between them, as data.

    CREATED ──STARTED──► STARTING ──READING_BEGAN──► RUNNING ──STOP_REQUESTED──► STOPPING ──STOP_REQUESTED──► CANCELLED
                           │ STOP_REQUESTED: CANCELLED │ WORK_ENDED                 │ WORK_ENDED        WORK_ENDED │
                           │                           ▼                            ▼                              │
                           │                      CLEANING_UP ──STOP_REQUESTED──► CLEANING_UP_STOPPED ◄────────────┘
                           │ WORK_ENDED                                            ▲  │ STOP_REQUESTED
                           └───────────────────────────────────────────────────────┘  ▼
                                                                              CLEANING_UP_CANCELLED

No record is lost in any state: the next run reads records again that were not committed. A transition that the table
below lacks is illegal: it raises, and changes nothing. A stop request without effect keeps the state.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final


class RunState(Enum):
    """The state of a run."""

    CREATED = "nothing yet"
    STARTING = "finds the position of each table, and becomes the owner of the pipeline"
    RUNNING = "reads, decodes, writes and commits"
    STOPPING = "reads no more records; writes and commits those that were read"
    CANCELLED = "ends at once; waits only for work that can't be interrupted"
    CLEANING_UP = "drops what is not committed, finishes maintenance, closes the source"
    CLEANING_UP_STOPPED = "the same, after a request to stop"
    CLEANING_UP_CANCELLED = "the same, without waiting for maintenance"
    ENDED = "everything is closed"


class RunEvent(Enum):
    """An event that changes the state."""

    STARTED = "`run` was called"
    READING_BEGAN = "the first record may arrive"
    STOP_REQUESTED = "`stop` was called"
    WORK_ENDED = "the source ended, everything was committed, or something failed"
    CLEANED_UP = "every step of the clean-up was tried"


_S, _E = RunState, RunEvent

TRANSITIONS: Final[Mapping[tuple[RunState, RunEvent], RunState]] = MappingProxyType(
    {
        (_S.CREATED, _E.STARTED): _S.STARTING,
        (_S.CREATED, _E.STOP_REQUESTED): _S.CREATED,
        (_S.STARTING, _E.READING_BEGAN): _S.RUNNING,
        (_S.STARTING, _E.STOP_REQUESTED): _S.CANCELLED,
        (_S.STARTING, _E.WORK_ENDED): _S.CLEANING_UP_STOPPED,  # the start failed, so maintenance is not awaited
        (_S.RUNNING, _E.STOP_REQUESTED): _S.STOPPING,
        (_S.RUNNING, _E.WORK_ENDED): _S.CLEANING_UP,
        (_S.STOPPING, _E.STOP_REQUESTED): _S.CANCELLED,
        (_S.STOPPING, _E.WORK_ENDED): _S.CLEANING_UP_STOPPED,
        (_S.CANCELLED, _E.STOP_REQUESTED): _S.CANCELLED,
        (_S.CANCELLED, _E.WORK_ENDED): _S.CLEANING_UP_STOPPED,
        (_S.CLEANING_UP, _E.STOP_REQUESTED): _S.CLEANING_UP_STOPPED,
        (_S.CLEANING_UP, _E.CLEANED_UP): _S.ENDED,
        (_S.CLEANING_UP_STOPPED, _E.STOP_REQUESTED): _S.CLEANING_UP_CANCELLED,
        (_S.CLEANING_UP_STOPPED, _E.CLEANED_UP): _S.ENDED,
        (_S.CLEANING_UP_CANCELLED, _E.STOP_REQUESTED): _S.CLEANING_UP_CANCELLED,
        (_S.CLEANING_UP_CANCELLED, _E.CLEANED_UP): _S.ENDED,
        (_S.ENDED, _E.STOP_REQUESTED): _S.ENDED,
    }
)


class IllegalRunTransition(RuntimeError):
    """The caller called the steps of a run in an order that is not allowed."""

    def __init__(self, state: RunState, event: RunEvent) -> None:
        super().__init__(f"{event.name} is not possible in state {state.name}: it {state.value}")


def next_run_state(state: RunState, event: RunEvent) -> RunState:
    """Return the state after the event. Raises IllegalRunTransition for a transition that the table lacks."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalRunTransition(state, event) from None
