"""`tidelake.spark.catalog`: the tables of a lake as temporary views of a session."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import tidelake
from tests.tidelake.spark.test_table_read import put
from tidelake.errors import BadInput
from tidelake.spark import catalog, lake_views

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelake.spark.lake_views import LakeViews

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), ("n", pa.int64())])


@pytest.fixture
def home(tmp_path: Path) -> str:
    return str(tmp_path / "lake")


@pytest.fixture
def lake(home: str) -> tidelake.Catalog:
    made = tidelake.open_catalog(home)
    for database in ("shop", "empty", "größen"):
        made.create_database(database)
    for name in ("shop.orders", "shop.order-lines", "größen.maße", "shop.without_rows"):
        made.create_table(name, SCHEMA, primary_key=["id"], options={"bucket": "1"})
    put(made.table("shop.orders"), range(3))
    put(made.table("shop.order-lines"), range(2))
    put(made.table("größen.maße"), range(1))
    return made


class SessionOfNames:
    """Of Spark's session what these tests need: the names that it knows."""

    def __init__(self, *known: str) -> None:
        self.known = {f"`{name}`" for name in known}
        self.catalog = self

    def tableExists(self, name: str) -> bool:  # noqa: N802 - Spark's name
        return name in self.known

    def dropTempView(self, name: str) -> None:  # noqa: N802 - Spark's name
        self.known.discard(f"`{name}`")

    def createOrReplaceTempView(self, name: str) -> None:  # noqa: N802 - Spark's name
        self.known.add(name)


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = SessionOfNames("their_table")
    monkeypatch.setattr(lake_views, "read", lambda *given, **named: made)
    monkeypatch.setattr(lake_views, "check_session", lambda session: None)
    return made


