"""Views in each catalog that stores them: names, queries, and invalid names."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import tidelake
from tests.support.command_line import Call
from tests.support.hive_metastore import HiveLake
from tests.support.rest_catalog import RestCatalogServer
from tidelake import aio
from tidelake.errors import UnsupportedFeature
from tidelake.storage.catalog.hive.type_names import hive_type, type_of_hive
from tidelake.storage.model.types import parse_type

SCHEMA = pa.schema([("id", pa.int64()), ("total", pa.decimal128(10, 2))])
QUERY = "SELECT id, total FROM shop.orders"

Lake = tuple[str, dict[str, str], str]


@pytest.fixture(params=["hive", "rest", "jdbc"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    """A warehouse, its options, a database in it."""
    found: Lake
    match request.param:
        case "hive":
            hive: HiveLake = request.getfixturevalue("hive_lake")
            found = hive.warehouse, dict(hive.options), hive.database
        case "rest":
            server: RestCatalogServer = request.getfixturevalue("rest_catalog")
            found = "lake", server.options, "shop"
        case _:
            found = f"{tmp_path}/lake", {"metastore": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/c.db"}, "shop"
    tidelake.open_catalog(found[0], **found[1]).create_database(found[2])
    return found


def keeps_dialects(where: Lake) -> bool:
    return where[1]["metastore"] != "hive"


@pytest.mark.needs("Hive metastore")
def test_a_view_is_created_altered_renamed_and_dropped(where: Lake) -> None:
    warehouse, options, database = where
    lake = tidelake.open_catalog(warehouse, **options)
    dialects = {"spark": "SELECT * FROM t"} if keeps_dialects(where) else {}
    made = lake.create_view(f"{database}.v", SCHEMA, QUERY, dialects=dialects, comment="sums", options={"k": "x"})
    assert made == lake.view(f"{database}.v")
    assert [str(column.type) for column in made.fields] == ["BIGINT", "DECIMAL(10, 2)"]
    assert (made.query, made.comment, made.options, made.dialects) == (QUERY, "sums", {"k": "x"}, dialects)
    assert made.query_of("flink") == QUERY
    lake.create_view(f"{database}.v", SCHEMA, "SELECT 1", if_not_exists=True)
    lake.rename_view(f"{database}.v", f"{database}.w")
    assert lake.list_views(database) == ["w"]
    assert lake.view(f"{database}.w") == made
    lake.drop_view(f"{database}.w")
    lake.drop_view(f"{database}.w", if_exists=True)
    assert lake.list_views(database) == []


@pytest.mark.needs("Hive metastore")
def test_tables_and_views_share_one_namespace(where: Lake) -> None:
    warehouse, options, database = where
    lake = tidelake.open_catalog(warehouse, **options)
    lake.create_table(f"{database}.t", SCHEMA)
    lake.create_view(f"{database}.v", SCHEMA, QUERY)
    assert (lake.list_tables(database), lake.list_views(database)) == (["t"], ["v"])
    attempts: list[Callable[[], object]] = [
        lambda: lake.create_view(f"{database}.t", SCHEMA, QUERY),
        lambda: lake.create_view(f"{database}.v", SCHEMA, QUERY),
        lambda: lake.create_table(f"{database}.v", SCHEMA),
        lambda: lake.rename_view(f"{database}.v", f"{database}.t"),
        lambda: lake.view(f"{database}.t"),
        lambda: lake.view(f"{database}.vv"),
        lambda: lake.drop_view(f"{database}.nope"),
        lambda: lake.list_views("nowhere"),
        lambda: lake.create_view(f"{database}.x", SCHEMA, " "),
        lambda: lake.create_view(f"{database}.x", [], QUERY),
        lambda: lake.create_view(f"{database}.x$files", SCHEMA, QUERY),
    ]
    for attempt in attempts:
        with pytest.raises(tidelake.BadInput):
            attempt()
    assert lake.list_views(database) == ["v"]


def test_commands_and_asyncio_do_the_same(tmp_path: Path, call: Call) -> None:
    options = {"metastore": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/c.db"}
    at = ["-w", f"{tmp_path}/lake", *(x for k, v in options.items() for x in ("--catalog-option", f"{k}={v}"))]
    assert call("database", "create", "shop", *at).code == 0
    columns = ["--column", "id:BIGINT", "--column", "total:DECIMAL(10,2)"]
    made = call("view", "create", "shop.v", "--query", QUERY, *columns, "--dialect", "spark=SELECT 1", *at)
    assert made.code == 0, made.err
    assert call("view", "rename", "shop.v", "shop.w", *at).code == 0
    assert call("view", "list", "shop", "--json", *at).document == ["shop.w"]
    shown = call("view", "show", "shop.w", *at).out
    assert "shop.w (id BIGINT, total DECIMAL(10, 2))" in shown
    assert "spark: SELECT 1" in shown

    async def through_asyncio() -> None:
        lake = await aio.open_catalog(f"{tmp_path}/lake", **options)
        view = await lake.view("shop.w")
        assert view == replace(await lake.create_view("shop.x", view.fields, QUERY), dialects={"spark": "SELECT 1"})
        await lake.rename_view("shop.x", "shop.y")
        assert await lake.list_views("shop") == ["w", "y"]
        await lake.drop_view("shop.y")

    asyncio.run(through_asyncio())
    assert call("view", "drop", "shop.w", "--json", *at).document == {"dropped": "shop.w"}


def test_a_file_system_catalog_has_no_views(tmp_path: Path) -> None:
    lake = tidelake.open_catalog(str(tmp_path))
    lake.create_database("shop")
    with pytest.raises(UnsupportedFeature, match="it can store only tables"):
        lake.create_view("shop.v", SCHEMA, QUERY)


def test_a_metastore_refuses_queries_that_it_cannot_store(hive_lake: HiveLake) -> None:
    lake = hive_lake.open()
    lake.create_database(hive_lake.database)
    with pytest.raises(UnsupportedFeature, match="stores only one query of a view"):
        lake.create_view(hive_lake.name("v"), SCHEMA, QUERY, dialects={"spark": "SELECT 1"})


@pytest.mark.parametrize(
    "spelled",
    [
        "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(38, 10)", "CHAR(3)",
        "VARCHAR(7)", "STRING", "BYTES", "DATE", "TIMESTAMP(6)", "TIMESTAMP(6) WITH LOCAL TIME ZONE",
        "ARRAY<MAP<STRING, DECIMAL(3, 1)>>",
    ],
)  # fmt: skip
def test_types_are_read_back_from_their_hive_names(spelled: str) -> None:
    assert type_of_hive(hive_type(parse_type(spelled))) == parse_type(spelled)


def test_a_row_type_is_read_back_from_its_hive_name() -> None:
    assert str(type_of_hive("struct<a:int,b:map<int,array<string>>>")) == "ROW<`a` INT, `b` MAP<INT, ARRAY<STRING>>>"
    with pytest.raises(UnsupportedFeature, match="column type interval_day_time of Hive"):
        type_of_hive("interval_day_time")
