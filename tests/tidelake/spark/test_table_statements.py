"""`CREATE TABLE` and `ALTER TABLE` in Spark's SQL. They need no session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tidelake
from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.spark import sql

SESSION: Any = object()


@pytest.fixture
def lake(tmp_path: Path) -> str:
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("s")
    sql(
        SESSION,
        "CREATE TABLE s.t (id BIGINT, v INT, place STRUCT<x: INT>) TBLPROPERTIES ('primary-key'='id')",
        str(tmp_path),
    )
    return str(tmp_path)


def fields(lake: str, name: str) -> list[str]:
    schema = tidelake.open_catalog(lake).table(name).context.schema
    return [f"{field.name} {field.type}" for field in schema.fields]


def test_a_table_is_created_with_key_partitions_properties_and_comments(lake: str) -> None:
    statement = (
        "CREATE TABLE IF NOT EXISTS s.o (id LONG NOT NULL COMMENT 'the key', day STRING, v DECIMAL(10,2)) "
        "USING tidelake PARTITIONED BY (day) COMMENT 'all orders' "
        "TBLPROPERTIES ('primary-key' = 'id, day', 'bucket' = '2')"
    )
    for _ in range(2):
        assert sql(SESSION, statement, lake) is None
    made = tidelake.open_catalog(lake).table("s.o")
    assert (list(made.primary_key), list(made.context.schema.partition_keys)) == (["id", "day"], ["day"])
    assert made.options["bucket"] == "2"
    assert made.context.schema.comment == "all orders"
    assert made.context.schema.fields[0].description == "the key"
    with pytest.raises(BadInput, match="exists"):
        sql(SESSION, statement.replace("IF NOT EXISTS ", ""), lake)


@pytest.mark.parametrize(
    ("of_spark", "of_paimon"),
    [
        *((word, word) for word in ("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "BOOLEAN", "DATE")),
        *(("LONG", "BIGINT"), ("BYTE", "TINYINT"), ("STRING", "STRING"), ("BINARY", "BYTES"), ("CHAR(3)", "CHAR(3)")),
        *(("VARCHAR(5)", "VARCHAR(5)"), ("DECIMAL", "DECIMAL(10, 0)"), ("DECIMAL(5,2)", "DECIMAL(5, 2)")),
        *(("TIMESTAMP", "TIMESTAMP(6) WITH LOCAL TIME ZONE"), ("TIMESTAMP_NTZ", "TIMESTAMP(6)")),
        *(("ARRAY<INT>", "ARRAY<INT>"), ("MAP<STRING, LONG>", "MAP<STRING, BIGINT>"), ("VARIANT", "VARIANT")),
        ("STRUCT<a: INT, b: ARRAY<STRING>>", "ROW<`a` INT, `b` ARRAY<STRING>>"),
    ],
)
def test_types_of_spark_become_types_of_paimon(lake: str, of_spark: str, of_paimon: str) -> None:
    sql(SESSION, f"CREATE TABLE s.typed (c {of_spark})", lake)
    assert fields(lake, "s.typed") == [f"c {of_paimon}"]


@pytest.mark.parametrize(
    ("statement", "columns"),
    [
        ("ADD COLUMN n INT FIRST", ["n INT", "id BIGINT NOT NULL", "v INT", "place ROW<`x` INT>"]),
        (
            "ADD COLUMNS (n INT COMMENT 'c' AFTER id, m STRING)",
            ["id BIGINT NOT NULL", "n INT", "v INT", "place ROW<`x` INT>", "m STRING"],
        ),
        ("ADD COLUMN place.y STRING", ["id BIGINT NOT NULL", "v INT", "place ROW<`x` INT, `y` STRING>"]),
        ("DROP COLUMN v", ["id BIGINT NOT NULL", "place ROW<`x` INT>"]),
        ("DROP COLUMNS (v, place)", ["id BIGINT NOT NULL"]),
        ("RENAME COLUMN v TO w", ["id BIGINT NOT NULL", "w INT", "place ROW<`x` INT>"]),
        ("ALTER COLUMN v TYPE BIGINT", ["id BIGINT NOT NULL", "v BIGINT", "place ROW<`x` INT>"]),
    ],
)
def test_columns_are_altered(lake: str, statement: str, columns: list[str]) -> None:
    sql(SESSION, f"ALTER TABLE s.t {statement}", lake)
    assert fields(lake, "s.t") == columns


def test_properties_comments_and_the_name_are_altered(lake: str) -> None:
    sql(SESSION, "ALTER TABLE s.t SET TBLPROPERTIES ('snapshot.num-retained.max' = '17')", lake)
    sql(SESSION, "ALTER TABLE s.t ALTER COLUMN v COMMENT 'a number'", lake)
    sql(SESSION, "ALTER TABLE s.t RENAME TO s.u", lake)
    catalog = tidelake.open_catalog(lake)
    assert list(catalog.list_tables("s")) == ["u"]
    assert catalog.table("s.u").options["snapshot.num-retained.max"] == "17"
    assert catalog.table("s.u").context.schema.by_name["v"].description == "a number"


@pytest.mark.parametrize(
    ("statement", "error", "message"),
    [
        ("CREATE TABLE t (id INT)", BadInput, "name the table with its database"),
        ("CREATE TABLE s.n", BadInput, "a table needs columns"),
        ("CREATE TABLE s.n AS SELECT 1 AS id", UnsupportedFeature, "then fill it with tidelake.spark.write"),
        ("CREATE OR REPLACE TABLE s.n (id INT)", UnsupportedFeature, "CREATE other than CREATE TABLE name"),
        ("CREATE TABLE s.n (id INT) USING parquet", UnsupportedFeature, "(?i)using parquet"),
        ("CREATE TABLE s.n (id INT) LOCATION '/x'", UnsupportedFeature, "LOCATION '/x'"),
        ("CREATE TABLE s.n (id INT) PARTITIONED BY (bucket(3, id))", UnsupportedFeature, "Partition by columns"),
        ("CREATE TABLE s.n (id INT DEFAULT 5)", UnsupportedFeature, "DEFAULT 5"),
        ("ALTER TABLE s.t DROP PARTITION (dt = 'x')", UnsupportedFeature, "DROP PARTITION|dt = 'x'"),
        ("ALTER TABLE s.t DROP COLUMN none", BadInput, "none"),
        ("ALTER TABLE s.t DROP COLUMN id", BadInput, "key"),
    ],
)
def test_other_statements_are_refused(lake: str, statement: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        sql(SESSION, statement, lake)
    assert list(tidelake.open_catalog(lake).list_tables("s")) == ["t"]
    assert fields(lake, "s.t") == ["id BIGINT NOT NULL", "v INT", "place ROW<`x` INT>"]