# ---------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("arguments", "views"),
    [
        pytest.param(
            {},
            {
                "größen_maße": "größen.maße",
                "shop_order-lines": "shop.order-lines",
                "shop_orders": "shop.orders",
                "shop_without_rows": "shop.without_rows",
            },
            id="all tables",
        ),
        pytest.param(
            {"tables": "shop.o*s", "prefix": "lake_"},
            {"lake_shop_order-lines": "shop.order-lines", "lake_shop_orders": "shop.orders"},
            id="a pattern, and a prefix",
        ),
        pytest.param(
            {"tables": ["shop.orders", "größen.*"], "names": {"größen.maße": "sizes"}, "system_tables": ["snapshots"]},
            {
                "shop_orders": "shop.orders",
                "shop_orders$snapshots": "shop.orders$snapshots",
                "sizes": "größen.maße",
                "sizes$snapshots": "größen.maße$snapshots",
            },
            id="patterns, a name, and system tables",
        ),
    ],
)
def test_a_view_is_named_after_database_and_table(
    session: Any, home: str, lake: tidelake.Catalog, arguments: dict[str, Any], views: dict[str, str]
) -> None:
    found = catalog(session, home, **arguments)
    assert found.views == views
    assert session.known == {f"`{name}`" for name in (*views, "their_table")}
    found.drop()
    assert session.known == {"`their_table`"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tables": "shop.ordres"}, "no table of .* matches 'shop.ordres'; did you mean 'shop.orders'"),
        ({"names": {"shop.ordres": "x"}}, "'shop.ordres' is no table of .*; did you mean 'shop.orders'"),
        ({"system_tables": ["snapshot"]}, "no system table 'snapshot'; did you mean 'snapshots'"),
        ({"names": {"shop.orders": "SHOP_order-lines"}}, "shop.order-lines and shop.orders would both be the view"),
        ({"names": {"shop.orders": "their_table"}}, "already has a table or view their_table, .* Set prefix="),
        ({"options": {"scan.snapshot-id": "1"}}, "has no option 'scan.snapshot-id'|scan.snapshot-id"),
    ],
)
def test_what_is_wrong_is_named_and_makes_no_view(
    session: Any, home: str, lake: tidelake.Catalog, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        catalog(session, home, **arguments)
    assert session.known == {"`their_table`"}


def test_a_repeated_call_replaces_the_views_of_the_call_before(session: Any, home: str, lake: tidelake.Catalog) -> None:
    catalog(session, home)
    assert catalog(session, home, tables="shop.orders").views == {"shop_orders": "shop.orders"}
    assert session.known == {"`shop_orders`", "`their_table`"}


def test_a_refresh_makes_only_the_views_of_changed_tables(session: Any, home: str, lake: tidelake.Catalog) -> None:
    views = catalog(session, home)
    assert views.refresh() == []
    put(lake.table("shop.orders"), range(5))
    assert views.refresh() == ["shop_orders"]
    lake.drop_table("shop.order-lines")
    lake.create_table("shop.new", SCHEMA)
    lake.alter_table("größen.maße", [tidelake.AddColumn("x", "INT")])
    assert views.refresh() == ["größen_maße", "shop_new", "shop_order-lines"]
    session.dropTempView("shop_new")
    assert views.refresh() == ["shop_new"]


def test_a_table_that_was_dropped_and_created_again_is_another_table(
    session: Any, home: str, lake: tidelake.Catalog
) -> None:
    views = catalog(session, home)
    lake.drop_table("shop.without_rows")
    lake.create_table("shop.without_rows", pa.schema([("other", pa.string())]))
    assert views.refresh() == ["shop_without_rows"]


def test_a_table_that_cannot_be_read_has_no_view_and_a_reason(
    session: Any, home: str, lake: tidelake.Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    views = catalog(session, home)
    schema = Path(home, "shop.db", "orders", "schema", "schema-0")
    text = schema.read_text()
    schema.write_text("{")
    assert views.refresh() == ["shop_orders"]
    assert "shop_orders" not in views.views
    assert "shop_orders" not in session.known
    assert list(views.failures) == ["shop.orders"]
    schema.write_text(text)
    assert views.refresh() == ["shop_orders"]
    assert views.failures == {}


# ---------------------------------------------------------------- Spark


@pytest.fixture
def views(spark: SparkSession, home: str, lake: tidelake.Catalog) -> Iterator[LakeViews]:
    made = catalog(spark, home, system_tables=["snapshots"])
    yield made
    made.drop()
    assert not [table.name for table in spark.catalog.listTables() if table.isTemporary and "shop" in table.name]


@pytest.mark.interop
def test_sql_joins_the_tables_by_name(spark: SparkSession, views: LakeViews) -> None:
    def rows(query: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in spark.sql(query).collect()]

    assert rows("SELECT o.id FROM shop_orders o JOIN `shop_order-lines` l ON o.id = l.id ORDER BY 1") == [(0,), (1,)]
    assert rows("SELECT count(*) FROM `größen_maße`") == [(1,)]
    assert rows("SELECT * FROM SHOP_WITHOUT_ROWS") == []
    assert rows("SELECT max(snapshot_id) FROM `shop_orders$snapshots`") == [(1,)]


@pytest.mark.interop
def test_a_view_shows_one_snapshot_until_it_is_refreshed(
    spark: SparkSession, home: str, lake: tidelake.Catalog, views: LakeViews
) -> None:
    def counts() -> list[int]:
        return [spark.table(name).count() for name in ("shop_orders", "shop_without_rows")]

    before = spark.sql("SELECT * FROM shop_orders")
    assert counts() == [3, 0]
    put(lake.table("shop.orders"), range(100, 104))
    lake.table("shop.orders").compact(full=True)
    put(lake.table("shop.without_rows"), range(2))
    assert counts() == [3, 0]
    views.refresh()
    assert counts() == [7, 2]
    assert spark.table("`shop_orders$snapshots`").count() == 3
    assert before.count() == 3


@pytest.mark.interop
def test_views_of_new_and_dropped_tables_come_and_go(
    spark: SparkSession, home: str, lake: tidelake.Catalog, views: LakeViews
) -> None:
    lake.create_database("new")
    lake.create_table("new.t", SCHEMA)
    put(lake.table("new.t"), range(4))
    lake.alter_table("shop.orders", [tidelake.AddColumn("added", "STRING")])
    shutil.rmtree(Path(home, "shop.db", "order-lines"))
    views.refresh()
    assert spark.sql("SELECT count(*) FROM new_t").collect()[0][0] == 4
    assert spark.table("shop_orders").columns == ["id", "n", "added"]
    assert not spark.catalog.tableExists("`shop_order-lines`")


@pytest.mark.interop
def test_a_table_of_the_session_is_not_hidden(spark: SparkSession, home: str, lake: tidelake.Catalog) -> None:
    spark.range(1).createOrReplaceTempView("shop_orders")
    try:
        with pytest.raises(BadInput, match="already has a table or view shop_orders"):
            catalog(spark, home)
        assert spark.table("shop_orders").count() == 1
        made = catalog(spark, home, prefix="lake_")
        assert spark.table("lake_shop_orders").count() == 3
        made.drop()
    finally:
        spark.catalog.dropTempView("shop_orders")
