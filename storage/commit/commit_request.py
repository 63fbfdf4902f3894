"""A snapshot that is to be published, and the outcome."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidelake.storage.commit.commit_changes import CommitChanges
from tidelake.storage.commit.commit_message import Committable
from tidelake.storage.model.format import BATCH_COMMIT_IDENTIFIER
from tidelake.storage.model.snapshots.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """A snapshot to be published.

    changes: returns what it changes, for the snapshot that it builds on (None: the table has none).
    adds_rows: the new rows join those of their buckets. Where sequence numbers alone order them, no other writer may
        have written to these buckets since the numbers were read.
    is_first: this is the first snapshot of its identifier. The second one is COMPACT.
    is_more: this is another COMPACT snapshot of an identifier that is already committed; it is published in any case.
    """

    committable: Committable
    changes: Callable[[Snapshot | None], CommitChanges]
    adds_rows: bool = False
    operation: str | None = None
    is_first: bool = True
    is_more: bool = False

    @property
    def is_numbered(self) -> bool:
        return self.committable.identifier != BATCH_COMMIT_IDENTIFIER


@dataclass(frozen=True, slots=True)
class CommitResult:
    """The snapshot that was published for a request.

    is_already_committed: it was published before, not by this call.
    """

    snapshot: Snapshot
    is_already_committed: bool = False


def always(changes: CommitChanges) -> Callable[[Snapshot | None], CommitChanges]:
    """Return the same changes for any base snapshot."""
    return lambda _: changes
