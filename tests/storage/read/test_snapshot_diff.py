"""The difference of two states: the changes that convert one into the other."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidelake
from tests.support.levels import examples
from tidelake.storage.model.format import RowKind
from tidelake.storage.read.snapshot_diff import SnapshotDiff

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.float64()), ("p", pa.int64())])
Rows = dict[int, tuple[Any, Any]]

WRITES = st.lists(
    st.tuples(
        st.dictionaries(st.integers(0, 9), st.tuples(st.booleans(), st.sampled_from([0.0, 1.0, None]))),
        st.booleans(),
    ),
    min_size=1,
    max_size=5,
)


def state(table: tidelake.Table, snapshot: int) -> Rows:
    rows = table.scan(snapshot=snapshot).to_arrow()
    return {row["id"]: (row["v"], row["p"]) for row in rows.to_pylist()}


@settings(max_examples=examples(60))
@given(
    writes=WRITES,
    engine=st.sampled_from(["deduplicate", "partial-update", "aggregation"]),
    vectors=st.booleans(),
    ends=st.tuples(st.integers(1, 10), st.integers(1, 10)),
)
def test_a_difference_converts_one_state_into_the_other(
    writes: list[tuple[dict[int, tuple[bool, Any]], bool]], engine: str, vectors: bool, ends: tuple[int, int]
) -> None:
    catalog = tidelake.open_catalog("memory://differences/lake")
    catalog.create_database("db")
    options = {"bucket": "2", "merge-engine": engine, "write-only": "true"}
    options |= {"fields.v.aggregate-function": "sum"} if engine == "aggregation" else {}
    options |= {"partial-update.remove-record-on-delete": "true"} if engine == "partial-update" else {}
    options |= {"deletion-vectors.enabled": "true"} if vectors else {}
    table = catalog.create_table("db.t", SCHEMA, primary_key=["id"], options=options)
    every_level = tidelake.Table(table.context.with_options({"deletion-vectors.merge-on-read": "true"}))
    try:
        for number, (rows, compacts) in enumerate(writes):
            with table.writer() as writer:
                can_die = engine != "aggregation"
                kinds = [RowKind.DELETE if gone and can_die else RowKind.INSERT for gone, _ in rows.values()]
                columns = {"id": list(rows), "v": [v for _, v in rows.values()], "p": [number] * len(rows)}
                schema = SCHEMA.append(pa.field("_VALUE_KIND", pa.int8()))
                writer.write(pa.table({**columns, "_VALUE_KIND": [int(kind) for kind in kinds]}, schema))
                writer.commit(number)
            if compacts:
                table.compact(full=True)
        last = table.snapshots()[-1].id
        start, end = sorted(min(number, last) for number in ends)
        copy = state(every_level, start)
        for change in table.changes(between=(start, end), between_mode="diff"):
            for row in change.rows.to_pylist():
                match RowKind(row["_VALUE_KIND"]):
                    case RowKind.INSERT:
                        assert row["id"] not in copy
                        copy[row["id"]] = (row["v"], row["p"])
                    case RowKind.UPDATE_AFTER:
                        assert copy[row["id"]] is None
                        copy[row["id"]] = (row["v"], row["p"])
                    case RowKind.UPDATE_BEFORE:
                        assert copy[row["id"]] == (row["v"], row["p"])
                        copy[row["id"]] = None  # type: ignore[assignment]
                    case RowKind.DELETE:
                        assert copy.pop(row["id"]) == (row["v"], row["p"])
        assert copy == state(every_level, end)
    finally:
        catalog.drop_database("db", cascade=True)


@pytest.fixture
def catalog() -> Any:
    catalog = tidelake.open_catalog("memory://differences/more")
    catalog.create_database("db")
    yield catalog
    catalog.drop_database("db", cascade=True)


def test_unselected_columns_do_not_count_as_differences(catalog: tidelake.Catalog) -> None:
    table = catalog.create_table("db.t", SCHEMA, primary_key=["id"], options={"bucket": "1"})
    for rows in ({"id": [1, 2], "v": [1.0, 2.0], "p": [1, 1]}, {"id": [1, 2], "v": [1.0, 3.0], "p": [2, 2]}):
        with table.writer() as writer:
            writer.write(pa.table(rows, SCHEMA))
            writer.commit()
    before, after = table.snapshots()
    found = list(SnapshotDiff(table.context, before, after, columns=["v"]).rows())
    assert pa.Table.from_batches(found).to_pylist() == [
        {"id": 2, "v": 2.0, "_VALUE_KIND": 1},
        {"id": 2, "v": 3.0, "_VALUE_KIND": 2},
    ]


def test_batches_mark_the_last_one_and_the_next_position(catalog: tidelake.Catalog) -> None:
    table = catalog.create_table("db.t", SCHEMA, primary_key=["id"], options={"bucket": "3"})
    for number in (1, 2):
        with table.writer() as writer:
            writer.write(pa.table({"id": range(9), "v": [number] * 9, "p": [1] * 9}, SCHEMA))
            writer.commit()
    batches = list(table.changes(between=(1, 2), between_mode="diff"))
    assert [batch.is_last for batch in batches] == [False, False, True]
    assert table.follower(start=batches[-1].position).next_snapshot_id == 3
