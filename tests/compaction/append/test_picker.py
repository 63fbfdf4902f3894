"""Which files of append tables are rewritten together."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from tests.compaction.files import paper_file
from tidelake.compaction.append.picker import (
    AppendCompactionOptions,
    in_arrival_order,
    pick_consecutive,
    pick_unordered,
)
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.model.options import TableOptions

SETTINGS = AppendCompactionOptions(target_file_bytes=100, small_file_bytes=70, open_file_cost_bytes=4, files_min=5)


def files(*sizes: int) -> list[DataFileMeta]:
    """Named a, b, c, … in the order of their rows."""
    names = "abcdefghijklmnopqrstuvwxyz"
    return [paper_file(names[i], size=size, sequence=(10 * i, 10 * i + 9)) for i, size in enumerate(sizes)]


def names(picks: list[tuple[DataFileMeta, ...]]) -> list[str]:
    return ["".join(file.file_name for file in pick) for pick in picks]


@dataclass(frozen=True)
class Case:
    id: str
    sizes: tuple[int, ...]
    picks: list[str]
    full: list[str]
    rewrites_all: bool = False
    files_limit: int = 100_000


UNORDERED = [
    Case("nothing", (), [], []),
    Case("one small file stays", (1,), [], []),
    Case("four small files stay, until asked for", (1, 1, 1, 1), [], ["abcd"]),
    Case("two small files, too", (1, 1), [], ["ab"]),
    Case("five small files are worth it", (1, 1, 1, 1, 1), ["abcde"], ["abcde"]),
    Case("large files stay", (70, 1, 100, 1, 1, 1, 90, 1), ["bdefh"], ["bdefh"]),
    Case("two files of the target size fill a group", (60, 60, 60, 60), ["abcd"], ["abcd"]),
    Case("so do three that cost as much to read", (62, 63, 63), ["abc"], ["abc"]),
    Case("a byte less does not", (62, 62, 63), [], ["abc"]),
    Case("what fills no group stays", (66, 66, 66, 66), ["abc"], ["abc"]),
    Case("the smallest first, rows in their order", (60, 1, 60, 1, 60, 30), ["abcdef"], ["abcdef"]),
    Case("looked at a few at a time", (1,) * 8, ["abcdefgh"], ["abcdefgh"], files_limit=4),
    Case("all files, when forced", (100, 1, 100), [], ["abc"], rewrites_all=True),
]


@pytest.mark.parametrize("case", UNORDERED, ids=lambda c: c.id)
def test_without_buckets_any_small_files_are_joined(case: Case) -> None:
    settings = AppendCompactionOptions(100, 70, 4, 5, case.files_limit, case.rewrites_all)
    given = files(*case.sizes)
    assert names(pick_unordered(reversed(given), settings)) == case.picks
    assert names(pick_unordered(given, settings, full=True)) == case.full


def test_opening_files_counts_as_reading() -> None:
    """200 / 4: fifty empty files are as much work as two of the target size."""
    picks = pick_unordered([paper_file(f"{i:03}", size=0, sequence=(i, i)) for i in range(120)], SETTINGS)
    assert [len(pick) for pick in picks] == [50, 50, 20]


def test_what_one_group_holds_does_not_count_for_the_next() -> None:
    given = [paper_file(f"{i:03}", size=0, sequence=(i, i)) for i in range(50)]
    assert [len(pick) for pick in pick_unordered([*given, *files(62, 62, 63)], SETTINGS)] == [50]


@pytest.mark.parametrize(
    ("times", "order"),
    [
        pytest.param({"a": 3, "z": 2}, "za", id="the older one first"),
        pytest.param({"a": 1, "z": None}, "za", id="one without a time is older than all"),
        pytest.param({"z": 2, "a": 2}, "az", id="of one time: by name"),
    ],
)
def test_files_of_equal_sequence_numbers_are_ordered_by_their_time(times: dict[str, int | None], order: str) -> None:
    given = [replace(paper_file(name, sequence=(0, 0)), creation_time_ms=time) for name, time in times.items()]
    assert names([in_arrival_order(given)]) == [order]


BUCKETED = [
    Case("nothing", (), [], []),
    Case("two files stay", (1, 1), [], []),
    Case("three small files, only when asked for", (1, 1, 1), [], ["abc"]),
    Case("five neighbours", (1, 1, 1, 1, 1, 1), ["abcde"], ["abcdef"]),
    Case("ten are two times five", (1,) * 10, ["abcde", "fghij"], ["abcdefghij"]),
    Case("large neighbours are passed by", (200, 200, 1, 1, 1, 1, 1), ["cdefg"], ["cdefg"]),
    Case(
        "four neighbours as large as two files of the target size lose the first",
        (50, 50, 50, 50, 1, 1),
        ["bcdef"],
        ["abcdef"],
    ),
    Case("a large one in the middle goes along, to keep the order", (1, 1, 100, 1, 1), ["abcde"], ["abcde"]),
    Case("as many large ones as small ones stay", (1, 100, 1, 100), [], []),
    Case("all files, when forced", (100, 100), [], ["ab"], rewrites_all=True),
]


@pytest.mark.parametrize("case", BUCKETED, ids=lambda c: c.id)
def test_in_a_bucket_only_neighbouring_files_are_joined(case: Case) -> None:
    settings = AppendCompactionOptions(100, 70, 4, 5, 100_000, case.rewrites_all)
    given = files(*case.sizes)
    assert names(pick_consecutive(reversed(given), settings)) == case.picks
    assert names(pick_consecutive(given, settings, full=True)) == case.full


@dataclass(frozen=True)
class DeletedCase:
    """sizes: of files of ten rows. deleted: number of deleted rows of some files; None if unknown."""

    id: str
    sizes: tuple[int, ...]
    deleted: dict[str, int | None]
    picks: list[str]
    full: list[str]


UNORDERED_DELETED = [
    DeletedCase("a small file with a deleted row", (1, 1), {"a": 1}, ["a"], ["a"]),
    DeletedCase("a large one stays while few are deleted", (90, 90), {"a": 2}, [], ["a"]),
    DeletedCase("until too many are", (90, 90), {"a": 3}, ["a"], ["a"]),
    DeletedCase("or nobody counted", (90, 90), {"a": None}, ["a"], ["a"]),
    DeletedCase("those with deleted rows go together", (1, 90, 2), {"a": 1, "b": 9, "c": 1}, ["abc"], ["abc"]),
    DeletedCase("in groups", (99, 99, 99, 99), dict.fromkeys("abcd", 9), ["ab", "cd"], ["ab", "cd"]),
    DeletedCase("a huge one never alone", (250, 250), {"a": 9, "b": 9}, ["ab"], ["ab"]),
    DeletedCase("apart from small files", (1, 1, 1, 1, 1, 1), {"a": 1}, ["a", "bcdef"], ["a", "bcdef"]),
]


@pytest.mark.parametrize("case", UNORDERED_DELETED, ids=lambda c: c.id)
def test_files_with_deleted_rows_are_rewritten_without_them(case: DeletedCase) -> None:
    given = [replace(file, row_count=10) for file in files(*case.sizes)]
    assert names(pick_unordered(given, SETTINGS, case.deleted)) == case.picks
    assert names(pick_unordered(given, SETTINGS, case.deleted, full=True)) == case.full


BUCKETED_DELETED = [
    DeletedCase("a deleted row makes a full compaction", (90, 90), {"b": 1}, [], ["b"]),
    DeletedCase("of all that follows, to keep the order", (90, 90, 90), {"b": 1}, [], ["bc"]),
    DeletedCase("small files before it go along", (90, 1, 90), {"c": 1}, [], ["bc"]),
]


@pytest.mark.parametrize("case", BUCKETED_DELETED, ids=lambda c: c.id)
def test_in_a_bucket_a_full_compaction_drops_deleted_rows(case: DeletedCase) -> None:
    given = [replace(file, row_count=10) for file in files(*case.sizes)]
    assert names(pick_consecutive(given, SETTINGS, case.deleted)) == case.picks
    assert names(pick_consecutive(given, SETTINGS, case.deleted, full=True)) == case.full


def test_settings_come_from_the_options_of_paimon() -> None:
    assert AppendCompactionOptions.of(TableOptions({})) == AppendCompactionOptions(
        256 << 20, int((256 << 20) * 0.7), 4 << 20, 5, 100_000
    )
    options = {
        "target-file-size": "1 mb",
        "compaction.small-file-ratio": "0.5",
        "source.split.open-file-cost": "1 kb",
        "compaction.min.file-num": "3",
        "compaction.file-num-limit": "7",
        "compaction.force-rewrite-all-files": "true",
    }
    assert AppendCompactionOptions.of(TableOptions(options)) == AppendCompactionOptions(
        1 << 20, 1 << 19, 1 << 10, 3, 7, True
    )
    assert AppendCompactionOptions.of(TableOptions({"compaction.file-num-limit": "0"})).files_limit == 1
