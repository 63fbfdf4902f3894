"""The order in which the runs of a section are read, and how much is read at once."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.compaction.files import paper_file
from tidelake.storage.merge.sections import (
    OPEN_MEMORY_BYTES,
    SECTION_MEMORY_BYTES,
    batch_size,
    merge_batch_size,
    oldest_first,
    rewrite_batch_size,
    runs_to_spill,
)

MIB = 1 << 20
ALLOWED = OPEN_MEMORY_BYTES // MIB


@dataclass(frozen=True)
class Spilling:
    id: str
    sizes_mib: list[int]
    columns: int
    spilled: list[int]


@pytest.mark.parametrize(
    "case",
    [
        Spilling("few columns: any number of large runs may be open", [1000] * 10, 10, []),
        Spilling("many columns, two runs", [1000] * 2, ALLOWED // 2, []),
        Spilling("many columns, too many runs: the smallest", [900, 100, 800, 200], ALLOWED // 2, [1, 3]),
        Spilling("tiny files hold little, whatever their columns", [1] * 10, 10_000, []),
        Spilling("one run is too much for itself already", [1000, 1000], 2 * ALLOWED, [0, 1]),
    ],
    ids=lambda case: case.id,
)
def test_the_runs_to_spill_are_selected(case: Spilling) -> None:
    runs = [[paper_file(str(n), size=size * MIB)] for n, size in enumerate(case.sizes_mib)]
    assert runs_to_spill(runs, case.columns) == case.spilled


def test_non_overlapping_runs_are_read_oldest_first_without_sequence_numbers() -> None:
    old, young = [paper_file("old", sequence=(0, 4))], [paper_file("young", sequence=(5, 9))]
    assert oldest_first([young, old]) == ([old, young], True)
    between = [paper_file("between", sequence=(4, 7))]
    assert oldest_first([young, between, old]) == ([old, between, young], False)


@pytest.mark.parametrize(("first", "follows"), [(3, False), (4, False), (5, True)])
def test_runs_that_share_a_sequence_number_are_not_in_order(first: int, follows: bool) -> None:
    old, young = [paper_file("old", sequence=(0, 4))], [paper_file("young", sequence=(first, 9))]
    assert oldest_first([young, old]) == ([old, young], follows)


def test_wide_rows_are_read_in_small_batches() -> None:
    narrow = [[paper_file("a", size=1)]]
    assert batch_size(narrow).rows == 32_768
    assert batch_size([[paper_file("a", size=100 * MIB)]] * 10).rows == 1_024


def test_a_merge_that_is_read_holds_fewer_rows_of_a_run_than_one_that_is_rewritten() -> None:
    narrow = [[paper_file("a", size=1)]] * 10
    assert (merge_batch_size(narrow).rows, rewrite_batch_size(narrow).rows) == (24_576, 32_768)


@pytest.mark.parametrize(
    ("runs", "batch_mib"),
    [
        pytest.param(1, 8, id="however few runs there are"),
        pytest.param(5, 8, id="of a table that compacts as it does by default"),
        pytest.param(10, 11.25, id="larger where a cut is a small part of them"),
        pytest.param(16, 8, id="no more than the memory of a section allows"),
        pytest.param(32, 4, id="as those of runs that are only read"),
    ],
)
def test_batches_of_runs_that_are_rewritten_are_small(runs: int, batch_mib: float) -> None:
    section = [[paper_file("a", size=100 * MIB)]] * runs
    size = rewrite_batch_size(section)
    assert size.bytes / MIB == batch_mib
    assert size.bytes * runs <= SECTION_MEMORY_BYTES
    assert merge_batch_size(section).bytes / MIB == min(8, batch_mib)
