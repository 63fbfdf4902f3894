"""Sections and sorted runs, drawn as intervals of integer keys."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cases import Case, case_id, check_members, vectors
from tidelake.errors import CorruptFile
from tidelake.storage.files.data_file import EMPTY_ROW, EMPTY_STATS, DataFileMeta
from tidelake.storage.merge.sorted_run import KeyRange, interval_partition, key_ranges
from tidelake.storage.model.binary_row import serialize_row
from tidelake.storage.model.types import INT


def interval(low: int, high: int) -> KeyRange:
    file = DataFileMeta(f"{low}..{high}", 1, 1, EMPTY_ROW, EMPTY_ROW, EMPTY_STATS, EMPTY_STATS, 0, 0, 0, 0)
    return KeyRange((low,), (high,), file)


def bounds(file: DataFileMeta) -> list[int]:
    low, _, high = file.file_name.partition("..")
    return [int(low), int(high)]


def partition(intervals: list[list[int]]) -> list[list[list[list[int]]]]:
    sections = interval_partition([interval(low, high) for low, high in intervals])
    return [[[bounds(file) for file in run] for run in section] for section in sections]


@pytest.mark.parametrize("case", vectors("interval_partition"), ids=case_id)
def test_interval_partition(case: Case) -> None:
    check_members(case, {"input", "expect_sections"})
    got = partition(case["input"])
    assert [sorted(section) for section in got] == [sorted(section) for section in case["expect_sections"]]


INTERVALS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 10)).map(lambda t: [t[0], t[0] + t[1]]))


@given(INTERVALS)
def test_every_file_is_in_one_run_of_one_section(intervals: list[list[int]]) -> None:
    files = [file for section in partition(intervals) for run in section for file in run]
    assert sorted(files) == sorted(intervals)


@given(INTERVALS)
def test_sections_share_no_key_and_files_of_a_run_neither(intervals: list[list[int]]) -> None:
    sections = partition(intervals)
    spans = [
        (min(low for run in section for low, _ in run), max(high for run in section for _, high in run))
        for section in sections
    ]
    for (_, end), (start, _) in pairwise(spans):
        assert end < start
    for section in sections:
        for run in section:
            for (_, end), (start, _) in pairwise(run):
                assert end < start


@given(INTERVALS)
def test_a_section_has_as_few_runs_as_files_overlap_in_one_key(intervals: list[list[int]]) -> None:
    for section in partition(intervals):
        files = [file for run in section for file in run]
        deepest = max(sum(low <= key <= high for low, high in files) for key, _ in files)
        assert len(section) == deepest


def test_keys_of_other_columns_raise_and_name_their_file() -> None:
    sound = replace(interval(0, 1).file, min_key=serialize_row([0], [INT]), max_key=serialize_row([1], [INT]))
    with pytest.raises(CorruptFile, match=r"^2\.\.3: expected keys of 1 columns in its manifest entry"):
        key_ranges([sound, replace(sound, file_name="2..3", max_key=EMPTY_ROW)], [INT])
