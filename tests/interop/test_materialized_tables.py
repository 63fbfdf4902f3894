"""Materialized tables: definitions that Flink finds, refreshed by Spark, read by Java."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import tidelake
from tests.support.java_oracle import JavaOracle
from tidelake.spark.procedures import refresh_materialized_table
from tidelake.storage.model.options import TableOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS = pa.schema([("id", pa.int64()), ("day", pa.string()), ("amount", pa.int64())])
ORDERS_BY_ID = pa.schema([pa.field("id", pa.int64(), False), ("day", pa.string()), ("amount", pa.int64())])
TOTALS = pa.schema([("day", pa.string()), ("total", pa.int64())])
QUERY = "SELECT day, SUM(amount) AS total FROM orders GROUP BY day"
SOURCES = {"orders": "shop.orders"}


@pytest.fixture
def home(tmp_path: Path) -> str:
    return str(tmp_path / "lake")


@pytest.fixture
def lake(home: str) -> tidelake.Catalog:
    lake = tidelake.open_catalog(home)
    lake.create_database("shop")
    lake.create_table("shop.orders", ORDERS)
    definition = tidelake.MaterializedDefinition(QUERY, freshness=3, unit="day")
    lake.create_table("shop.totals", TOTALS, partition_by=["day"], options=definition.to_options())
    return lake


def order(lake: tidelake.Catalog, *rows: tuple[int, str, int], overwrite: bool = False) -> None:
    with lake.table("shop.orders").writer(overwrite=overwrite) as writer:
        writer.write(pa.Table.from_pylist([dict(zip(ORDERS.names, row, strict=True)) for row in rows], ORDERS))
        writer.commit()


def totals(lake: tidelake.Catalog) -> dict[str, int]:
    rows = lake.table("shop.totals").scan().to_arrow().to_pylist()
    assert len(rows) == len({row["day"] for row in rows})
    return {row["day"]: row["total"] for row in rows}


@pytest.mark.interop
def test_a_refresh_replaces_all_rows_in_one_snapshot(
    lake: tidelake.Catalog, home: str, spark: SparkSession, java_oracle: JavaOracle
) -> None:
    order(lake, (1, "monday", 5), (2, "monday", 7), (3, "tuesday", 1))
    assert refresh_materialized_table(spark, "shop.totals", home, sources=SOURCES) == 1
    assert totals(lake) == {"monday": 12, "tuesday": 1}
    lake.table("shop.orders").truncate()
    assert refresh_materialized_table(spark, "shop.totals", home, sources=SOURCES) == 2
    assert totals(lake) == {}
    order(lake, (4, "friday", 2), overwrite=True)
    assert refresh_materialized_table(spark, "shop.totals", home, sources=SOURCES) == 3
    assert totals(lake) == {"friday": 2}  # partitions that the query no longer returns are removed
    assert java_oracle.read(Path(home), "shop.totals") == [{"day": "friday", "total": 2}]
    options = {row["key"]: row["value"] for row in java_oracle.system(Path(home), "shop.totals", "options")}
    assert tidelake.MaterializedDefinition.of(options) == tidelake.MaterializedDefinition(QUERY, 3, "day")


@pytest.mark.interop
def test_a_refresh_that_is_not_due_keeps_the_rows(lake: tidelake.Catalog, home: str, spark: SparkSession) -> None:
    order(lake, (1, "monday", 5))
    assert refresh_materialized_table(spark, "shop.totals", home, sources=SOURCES, when_due=True) == 1
    order(lake, (2, "monday", 7))
    assert refresh_materialized_table(spark, "shop.totals", home, sources=SOURCES, when_due=True) is None
    assert totals(lake) == {"monday": 5}


def test_a_suspended_table_is_not_refreshed(lake: tidelake.Catalog, home: str, spark: SparkSession) -> None:
    lake.alter_table("shop.totals", [tidelake.SetOption("materialized-table.refresh-status", "suspended")])
    with pytest.raises(tidelake.BadInput, match="is suspended"):
        refresh_materialized_table(spark, "shop.totals", home, sources=SOURCES)
    lake.alter_table("shop.totals", [tidelake.SetOption("materialized-table.refresh-status", "activated")])
    order(lake, (1, "monday", 5))
    refresh_materialized_table(spark, "shop.totals", home, sources=SOURCES)
    assert totals(lake) == {"monday": 5}


def test_tables_that_cannot_be_refreshed_are_refused(lake: tidelake.Catalog, home: str, spark: SparkSession) -> None:
    with pytest.raises(tidelake.BadInput, match="is not a materialized table"):
        refresh_materialized_table(spark, "shop.orders", home)
    other = tidelake.MaterializedDefinition("SELECT day, amount FROM orders", 1)
    lake.create_table("shop.other", TOTALS, options=other.to_options())
    with pytest.raises(tidelake.BadInput, match="gives the columns day, amount; the table has day, total"):
        refresh_materialized_table(spark, "shop.other", home, sources=SOURCES)


@pytest.mark.interop
def test_an_incremental_refresh_runs_on_spark_too(
    lake: tidelake.Catalog, home: str, spark: SparkSession, java_oracle: JavaOracle
) -> None:
    lake.create_table("shop.keyed", ORDERS_BY_ID, primary_key=["id"], options={"changelog-producer": "lookup"})
    query = "SELECT day, SUM(amount) AS total, COUNT(*) AS `n`, COUNT(amount) AS c FROM orders GROUP BY day"
    columns = pa.schema([pa.field("day", pa.string(), False), *((name, pa.int64()) for name in ("total", "n", "c"))])
    definition = tidelake.MaterializedDefinition(query, 1)
    lake.create_table("shop.counted", columns, primary_key=["day"], options=definition.to_options())
    for changes in (
        [(1, "monday", 5, 0), (2, "monday", 7, 0), (3, "tuesday", 1, 0)],
        [(1, "friday", 6, 0), (3, "tuesday", 1, 3)],
        [(2, "monday", None, 0)],
    ):
        with lake.table("shop.keyed").writer() as writer:
            rows = [dict(zip([*ORDERS.names, "_VALUE_KIND"], row, strict=True)) for row in changes]
            writer.write(pa.Table.from_pylist(rows, ORDERS_BY_ID.append(pa.field("_VALUE_KIND", pa.int8()))))
            writer.commit()
        refresh_materialized_table(spark, "shop.counted", home, sources={"orders": "shop.keyed"})
    kinds = [snapshot.commit_kind.value for snapshot in lake.table("shop.counted").snapshots()]
    assert sorted(kinds) == ["APPEND", "APPEND", "OVERWRITE"]
    found = java_oracle.read(Path(home), "shop.counted")
    assert sorted(found, key=str) == [
        {"day": "friday", "total": 6, "n": 1, "c": 1},
        {"day": "monday", "total": None, "n": 1, "c": 0},
    ]
    assert refresh_materialized_table(spark, "shop.counted", home, sources={"orders": "shop.keyed"}) is None
    assert lake.refresh_table("shop.counted", sources={"orders": "shop.keyed"}).reason == "its source has not changed"


def test_both_engines_refresh_one_table_alternately(lake: tidelake.Catalog, home: str, spark: SparkSession) -> None:
    order(lake, (1, "monday", 5))
    for engine in ("spark", "duckdb", "spark", "duckdb"):
        order(lake, (2, "tuesday", 1))
        if engine == "spark":
            assert refresh_materialized_table(spark, "shop.totals", home, sources=SOURCES) is not None
        else:
            assert lake.refresh_table("shop.totals").kind == "full"  # it has no primary key
    assert totals(lake) == {"monday": 5, "tuesday": 4}


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("materialized-table.definition-query", None, "needs option materialized-table.definition-query"),
        ("materialized-table.interval-freshness", None, "needs option"),
        ("materialized-table.interval-freshness", "soon", "expected a number above 0"),
        ("materialized-table.interval-freshness.time-unit", None, "needs option"),
        ("materialized-table.logical-refresh-mode", None, "needs option"),
        ("materialized-table.refresh-mode", "sometimes", "expected one of|neither|no such|continuous"),
        ("materialized-table.refresh-mode", "continuous", "needs a Flink job"),
        ("materialized-table.refresh-status", None, "needs option"),
    ],
)
def test_a_definition_that_flink_could_not_open_is_refused(
    key: str, value: str | None, reason: str, lake: tidelake.Catalog
) -> None:
    options = {**tidelake.MaterializedDefinition(QUERY, 3).to_options(), key: value}
    given = {name: text for name, text in options.items() if text is not None}
    with pytest.raises(tidelake.TidelakeError, match=reason):
        lake.create_table("shop.t", TOTALS, options=given)


def test_a_definition_of_java_is_read_unchanged(lake: tidelake.Catalog, home: str, java_oracle: JavaOracle) -> None:
    definition = tidelake.MaterializedDefinition(QUERY, 2, "hour")
    columns = [{"name": "day", "type": "STRING"}, {"name": "total", "type": "BIGINT"}]
    java_oracle.create(Path(home), "shop.theirs", columns, options=definition.to_options())
    java_oracle.write(Path(home), "shop.theirs", [{"day": "monday", "total": 3}])
    table = lake.table("shop.theirs")
    assert tidelake.MaterializedDefinition.of(TableOptions(table.options)) == definition
    assert table.scan().to_arrow().to_pylist() == [{"day": "monday", "total": 3}]
