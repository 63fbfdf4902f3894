"""SQL over the tables of a lake: what a statement becomes, and what Spark makes of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import tidelake
from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.spark import sql, sql_statements

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string()), ("amount", pa.int32())])


@pytest.fixture
def lake(tmp_path: Path) -> str:
    catalog = tidelake.open_catalog(str(tmp_path / "lake"))
    catalog.create_database("shop")
    orders = catalog.create_table("shop.orders", SCHEMA, primary_key=["id"], options={"bucket": "1"})
    orders.append([{"id": n, "name": f"n{n}", "amount": n * 10} for n in range(4)])
    return str(tmp_path / "lake")


CHANGES: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("UPDATE shop.orders SET amount = 1", ({"amount": "1"}, "true"), {}),
    (
        "update shop.orders o set o.amount = o.amount * 2, name = 'x' where o.id > 3",
        ({"amount": "amount * 2", "name": "'x'"}, "id > 3"),
        {},
    ),
    ("DELETE FROM shop.orders", ("true",), {}),
    ("DELETE FROM shop.orders AS o WHERE `o`.`id` IN (1, 2)", ("`id` IN (1, 2)",), {}),
    (
        "MERGE INTO shop.orders t USING new s ON t.id = s.id WHEN MATCHED AND s.gone THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
        (),
        {
            "on": "target.id = source.id",
            "matched_delete": "source.gone",
            "matched_update": "*",
            "not_matched_insert": "*",
        },
    ),
    (
        "MERGE INTO shop.orders USING (SELECT 1 AS id) s ON orders.id = s.id "
        "WHEN MATCHED THEN UPDATE SET orders.name = concat(orders.name, s.id) "
        "WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.id, 'new')",
        (),
        {
            "on": "target.id = source.id",
            "matched_delete": None,
            "matched_update": {"name": "CONCAT(target.name, source.id)"},
            "not_matched_insert": {"id": "source.id", "name": "'new'"},
        },
    ),
]


@pytest.mark.parametrize(("statement", "arguments", "named"), CHANGES, ids=[text[:30] for text, *_ in CHANGES])
def test_a_change_becomes_a_call(
    monkeypatch: pytest.MonkeyPatch, statement: str, arguments: tuple[Any, ...], named: dict[str, Any]
) -> None:
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def called(*given: Any, **keywords: Any) -> int:
        calls.append((given, keywords))
        return 7

    for name in ("update", "delete", "merge"):
        monkeypatch.setattr(sql_statements, name, called)
    monkeypatch.setattr(sql_statements._Statements, "_query", lambda self, parsed: parsed.sql(dialect="spark"))
    session: Any = object()
    assert sql(session, statement, "/lake", options={"s3.region": "x"}) == 7
    ((given, keywords),) = calls
    assert keywords == {**named, "options": {"s3.region": "x"}}
    if statement.upper().startswith("MERGE"):
        assert given[0] in ("SELECT * FROM new AS s", "SELECT 1 AS id")
        assert given[1:] == ("shop.orders", "/lake")
    else:
        assert given == (session, "shop.orders", "/lake", *arguments)


@pytest.mark.parametrize(
    ("statement", "error", "message"),
    [
        ("UPDATE orders SET a = 1", BadInput, "name the table with its database"),
        ("UPDATE shop.orders SET a = (SELECT 1)", UnsupportedFeature, "a subquery in a condition or a value"),
        ("SELEC 1", (BadInput, UnsupportedFeature), "SELEC|can't be read"),
        ("SELECT 1; SELECT 2", BadInput, "runs one statement, not 2"),
        ("DROP TABLE shop.orders", UnsupportedFeature, "the statement DROP: tidelake.spark.sql runs CALL"),
        (
            "MERGE INTO a.b t USING c s ON true WHEN MATCHED AND s.x THEN UPDATE SET *",
            UnsupportedFeature,
            "MERGE with a condition on the clause that updates",
        ),
        (
            "MERGE INTO a.b t USING c s ON true WHEN MATCHED THEN UPDATE SET * WHEN MATCHED THEN DELETE",
            UnsupportedFeature,
            "Write the delete first",
        ),
        (
            "MERGE INTO a.b t USING c s ON true WHEN NOT MATCHED BY SOURCE THEN DELETE",
            UnsupportedFeature,
            "WHEN NOT MATCHED BY SOURCE",
        ),
        ("CALL compact(1)", BadInput, "name each argument"),
        ("CALL other.compact(table => 'a.b')", BadInput, "Write CALL sys.compact"),
        ("CALL sys.compakt(table => 'a.b')", BadInput, "did you mean 'compact'"),
        ("CALL sys.create_tag(tabel => 'a.b', tag => 't')", BadInput, "did you mean 'table'"),
        ("CALL sys.create_tag(table => 'a.b')", BadInput, "create_tag needs tag="),
        ("CALL sys.create_tag(table => a.b, tag => 't')", BadInput, "an argument is a literal"),
        ("CALL sys.expire_snapshots(table => 'a.b', retain_max => 'x')", BadInput, "retain_max is a whole number"),
    ],
)
def test_what_is_not_supported_is_refused_with_its_name(statement: str, error: Any, message: str) -> None:
    session: Any = object()
    with pytest.raises(error, match=message):
        sql(session, statement, "/lake")


def test_a_procedure_is_called_with_paimons_arguments(lake: str) -> None:
    session: Any = object()  # these need none
    sql(session, "CALL sys.create_tag(table => 'shop.orders', tag => 'first', snapshot => 1);", lake)
    table = tidelake.open_catalog(lake).table("shop.orders")
    assert list(table.tags()) == ["first"]
    sql(session, "call `sys`.delete_tag(`table` => 'shop.orders', tag => 'first')", lake)
    assert list(table.tags()) == []


@pytest.mark.interop
def test_queries_and_changes_name_tables_of_the_lake_and_of_spark(spark: SparkSession, lake: str) -> None:
    spark.createDataFrame([(1, "one"), (9, "nine")], "id long, name string").createOrReplaceTempView("given")
    joined = sql(spark, "SELECT o.id, g.name FROM shop.orders o JOIN given g ON o.id = g.id", lake)
    assert [tuple(row) for row in joined.collect()] == [(1, "one")]

    sql(spark, "UPDATE shop.orders SET amount = amount + 1 WHERE orders.id >= 2", lake)
    sql(spark, "DELETE FROM shop.orders WHERE id = 0", lake)
    sql(
        spark,
        "MERGE INTO shop.orders t USING (SELECT id, upper(name) AS name FROM given) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET t.name = s.name WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.id, s.name)",
        lake,
    )
    now = sql(spark, "SELECT * FROM shop.orders ORDER BY id", lake)
    assert [tuple(row) for row in now.collect()] == [(1, "ONE", 10), (2, "n2", 21), (3, "n3", 31), (9, "NINE", None)]
    old = sql(spark, "SELECT count(*) FROM shop.orders VERSION AS OF 1 WHERE amount < 15", lake)
    assert old.collect()[0][0] == 2
    snapshots = sql(spark, "SELECT max(snapshot_id) FROM shop.`orders$snapshots`", lake)
    assert snapshots.collect()[0][0] == 4
    assert not [table for table in spark.catalog.listTables() if table.name.startswith("tidelake_")]
