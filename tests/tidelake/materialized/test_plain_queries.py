"""Which queries are plain, and the reasons for others."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tidelake.errors import BadInput
from tidelake.materialized.plain_query import (
    NotPlain,
    OutputColumn,
    PlainQuery,
    Role,
    columns_of,
    plain_query,
    tables_of,
)

ORDERS = pa.schema(
    [
        ("id", pa.int64()),
        ("day", pa.date32()),
        ("status", pa.string()),
        ("amount", pa.decimal128(10, 2)),
        ("weight", pa.float64()),
        ("at", pa.timestamp("us")),
        ("paid", pa.bool_()),
        ("tags", pa.list_(pa.string())),
    ]
)


def plain(query: str, dialect: str | None = None) -> PlainQuery:
    return plain_query(query, dialect, lambda name: ORDERS)


def test_every_column_of_a_plain_query_is_resolved() -> None:
    query = plain("SELECT status, SUM(amount) AS total, COUNT(*) n FROM shop.orders o WHERE o.paid GROUP BY status")
    assert query.table == "shop.orders"
    assert query.is_grouped
    assert query.outputs == (
        OutputColumn("status", Role.COLUMN, "status"),
        OutputColumn("total", Role.SUM, "amount"),
        OutputColumn("n", Role.COUNT, None),
    )
    assert query.columns() == ["amount", "paid", "status"]
    assert query.sql("duckdb", "source") == (
        'SELECT "status", SUM("amount") AS "total", COUNT(*) AS "n" FROM "source" AS "o" WHERE "o"."paid" '
        'GROUP BY "status"'
    )


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM orders",
        "SELECT id, amount * 2 + 1 AS more, -id AS less FROM orders",
        "SELECT id FROM orders WHERE status = 'open' AND NOT (amount > 1.5 OR id IN (1, 2)) AND tags IS NOT NULL",
        "SELECT id, weight FROM orders WHERE day BETWEEN '2026-01-01' AND DATE '2026-01-31'",
        "SELECT id, CASE WHEN paid THEN status ELSE 'open' END AS s, COALESCE(amount, 0) AS a FROM orders",
        "SELECT `id` FROM `orders` WHERE at < at",
        "SELECT day, MIN(at) AS first, MAX(status) AS last, COUNT(tags) AS tagged FROM orders GROUP BY day",
        "SELECT paid, SUM(id) AS s FROM orders GROUP BY paid",
    ],
)
def test_dialect_independent_queries_are_plain(query: str) -> None:
    assert plain(query).outputs


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT o.id FROM orders o JOIN days d ON o.day = d.day", "has a join"),
        ("SELECT id FROM (SELECT * FROM orders)", "must read exactly one table"),
        ("SELECT id FROM orders UNION ALL SELECT id FROM orders", "has UNION"),
        ("WITH o AS (SELECT * FROM orders) SELECT id FROM o", "has WITH"),
        ("SELECT DISTINCT id FROM orders", "has DISTINCT"),
        ("SELECT id FROM orders ORDER BY id", "has ORDER BY"),
        ("SELECT id FROM orders LIMIT 3", "has LIMIT"),
        ("SELECT day, COUNT(*) AS n FROM orders GROUP BY day HAVING COUNT(*) > 1", "has HAVING"),
        ("SELECT id / 2 AS half FROM orders", "may mean different things in different engines"),
        ("SELECT id, RAND() AS r FROM orders", "may mean different things in different engines"),
        ("SELECT id, CURRENT_DATE AS d FROM orders", "may mean different things in different engines"),
        ("SELECT CAST(amount AS INT) AS a FROM orders", "may mean different things in different engines"),
        ("SELECT id FROM orders WHERE status LIKE 'a%'", "may mean different things in different engines"),
        ("SELECT id FROM orders WHERE id = '1'", "compares id with '1'"),
        ("SELECT id FROM orders WHERE weight > 1", "compares weight with 1"),
        ("SELECT id FROM orders WHERE day > 'yesterday'", "compares day with 'yesterday'"),
        ("SELECT id FROM orders WHERE at > '2026-01-01'", "compares at with"),
        ("SELECT id FROM orders WHERE id IN (SELECT id FROM days)", "may mean different things in different engines"),
        ("SELECT id FROM orders WHERE amount > 1e3", "1e3, which is not an exact number"),
        ("SELECT COALESCE(id, status) AS x FROM orders", "mixes values of several types"),
        ("SELECT ID FROM orders", "names 'ID', which is not a column of its table"),
        ("SELECT id, id FROM orders", "names a column twice"),
        ("SELECT id + 1 FROM orders", "gives a column without a name"),
        ("SELECT *, id + 1 AS x FROM orders", "may mean different things"),
        ("SELECT day, AVG(amount) AS a FROM orders GROUP BY day", "not a plain sum, count, min or max"),
        ("SELECT day, COUNT(DISTINCT id) AS n FROM orders GROUP BY day", "whose argument is not a column"),
        ("SELECT day, SUM(weight) AS w FROM orders GROUP BY day", "sums up weight"),
        ("SELECT day, SUM(amount) FILTER (WHERE paid) AS a FROM orders GROUP BY day", "not a plain sum"),
        ("SELECT day, SUM(amount * 2) AS a FROM orders GROUP BY day", "whose argument is not a column"),
        ("SELECT day, MAX(weight) AS w FROM orders GROUP BY day", "compares values of weight"),
        ("SELECT SUM(id) AS s FROM orders GROUP BY day", "leaves out day, by which it groups"),
        ("SELECT id, COUNT(*) AS n FROM orders GROUP BY day", "gives id, by which it does not group"),
        ("SELECT weight, COUNT(*) AS n FROM orders GROUP BY weight", "groups by weight"),
        ("SELECT 1 AS x, COUNT(*) AS n FROM orders GROUP BY 1", "groups by expressions that are not columns"),
        (
            "SELECT day, COUNT(*) AS n FROM orders GROUP BY ROLLUP (day)",
            "groups in several ways|expressions that are not columns",
        ),
        ('SELECT "id" FROM orders', 'has " or'),
        ("SELECT id FROM orders WHERE status = 'a\\\\n'", 'has " or'),
        ("SELECT SUM(id) AS s FROM orders", "may mean different things in different engines"),
    ],
)
def test_dialect_dependent_queries_are_not_plain(query: str, reason: str) -> None:
    with pytest.raises(NotPlain, match=reason):
        plain(query)


def test_columns_that_differ_in_case_only_make_no_plain_query() -> None:
    with pytest.raises(NotPlain, match="differ in case only"):
        plain_query("SELECT id FROM orders", None, lambda _: pa.schema([("id", pa.int64()), ("ID", pa.int64())]))


@pytest.mark.parametrize("text", ["DROP TABLE orders", "SELECT 1; SELECT 2", "SELECT FROM WHERE", ""])
def test_text_that_is_no_query_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match=r"must be one query|can't be read as SQL"):
        plain(text, "duckdb")
    with pytest.raises(NotPlain, match="is not SQL that all dialects share"):
        plain(text)


def test_the_dialect_decides_the_meaning_of_quotes() -> None:
    assert plain('SELECT "id" FROM orders', "duckdb").outputs == (OutputColumn("id", Role.COLUMN, "id"),)


def test_comparisons_with_literals_are_pushed_to_the_scan() -> None:
    found = plain("SELECT id FROM orders WHERE day >= '2026-01-01' AND id < 5 AND (paid OR id > 2)").condition(ORDERS)
    assert found is not None
    assert found.columns == {"day", "id"}
    assert plain("SELECT id FROM orders WHERE paid OR id < 5").condition(ORDERS) is None
    assert plain("SELECT id FROM orders").condition(ORDERS) is None


def test_only_read_tables_are_sources_not_subqueries() -> None:
    query = 'WITH o AS (SELECT * FROM shop.orders) SELECT * FROM o JOIN days ON o.id IN (SELECT id FROM "Late".t)'
    assert tables_of(query, "duckdb") == ["Late.t", "days", "shop.orders"]


@pytest.mark.parametrize(
    ("query", "columns"),
    [
        ("SELECT a.ID, COUNT(*) AS n FROM orders a JOIN days USING (day) GROUP BY 1", {"id", "day"}),
        ("SELECT * FROM orders", None),
        ("SELECT o FROM orders o", None),
        ("SELECT 1 AS x FROM orders NATURAL JOIN days", None),
    ],
)
def test_unreferenced_columns_are_not_read(query: str, columns: set[str] | None) -> None:
    found = columns_of(query, "duckdb")
    assert found is None if columns is None else found is not None and columns <= found and "amount" not in found
