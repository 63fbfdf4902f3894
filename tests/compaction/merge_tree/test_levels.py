"""The levels of one bucket's merge tree."""

from __future__ import annotations

import pytest

from tests.compaction.files import bucket, paper_file
from tests.support.cases import Case, case_id, check_members, vectors
from tidelake.storage.files.data_file import DataFileMeta


def file_of(member: Case) -> DataFileMeta:
    check_members(member, {"level", "min", "max", "min_seq", "max_seq", "created", "size", "deletes"})
    keys = (member.get("min", 0), member.get("max", 0))
    sequence = (member["min_seq"], member["max_seq"])
    return paper_file(member["name"], member["level"], keys, sequence=sequence, created_ms=member.get("created", 0))


@pytest.mark.parametrize("case", vectors("levels"), ids=case_id)
def test_levels(case: Case) -> None:
    check_members(case, {"files", "num_levels_option", "expect"})
    levels = bucket([file_of(member) for member in case["files"]], case["num_levels_option"])
    reported = {
        "level0_order": [file.file_name for file in levels.files if file.level == 0],
        "number_of_levels": levels.num_levels,
        "max_level": levels.max_level,
        "number_of_sorted_runs": len(levels.runs),
        "non_empty_highest_level": levels.highest_level,
        "level_sorted_runs": [[run.level, [file.file_name for file in run.files]] for run in levels.runs],
    }
    check_members(case["expect"], reported)
    assert {name: reported[name] for name in case["expect"]} == case["expect"]


def test_a_file_above_the_configured_levels_adds_levels() -> None:
    assert bucket([paper_file("a", 5)], 3).num_levels == 6


def test_an_upgraded_file_changes_its_level_and_the_others_keep_theirs() -> None:
    low, high = paper_file("a", 0), paper_file("a", 2)
    levels = bucket([low, paper_file("b", 0)], 3).updated([low], [high])
    assert [(run.level, run.files[0].file_name) for run in levels.runs] == [(0, "b"), (2, "a")]


def test_overlapping_files_above_level_0_raise() -> None:
    levels = bucket([paper_file("a", 1, (1, 5))], 3)
    with pytest.raises(ValueError, match="files a and b overlap, and both are on level 1"):
        levels.updated(after=[paper_file("b", 1, (5, 9))])
