"""Work that others came before is done again, from what the table is then."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from storage.errors import CommitConflict, SnapshotExpired

T = TypeVar("T")


def retry_on_conflict(attempts: int, work: Callable[[], T]) -> T:
    """work: everything that depends on the table's state, from reading it to the commit.

    Raises CommitConflict and SnapshotExpired of the last attempt, and at once whatever else `work` raises.
    """
    for _ in range(attempts - 1):
        try:
            return work()
        except (CommitConflict, SnapshotExpired):
            continue
    return work()
