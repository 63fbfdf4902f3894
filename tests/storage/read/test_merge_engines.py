"""Tables of every merge engine, written and read: what is asked for never changes what a row is."""

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


def new_table(options: Mapping[str, str]) -> tidelake.Table:
    catalog = tidelake.open_catalog(f"memory://{uuid4().hex}/lake")
    catalog.create_database("db")
    table: tidelake.Table = catalog.create_table(
        "db.t", SCHEMA, primary_key=["k"], options={"bucket": "1", "write-only": "true", **options}
    )
    return table


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


def test_a_condition_on_a_value_is_asked_of_the_merged_row() -> None:
    table = table_of(
        {"merge-engine": "partial-update"},
        [("+I", 1, 10, None, "x"), ("+I", 2, 20, None, "x")],
        [("+I", 1, None, 1, "y"), ("+I", 2, 21, None, None)],
    )
    found = table.scan(filter=tidelake.col("b") == "x", columns=["k", "a"]).to_arrow()
    assert found.to_pylist() == [{"k": 2, "a": 21}]
    assert table.scan(filter=tidelake.col("a") == 10, columns=["b"]).to_arrow().to_pylist() == [{"b": "y"}]


@pytest.mark.parametrize("columns", [["b"], ["k"], ["a"], ["b", "a"], ["g"]])
def test_a_record_that_a_group_removed_is_gone_whatever_is_read(columns: list[str]) -> None:
    table = table_of(
        REMOVE_ON_GROUP, [("+I", 1, 10, 1, "x"), ("+I", 2, 20, 5, "y")], [("-D", 1, 0, 2, "z"), ("-D", 2, 0, 4, "z")]
    )
    left = {"k": 2, "a": 20, "g": 5, "b": "y"}
    assert table.scan(columns=columns).to_arrow().to_pylist() == [{name: left[name] for name in columns}]


def test_a_column_of_a_group_follows_its_sequence_though_that_is_not_read() -> None:
    table = table_of(GROUP, [("+I", 1, 10, 7, "x")], [("+I", 1, 11, 6, "y")])
    assert table.scan(columns=["a"]).to_arrow().to_pylist() == [{"a": 10}]
    assert table.scan(columns=["b"]).to_arrow().to_pylist() == [{"b": "y"}]


def test_first_rows_are_visible_once_they_were_compacted() -> None:
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


def test_changes_are_the_rows_as_they_were_written() -> None:
    table = table_of(
        {"merge-engine": "partial-update"}, [("+I", 1, 10, None, "x")], [("+I", 1, None, 1, None), ("+U", 2, 1, 1, "y")]
    )
    told = [row for batch in table.changes(start=2, end=2) for row in batch.rows.to_pylist()]
    assert [(row["k"], row["a"], row["g"], row["b"]) for row in told] == [(1, None, 1, None), (2, 1, 1, "y")]


SUM = {"merge-engine": "aggregation", "fields.a.aggregate-function": "sum", "fields.g.aggregate-function": "max"}


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        pytest.param(
            {"merge-engine": "first-row"}, "-D", "first-row can't take deletes.*'ignore-delete'", id="first row"
        ),
        pytest.param({"merge-engine": "partial-update"}, "-D", "'ignore-delete'.*sequence-group", id="partial update"),
        pytest.param({"merge-engine": "partial-update"}, "-U", "remove-record-on-delete", id="an old value"),
        pytest.param(SUM, "-D", "-D takes values back.*max of column 'g' can't.*ignore-retract", id="a maximum"),
        pytest.param(
            SUM | {"aggregation.remove-record-on-delete": "true"},
            "-U",
            "-U takes values back.*max",
            id="an old maximum",
        ),
    ],
)
def test_deletes_that_no_merge_could_take_are_refused_at_once(
    options: Mapping[str, str], kind: str, message: str
) -> None:
    """Java writes them, and cannot read the bucket afterwards."""
    table = new_table(options)
    with table.writer() as writer:
        writer.write(rows_of([("+I", 1, 10, 1, "x")]))
        with pytest.raises(tidelake.BadInput, match=f"db.t: .*{message}"):
            writer.write(rows_of([("+I", 2, 10, 1, "x"), (kind, 1, 10, 1, "x")]))
        writer.write(rows_of([("+I", 3, 10, 1, "x")]))  # the writer goes on, without the batch that was refused
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
def test_deletes_that_an_engine_takes_do_their_work(
    options: Mapping[str, str], kinds: list[str], left: tuple[Any, ...] | None
) -> None:
    table = table_of(options, [("+I", 1, 10, 1, "x")], [(kind, 1, 10, 1, "x") for kind in kinds])
    table.compact(full=True)
    found = [tuple(row.values()) for row in table.scan(columns=["a", "g", "b"]).to_arrow().to_pylist()]
    assert found == ([] if left is None else [left])
