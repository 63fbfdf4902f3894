"""Runs that cannot all be open at once merge to the same rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelake.storage.merge.merge_reader import MergeOrder, merge_runs
from tidelake.storage.merge.multi_pass_merge import FAN_IN, fan_in_of, keep_all, multi_pass_merge
from tidelake.storage.model.format import SEQUENCE_COLUMN
from tidelake.storage.model.options import TableOptions

SCHEMA = pa.schema(
    [
        pa.field("k", pa.int64(), nullable=False),
        pa.field("version", pa.int32()),
        pa.field(SEQUENCE_COLUMN, pa.int64(), nullable=False),
    ]
)
ORDERS = [
    pytest.param(MergeOrder(("k",), sequence_follows_run_order=True), id="the later run is the newer"),
    pytest.param(MergeOrder(("k",)), id="by sequence number"),
    pytest.param(
        MergeOrder(("k",), ("version",), sequence_follows_run_order=True), id="by a column, then the later run"
    ),
    pytest.param(MergeOrder(("k",), ("version",), descending=True), id="by a column that descends"),
]


@st.composite
def runs_oldest_first(draw: st.DrawFn) -> list[pa.Table]:
    """Up to a dozen runs of the keys 0 to 9. Sequence numbers are shuffled over the runs."""
    keys = draw(st.lists(st.sets(st.integers(0, 9), min_size=1, max_size=5), min_size=1, max_size=12))
    numbers = iter(draw(st.permutations(range(sum(map(len, keys))))))
    versions = st.none() | st.integers(0, 2)
    return [
        pa.Table.from_pylist(
            [{"k": k, "version": draw(versions), SEQUENCE_COLUMN: next(numbers)} for k in sorted(run)]
        ).cast(SCHEMA)
        for run in keys
    ]


class Shelf:
    """Opens runs, and counts how many are open."""

    def __init__(self) -> None:
        self.open = 0
        self.most_open = 0

    def run(self, table: pa.Table) -> Iterator[pa.RecordBatch]:
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        yield from table.to_batches(max_chunksize=2)
        self.open -= 1


@pytest.mark.parametrize("order", ORDERS)
@given(tables=runs_oldest_first(), fan_in=st.integers(2, 5), spilled_first=st.sets(st.integers(0, 11)))
def test_a_merge_engine_gets_the_same_rows_in_the_same_order(
    order: MergeOrder, tables: list[pa.Table], fan_in: int, spilled_first: set[int]
) -> None:
    at_once = merge_runs([iter(table.to_batches()) for table in tables], order, keep_all)
    shelf = Shelf()
    runs = [shelf.run(table) for table in tables]
    in_passes = multi_pass_merge(runs, SCHEMA, order, keep_all, fan_in=fan_in, spilled_first=sorted(spilled_first))
    assert pa.Table.from_batches(in_passes, SCHEMA).to_pylist() == pa.Table.from_batches(at_once, SCHEMA).to_pylist()
    assert shelf.most_open <= max(1, min(fan_in, len(tables) - len(spilled_first & set(range(len(tables))))))


def test_only_necessary_runs_are_spilled_and_the_oldest_is_not(tmp_path: Path) -> None:
    tables = [pa.table([[0, number], [None, None], [number, 0]], schema=SCHEMA) for number in range(1, 11)]
    runs = [iter(table.to_batches()) for table in tables]
    merged = multi_pass_merge(
        runs,
        SCHEMA,
        MergeOrder(("k",), sequence_follows_run_order=True),
        keep_all,
        fan_in=8,
        spill_directory=str(tmp_path),
    )
    next(merged)
    (written,) = tmp_path.rglob("*.arrow")
    with pa.ipc.open_stream(written) as stream:
        assert sorted(set(stream.read_all()["k"].to_pylist())) == [0, 8, 9, 10]
    merged.close()
    assert not list(tmp_path.iterdir())


def test_few_runs_are_not_spilled(tmp_path: Path) -> None:
    directory = str(tmp_path / "does not exist")
    runs = [iter(pa.table([[1], [None], [number]], schema=SCHEMA).to_batches()) for number in range(8)]
    merged = multi_pass_merge(runs, SCHEMA, MergeOrder(("k",)), keep_all, fan_in=8, spill_directory=directory)
    assert sum(rows.num_rows for rows in merged) == 8


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param({}, FAN_IN, id="what Java does by default is for its heap"),
        pytest.param({"sort-spill-threshold": "10"}, 10, id="set"),
        pytest.param({"sort-spill-threshold": "1"}, 2, id="a merge is of two"),
        pytest.param({"sort-spill-threshold": "100000"}, FAN_IN, id="more than files can be open"),
    ],
)
def test_sort_spill_threshold(options: dict[str, str], expected: int) -> None:
    assert fan_in_of(TableOptions(options)) == expected
