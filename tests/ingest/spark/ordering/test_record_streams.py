"""Chunks in source order are read slice by slice, in the order that sorting all rows would give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidelake
from tests.support.levels import examples
from tidelake.errors import BadInput
from tidelake.ingest.spark.ordering.record_streams import merged_slices, slices_of
from tidelake.ingest.spark.ordering.row_order import check_order_is_known, source_order
from tidelake.storage.model.table import TableContext

Record = tuple[str, int, int, int]
"""Topic, partition, offset, time."""


def chunk(records: Sequence[Record]) -> pa.RecordBatch:
    columns: list[Sequence[Any]] = [[record[i] for record in records] for i in range(4)]
    types = [pa.string(), pa.int32(), pa.int64(), pa.int64()]
    names = ["_order_0", "_order_1", "_order_2", "_time"]
    return pa.RecordBatch.from_arrays([pa.array(c, t) for c, t in zip(columns, types, strict=True)], names)


@pytest.fixture(scope="module")
def context() -> TableContext:
    catalog = tidelake.open_catalog(f"memory://{uuid4().hex}/lake")
    catalog.create_database("x")
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("day", pa.string(), nullable=False)])
    return catalog.create_table("x.t", schema, primary_key=["id", "day"], options={"bucket": "1"}).context


@st.composite
def chunks_of_tasks(draw: st.DrawFn) -> list[pa.RecordBatch]:
    """Each partition in ranges of offsets; a chunk has a range of some partitions."""
    partitions = draw(
        st.lists(st.tuples(st.sampled_from("tuä"), st.integers(0, 2)), min_size=1, max_size=4, unique=True)
    )
    count = draw(st.integers(1, 4))
    held: list[list[Record]] = [[] for _ in range(count)]
    for topic, partition in draw(st.permutations(partitions)):
        times = draw(st.lists(st.integers(-3, 9), max_size=20))
        cuts = sorted(draw(st.lists(st.integers(0, len(times)), min_size=count - 1, max_size=count - 1)))
        edges = [0, *cuts, len(times)]
        places = draw(st.permutations(range(count)))
        for place, start, stop in zip(places, edges[:-1], edges[1:], strict=True):
            held[place] += [(topic, partition, 7 * offset // 2, times[offset]) for offset in range(start, stop)]
    return [chunk(records) for records in held]


@settings(max_examples=examples(200))
@given(chunks=chunks_of_tasks(), rows_max=st.integers(1, 30))
def test_slices_are_merged_in_row_order(context: TableContext, chunks: Sequence[pa.RecordBatch], rows_max: int) -> None:
    in_order = merged_slices(chunks, rows_max)
    assert in_order is not None
    found = []
    for merged in in_order:
        rows = pa.concat_batches([chunks[p.chunk].slice(p.start, p.stop - p.start) for p in merged.slices])
        assert all(p.stop - p.start <= rows_max for p in merged.slices)
        found += (rows if merged.order is None else rows.take(pa.array(merged.order))).to_pylist()
    whole = pa.concat_batches(chunks)
    assert found == whole.take(pa.array(source_order(whole))).to_pylist()


@pytest.mark.parametrize(
    "chunks",
    [
        pytest.param([[("t", 0, 5, 1), ("t", 0, 4, 1)]], id="offsets go back"),
        pytest.param([[("t", 0, 1, 1), ("t", 1, 1, 1), ("t", 0, 2, 1)]], id="partitions alternate"),
        pytest.param([[("t", 0, 1, 1), ("t", 0, 5, 1)], [("t", 0, 3, 1)]], id="chunks overlap"),
        pytest.param([[("t", 0, 1, 1)], [("t", 0, 1, 1)]], id="a record in two chunks"),
    ],
)
def test_unordered_chunks_must_be_sorted(chunks: Sequence[Sequence[Record]]) -> None:
    assert merged_slices([chunk(records) for records in chunks], 10) is None


def test_rows_that_are_not_records_or_changed_keys_must_be_sorted() -> None:
    plain = chunk([("t", 0, 1, 1)])
    assert merged_slices([plain.drop_columns(["_time"])], 10) is None
    assert merged_slices([plain, plain.append_column("_key_change", pa.array([None], pa.string()))], 10) is None


def test_rows_without_an_order_are_sliced_in_place() -> None:
    rows = [chunk([("t", 0, n, 0) for n in range(count)]) for count in (5, 0, 3)]
    assert [(p.chunk, p.start, p.stop) for p in slices_of(rows, 2)] == [
        (0, 0, 2),
        (0, 2, 4),
        (0, 4, 5),
        (2, 0, 2),
        (2, 2, 3),
    ]


@settings(max_examples=examples(100))
@given(
    keys=st.lists(st.tuples(st.integers(-3, 40), st.sampled_from(["", "a", "ab", "x" * 90 + "1", "x" * 90 + "2"]))),
    cut=st.integers(0, 30),
)
def test_a_duplicate_key_is_found_across_chunks(context: TableContext, keys: list[tuple[int, str]], cut: int) -> None:
    ids, days = [id_ for id_, _ in keys], [day for _, day in keys]
    rows = pa.record_batch(
        {"id": pa.array(ids, pa.int64()), "day": pa.array(days, pa.string()), "n": np.arange(len(ids))}
    )
    parts = [rows.slice(0, cut), rows.slice(cut)]
    if len(set(keys)) == len(keys):
        check_order_is_known(parts, context)
    else:
        with pytest.raises(BadInput, match="occurs twice in one batch"):
            check_order_is_known(parts, context)


def test_a_duplicate_short_key_is_found_next_to_long_keys(context: TableContext) -> None:
    short = pa.record_batch({"id": pa.array([0]), "day": [""], "n": [0]})
    long = pa.record_batch({"id": pa.array([0, 0]), "day": ["", "x" * 90], "n": [1, 2]})
    with pytest.raises(BadInput, match="occurs twice in one batch"):
        check_order_is_known([short, long], context)


ROWS = [{"id": 1, "day": "a", "_order_0": 5, "v": "x"}, {"id": 1, "day": "a", "_order_0": 5, "v": "y"}]


@pytest.mark.parametrize(
    ("changes", "differs"),
    [
        pytest.param({}, True, id="equal by the order, and different"),
        pytest.param({"_order_0": 6}, False, id="another order"),
        pytest.param({"id": 2}, False, id="another key"),
        pytest.param({"v": "x"}, False, id="the same row"),
        pytest.param({"_order_0": None}, False, id="no order"),
    ],
)
def test_rows_of_a_key_that_are_equal_by_their_order_are_refused_unless_they_are_the_same(
    context: TableContext, changes: dict[str, Any], differs: bool
) -> None:
    rows = pa.RecordBatch.from_pylist([ROWS[0], ROWS[1] | changes])
    for parts in ([rows], [rows.slice(0, 1), rows.slice(1)], [rows.slice(1), rows.slice(0, 1)]):
        if differs:
            with pytest.raises(BadInput, match=r"rows that differ and are equal by order_by \(5\)"):
                check_order_is_known(parts, context)
        else:
            check_order_is_known(parts, context)


@pytest.mark.parametrize(
    "values",
    [
        pytest.param([float("nan"), float("nan")], id="NaN"),
        pytest.param([None, None, "text"], id="nulls"),
        pytest.param([[1, None], [1, None]], id="lists"),
        pytest.param([{"a": 1.5, "b": "ü"}, {"a": 1.5, "b": "ü"}], id="rows"),
        pytest.param(["x" * 200, "x" * 200], id="long texts"),
    ],
)
def test_equal_values_of_any_type_make_the_same_row(context: TableContext, values: list[Any]) -> None:
    column = pa.array(values)
    rows = pa.record_batch({"id": [1, 1], "day": ["a", "a"], "_order_0": [5, 5], "v": column.slice(0, 2)})
    check_order_is_known([rows], context)
    if column.null_count == 0:
        null = pa.array([None], column.type)
        other = pa.record_batch({"id": [1], "day": ["a"], "_order_0": [5], "v": null})
        with pytest.raises(BadInput, match="rows that differ"):
            check_order_is_known([rows, other], context)


def test_a_sequence_field_that_ties_is_named() -> None:
    catalog = tidelake.open_catalog(f"memory://{uuid4().hex}/lake")
    catalog.create_database("x")
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("at", pa.int32()), ("v", pa.string())])
    options = {"bucket": "1", "sequence.field": "at"}
    context = catalog.create_table("x.t", schema, primary_key=["id"], options=options).context
    rows = pa.record_batch({"id": [1, 1], "at": pa.array([3, 3], pa.int32()), "v": ["a", "b"]})
    with pytest.raises(BadInput, match=r"equal by sequence.field \(at\) \(3\)"):
        check_order_is_known([rows], context)
    check_order_is_known([rows.set_column(1, "at", pa.array([3, 4], pa.int32()))], context)
    check_order_is_known([rows.append_column("_order_0", pa.array([1, 2]))], context)
