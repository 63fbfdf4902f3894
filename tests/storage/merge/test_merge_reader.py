"""Merging runs gives the rows of a dict filled in sequence-number order, for any batch boundaries."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.case_values import column_of, column_type
from tests.support.cases import Case, case_id, check_members, vectors
from tests.support.row_kinds import row_kind_of
from tidelake.storage.merge import merge_reader
from tidelake.storage.merge.equal_keys import Groups
from tidelake.storage.merge.merge_functions import Deduplicate
from tidelake.storage.merge.merge_reader import MergeOrder, drop_retracts, merge_batch, merge_runs, sort_batch
from tidelake.storage.merge.spill_file import ParkedRows
from tidelake.storage.model.format import KIND_COLUMN, SEQUENCE_COLUMN, RowKind

SCHEMA = pa.schema(
    [
        pa.field("k1", pa.string(), nullable=False),
        pa.field("k2", pa.int32(), nullable=False),
        pa.field(SEQUENCE_COLUMN, pa.int64(), nullable=False),
        pa.field(KIND_COLUMN, pa.int8(), nullable=False),
        pa.field("version", pa.int32()),
        pa.field("value", pa.string()),
    ]
)
Row = dict[str, Any]


@dataclass(frozen=True)
class Runs:
    """rows: of all runs, by sequence number; run_of: the run of each row; cuts: rows per batch."""

    rows: list[Row]
    runs: list[list[Row]]
    batch_rows: int

    def open(self) -> list[Iterator[pa.RecordBatch]]:
        tables = [pa.Table.from_pylist(run, SCHEMA) for run in self.runs]
        return [iter(table.to_batches(max_chunksize=self.batch_rows)) for table in tables]


@st.composite
def runs(draw: st.DrawFn) -> Runs:
    """Runs hold each key at most once, in key order; sequence numbers are spread over them at random.

    A few keys are much longer than the others.
    """
    texts = st.builds(str.__add__, st.sampled_from([""] * 9 + ["b" * 400]), st.text("abc", max_size=8))
    keys = st.tuples(texts, st.integers(0, 2))
    drawn = draw(st.lists(st.tuples(keys, st.sampled_from(RowKind), st.none() | st.integers(0, 3), st.integers(0, 3))))
    rows: list[Row] = []
    by_run: list[dict[tuple[str, int], Row]] = [{} for _ in range(4)]
    for number, ((k1, k2), kind, version, run) in enumerate(drawn):
        if (k1, k2) not in by_run[run]:
            row = {
                "k1": k1,
                "k2": k2,
                SEQUENCE_COLUMN: number,
                KIND_COLUMN: kind,
                "version": version,
                "value": str(number),
            }
            rows.append(row)
            by_run[run][k1, k2] = row
    sorted_runs = [[run[key] for key in sorted(run, key=lambda k: (k[0].encode(), k[1]))] for run in by_run]
    return Runs(rows, sorted_runs, draw(st.integers(1, 5)))


def naive(rows: list[Row], *, by_version: bool = False, descending: bool = False) -> list[Row]:
    """The oracle: the newest row of each key, in key order."""

    def age(row: Row) -> tuple[Any, ...]:
        version = (row["version"] is not None, row["version"] or 0)
        if descending:
            version = (version[0], -version[1])
        return (version if by_version else (), row[SEQUENCE_COLUMN])

    newest: dict[tuple[bytes, int], Row] = {}
    for row in sorted(rows, key=age):
        newest[row["k1"].encode(), row["k2"]] = row
    return [newest[key] for key in sorted(newest)]


KEY = ("k1", "k2")


@given(runs())
def test_the_row_with_the_largest_sequence_number_wins(drawn: Runs) -> None:
    merged = merge_runs(drawn.open(), MergeOrder(KEY), Deduplicate().merge)
    assert pa.Table.from_batches(merged, SCHEMA).to_pylist() == naive(drawn.rows)


@given(runs(), st.booleans())
def test_a_sequence_field_decides_before_the_sequence_number(drawn: Runs, descending: bool) -> None:
    order = MergeOrder(KEY, sequence_fields=("version",), descending=descending)
    merged = merge_runs(drawn.open(), order, Deduplicate().merge)
    assert pa.Table.from_batches(merged, SCHEMA).to_pylist() == naive(
        drawn.rows, by_version=True, descending=descending
    )


@given(runs())
def test_readers_do_not_see_keys_whose_newest_row_is_a_retract(drawn: Runs) -> None:
    merged = drop_retracts(merge_runs(drawn.open(), MergeOrder(KEY), Deduplicate().merge))
    visible = [row for row in naive(drawn.rows) if not RowKind(row[KIND_COLUMN]).is_retract]
    assert pa.Table.from_batches(merged, SCHEMA).to_pylist() == visible


@given(runs())
def test_runs_whose_sequence_follows_their_order_need_no_sequence_numbers(drawn: Runs) -> None:
    """Runs given oldest first, as level-0 files of one writer are: the later run wins."""
    tables = [pa.Table.from_pylist(run, SCHEMA).drop_columns([SEQUENCE_COLUMN]) for run in drawn.runs]
    opened = [iter(table.to_batches(max_chunksize=drawn.batch_rows)) for table in tables]
    merged = merge_runs(opened, MergeOrder(KEY, sequence_follows_run_order=True), Deduplicate().merge)
    renumbered = [{**row, SEQUENCE_COLUMN: run} for run, rows in enumerate(drawn.runs) for row in rows]
    expected = [{k: v for k, v in row.items() if k != SEQUENCE_COLUMN} for row in naive(renumbered)]
    schema = SCHEMA.remove(SCHEMA.get_field_index(SEQUENCE_COLUMN))
    assert pa.Table.from_batches(merged, schema).to_pylist() == expected


@given(runs())
def test_a_flush_merges_rows_in_arrival_order(drawn: Runs) -> None:
    batch = pa.Table.from_pylist(drawn.rows, SCHEMA).combine_chunks().to_batches()
    if batch:
        merged = merge_batch(batch[0], MergeOrder(KEY, sequence_follows_run_order=True), Deduplicate().merge)
        assert merged.to_pylist() == naive(drawn.rows)


@given(runs(), st.randoms())
def test_the_order_of_the_runs_does_not_matter(drawn: Runs, random: Any) -> None:
    opened = drawn.open()
    random.shuffle(opened)
    merged = merge_runs(opened, MergeOrder(KEY), Deduplicate().merge)
    assert pa.Table.from_batches(merged, SCHEMA).to_pylist() == naive(drawn.rows)


def test_merging_holds_one_batch_of_each_run() -> None:
    """A run is not read ahead: after the first merged batch, each of three long runs has given at most two batches."""
    given_batches = [0, 0, 0]

    def run(number: int) -> Iterator[pa.RecordBatch]:
        for start in range(0, 1000, 10):
            given_batches[number] += 1
            yield pa.record_batch({"k": pa.array(np.arange(start, start + 10)), SEQUENCE_COLUMN: np.full(10, number)})

    next(merge_runs([run(0), run(1), run(2)], MergeOrder(("k",)), Deduplicate().merge))
    assert max(given_batches) <= 2


@pytest.mark.parametrize(
    "order",
    [
        pytest.param(MergeOrder(("text", "id")), id="in the key"),
        pytest.param(MergeOrder(("id",), ("text",)), id="in a sequence field"),
        pytest.param(MergeOrder(("id",), ("text",), descending=True), id="in a descending sequence field"),
    ],
)
def test_one_huge_value_does_not_enlarge_the_other_rows(order: MergeOrder) -> None:
    """As many words for every row as the huge value has would be half a gigabyte."""
    num_rows = 10_000
    texts = [f"text {i:05}" for i in range(num_rows - 1)] + ["x" * 40_000]
    ids = np.arange(num_rows)
    run = pa.record_batch({"text": texts, "id": ids, SEQUENCE_COLUMN: ids})
    tracemalloc.start()
    try:
        flushed = merge_batch(run, order, Deduplicate().merge)
        (merged,) = merge_runs([iter([flushed]), iter([flushed])], order, Deduplicate().merge)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert merged.num_rows == num_rows
    assert peak_bytes < 600 * num_rows


@pytest.mark.parametrize("case", vectors("sequence_order"), ids=case_id)
def test_sequence_order(case: Case) -> None:
    """In which order the rows of a key are merged, and which is the newest."""
    check_members(case, {"sequence_fields", "ascending", "types", "records", "expect_merge_order", "latest"})
    rows = _rows_of(case)
    order = MergeOrder(
        ("k",), tuple(f"v{i}" for i in case["sequence_fields"] or ()), descending=not case.get("ascending", True)
    )
    in_order, latest = _expected_order(case, rows)
    if in_order:
        assert sort_batch(rows, order)[0].column("position").to_pylist() == in_order
    merged = merge_batch(rows, order, Deduplicate().merge)
    assert merged.column("position").to_pylist() == [latest]
    one_by_one = [iter([rows.slice(i, 1)]) for i in range(rows.num_rows)]
    (merged,) = merge_runs(one_by_one, order, Deduplicate().merge)
    assert merged.column("position").to_pylist() == [latest]


def _rows_of(case: Case) -> pa.RecordBatch:
    records = case["records"]
    columns = {
        "k": pa.array([1] * len(records)),
        SEQUENCE_COLUMN: pa.array([record["seq"] for record in records], pa.int64()),
        KIND_COLUMN: pa.array([row_kind_of(record["kind"]) for record in records], pa.int8()),
        "position": pa.array(range(len(records))),
    }
    types = case.get("types") or [None] * len(records[0]["v"])
    for i, text in enumerate(types):
        values = [record["v"][i] for record in records]
        columns[f"v{i}"] = column_of(values, column_type(text, values))
    return pa.RecordBatch.from_pydict(columns)


def _expected_order(case: Case, rows: pa.RecordBatch) -> tuple[list[int], int]:
    """The expectation of the case: the whole order, oldest first (empty if the case has none), and the newest row.

    Not its word where a null meets a descending order: the suite has nulls turn around, in Java they are the oldest in
    either direction (run with Paimon Java 2.0.0, flush and merge on read; golden table java/pk_sequence_desc).
    """
    fields = [rows.column(f"v{i}").to_pylist() for i in case["sequence_fields"] or ()]
    if case.get("ascending", True) or not any(None in field for field in fields):
        return case.get("expect_merge_order", []), case["latest"]
    records = case["records"]
    order = sorted(range(len(records)), key=lambda at: (records[at]["seq"], records[at]["kind"] in ("+I", "+U")))
    for field in reversed(fields):
        order.sort(key=lambda at: (field[at] is None, field[at] or 0), reverse=True)  # equal ones stay as they are
    return order, order[-1]


@given(runs(), st.sampled_from([(), ("version",)]), st.booleans())
def test_only_the_newest_of_large_rows_are_copied(
    drawn: Runs, sequence_fields: tuple[str, ...], in_order: bool
) -> None:
    """However small they are here."""
    order = MergeOrder(KEY, sequence_fields=sequence_fields, sequence_follows_run_order=in_order)
    expected = pa.Table.from_batches(merge_runs(drawn.open(), order, Deduplicate().merge), SCHEMA).to_pylist()
    seen = list[int]()

    def merge(rows: pa.RecordBatch, groups: Groups) -> pa.RecordBatch:
        seen.extend(groups.lengths.tolist())
        return Deduplicate().merge(rows, groups)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merge_reader, "LARGE_ROW_BYTES", 0)
        merged = merge_runs(drawn.open(), order, merge, newest_wins=True)
        assert pa.Table.from_batches(merged, SCHEMA).to_pylist() == expected
    assert set(seen) <= {1}, "older rows never reach the merge"


@given(runs(), st.sampled_from([(), ("version",)]), st.booleans(), st.booleans())
def test_parked_rows_merge_like_rows_in_memory(
    drawn: Runs, sequence_fields: tuple[str, ...], in_order: bool, newest_wins: bool
) -> None:
    """However small they are here."""
    order = MergeOrder(KEY, sequence_fields=sequence_fields, sequence_follows_run_order=in_order)
    merge = Deduplicate().merge
    expected = pa.Table.from_batches(merge_runs(drawn.open(), order, merge), SCHEMA).to_pylist()
    with pytest.MonkeyPatch.context() as patch, ParkedRows(None) as parked_rows:
        patch.setattr(merge_reader, "LARGE_ROW_BYTES", 0)
        patch.setattr(merge_reader, "WAITING_BYTES_MAX", 0)
        merged = merge_runs(drawn.open(), order, merge, newest_wins=newest_wins, parked_rows=parked_rows)
        assert pa.Table.from_batches(merged, SCHEMA).to_pylist() == expected


def test_parked_rows_leave_no_files(tmp_path: Path) -> None:
    rows = pa.record_batch({"k": [1, 2, 3]})
    with ParkedRows(str(tmp_path)) as parked_rows:
        first, second = parked_rows.park(rows.slice(1, 1)), parked_rows.park(rows)
        assert first().equals(rows.slice(1, 1))
        assert len(list(tmp_path.glob("*/*.arrow"))) == 1
        del second
    assert list(tmp_path.iterdir()) == []
