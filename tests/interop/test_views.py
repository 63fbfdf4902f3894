"""Java and Tidelake read each other's views."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa

import tidelake
from tests.support.hive_metastore import HiveLake
from tests.support.java_oracle import JavaOracle
from tests.support.rest_catalog import RestCatalogServer

SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("total", pa.decimal128(10, 2))])
COLUMNS = [{"name": "id", "type": "BIGINT"}, {"name": "total", "type": "DECIMAL(10, 2)"}]


def exchange(lake: tidelake.Catalog, java: JavaOracle, options: str, database: str, dialects: dict[str, str]) -> None:
    lake.create_database(database)
    lake.create_view(f"{database}.ours", SCHEMA, "SELECT 1", dialects=dialects, comment="ours", options={"k": "v"})
    (seen,) = java.command("view", options, f"{database}.ours")
    assert {k: seen[k] for k in ("query", "dialects", "comment")} == {
        "query": "SELECT 1",
        "dialects": dialects,
        "comment": "ours",
    }
    assert seen["options"]["k"] == "v"
    assert [(c["name"], c["type"]) for c in seen["fields"]] == [("id", "BIGINT"), ("total", "DECIMAL(10, 2)")]
    ddl = {"columns": COLUMNS, "query": "SELECT 2", "dialects": dialects, "comment": "java", "options": {"j": "w"}}
    java.command("createView", options, f"{database}.java", ddl=ddl)
    view = lake.view(f"{database}.java")
    assert (view.query, dict(view.dialects), view.comment, view.options["j"]) == ("SELECT 2", dialects, "java", "w")
    assert [(c.name, str(c.type)) for c in view.fields] == [("id", "BIGINT"), ("total", "DECIMAL(10, 2)")]
    assert lake.list_views(database) == ["java", "ours"]
    assert java.command("views", options, f"{database}.any") == [{"view": "java"}, {"view": "ours"}]


def test_views_in_a_jdbc_catalog_are_shared(tmp_path: Path, java_oracle: JavaOracle) -> None:
    options = {"metastore": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/c.db", "jdbc.journal_mode": "WAL"}
    lake = tidelake.open_catalog(f"{tmp_path}/lake", **options)
    java = json.dumps({**options, "warehouse": f"{tmp_path}/lake"})
    exchange(lake, java_oracle, java, "shop", {"spark": "SELECT 3"})


def test_views_in_a_rest_catalog_are_shared(rest_catalog: RestCatalogServer, java_oracle: JavaOracle) -> None:
    lake = tidelake.open_catalog("lake", **rest_catalog.options)
    java = json.dumps({**rest_catalog.options, "warehouse": "lake"})
    exchange(lake, java_oracle, java, "shop", {"spark": "SELECT 3"})


def test_views_in_a_hive_metastore_are_shared(hive_lake: HiveLake, java_with_hive: JavaOracle) -> None:
    exchange(hive_lake.open(), java_with_hive, hive_lake.of_java, hive_lake.database, {})
