"""Rows that Spark writes, changes and deletes, beside what the same does to a list of rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import tidelake
from storage.errors import BadInput
from storage.format import CommitKind, RowKind
from tests.support.java_oracle import JavaOracle
from tidelake.spark import delete, merge, update, write
from tidelake.spark.actions import row_changes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string()), ("amount", pa.int32())])
COLUMNS = "id long, name string, amount int"


@pytest.fixture
def lake(tmp_path: Path) -> str:
    tidelake.open_catalog(str(tmp_path / "lake")).create_database("shop")
    return str(tmp_path / "lake")


def create(lake: str, **options: str) -> tidelake.Table:
    catalog = tidelake.open_catalog(lake)
    table = catalog.create_table("shop.t", SCHEMA, primary_key=["id"], options={"bucket": "3", **options})
    with table.writer() as writer:
        ids = range(6)
        writer.write(pa.table({"id": ids, "name": [f"n{i}" for i in ids], "amount": [i * 10 for i in ids]}, SCHEMA))
        writer.commit()
    return table


def rows_of(table: tidelake.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.scan().to_arrow().to_pylist())


def test_rows_are_written_changed_and_deleted_in_one_snapshot_each(
    spark: SparkSession, lake: str, java_oracle: JavaOracle
) -> None:
    table = create(lake)
    assert write(spark.createDataFrame([(5, "five", 5), (9, "nine", None)], COLUMNS), "shop.t", lake) == 2
    assert delete(spark, "shop.t", lake, "amount < 15") == 3
    assert update(spark, "shop.t", lake, {"amount": "amount + id", "name": "upper(name)"}, "id in (2, 9)") == 4
    assert delete(spark, "shop.t", lake, "id > 100") is None
    expected = [(2, "N2", 22), (3, "n3", 30), (4, "n4", 40), (9, "NINE", None)]
    assert rows_of(table) == expected
    assert sorted((row["id"], row["name"], row["amount"]) for row in java_oracle.read(lake, "shop.t")) == expected
    assert not list((Path(lake) / "shop.db" / "t").glob("consumer/*"))  # nobody would ever remove them


PARTED = pa.schema([pa.field("id", pa.int64(), False), pa.field("day", pa.string(), False), ("v", pa.int32())])


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("overwrite", "left"),
    [
        pytest.param("dynamic", [(1, "a", 9), (2, "b", 0), (4, "c", 9)], id="the partitions that rows are written to"),
        pytest.param("static", [(1, "a", 9), (4, "c", 9)], id="of the whole table"),
    ],
)
@pytest.mark.parametrize("engine", ["deduplicate", "first-row"])
def test_rows_that_overwrite_replace_those(
    spark: SparkSession, lake: str, overwrite: Any, left: list[tuple[Any, ...]], engine: str
) -> None:
    catalog = tidelake.open_catalog(lake)
    table = catalog.create_table(
        "shop.p",
        PARTED,
        primary_key=["id", "day"],
        partition_by=["day"],
        options={"bucket": "2", "merge-engine": engine},
    )
    columns = "id long, day string, v int"
    old = spark.createDataFrame([(1, "a", 0), (3, "a", 0), (2, "b", 0)], columns)
    assert write(old, "shop.p", lake) is not None
    assert len(rows_of(table)) == 3
    assert write(spark.createDataFrame([(1, "a", 9), (4, "c", 9)], columns), "shop.p", lake, overwrite=overwrite)
    assert rows_of(table) == left
    assert table.snapshots()[-1].commit_kind in (CommitKind.OVERWRITE, CommitKind.COMPACT)
    outside = spark.createDataFrame([(1, "a", 8)], columns)
    with pytest.raises(BadInput, match="outside of the partition"):
        write(outside, "shop.p", lake, overwrite={"day": "b"})
    assert write(outside, "shop.p", lake, overwrite={"day": "a"}) is not None
    assert rows_of(table)[0] == (1, "a", 8)
    with pytest.raises(BadInput, match="replaces all rows"):
        write(outside, "shop.p", lake, overwrite="all")  # type: ignore[arg-type]


def test_a_table_without_partitions_is_overwritten_as_a_whole_or_not_at_all(spark: SparkSession, lake: str) -> None:
    table = create(lake)
    rows = spark.createDataFrame([(7, "seven", 7)], COLUMNS)
    with pytest.raises(BadInput, match="has no partitions"):
        write(rows, "shop.t", lake, overwrite="dynamic")
    assert write(rows, "shop.t", lake, overwrite="static") is not None
    assert rows_of(table) == [(7, "seven", 7)]


@pytest.mark.exhaustive
@pytest.mark.parametrize("producer", ["input", "none"])
def test_merge_updates_deletes_and_inserts(spark: SparkSession, lake: str, producer: str) -> None:
    table = create(lake, **{"changelog-producer": producer})
    source = spark.createDataFrame([(1, "one", 1), (2, None, -1), (7, "seven", 7), (3, "x", None)], COLUMNS)
    made = merge(
        source,
        "shop.t",
        lake,
        matched_update={"name": "source.name", "amount": "coalesce(target.amount + source.amount, 0)"},
        matched_delete="source.amount < 0",
        not_matched_insert="*",
    )
    assert rows_of(table) == [
        (0, "n0", 0),
        (1, "one", 11),
        (3, "x", 0),
        (4, "n4", 40),
        (5, "n5", 50),
        (7, "seven", 7),
    ]
    if producer == "input":
        assert made is not None
        changes = [row for part in table.changes(start=made) for row in part.rows.to_pylist()]
        reported = {(row["id"], RowKind(row["_VALUE_KIND"]).symbol, row["amount"]) for row in changes}
        assert reported == {
            (1, "-U", 10), (1, "+U", 11), (2, "-D", 20), (3, "-U", 30), (3, "+U", 0), (7, "+I", 7),
        }  # fmt: skip


@pytest.mark.exhaustive
@pytest.mark.parametrize("producer", ["input", "none"])
def test_a_row_that_two_source_rows_change_is_refused(spark: SparkSession, lake: str, producer: str) -> None:
    table = create(lake, **{"changelog-producer": producer})
    source = spark.createDataFrame([(1, "a", 1), (1, "b", 1)], COLUMNS)
    with pytest.raises(Exception, match=r"key \{'id': 1\}"):
        merge(source, "shop.t", lake, matched_update="*")
    assert len(table.snapshots()) == 1


@pytest.mark.interop
def test_a_change_that_another_writer_came_before_is_computed_again(
    spark: SparkSession, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or its row would be lost: 30 was read, and 31 would have become 130 instead of 131."""
    table = create(lake)
    publish, others = row_changes._Change.publish, [31]

    def other_first(*arguments: Any) -> int | None:
        if others:
            with table.writer() as writer:
                writer.write(pa.table({"id": [3], "name": ["other"], "amount": [others.pop()]}, SCHEMA))
                writer.commit()
        return publish(*arguments)

    monkeypatch.setattr(row_changes._Change, "publish", other_first)
    update(spark, "shop.t", lake, {"amount": "amount + 100"}, "id = 3")
    assert (3, "other", 131) in rows_of(table)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("options", "values", "said"),
    [
        pytest.param({}, {"nam": "1"}, "no column 'nam'; did you mean 'name'", id="a column that is none"),
        pytest.param({}, {"id": "1"}, "'id' is a column of the primary key", id="a column of the key"),
        pytest.param(
            {"merge-engine": "first-row"}, {"name": "1"}, "merge-engine is first-row", id="another merge engine"
        ),
    ],
)
def test_what_can_t_be_updated_is_refused(
    spark: SparkSession, lake: str, options: dict[str, str], values: dict[str, str], said: str
) -> None:
    create(lake, **options)
    with pytest.raises(tidelake.TidelakeError, match=said):
        update(spark, "shop.t", lake, values)
