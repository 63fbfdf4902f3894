"""Compactions of a bucket between two commits, folded into one."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.compaction.files import paper_file
from tidelake.storage.commit.commit_increment import CompactResult
from tidelake.storage.files.data_file import DataFileMeta


@dataclass(frozen=True)
class Case:
    """Files are written as name@level. Two compactions, their combination, and the unneeded files."""

    id: str
    first: tuple[str, str]
    then: tuple[str, str]
    folded: tuple[str, str]
    needless: str = ""


CASES = [
    Case("nothing before", ("", ""), ("a@0 b@0", "c@5"), ("a@0 b@0", "c@5")),
    Case("of different files", ("a@0 b@0", "c@5"), ("d@0", "e@4"), ("a@0 b@0 d@0", "c@5 e@4")),
    Case("the second reads what the first wrote", ("a@0", "b@4"), ("b@4 c@0", "d@5"), ("a@0 c@0", "d@5"), "b"),
    Case("some of what the first wrote stays", ("a@0", "b@4 c@4"), ("b@4", "d@5"), ("a@0", "c@4 d@5"), "b"),
    Case("raised twice: one file all the time", ("a@0", "a@3"), ("a@3", "a@5"), ("a@0", "a@5")),
    Case("written, then raised", ("a@0", "b@3"), ("b@3", "b@5"), ("a@0", "b@5")),
    Case("raised, then rewritten: a snapshot may have it", ("a@0", "a@3"), ("a@3", "b@5"), ("a@0", "b@5")),
    Case("nothing left", ("a@0", "b@4"), ("b@4", ""), ("a@0", ""), "b"),
]


def result(before: str, after: str) -> CompactResult:
    return CompactResult(tuple(map(parsed, before.split())), tuple(map(parsed, after.split())))


def parsed(text: str) -> DataFileMeta:
    name, _, level = text.partition("@")
    return paper_file(name, int(level))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_increments_are_folded(case: Case) -> None:
    folded, needless = result(*case.first).followed_by(result(*case.then))
    assert folded == result(*case.folded)
    assert [file.file_name for file in needless.new_files] == case.needless.split()


def test_reasons_and_changelogs_add_up() -> None:
    one = CompactResult(changelog=(paper_file("x"),), reason="size ratio")
    other = CompactResult(changelog=(paper_file("y"),), reason="full compaction")
    folded, _ = one.followed_by(other)[0].followed_by(one)
    assert [file.file_name for file in folded.changelog] == ["x", "y", "x"]
    assert folded.reason == "size ratio, full compaction"
