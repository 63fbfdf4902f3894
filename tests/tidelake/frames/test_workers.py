"""What Ray and PyTorch get, as far as it can be tried without them: orders, sizes of batches, what is missing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidelake
from tests.support.levels import examples
from tidelake import Scan, UnsupportedFeature
from tidelake.frames.ray import _groups, _tables
from tidelake.frames.torch import shuffled, sized

SIZES = st.lists(st.integers(1, 12), max_size=8)


def batches(sizes: list[int]) -> Iterator[pa.RecordBatch]:
    start = 0
    for size in sizes:
        yield pa.record_batch({"id": pa.array(range(start, start + size), pa.int64())})
        start += size


def ids(found: Iterator[pa.RecordBatch]) -> list[int]:
    return [i for batch in found for i in batch.column(0).to_pylist()]


@settings(max_examples=examples(100))
@given(sizes=SIZES, rows=st.integers(1, 20))
def test_batches_have_exactly_the_size_but_the_last_one(sizes: list[int], rows: int) -> None:
    found = list(sized(batches(sizes), rows))
    assert [batch.num_rows for batch in found[:-1]] == [rows] * (len(found) - 1)
    assert all(0 < batch.num_rows <= rows for batch in found)
    assert ids(iter(found)) == list(range(sum(sizes)))


@settings(max_examples=examples(100))
@given(sizes=SIZES, buffer=st.integers(1, 20), seed=st.integers(0, 5))
def test_an_order_has_each_row_once_and_comes_again_with_its_seed(sizes: list[int], buffer: int, seed: int) -> None:
    first, again = (ids(shuffled(batches(sizes), buffer, np.random.default_rng(seed))) for _ in range(2))
    assert sorted(first) == list(range(sum(sizes)))
    assert first == again


def test_rows_are_mixed_within_a_buffer_across_batches() -> None:
    found = ids(shuffled(batches([10] * 100), 100, np.random.default_rng(0)))
    assert found != sorted(found)
    late = [position - i for position, i in enumerate(found)]
    assert max(late) > 20, "a row may wait"
    assert min(late) >= -110, "but none comes before the buffer that has it"


def test_only_a_buffer_is_held() -> None:
    taken = 0

    def counted() -> Iterator[pa.RecordBatch]:
        nonlocal taken
        for batch in batches([10] * 1000):
            taken += 1
            yield batch

    next(shuffled(counted(), 50, np.random.default_rng(0)))
    assert taken == 5


@pytest.fixture
def scan(tmp_path: Path) -> Scan:
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("db")
    table = catalog.create_table("db.t", pa.schema([("id", pa.int64())]))
    for i in range(3):
        table.append([{"id": i}])
    return table.scan()


def test_a_task_of_ray_reads_its_files_and_names_the_columns_before_any_row(scan: Scan) -> None:
    tasks = _groups(scan, 2)
    read = [pa.concat_tables(_tables(scan, splits)) for splits, _ in tasks]
    assert sorted(i for table in read for i in table["id"].to_pylist()) == [0, 1, 2]
    assert sum(size or 0 for _, size in tasks) == sum(split.size_bytes for split in scan.splits())
    (nothing,) = _groups(scan.where("id > 5"), 2)
    assert next(_tables(scan, nothing[0])).schema == scan.schema


def test_a_read_without_splits_is_one_task(scan: Scan, tmp_path: Path) -> None:
    system = tidelake.open_catalog(str(tmp_path)).table("db.t$snapshots").scan()
    assert _groups(system, 8) == [(None, None)]
    assert pa.concat_tables(_tables(system, None)).num_rows == 3


@pytest.mark.parametrize(
    ("call", "package"),
    [(lambda s: s.to_ray(), "ray"), (lambda s: s.to_ray_dataset(2), "ray"), (lambda s: s.to_torch(), "torch")],
)
def test_a_missing_library_is_named_with_its_extra(
    scan: Scan, call: object, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelake.frames.readable.find_spec", lambda name: None)
    assert callable(call)
    with pytest.raises(
        UnsupportedFeature, match=rf"it needs the package {package}; pip install 'tidelake\[{package}\]'|{package}"
    ):
        call(scan)
