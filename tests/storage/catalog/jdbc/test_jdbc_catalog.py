"""A catalog in a database: the content of its rows, and its files."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pytest

import tidelake
from tests.storage.catalog.jdbc.catalogs import SCHEMA, catalog, options, rows, write
from tidelake.storage.catalog.jdbc.jdbc_catalog import JdbcCatalog
from tidelake.storage.catalog.opening import open_catalog
from tidelake.storage.fileio.local import LocalFileIO

COLUMNS = {
    "paimon_tables": ["catalog_key", "database_name", "table_name"],
    "paimon_database_properties": ["catalog_key", "database_name", "property_key", "property_value"],
    "paimon_table_properties": ["catalog_key", "database_name", "table_name", "property_key", "property_value"],
    "paimon_views": ["catalog_key", "database_name", "view_name", "view_schema"],
    "paimon_distributed_locks": ["lock_id", "acquired_at", "expire_time_seconds"],
}


def test_the_catalog_database_has_the_same_tables_as_javas(tmp_path: Path) -> None:
    catalog(tmp_path, **{"lock.enabled": "true"})
    found = {name: [row[1] for row in rows(tmp_path, f"PRAGMA table_info({name})")] for name in COLUMNS}
    assert found == COLUMNS


def test_a_table_is_created_altered_renamed_and_dropped(tmp_path: Path) -> None:
    lake = catalog(tmp_path)
    table = lake.create_table("shop.orders", SCHEMA, primary_key=["id"], options={"bucket": "1"})
    write(table, 1)
    assert rows(tmp_path, "SELECT * FROM paimon_tables") == [("jdbc", "shop", "orders")]
    lake.create_database("archive")
    lake.rename_table("shop.orders", "archive.old")
    assert (lake.list_tables("shop"), lake.list_tables("archive")) == ([], ["old"])
    again = catalog(tmp_path)
    assert again.table("archive.old").scan().to_arrow().to_pylist() == [{"id": 1, "v": "v1"}]
    again.drop_table("archive.old")
    again.drop_database("archive")
    assert again.list_databases() == ["shop"]
    assert rows(tmp_path, "SELECT * FROM paimon_tables") == rows(tmp_path, "SELECT * FROM paimon_table_properties")
    assert list((tmp_path / "lake").rglob("*old*")) == []


def test_a_database_without_tables_exists_once_it_is_created(tmp_path: Path) -> None:
    lake = catalog(tmp_path)
    assert lake.list_databases() == ["shop"]
    assert lake.list_tables("shop") == []
    assert rows(tmp_path, "SELECT property_key, property_value FROM paimon_database_properties ORDER BY 1") == [
        ("exists", "true"),
        ("location", f"{tmp_path}/lake/shop.db"),
    ]
    with pytest.raises(tidelake.BadInput, match="already exists"):
        lake.create_database("shop")
    with pytest.raises(tidelake.BadInput, match=r"no database 'shopp'.*did you mean 'shop'"):
        lake.list_tables("shopp")


def test_a_database_that_holds_something_is_dropped_with_all_of_it_only_on_request(tmp_path: Path) -> None:
    lake = catalog(tmp_path)
    lake.create_table("shop.t", SCHEMA)
    with pytest.raises(tidelake.BadInput, match="not empty: it holds t"):
        lake.drop_database("shop")
    lake.drop_database("shop", cascade=True)
    assert lake.list_databases() == []
    assert not (tmp_path / "lake/shop.db").exists()


def test_options_and_keys_are_mirrored_unless_disabled(tmp_path: Path) -> None:
    select = "SELECT property_key, property_value FROM paimon_table_properties WHERE table_name = '{}' ORDER BY 1"
    lake = catalog(tmp_path)
    schema = pa.schema([*SCHEMA, pa.field("day", pa.string(), nullable=False)])
    lake.create_table("shop.t", schema, primary_key=["id", "day"], partition_by=["day"], options={"bucket": "2"})
    assert rows(tmp_path, select.format("t")) == [
        ("bucket", "2"),
        ("bucket-key", "id"),
        ("partition", "day"),
        ("primary-key", "id,day"),
    ]
    lake.alter_table("shop.t", [tidelake.SetOption("file.format", "orc")])
    assert ("file.format", "orc") in rows(tmp_path, select.format("t"))
    with pytest.raises(tidelake.BadInput, match=r"comment has 1001 characters.*allows only 1000"):
        lake.alter_table("shop.t", [tidelake.SetOption("comment", "x" * 1001)])
    assert catalog(tmp_path).table("shop.t").options.get("comment") is None
    catalog(tmp_path, **{"sync-all-properties": "false"}).create_table("shop.u", SCHEMA, options={"file.format": "orc"})
    assert rows(tmp_path, select.format("u")) == []


def test_two_catalogs_in_one_database_do_not_see_each_other(tmp_path: Path) -> None:
    catalog(tmp_path).create_table("shop.t", SCHEMA)
    other = tidelake.open_catalog(f"{tmp_path}/other", **options(tmp_path, **{"catalog-key": "second"}))
    assert other.list_databases() == []


def test_an_existing_name_is_refused(tmp_path: Path) -> None:
    lake = catalog(tmp_path)
    for name in ("t", "u"):
        lake.create_table(f"shop.{name}", SCHEMA)
    with pytest.raises(tidelake.BadInput, match="already exists"):
        lake.create_table("shop.t", SCHEMA)
    with pytest.raises(tidelake.BadInput, match="already exists"):
        lake.rename_table("shop.t", "shop.u")
    rows(tmp_path, "INSERT INTO paimon_views VALUES ('jdbc', 'shop', 'v', '{}')")
    with pytest.raises(tidelake.BadInput, match="name of a view"):
        lake.create_table("shop.v", SCHEMA)
    with pytest.raises(tidelake.BadInput, match="name of a view"):
        lake.rename_table("shop.t", "shop.v")
    assert lake.list_tables("shop") == ["t", "u"]


def test_a_table_without_a_catalog_row_does_not_exist_and_its_creation_can_be_completed(tmp_path: Path) -> None:
    files = tidelake.open_catalog(f"{tmp_path}/lake")
    files.create_database("shop")
    files.create_table("shop.t", SCHEMA, options={"bucket": "-1"})
    lake = catalog(tmp_path)
    assert lake.list_tables("shop") == []
    with pytest.raises(tidelake.BadInput, match="it has no row in paimon_tables"):
        lake.table("shop.t")
    with pytest.raises(tidelake.BadInput, match="it has no row in paimon_tables"):
        lake.alter_table("shop.t", [tidelake.DropColumn("v")])
    with pytest.raises(tidelake.BadInput, match="contains a table with another schema that is not in this catalog"):
        lake.create_table("shop.t", SCHEMA, options={"bucket": "-1", "file.format": "orc"})
    lake.create_table("shop.t", SCHEMA, options={"bucket": "-1"})
    assert lake.list_tables("shop") == ["t"]


def test_a_rename_refused_by_the_store_changes_no_name(tmp_path: Path) -> None:
    lake = catalog(tmp_path)
    lake.create_table("shop.t", SCHEMA)
    (tmp_path / "lake/shop.db/u/files").mkdir(parents=True)
    with pytest.raises(tidelake.BadInput, match="already exists"):
        lake.rename_table("shop.t", "shop.u")
    assert lake.table("shop.t").scan().to_arrow().num_rows == 0


def test_the_catalog_pickles_and_shows_no_secret(tmp_path: Path) -> None:
    inner = open_catalog(f"{tmp_path}/lake", options(tmp_path, **{"jdbc.password": "secret"}))
    assert isinstance(inner, JdbcCatalog)
    assert "secret" not in repr(inner)
    inner.create_database("shop")
    assert pickle.loads(pickle.dumps(inner)).list_databases() == ["shop"]
    inner.create_table("shop.t", SCHEMA)
    assert isinstance(inner.load("shop.t").io, LocalFileIO)


def test_an_unavailable_database_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConnectionError, match=rf"catalog database jdbc:sqlite:{tmp_path}/no/such.*unable to open"):
        open_catalog(f"{tmp_path}/lake", {"metastore": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/no/such.db"})


def test_a_repair_registers_the_tables_of_the_warehouse(tmp_path: Path) -> None:
    lake = catalog(tmp_path)
    write(lake.create_table("shop.orders", SCHEMA, primary_key=["id"], options={"bucket": "1"}), 1)
    before = rows(tmp_path, "SELECT * FROM paimon_table_properties ORDER BY 4")
    for table in ("paimon_tables", "paimon_table_properties", "paimon_database_properties"):
        rows(tmp_path, f"DELETE FROM {table}")
    assert lake.list_databases() == []
    assert lake.repair() == ["shop.orders"]
    assert rows(tmp_path, "SELECT * FROM paimon_table_properties ORDER BY 4") == before
    assert lake.table("shop.orders").scan().to_arrow().num_rows == 1
    rows(tmp_path, "DELETE FROM paimon_table_properties")
    assert lake.repair("shop.orders") == (["shop.orders"] if before else [])
    assert lake.repair("shop") == []
    with pytest.raises(tidelake.BadInput, match=r"shop\.nowhere"):
        lake.repair("shop.nowhere")
