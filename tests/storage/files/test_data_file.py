"""What the levels of a bucket's files say about its last full compaction."""

from __future__ import annotations

import pytest

from tests.compaction.files import paper_file
from tidelake.storage.files.data_file import is_fully_compacted


@pytest.mark.parametrize(
    ("levels", "num_levels", "expected"),
    [
        pytest.param([], 3, True, id="an empty bucket"),
        pytest.param([2, 2], 3, True, id="all files on the highest level"),
        pytest.param([0, 2], 3, False, id="a file on level 0"),
        pytest.param([1], 3, False, id="one file below the highest level"),
        pytest.param([5], 3, True, id="written before num-levels was lowered"),
        pytest.param([2, 5], 3, False, id="on the new and on the old highest level"),
    ],
)
def test_a_bucket_is_fully_compacted_if_all_its_files_are_on_the_highest_level(
    levels: list[int], num_levels: int, expected: bool
) -> None:
    files = [paper_file(f"file-{place}", level) for place, level in enumerate(levels)]
    assert is_fully_compacted(files, num_levels) is expected
