"""The rows of a bucket are counted in one place, which knows them all: what it counts is what it holds."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelake.storage.files.formats.file_format import LARGE_ROW_BYTES
from tidelake.storage.write import buffered_rows
from tidelake.storage.write.buffered_rows import BufferedRows, large_row_bytes


def batch(*sizes: int) -> pa.RecordBatch:
    """Rows of one binary column; `sizes`: bytes of each value."""
    return pa.record_batch({"v": pa.array([b"x" * size for size in sizes], pa.binary())})


@given(st.lists(st.none() | st.lists(st.integers(0, 50), max_size=5), max_size=10))
def test_the_counts_are_those_of_the_rows(history: list[list[int] | None]) -> None:
    """None: the rows are flushed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(buffered_rows, "LARGE_ROW_BYTES", 30)
        buffered, expected = BufferedRows(), list[pa.RecordBatch]()
        for sizes in history:
            if sizes is None:
                buffered.clear()
                expected = []
            else:
                buffered.add(batch(*sizes))
                expected.append(batch(*sizes))
            assert buffered.batches == expected
            assert buffered.num_rows == sum(one.num_rows for one in expected)
            assert buffered.nbytes == sum(one.nbytes for one in expected)
            averages = [one.nbytes // max(1, one.num_rows) for one in expected]
            assert buffered.large_row_bytes == max([size for size in averages if size >= 30], default=0)
            assert buffered.has_large_rows is (buffered.nbytes >= 30 * max(1, buffered.num_rows))


def test_the_parts_are_replaced_by_one_batch() -> None:
    buffered = BufferedRows()
    for sizes in ([1, 2], [3]):
        buffered.add(batch(*sizes))
    whole = buffered.concatenated()
    assert whole == batch(1, 2, 3)
    assert buffered.batches == [whole]
    assert buffered.concatenated() is whole
    assert buffered.num_rows == 3


@pytest.mark.parametrize(
    ("nbytes", "num_rows", "large"),
    [
        pytest.param(LARGE_ROW_BYTES, 1, LARGE_ROW_BYTES, id="one large row"),
        pytest.param(LARGE_ROW_BYTES - 1, 1, 0, id="one row that is not large"),
        pytest.param(3 * LARGE_ROW_BYTES, 2, LARGE_ROW_BYTES * 3 // 2, id="large on average"),
        pytest.param(3 * LARGE_ROW_BYTES, 4, 0, id="small on average"),
        pytest.param(0, 0, 0, id="no row"),
    ],
)
def test_rows_are_large_by_their_average_size(nbytes: int, num_rows: int, large: int) -> None:
    assert large_row_bytes(nbytes, num_rows) == large
