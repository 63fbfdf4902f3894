"""Columns of existing rows, rewritten by row id."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidelake
from tests.support.commit_races import before_publishing
from tests.support.levels import examples
from tidelake import BadInput, CommitConflict, UnsupportedFeature, col
from tidelake.storage.model.types import DataField, parse_type
from tidelake.storage.write.row_level import column_update

EVOLVING = {"row-tracking.enabled": "true", "data-evolution.enabled": "true", "deletion-vectors.enabled": "true"}
COLUMNS = [
    DataField(0, "k", parse_type("INT NOT NULL")),
    DataField(1, "v", parse_type("BIGINT")),
    DataField(2, "t", parse_type("STRING")),
    DataField(3, "b", parse_type("BLOB")),
    DataField(4, "p", parse_type("STRING")),
]


def new_table(**options: str) -> tidelake.Table:
    catalog = tidelake.open_catalog(f"memory://{uuid4()}/lake")
    catalog.create_database("db")
    return catalog.create_table("db.t", COLUMNS, partition_by=["p"], options={**EVOLVING, **options})


def append(table: tidelake.Table, start: int, count: int, partition: str = "x") -> None:
    rows = [{"k": k, "v": k, "t": f"t{k}", "b": bytes([k]), "p": partition} for k in range(start, start + count)]
    with table.writer() as writer:
        writer.write(pa.Table.from_pylist(rows, table.schema))
        writer.commit()


def by_id(table: tidelake.Table, **how: Any) -> dict[int, dict[str, Any]]:
    rows = table.scan(columns=["_ROW_ID", *table.schema.names], **how).to_arrow().to_pylist()
    return {row.pop("_ROW_ID"): row for row in rows}


def update(ids: list[int], **columns: Any) -> pa.Table:
    return pa.table({"_ROW_ID": pa.array(ids, pa.int64()), **{name: pa.array(v) for name, v in columns.items()}})


def test_named_columns_change_and_the_others_are_not_rewritten() -> None:
    table = new_table()
    append(table, 0, 3)
    append(table, 3, 2, "y")
    table.update_columns(update([4, 1], v=[40, None], t=["four", "one"]))
    assert [(row["k"], row["v"], row["t"], row["b"]) for row in by_id(table).values()] == [
        (0, 0, "t0", b"\0"),
        (1, None, "one", b"\1"),
        (2, 2, "t2", b"\2"),
        (3, 3, "t3", b"\3"),
        (4, 40, "four", b"\4"),
    ]
    assert by_id(table, snapshot=2)[4]["v"] == 4, "older snapshots keep what they had"


def test_conditions_are_evaluated_on_new_values_only() -> None:
    table = new_table(**{"file-index.bitmap.columns": "v"})
    append(table, 0, 10)
    table.update_columns(update([3], v=[1000]))
    assert [row["k"] for row in by_id(table, filter=col("v") == 1000).values()] == [3]
    assert by_id(table, filter=col("v") == 3) == {}
    assert list(by_id(table, filter=col("v") < 2)) == [0, 1]


def test_an_unchanged_blob_is_not_rewritten() -> None:
    table = new_table()
    append(table, 0, 3)
    table.update_columns(update([1], b=[b"new"]))
    table.update_columns(update([2], b=pa.nulls(1, pa.binary())))
    assert [row["b"] for row in by_id(table).values()] == [b"\0", b"new", None]
    blobs = [f for f in table.scan().splits()[0].files if f.file_name.endswith(".blob")]
    assert sorted(f.file_size for f in blobs)[0] < 30, "rows that keep theirs take a few bytes"


@settings(max_examples=examples(60))
@given(st.data())
def test_rows_have_the_last_written_value_of_each_column(data: st.DataObject) -> None:
    """Against a model of rows by their ids."""
    table = new_table(**{"target-file-row-num": str(data.draw(st.integers(1, 4)))})
    model: dict[int, dict[str, Any]] = {}
    for _ in range(data.draw(st.integers(1, 6))):
        action = data.draw(st.sampled_from(["append", "update", "delete"])) if model else "append"
        if action == "append":
            before, count = set(by_id(table)), data.draw(st.integers(1, 6))
            append(table, 10, count, data.draw(st.sampled_from("xy")))
            model |= {number: row for number, row in by_id(table).items() if number not in before}
        elif action == "update":
            ids = data.draw(st.lists(st.sampled_from(sorted(model)), min_size=1, unique=True))
            names = data.draw(st.lists(st.sampled_from("vtb"), min_size=1, unique=True))
            kinds: dict[str, Any] = {"v": st.integers(0, 9), "t": st.text("ab", max_size=2), "b": st.binary(max_size=3)}
            drawn = {n: [data.draw(st.none() | kinds[n]) for _ in ids] for n in names}
            new = {n: pa.array(drawn[n], table.schema.field(n).type) for n in names}
            table.update_columns(pa.table({"_ROW_ID": pa.array(ids, pa.int64()), **new}))
            for number, *values in zip(ids, *(new[n].to_pylist() for n in names), strict=True):
                model[number] |= dict(zip(names, values, strict=True))
        else:
            limit = data.draw(st.integers(0, 9))
            table.delete(col("v") >= limit)
            model = {number: row for number, row in model.items() if row["v"] is None or row["v"] < limit}
        assert by_id(table) == model
        assert by_id(table, filter=col("v") > 4) == {
            n: r for n, r in model.items() if r["v"] is not None and r["v"] > 4
        }


def test_an_update_that_lost_a_race_is_applied_on_top(monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table()
    append(table, 0, 3)
    before_publishing(monkeypatch, lambda: table.update_columns(update([0], v=[7])))
    table.update_columns(update([1], v=[8]))
    assert [row["v"] for row in by_id(table).values()] == [7, 8, 2]


def test_columns_of_the_same_rows_may_be_written_concurrently(monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table()
    append(table, 0, 3)
    groups = column_update._groups
    seen = []

    def late(context: Any, snapshot: Any) -> Any:
        found = list(groups(context, snapshot))
        seen.append(snapshot.id)
        if len(seen) == 1:
            table.update_columns(update([0], t=["other"]))
        return iter(found)

    monkeypatch.setattr(column_update, "_groups", late)
    table.update_columns(update([0], v=[8]))
    assert (by_id(table)[0]["v"], by_id(table)[0]["t"]) == (8, "other")
    assert seen == [1, 1], "neither began again"


def test_rows_removed_by_a_concurrent_overwrite_are_not_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table()
    append(table, 0, 3)
    before_publishing(monkeypatch, table.truncate)
    with pytest.raises((BadInput, CommitConflict), match=r"no row 0|changed rows"):
        table.update_columns(update([0], v=[8]))
    assert by_id(table) == {}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        pytest.param(update([9], v=[1]), "no row 9", id="a row that is not there"),
        pytest.param(update([2], v=[1]), "row 2 was deleted", id="a row that was deleted"),
        pytest.param(update([0, 0], v=[1, 2]), "row 0 occurs twice", id="a row twice"),
        pytest.param(update([0], q=[1]), "no column 'q'", id="a column that is not there"),
        pytest.param(update([0], p=["y"]), "a partition column", id="a partition column"),
        pytest.param(update([0], k=pa.nulls(1, pa.int32())), "NOT NULL", id="null where none may be"),
        pytest.param(update([0], v=["a"]), "v", id="a value of another type"),
        pytest.param(update([0]), "the columns to write", id="no columns"),
        pytest.param(pa.table({"v": [1]}), "_ROW_ID", id="no row ids"),
    ],
)
def test_invalid_rows_change_nothing(rows: pa.Table, message: str) -> None:
    table = new_table()
    append(table, 0, 3)
    table.delete(col("k") == 2)
    before = by_id(table)
    with pytest.raises(BadInput, match=message):
        table.update_columns(rows)
    assert by_id(table) == before
    assert len(table.snapshots()) == 2


def test_no_rows_make_no_snapshot() -> None:
    table = new_table()
    append(table, 0, 1)
    assert table.update_columns(update([], v=[]).cast(pa.schema([("_ROW_ID", pa.int64()), ("v", pa.int64())]))) is None
    assert len(table.snapshots()) == 1


def test_other_tables_refuse_a_column_update() -> None:
    catalog = tidelake.open_catalog(f"memory://{uuid4()}/lake")
    catalog.create_database("db")
    tracked = catalog.create_table(
        "db.t",
        pa.schema([("k", pa.int32())]),
        options={"row-tracking.enabled": "true", "deletion-vectors.enabled": "true"},
    )
    with pytest.raises(UnsupportedFeature, match=r"data-evolution\.enabled"):
        tracked.update_columns(update([0], k=[1]))
    with pytest.raises(UnsupportedFeature, match="get other ids"):
        tracked.update(col("k") == 1, {"k": pc.field("k")})
    with pytest.raises(UnsupportedFeature, match=r"data-evolution\.enabled"):
        new_table().compact()
