"""Rows of tables with a primary key deleted and updated by a condition."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import tidelake
from tests.support.changelog_fold import check_changelog
from tidelake import col
from tidelake.errors import UnsupportedFeature
from tidelake.storage.maintenance.verify import verify
from tidelake.storage.write.row_level.keyed_row_changes import keyed_messages

SCHEMA: Final = pa.schema([("k", pa.int32()), ("v", pa.int64()), ("t", pa.string())])
VECTORS: Final = {"deletion-vectors.enabled": "true"}
LAYOUTS: Final[list[Mapping[str, str]]] = [
    {},
    {"bucket": "3"},
    {"changelog-producer": "input"},
    {"changelog-producer": "lookup"},
    {**VECTORS, "changelog-producer": "lookup"},
    {"write-only": "true"},
    {"sequence.field": "v"},
]
Row = tuple[int, int | None, str | None]


def new_table(options: Mapping[str, str]) -> tidelake.Table:
    """Keys 0 to 9, each written twice: the second time v is the key."""
    catalog = tidelake.open_catalog(f"memory://{uuid4()}/lake")
    catalog.create_database("db")
    table = catalog.create_table("db.t", SCHEMA, primary_key=["k"], options={"bucket": "1", **options})
    for v in ([-1] * 10, range(10)):
        with table.writer() as writer:
            writer.write(pa.table({"k": range(10), "v": v, "t": ["a"] * 10}, SCHEMA))
            writer.commit()
    return table


def rows_of(table: tidelake.Table) -> list[Row]:
    return sorted((r["k"], r["v"], r["t"]) for r in table.scan().to_arrow().to_pylist())


def last_changes(table: tidelake.Table) -> list[tuple[int, int]]:
    """Kind and key."""
    batches = [b for b in table.changes(start=1) if b.snapshot_id == max(c.snapshot_id for c in table.changes(start=1))]
    return [(row["_VALUE_KIND"], row["k"]) for batch in batches for row in batch.rows.to_pylist()]


@pytest.mark.parametrize("options", LAYOUTS, ids=str)
def test_matching_rows_are_deleted(options: Mapping[str, str]) -> None:
    table = new_table(options)
    table.delete((col("v") >= 3) & (col("k") < 5))
    assert rows_of(table) == [(k, k, "a") for k in (0, 1, 2, 5, 6, 7, 8, 9)]
    assert table.delete(col("v") == -1) is None, "what was replaced is no row"
    if "changelog-producer" in options:
        assert last_changes(table) == [(3, 3), (3, 4)]
    if options.get("changelog-producer") == "lookup":
        assert check_changelog(table)
    assert verify(table.context, deep=True) == []


@pytest.mark.parametrize("options", LAYOUTS, ids=str)
def test_matching_rows_get_the_given_values(options: Mapping[str, str]) -> None:
    table = new_table(options)
    values: dict[str, Any] = {"t": "b"} if "sequence.field" in options else {"t": None, "v": pc.field("v") * 10}
    table.update(col("k") >= 8, values)
    new = [(8, 8, "b"), (9, 9, "b")] if "sequence.field" in options else [(8, 80, None), (9, 90, None)]
    assert rows_of(table) == [*((k, k, "a") for k in range(8)), *new]
    if "changelog-producer" in options:
        assert last_changes(table) == [(1, 8), (2, 8), (1, 9), (2, 9)]
    assert verify(table.context, deep=True) == []


@pytest.mark.parametrize("options", [{}, VECTORS, {"sequence.field": "v"}], ids=str)
def test_concurrently_written_rows_are_checked_again(
    options: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(options)
    rivals = [pa.table({"k": [4], "v": [400], "t": ["new"]}, SCHEMA)]

    def after_others(*arguments: Any) -> Any:
        made = keyed_messages(*arguments)
        if rivals:
            with table.writer() as writer:
                writer.write(rivals.pop())
                writer.commit()
        return made

    monkeypatch.setattr("tidelake.storage.write.row_level.row_changes.keyed_messages", after_others)
    table.delete((col("v") >= 4) & (col("v") < 8))
    assert rows_of(table) == [(k, k, "a") if k != 4 else (4, 400, "new") for k in (0, 1, 2, 3, 4, 8, 9)]
    assert verify(table.context, deep=True) == []


def test_a_change_under_an_identifier_happens_once() -> None:
    table = new_table({})
    assert table.update(col("k") == 1, {"v": pc.field("v") + 10}, commit_user="etl", identifier=1) is not None
    assert table.update(col("k") == 1, {"v": pc.field("v") + 10}, commit_user="etl", identifier=1) is None
    assert rows_of(table)[1] == (1, 11, "a")


REMOVES: Final = {"merge-engine": "aggregation", "aggregation.remove-record-on-delete": "true"}


def test_a_row_is_deleted_if_the_engine_supports_it() -> None:
    table = new_table({**REMOVES, "fields.v.aggregate-function": "sum"})
    table.delete(col("v") == 3)
    assert [k for k, _, _ in rows_of(table)] == [k for k in range(10) if k != 4]


@pytest.mark.parametrize(
    "options",
    [
        {"merge-engine": "first-row"},
        {"merge-engine": "aggregation"},
        {"merge-engine": "partial-update", "write-only": "true"},
        {"ignore-delete": "true"},
    ],
    ids=str,
)
def test_whole_partitions_are_deleted_in_tables_that_take_no_deletes(options: Mapping[str, str]) -> None:
    catalog = tidelake.open_catalog(f"memory://{uuid4()}/lake")
    catalog.create_database("db")
    options = {"bucket": "2", **options}
    table = catalog.create_table("db.t", SCHEMA, primary_key=["k", "t"], partition_by=["t"], options=options)
    table.upsert([{"k": k, "v": k, "t": t} for k in range(4) for t in "abc"])
    with pytest.raises(tidelake.UnsupportedFeature):
        table.delete((col("t") == "a") & (col("k") == 1))
    assert table.delete(col("t").is_in(["a", "c"]), commit_user="etl", identifier=1) is not None
    assert table.delete(col("t").is_in(["a", "c"]), commit_user="etl", identifier=1) is None
    assert {t for _, _, t in rows_of(table)} <= {"b"}
    assert table.delete(col("t") == "z") is None
    table.compact(full=True)
    assert rows_of(table) == [(k, k, "b") for k in range(4)]
    assert verify(table.context, deep=True) == []


@pytest.mark.parametrize(
    ("condition", "left"),
    [
        ("t like '%b%'", "ac"),
        ("not (t = 'a')", "a"),
        ("t = 'a' or t = 'c'", "b"),
        ("t in ('a', 'b') and not (t like 'b%')", "bc"),
        (pc.ascii_upper(pc.field("t")) == "B", "ac"),
        (pc.scalar(False), "abc"),
    ],
    ids=str,
)
def test_only_partitions_that_match_the_whole_condition_are_removed(condition: Any, left: str) -> None:
    catalog = tidelake.open_catalog(f"memory://{uuid4()}/lake")
    catalog.create_database("db")
    options = {"bucket": "1", "merge-engine": "aggregation"}
    table = catalog.create_table("db.t", SCHEMA, primary_key=["k", "t"], partition_by=["t"], options=options)
    table.upsert([{"k": 1, "v": 1, "t": t} for t in "abc"])
    table.delete(condition)
    assert {t for _, _, t in rows_of(table)} == set(left)


@pytest.mark.parametrize("producer", ["none", "input", "lookup"])
def test_rows_of_a_partial_update_get_values_but_no_nulls(producer: str) -> None:
    table = new_table({"merge-engine": "partial-update", "changelog-producer": producer})
    assert table.update(col("k") < 2, {"v": 70}) is not None
    assert rows_of(table)[:3] == [(0, 70, "a"), (1, 70, "a"), (2, 2, "a")]
    before = table.context.snapshots.latest_id()
    with pytest.raises(tidelake.TidelakeError, match=r"can't set t to NULL.*keeps the value"):
        table.update(col("k") == 1, {"t": None})
    assert table.context.snapshots.latest_id() == before
    table.compact(full=True)
    assert table.merge([{"k": 1, "v": 5}, {"k": 77, "v": 6}], ["k"]) is not None
    assert [row for row in rows_of(table) if row[0] in (1, 77)] == [(1, 5, "a"), (77, 6, None)]
    assert verify(table.context, deep=True) == []


def test_rows_that_wait_for_their_buckets_are_never_missed() -> None:
    catalog = tidelake.open_catalog(f"memory://{uuid4()}/lake")
    catalog.create_database("db")
    table = catalog.create_table("db.t", SCHEMA, primary_key=["k", "t"], partition_by=["t"], options={"bucket": "-2"})
    for day in "ab":
        with table.writer(commit_user="stream") as writer:
            writer.write(pa.table({"k": [1], "v": [1], "t": [day]}, SCHEMA))
            writer.commit(ord(day))
        if day == "a":
            table.compact()
    refusal = r"partition t=b: rows wait for their buckets.*Compact the table"
    with pytest.raises(tidelake.BadInput, match=refusal):
        table.delete(col("k") == 1)
    with pytest.raises(tidelake.BadInput, match=refusal):
        table.update(col("k") == 1, {"v": 2})
    assert table.update(col("t") == "a", {"v": 2}) is not None, "only rows of another partition wait"
    table.compact()
    assert table.delete(col("k") == 1) is not None
    table.compact()
    assert rows_of(table) == []


@pytest.mark.parametrize(
    ("options", "values", "message"),
    [
        ({"merge-engine": "first-row"}, None, "first-row does not remove a row.*Overwrite"),
        ({"merge-engine": "partial-update"}, None, "create a table with partial-update.remove-record-on-delete = true"),
        ({"ignore-delete": "true"}, None, "ignores deletes"),
        ({"rowkind.field": "t"}, None, "column t contains the row kind"),
        (REMOVES, {"v": 1}, "aggregation would merge the new row into the old one"),
        (
            {"merge-engine": "partial-update", "fields.v.sequence-group": "t"},
            {"t": "x"},
            "partial-update would merge the new row",
        ),
        ({}, {"k": 1}, "can't change k, of the primary key"),
        ({"sequence.field": "v"}, {"v": 1}, "can't change v: the rows of a key are ordered by it"),
        ({}, {"x": 1}, "no column 'x' to update"),
        ({}, {}, "needs the columns to change"),
    ],
)
def test_changes_that_the_merge_engine_would_alter_are_refused(
    options: Mapping[str, str], values: Mapping[str, Any] | None, message: str
) -> None:
    catalog = tidelake.open_catalog(f"memory://{uuid4()}/lake")
    catalog.create_database("db")
    table = catalog.create_table("db.t", SCHEMA, primary_key=["k"], options={"bucket": "1", **options})
    with pytest.raises(tidelake.TidelakeError, match=message):
        table.delete(col("k") == 1) if values is None else table.update(col("k") == 1, values)


@pytest.mark.parametrize("option", ["scan.fallback-branch", "scan.primary-branch"])
@pytest.mark.parametrize("key", [["id", "dt"], []], ids=["primary key", "append table"])
def test_a_change_of_rows_that_are_read_from_another_branch_is_refused(option: str, key: list[str]) -> None:
    catalog = tidelake.open_catalog(f"memory://{uuid4().hex}/lake")
    catalog.create_database("d")
    schema = pa.schema([("id", pa.int64()), ("dt", pa.string()), ("v", pa.int64())])
    options = {"bucket": "1"} if key else {}
    table = catalog.create_table("d.t", schema, primary_key=key, partition_by=["dt"], options=options)
    table.append([{"id": 2, "dt": "a", "v": 20}])
    table.create_branch("hist")
    catalog.table("d.t$branch_hist").append([{"id": 1, "dt": "b", "v": 10}, {"id": 3, "dt": "b", "v": 30}])
    catalog.alter_table("d.t", [tidelake.SetOption(option, "hist")])
    table = catalog.table("d.t")
    assert len(table.scan().to_arrow()) == 3

    refused = r"a change of rows in dt=b, which is read from branch hist \(" + option
    changes: tuple[Callable[[], object], ...] = (
        lambda: table.delete(tidelake.col("id") == 1),
        lambda: table.update(tidelake.col("v") < 15, {"v": 99}),
        lambda: table.merge([{"id": 1, "dt": "b", "v": 99}], on=["id", "dt"]),
    )
    for change in changes:
        with pytest.raises(UnsupportedFeature, match=refused) as error:
            change()
        assert "Change the rows in d.t$branch_hist" in str(error.value)
    assert len(table.snapshots()) == 1

    table.delete(tidelake.col("id") == 7)
    table.update((tidelake.col("id") == 2), {"v": 21})
    table.merge([{"id": 2, "dt": "a", "v": 22}, {"id": 9, "dt": "a", "v": 90}], on=["id", "dt"])
    found = {row["id"]: row["v"] for row in table.scan().to_arrow().to_pylist()}
    assert found == {1: 10, 2: 22, 3: 30, 9: 90}
