"""Sorting in bounded memory: the result, and the files left on disk."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelake.compaction.append.external_sort import ExternalSort
from tidelake.errors import UnsupportedFeature

SCHEMA = pa.schema([("a", pa.int32()), ("b", pa.string()), ("n", pa.int64())])
ROWS = st.tuples(st.none() | st.integers(-3, 3), st.none() | st.text("ab", max_size=9), st.integers(0, 9))
Row = tuple[int | None, str | None, int]


def batches(rows: list[Row], size: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(rows), size):
        yield pa.RecordBatch.from_pylist(
            [dict(zip(SCHEMA.names, row, strict=True)) for row in rows[start : start + size]], SCHEMA
        )


def sort_key(row: Row) -> tuple[bool, int, bool, bytes]:
    return row[0] is not None, row[0] or 0, row[1] is not None, (row[1] or "").encode()


@given(st.lists(ROWS, max_size=200), st.integers(1, 40), st.sampled_from([1, 500, 4_000, 1 << 20]))
def test_all_rows_are_returned_in_order(rows: list[Row], batch_rows: int, piece_bytes: int) -> None:
    """piece_bytes = 1: every batch is a piece of its own; they are merged in passes of two."""
    sort = ExternalSort(("a", "b"), piece_bytes, fan_in=2)
    out = pa.Table.from_batches(sort.sorted(batches(rows, batch_rows)), SCHEMA)
    found = list(zip(*(out.column(name).to_pylist() for name in SCHEMA.names), strict=True))
    assert [sort_key(row) for row in found] == sorted(map(sort_key, rows))
    assert sorted(found, key=repr) == sorted(rows, key=repr)


def many_rows() -> list[Row]:
    chance = random.Random(0)
    return [(chance.randrange(1000), "x" * chance.randrange(20), i) for i in range(5_000)]


def test_spilled_files_are_deleted_afterwards(tmp_path: Path) -> None:
    sort = ExternalSort(("a",), 10_000, str(tmp_path), fan_in=3)
    stream = sort.sorted(batches(many_rows(), 100))
    next(stream)
    assert list(tmp_path.iterdir())
    for _ in stream:
        pass
    assert list(tmp_path.iterdir()) == []


def test_an_abandoned_sort_leaves_no_files(tmp_path: Path) -> None:
    stream = ExternalSort(("a",), 10_000, str(tmp_path)).sorted(batches(many_rows(), 100))
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    assert list(tmp_path.iterdir()) == []


def test_a_failing_input_leaves_no_files(tmp_path: Path) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield from batches(many_rows(), 100)
        raise OSError("the file is gone")

    with pytest.raises(OSError, match="the file is gone"):
        list(ExternalSort(("a",), 10_000, str(tmp_path)).sorted(failing()))
    assert list(tmp_path.iterdir()) == []


def test_rows_that_fit_into_memory_are_not_spilled(tmp_path: Path) -> None:
    sort = ExternalSort(("a",), directory=str(tmp_path / "nowhere"))
    assert sum(batch.num_rows for batch in sort.sorted(batches(many_rows(), 100))) == 5_000


def test_a_column_without_an_order_is_refused() -> None:
    rows = pa.record_batch([pa.array([[1], [2]], pa.list_(pa.int32()))], ["l"])
    with pytest.raises(UnsupportedFeature, match="it has no order"):
        list(ExternalSort(("l",)).sorted([rows]))
