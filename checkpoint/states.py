"""The states of a pipeline's checkpoints, and the transitions between them, as data.

    WRITING ──BEGUN──► PREPARING ──PREPARED──► COMMITTING ──TABLE_COMMITTED──┐
       ▲                                        │     ▲──────────────────────┘
       └───────────────COMPLETED────────────────┘

What a crash leaves behind, and why no record is lost or written twice:

    WRITING, PREPARING  Data files that no snapshot names. Every table has its last position; the records after it are
                        read again.
    COMMITTING          Some tables have the position of this checkpoint, the others that of their last one. The source
                        is read from the smallest position of all tables. Each table drops the records below its own.

A transition that `TRANSITIONS` lacks is illegal: it raises, and changes nothing. From BROKEN and CLOSED only a new
start leads back to WRITING; it takes its position from the tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final


class CheckpointState(Enum):
    """The state of the current checkpoint and of the rows written since the last one."""

    WRITING = "rows are passed to the writers; no row is visible yet"
    PREPARING = "the checkpoint has its identifier; writers flush their rows to files"
    COMMITTING = "the files and position of every table are final; the tables are published one after the other"
    CLOSED = "everything is committed, and nothing more is written"
    BROKEN = "a step failed; the tables hold the position that was reached"


class CheckpointEvent(Enum):
    """An event that changes the state. Its name is in the past tense, because the state changes after the event."""

    BEGUN = "an identifier was assigned"
    PREPARED = "every writer handed over its commit messages"
    TABLE_COMMITTED = "one table's snapshot exists"
    COMPLETED = "every table that had something to commit has its snapshot"
    CLOSED = "the pipeline ended"
    FAILED = "a step raised"


TRANSITIONS: Final[Mapping[tuple[CheckpointState, CheckpointEvent], CheckpointState]] = MappingProxyType(
    {
        (CheckpointState.WRITING, CheckpointEvent.BEGUN): CheckpointState.PREPARING,
        (CheckpointState.PREPARING, CheckpointEvent.PREPARED): CheckpointState.COMMITTING,
        (CheckpointState.COMMITTING, CheckpointEvent.TABLE_COMMITTED): CheckpointState.COMMITTING,
        (CheckpointState.COMMITTING, CheckpointEvent.COMPLETED): CheckpointState.WRITING,
        (CheckpointState.WRITING, CheckpointEvent.CLOSED): CheckpointState.CLOSED,
        (CheckpointState.WRITING, CheckpointEvent.FAILED): CheckpointState.BROKEN,
        (CheckpointState.PREPARING, CheckpointEvent.FAILED): CheckpointState.BROKEN,
        (CheckpointState.COMMITTING, CheckpointEvent.FAILED): CheckpointState.BROKEN,
        (CheckpointState.BROKEN, CheckpointEvent.FAILED): CheckpointState.BROKEN,
    }
)


class IllegalTransition(RuntimeError):
    """The caller called the steps of a checkpoint in an order that the protocol doesn't allow."""

    def __init__(self, state: CheckpointState, event: CheckpointEvent) -> None:
        super().__init__(f"{event.name} is not possible in state {state.name}: {state.value}")
        self.state = state
        self.event = event


def next_state(state: CheckpointState, event: CheckpointEvent) -> CheckpointState:
    """Return the state after the event. Raises IllegalTransition for a transition that `TRANSITIONS` lacks."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalTransition(state, event) from None
