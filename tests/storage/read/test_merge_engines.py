"""Tables of every merge engine, written and read: the projection never changes the merged rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

import tidelake
from tests.support.expected import KIND_TEXT

SCHEMA = pa.schema([("k", pa.int32()), ("a", pa.int32()), ("g", pa.int32()), ("b", pa.string())])
WITH_KIND = SCHEMA.append(pa.field("_VALUE_KIND", pa.int8()))
REMOVE_ON_DELETE = {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"}
GROUP = {"merge-engine": "partial-update", "fields.g.sequence-group": "a"}
REMOVE_ON_GROUP = GROUP | {"partial-update.remove-record-on-sequence-group": "g"}


def new_catalog(options: Mapping[str, str], schema: pa.Schema = SCHEMA) -> tidelake.Catalog:
    """With one table, db.t."""
    catalog: tidelake.Catalog = tidelake.open_catalog(f"memory://{uuid4().hex}/lake")
    catalog.create_database("db")
    catalog.create_table("db.t", schema, primary_key=["k"], options={"bucket": "1", "write-only": "true", **options})
    return catalog


def new_table(options: Mapping[str, str], schema: pa.Schema = SCHEMA) -> tidelake.Table:
    return new_catalog(options, schema).table("db.t")


def rows_of(rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    """rows: (kind, k, a, g, b)."""
    names = WITH_KIND.names
    return pa.Table.from_pylist(
        [dict(zip(names, (*values, KIND_TEXT.index(kind)), strict=True)) for kind, *values in rows], WITH_KIND
    )


def table_of(options: Mapping[str, str], *commits: Sequence[tuple[Any, ...]]) -> tidelake.Table:
    table = new_table(options)
    with table.writer() as writer:
        for rows in commits:
            writer.write(rows_of(rows))
            writer.commit()
    return table


def test_a_condition_on_a_value_is_evaluated_on_the_merged_row() -> None:
    table = table_of(
        {"merge-engine": "partial-update"},
        [("+I", 1, 10, None, "x"), ("+I", 2, 20, None, "x")],
        [("+I", 1, None, 1, "y"), ("+I", 2, 21, None, None)],
    )
    found = table.scan(filter=tidelake.col("b") == "x", columns=["k", "a"]).to_arrow()
    assert found.to_pylist() == [{"k": 2, "a": 21}]
    assert table.scan(filter=tidelake.col("a") == 10, columns=["b"]).to_arrow().to_pylist() == [{"b": "y"}]


@pytest.mark.parametrize("columns", [["b"], ["k"], ["a"], ["b", "a"], ["g"]])
def test_a_record_removed_by_a_sequence_group_is_gone_for_every_projection(columns: list[str]) -> None:
    table = table_of(
        REMOVE_ON_GROUP, [("+I", 1, 10, 1, "x"), ("+I", 2, 20, 5, "y")], [("-D", 1, 0, 2, "z"), ("-D", 2, 0, 4, "z")]
    )
    left = {"k": 2, "a": 20, "g": 5, "b": "y"}
    assert table.scan(columns=columns).to_arrow().to_pylist() == [{name: left[name] for name in columns}]


def test_a_sequence_group_column_is_correct_without_reading_its_sequence_field() -> None:
    table = table_of(GROUP, [("+I", 1, 10, 7, "x")], [("+I", 1, 11, 6, "y")])
    assert table.scan(columns=["a"]).to_arrow().to_pylist() == [{"a": 10}]
    assert table.scan(columns=["b"]).to_arrow().to_pylist() == [{"b": "y"}]


def test_first_rows_are_visible_after_compaction() -> None:
    table = table_of({"merge-engine": "first-row"}, [("+I", 1, 10, None, "x")], [("+I", 1, 11, None, "y")])
    assert table.scan().to_arrow().num_rows == 0
    table.compact(full=True)
    assert table.scan(columns=["k", "b"]).to_arrow().to_pylist() == [{"k": 1, "b": "x"}]
    with table.writer() as writer:
        writer.write(rows_of([("+I", 1, 12, None, "z"), ("+I", 2, 12, None, "z")]))
        writer.commit()
    assert table.scan(columns=["b"]).to_arrow().to_pylist() == [{"b": "x"}]
    table.compact()
    table.compact(full=True)
    assert sorted(table.scan(columns=["b"]).to_arrow()["b"].to_pylist()) == ["x", "z"]


def test_changes_are_the_written_rows() -> None:
    table = table_of(
        {"merge-engine": "partial-update"}, [("+I", 1, 10, None, "x")], [("+I", 1, None, 1, None), ("+U", 2, 1, 1, "y")]
    )
    reported = [row for batch in table.changes(start=2, end=2) for row in batch.rows.to_pylist()]
    assert [(row["k"], row["a"], row["g"], row["b"]) for row in reported] == [(1, None, 1, None), (2, 1, 1, "y")]


SUM = {"merge-engine": "aggregation", "fields.a.aggregate-function": "sum", "fields.g.aggregate-function": "max"}


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        pytest.param(
            {"merge-engine": "first-row"}, "-D", "first-row does not support deletes.*'ignore-delete'", id="first row"
        ),
        pytest.param({"merge-engine": "partial-update"}, "-D", "'ignore-delete'.*sequence-group", id="partial update"),
        pytest.param({"merge-engine": "partial-update"}, "-U", "remove-record-on-delete", id="an old value"),
        pytest.param(SUM, "-D", "-D retracts values.*max of column 'g' does not.*ignore-retract", id="a maximum"),
        pytest.param(
            SUM | {"aggregation.remove-record-on-delete": "true"},
            "-U",
            "-U retracts values.*max",
            id="an old maximum",
        ),
    ],
)
def test_deletes_unsupported_by_the_engine_are_refused_at_once(
    options: Mapping[str, str], kind: str, message: str
) -> None:
    """Java writes them, and cannot read the bucket afterwards."""
    table = new_table(options)
    with table.writer() as writer:
        writer.write(rows_of([("+I", 1, 10, 1, "x")]))
        with pytest.raises(tidelake.BadInput, match=f"db.t: .*{message}"):
            writer.write(rows_of([("+I", 2, 10, 1, "x"), (kind, 1, 10, 1, "x")]))
        writer.write(rows_of([("+I", 3, 10, 1, "x")]))  # the writer continues without the refused batch
        writer.commit()
    table.compact(full=True)
    assert sorted(table.scan(columns=["k"]).to_arrow()["k"].to_pylist()) == [1, 3]


@pytest.mark.parametrize(
    ("options", "kinds", "left"),
    [
        pytest.param({"merge-engine": "first-row", "ignore-delete": "true"}, ["-U", "-D"], (10, 1, "x"), id="ignored"),
        pytest.param(REMOVE_ON_DELETE, ["-U", "-D"], None, id="removing the record"),
        pytest.param(REMOVE_ON_DELETE, ["-U"], (10, 1, "x"), id="an old value removes nothing"),
        pytest.param(GROUP, ["-U", "-D"], (None, 1, "x"), id="taking columns of a group back"),
        pytest.param(SUM | {"aggregation.remove-record-on-delete": "true"}, ["-D"], None, id="removing a sum"),
        pytest.param(SUM | {"fields.g.ignore-retract": "true"}, ["-D"], (0, 1, None), id="a maximum that ignores them"),
    ],
)
def test_deletes_supported_by_the_engine_take_effect(
    options: Mapping[str, str], kinds: list[str], left: tuple[Any, ...] | None
) -> None:
    table = table_of(options, [("+I", 1, 10, 1, "x")], [(kind, 1, 10, 1, "x") for kind in kinds])
    table.compact(full=True)
    found = [tuple(row.values()) for row in table.scan(columns=["a", "g", "b"]).to_arrow().to_pylist()]
    assert found == ([] if left is None else [left])


NO_NULL_A = pa.schema(
    [SCHEMA.field("k"), SCHEMA.field("a").with_nullable(False), *(SCHEMA.field(n) for n in ("g", "b"))]
)
LAST_VALUES = {"merge-engine": "aggregation", "fields.default-aggregate-function": "last_value"}
SUM_OF_GROUP = GROUP | {"fields.a.aggregate-function": "sum"}
TWO_GROUPS = {"merge-engine": "partial-update", "fields.g.sequence-group": "g", "fields.b.sequence-group": "a"}
LAST_OF_A = {"merge-engine": "aggregation", "fields.a.aggregate-function": "last_non_null_value"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param(LAST_VALUES, "last_value keeps no older", id="the last value"),
        pytest.param(LAST_OF_A, "last_non_null_value keeps no older.*'fields.a.ignore-retract'", id="the last of all"),
        pytest.param(GROUP, "fields.g.sequence-group.*remove-record-on-sequence-group' = 'g'", id="a sequence group"),
        pytest.param(
            GROUP | {"fields.a.aggregate-function": "last_value"}, "fields.g.sequence-group", id="a function in a group"
        ),
    ],
)
def test_a_delete_that_would_leave_null_in_a_not_null_column_is_refused(
    options: Mapping[str, str], message: str
) -> None:
    """Once in a file, no merge of its key could be written any more."""
    table = new_table(options, NO_NULL_A)
    with table.writer() as writer:
        writer.write(rows_of([("+I", 1, 10, 1, "x")]))
        with pytest.raises(tidelake.BadInput, match=f"db.t: row kind -D .*column 'a'.*{message}"):
            writer.write(rows_of([("-D", 1, 10, 1, "x")]))
        writer.commit()
        writer.write(rows_of([("-U", 1, 10, 1, "x"), ("+U", 1, 11, 1, "x")]))  # an old value with its new one
        writer.commit()
    table.compact(full=True)
    assert table.scan(columns=["a"]).to_arrow().to_pylist() == [{"a": 11}]


@pytest.mark.parametrize("options", [pytest.param(LAST_OF_A, id="aggregation"), pytest.param(GROUP, id="a group")])
def test_an_update_before_without_update_after_is_refused_at_the_commit(options: Mapping[str, str]) -> None:
    table = new_table(options, NO_NULL_A)
    with table.writer() as writer:
        writer.write(rows_of([("-U", 1, 10, 1, "x")]))
        with pytest.raises(tidelake.BadInput, match=r"db\.t: row kind -U would leave null in column 'a'"):
            writer.commit()
    assert table.snapshots() == []


@pytest.mark.parametrize(
    ("options", "left"),
    [
        pytest.param({"merge-engine": "deduplicate"}, None, id="no merging"),
        pytest.param(LAST_VALUES | {"ignore-delete": "true"}, 10, id="deletes dropped"),
        pytest.param(LAST_VALUES | {"aggregation.remove-record-on-delete": "true"}, None, id="an aggregate removed"),
        pytest.param(LAST_OF_A | {"fields.a.ignore-retract": "true"}, 10, id="retracts ignored"),
        pytest.param(SUM | {"fields.g.ignore-retract": "true"}, 0, id="a sum"),
        pytest.param(GROUP | {"ignore-delete": "true"}, 10, id="deletes of a group dropped"),
        pytest.param(REMOVE_ON_GROUP, None, id="a group that removes"),
        pytest.param(SUM_OF_GROUP, 0, id="a sum in a group"),
        pytest.param({"merge-engine": "partial-update", "fields.g.sequence-group": "b"}, 10, id="outside of the group"),
    ],
)
def test_not_null_columns_accept_deletes_that_leave_no_null(options: Mapping[str, str], left: int | None) -> None:
    table = new_table(options, NO_NULL_A)
    with table.writer() as writer:
        for kind in ("+I", "-D"):
            writer.write(rows_of([(kind, 1, 10, 1, "x")]))
            writer.commit()
    table.compact(full=True)
    assert table.scan(columns=["a"]).to_arrow().to_pylist() == ([] if left is None else [{"a": left}])


def test_a_delete_is_refused_if_a_non_removing_sequence_group_would_keep_the_row() -> None:
    table = new_table(TWO_GROUPS | {"partial-update.remove-record-on-sequence-group": "g"}, NO_NULL_A)
    with (
        table.writer() as writer,
        pytest.raises(tidelake.BadInput, match=r"column 'a'.*fields\.b\.sequence-group.*= 'b,g'"),
    ):
        writer.write(rows_of([("-D", 1, 10, 1, "x")]))


def test_a_null_left_by_merging_is_readable_and_can_be_overwritten() -> None:
    """Two deletes of a missing row, which the option makes the column ignore."""
    catalog = new_catalog(LAST_OF_A | {"fields.a.ignore-retract": "true"}, NO_NULL_A)
    table = catalog.table("db.t")
    with table.writer() as writer:
        for _ in range(2):
            writer.write(rows_of([("-D", 3, 10, None, None), ("+I", 4, 5, None, None)]))
            writer.commit()
    reported = [{"k": 3, "a": None}, {"k": 4, "a": 5}]
    assert table.scan(columns=["k", "a"]).to_arrow().to_pylist() == reported
    assert table.scan(columns=["k"], filter=tidelake.col("a").is_null()).to_arrow().to_pylist() == [{"k": 3}]
    with pytest.raises(tidelake.BadInput, match=r"db\.t: .*key k = 3 left null in column 'a' INT NOT NULL.*nullable"):
        table.compact(full=True)
    table = catalog.alter_table("db.t", [tidelake.UpdateColumnNullability("a", True)])
    table.compact(full=True)
    assert table.scan(columns=["k", "a"]).to_arrow().to_pylist() == reported
