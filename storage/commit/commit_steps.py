"""Steps that every commit needs: retry when another commit was first, and settle the writer afterwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from storage.commit.commit_message import CommitMessage, Committable
from storage.commit.table_commit import TableCommit
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


class CommittedWriter(Protocol):
    """What a commit tells its writer, see `storage.write.table_writer.TableWriter`."""

    def committed(self, snapshot_id: int) -> None: ...
    def dropped(self) -> None: ...
    def compact_left(self) -> Sequence[CommitMessage]: ...


def settle_writer(
    commit: TableCommit,
    committable: Committable,
    published: int | None,
    writer: CommittedWriter,
    on_published: Callable[[int], None] = lambda snapshot_id: None,
) -> int | None:
    """published: what `commit` said of the committable; None: it was in the table before.
    on_published: before compactions that the commit left are made.

    Returns the last snapshot of the commit, that of its compaction included; None for a replay.
    """
    if published is None:
        writer.dropped()  # before its files go: a compaction may be reading them
        commit.discard_replayed(committable)
    else:
        writer.committed(published)
        on_published(published)
    compacted = commit.compact_left(committable, writer.compact_left)
    return published if published is None or compacted is None else compacted
