"""The life of a bucket in a table writer, as data.

           OPENED           WRITTEN              PREPARED              WRITTEN
    CLOSED ──────► OPEN ──────────► WRITTEN ──────────► PREPARED ──────────► EXTENDED
       ▲           ▲  ▲ │              ▲                 │    ▲                │   │
       └──CLOSED───┼──┼─┘              │                 │    └────PREPARED────┘   │
                   │  └────────────────┼────COMMITTED────┘                         │
                RESTORED               └───────────────────────────COMMITTED───────┘
                   │
                  LOST ◄── LOST (from any state), DROPPED (from PREPARED and EXTENDED)

What a crash leaves behind: files that no snapshot names. Those that were handed over (PREPARED, EXTENDED) belong to
their commit, which may have published them.

A transition that `TRANSITIONS` lacks is illegal: it raises, and changes nothing. In particular, a bucket is closed only
when the table has everything that was written to it, and only files that were handed over are committed or dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final


class BucketState(Enum):
    """What a table writer has of a bucket that the table has not."""

    CLOSED = "no writer is open; the next one starts from the table's files"
    OPEN = "a writer is open, and has written nothing since its last commit was settled, or its files were restored"
    WRITTEN = "rows were written, and wait for the next commit"
    PREPARED = "files were handed over, and it is not known yet whether their commit takes them"
    EXTENDED = "files were handed over, and more rows were written since"
    LOST = "another commit changed files that compactions rely on: the bucket must be restored before the next one"


class BucketEvent(Enum):
    """An event that changes the state. Its name is in the past tense, because the state changes after the event."""

    OPENED = "a writer was opened"
    WRITTEN = "rows were added"
    EMPTY = "a commit was prepared, and the writer had no files for it"
    PREPARED = "a commit was prepared, and the writer handed over files"
    COMMITTED = "a snapshot has the files that were handed over"
    LOST = "another commit won: a compaction was discarded, or must be discarded"
    DROPPED = "the files that were handed over will never be committed"
    RESTORED = "the files of the bucket were read again"
    CLOSED = "the writer was closed"


TRANSITIONS: Final[Mapping[tuple[BucketState, BucketEvent], BucketState]] = MappingProxyType(
    {
        (BucketState.CLOSED, BucketEvent.OPENED): BucketState.OPEN,
        (BucketState.CLOSED, BucketEvent.LOST): BucketState.LOST,
        (BucketState.OPEN, BucketEvent.WRITTEN): BucketState.WRITTEN,
        (BucketState.OPEN, BucketEvent.EMPTY): BucketState.OPEN,
        (BucketState.OPEN, BucketEvent.PREPARED): BucketState.PREPARED,
        (BucketState.OPEN, BucketEvent.LOST): BucketState.LOST,
        (BucketState.OPEN, BucketEvent.CLOSED): BucketState.CLOSED,
        (BucketState.WRITTEN, BucketEvent.WRITTEN): BucketState.WRITTEN,
        (BucketState.WRITTEN, BucketEvent.EMPTY): BucketState.OPEN,
        (BucketState.WRITTEN, BucketEvent.PREPARED): BucketState.PREPARED,
        (BucketState.WRITTEN, BucketEvent.LOST): BucketState.LOST,
        (BucketState.PREPARED, BucketEvent.WRITTEN): BucketState.EXTENDED,
        (BucketState.PREPARED, BucketEvent.EMPTY): BucketState.PREPARED,
        (BucketState.PREPARED, BucketEvent.PREPARED): BucketState.PREPARED,
        (BucketState.PREPARED, BucketEvent.COMMITTED): BucketState.OPEN,
        (BucketState.PREPARED, BucketEvent.LOST): BucketState.LOST,
        (BucketState.PREPARED, BucketEvent.DROPPED): BucketState.LOST,
        (BucketState.EXTENDED, BucketEvent.WRITTEN): BucketState.EXTENDED,
        (BucketState.EXTENDED, BucketEvent.EMPTY): BucketState.PREPARED,
        (BucketState.EXTENDED, BucketEvent.PREPARED): BucketState.PREPARED,
        (BucketState.EXTENDED, BucketEvent.COMMITTED): BucketState.WRITTEN,
        (BucketState.EXTENDED, BucketEvent.LOST): BucketState.LOST,
        (BucketState.EXTENDED, BucketEvent.DROPPED): BucketState.LOST,
        (BucketState.LOST, BucketEvent.OPENED): BucketState.LOST,
        (BucketState.LOST, BucketEvent.WRITTEN): BucketState.LOST,
        (BucketState.LOST, BucketEvent.EMPTY): BucketState.LOST,
        (BucketState.LOST, BucketEvent.PREPARED): BucketState.LOST,
        (BucketState.LOST, BucketEvent.COMMITTED): BucketState.LOST,
        (BucketState.LOST, BucketEvent.LOST): BucketState.LOST,
        (BucketState.LOST, BucketEvent.DROPPED): BucketState.LOST,
        (BucketState.LOST, BucketEvent.RESTORED): BucketState.OPEN,
        (BucketState.LOST, BucketEvent.CLOSED): BucketState.CLOSED,
    }
)


class IllegalBucketEvent(RuntimeError):
    """The steps of a commit were called in an order in which rows of a bucket could be lost, or written twice."""

    def __init__(self, state: BucketState, event: BucketEvent) -> None:
        super().__init__(f"{event.name} is not possible for a bucket in state {state.name}: {state.value}")
        self.state = state
        self.event = event


def next_state(state: BucketState, event: BucketEvent) -> BucketState:
    """Return the state after the event. Raises IllegalBucketEvent for a transition that `TRANSITIONS` lacks."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalBucketEvent(state, event) from None
