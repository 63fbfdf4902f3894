"""Steps of every commit: retries after conflicts, and calls to the writer after the commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from tidelake.errors import CommitConflict, SnapshotExpired
from tidelake.storage.commit.commit_message import CommitMessage, Committable
from tidelake.storage.commit.table_commit import TableCommit

T = TypeVar("T")


def retry_on_conflict(attempts: int, work: Callable[[], T]) -> T:
    """Call `work` again after a conflict.

    work: must include everything that depends on the table's state, from reading it to the commit.

    Raises CommitConflict and SnapshotExpired of the last attempt. Other errors of `work` are raised at once.
    """
    for _ in range(attempts - 1):
        try:
            return work()
        except (CommitConflict, SnapshotExpired):
            continue
    return work()


class CommittedWriter(Protocol):
    """What a commit calls on its writer, see `tidelake.storage.write.table_writer.TableWriter`."""

    def committed(self, snapshot_id: int) -> None: ...
    def dropped(self) -> None: ...
    def compact_level_0(self) -> Sequence[CommitMessage]: ...


def settle_writer(
    commit: TableCommit,
    committable: Committable,
    published: int | None,
    writer: CommittedWriter,
    on_published: Callable[[int], None] = lambda snapshot_id: None,
) -> int | None:
    """Tell the writer the outcome of its commit, and publish the compactions that the commit left.

    published: the result of `commit` for the committable; None: the table had it before.
    on_published: called before the remaining compactions are made.

    Returns the last snapshot of the commit, including its compaction; None if the table had it before.
    """
    if published is None:
        writer.dropped()  # before its files are deleted: a compaction may be reading them
        commit.discard_already_committed(committable)
    else:
        writer.committed(commit.rows_snapshot_id or published)
        on_published(published)
    compacted = commit.compact_level_0(committable, writer.compact_level_0)
    return published if published is None or compacted is None else compacted
