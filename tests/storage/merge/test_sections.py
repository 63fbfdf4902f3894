"""The order in which the runs of a section are read, and how much is read at once."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from tests.compaction.files import paper_file
from tidelake.storage.merge.sections import (
    OPEN_MEMORY_BYTES,
    SECTION_MEMORY_BYTES,
    BatchSize,
    batch_size,
    estimated_row_bytes,
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
        Spilling("exactly as much as is allowed: none", [1000, 1000, 1000, 1000], ALLOWED // 4, []),
        Spilling("no more runs than are too many", [500, 600, 700, 800], ALLOWED // 3, [0]),
    ],
    ids=lambda case: case.id,
)
def test_the_runs_to_spill_are_selected(case: Spilling) -> None:
    runs = [[paper_file(str(n), size=size * MIB)] for n, size in enumerate(case.sizes_mib)]
    assert runs_to_spill(runs, case.columns) == case.spilled


def test_of_a_run_only_its_largest_file_counts_as_open() -> None:
    """Its files are read one after another. The run that is spilled is nevertheless the one with fewest bytes."""
    small_files = [paper_file(f"small{n}", size=MIB) for n in range(2)]
    one_large = [*small_files, paper_file("large", size=1000 * MIB)]
    assert runs_to_spill([one_large, one_large], ALLOWED) == [0]
    assert runs_to_spill([one_large, one_large], ALLOWED // 2) == []


def test_a_tiny_run_is_spilled_if_the_others_are_exactly_as_much_as_is_allowed() -> None:
    half, tiny = [paper_file("half", size=1000 * MIB)], [paper_file("tiny", size=1)]
    assert runs_to_spill([half, half], ALLOWED // 2) == []
    assert runs_to_spill([half, half, tiny], ALLOWED // 2) == [2]


def test_the_age_of_a_run_is_that_of_its_oldest_file() -> None:
    wide = [paper_file("first", sequence=(0, 1)), paper_file("last", sequence=(20, 21))]
    young = [paper_file("young", sequence=(10, 11))]
    assert oldest_first([young, wide]) == ([wide, young], False)
    old = [paper_file("old", sequence=(0, 4)), paper_file("older", sequence=(0, 1))]
    after = [paper_file("after", sequence=(9, 9)), paper_file("touching", sequence=(3, 3))]
    assert oldest_first([after, old]) == ([old, after], False)
    beyond = [paper_file("beyond", sequence=(9, 9)), paper_file("next", sequence=(5, 5))]
    assert oldest_first([beyond, old]) == ([old, beyond], True)


def test_all_runs_must_be_in_order_for_sequence_numbers_to_follow_it() -> None:
    first, second, third = ([paper_file(str(n), sequence=(n, n + 1))] for n in (0, 1, 5))
    assert oldest_first([first, second, third]) == ([first, second, third], False)


@pytest.mark.parametrize(
    ("rows", "size", "expected"),
    [
        pytest.param(0, 100, 600, id="a file without rows counts as one row"),
        pytest.param(1, 100, 600, id="one row"),
        pytest.param(3, 100, 200, id="several rows"),
        pytest.param(10, 1, 0, id="less than a byte a row"),
    ],
)
def test_the_size_of_a_row_is_estimated_from_the_files(rows: int, size: int, expected: int) -> None:
    assert estimated_row_bytes([[replace(paper_file("a", size=size), row_count=rows)]]) == expected


@pytest.mark.parametrize(
    ("run_bytes_max", "rows"),
    [
        pytest.param(6_000, 6_000, id="rows of less than a byte count as one byte each"),
        pytest.param(1, 1_024, id="the smallest batch has a byte"),
    ],
)
def test_the_bytes_of_a_batch_limit_its_rows(run_bytes_max: int, rows: int) -> None:
    tiny_rows = [[replace(paper_file("a", size=1), row_count=100)]]
    assert batch_size(tiny_rows, run_bytes_max) == BatchSize(rows, run_bytes_max)


def test_so_many_runs_that_none_has_a_byte_get_one_each() -> None:
    run = [replace(paper_file("a", size=1), row_count=100)]
    assert batch_size([run] * 2, 0) == BatchSize(1_024, 1)


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
