"""How one committable becomes snapshots."""

from __future__ import annotations

from typing import Any

import pytest

from tests.storage.model.snapshots.tables import added, data_file
from tests.support.cases import case_id, check_members, vectors
from tidelake.storage.commit.commit_changes import CommitChanges, commit_changes
from tidelake.storage.commit.commit_increment import CommitIncrement, CompactResult
from tidelake.storage.commit.commit_message import CommitBase, CommitMessage
from tidelake.storage.files.data_file import EMPTY_ROW, DataFileMeta
from tidelake.storage.files.index_file import IndexFileMeta
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.format import CommitKind, FileKind


def message_of(increment: dict[str, Any]) -> CommitMessage:
    def files(name: str) -> tuple[DataFileMeta, ...]:
        return tuple(data_file(file) for file in increment.get(name, ()))

    def index(name: str) -> tuple[IndexFileMeta, ...]:
        return tuple(IndexFileMeta(file["type"], file["name"]) for file in increment.get(name, ()))

    known = {
        *("new_files", "deleted_files", "new_changelog", "new_index_files", "deleted_index_files"),
        *("compact_before", "compact_after", "compact_changelog", "compact_index_files", "compact_deleted_index_files"),
    }
    check_members(increment, known)
    return CommitMessage(
        BucketId(EMPTY_ROW, 0),
        CommitIncrement(
            new_files=files("new_files"),
            deleted_files=files("deleted_files"),
            changelog_files=files("new_changelog"),
            new_index_files=index("new_index_files"),
            deleted_index_files=index("deleted_index_files"),
            compacted=CompactResult(
                before=files("compact_before"),
                after=files("compact_after"),
                changelog=files("compact_changelog"),
                new_index_files=index("compact_index_files"),
                deleted_index_files=index("compact_deleted_index_files"),
            ),
        ),
    )


def as_expected(changes: CommitChanges) -> dict[str, Any]:
    def names(kind: FileKind) -> list[str]:
        return [entry.file.file_name for entry in changes.entries if entry.kind is kind]

    result: dict[str, Any] = {
        "kind": str(changes.kind),
        "adds": names(FileKind.ADD),
        "deletes": names(FileKind.DELETE),
        "changelog": [entry.file.file_name for entry in changes.changelog],
    }
    for kind, member in ((FileKind.ADD, "index_adds"), (FileKind.DELETE, "index_deletes")):
        if found := [entry.file.file_name for entry in changes.index if entry.kind is kind]:
            result[member] = found
    return result


@pytest.mark.parametrize("case", vectors("commit_kinds"), ids=case_id)
def test_commit_kinds(case: dict[str, Any]) -> None:
    check_members(case, {"increment", "ignore_empty_commit", "expect_snapshots"})
    changes = commit_changes([message_of(case["increment"])], 1, ignore_empty=case.get("ignore_empty_commit", True))
    empty_indexes: dict[str, Any] = {"index_adds": [], "index_deletes": []}
    expected = [empty_indexes | snapshot for snapshot in case["expect_snapshots"]]
    assert [empty_indexes | as_expected(change) for change in changes] == expected


def test_entries_keep_the_message_order_and_deletes_precede_their_replacements() -> None:
    a, b = data_file("a"), data_file("b", level=5)
    compaction = CommitMessage(
        BucketId(EMPTY_ROW, 1), CommitIncrement(compacted=CompactResult(before=(a,), after=(b,)))
    )
    first, second = commit_changes([added("x"), compaction, added("y")], 1, ignore_empty=True)
    assert [entry.file.file_name for entry in first.entries] == ["x", "y"]
    assert second.kind is CommitKind.COMPACT
    assert [(entry.kind, entry.file.file_name) for entry in second.entries] == [
        (FileKind.DELETE, "a"),
        (FileKind.ADD, "b"),
    ]


def test_a_message_without_a_bucket_count_uses_that_of_the_table() -> None:
    saying = CommitMessage(
        BucketId(EMPTY_ROW, 1), CommitIncrement(new_files=(data_file("b"),)), CommitBase(total_buckets=8)
    )
    (change,) = commit_changes([added("a"), saying], 4, ignore_empty=True)
    assert [entry.total_buckets for entry in change.entries] == [4, 8]
