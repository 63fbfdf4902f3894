"""Commands and pipelines with tables of a catalog database."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

from tests.support.command_line import Call
from tests.support.rest_catalog import RestCatalogServer
from tests.tidelake.shop_log import write_shop_log


def test_a_pipeline_and_commands_work_on_a_catalog_in_a_database(call: Call, tmp_path: Path) -> None:
    write_shop_log(tmp_path / "changes")
    options = {"metastore": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/catalog.db", "lock.enabled": "true"}
    config = tmp_path / "shop.yaml"
    config.write_text(
        f"warehouse: {tmp_path}/lake\n"
        f"warehouse_options: {json.dumps(options)}\n"
        f"source: {{type: change-log-folder, path: {tmp_path}/changes, until: end}}\n"
        "tables: [{name: shop.customers}, {name: shop.orders}]\n"
    )
    assert call("ingest", "run", config, "--json").document["snapshots"] == {"shop.customers": 1, "shop.orders": 1}
    database = sqlite3.connect(tmp_path / "catalog.db")
    assert database.execute("SELECT table_name FROM paimon_tables ORDER BY 1").fetchall() == [
        ("customers",),
        ("orders",),
    ]
    assert database.execute("SELECT * FROM paimon_distributed_locks").fetchall() == []
    database.close()
    where = ["-w", str(tmp_path / "lake")]
    for key, value in options.items():
        where += ["--catalog-option", f"{key}={value}"]
    assert call("table", "list", *where, "--json").code == 0
    assert call("table", "verify", "shop.orders", *where).code == 0
    assert call("table", "compact", "shop.orders", "--full", *where).code == 0


def test_a_pipeline_commits_through_the_server_of_a_catalog(
    call: Call, tmp_path: Path, rest_catalog: RestCatalogServer
) -> None:
    write_shop_log(tmp_path / "changes")
    config = tmp_path / "shop.yaml"
    lines = (
        f"warehouse_options: {json.dumps(rest_catalog.options)}\n"
        f"source: {{type: change-log-folder, path: {tmp_path}/changes, until: end}}\n"
        "tables: [{name: shop.orders}]\n"
    )
    config.write_text(f"warehouse: lake\n{lines}")
    refused = call("ingest", "run", config)
    assert refused.code == 1
    assert "this is not a location" in refused.err
    config.write_text(f"warehouse: {tmp_path}/lake\n{lines}")
    assert call("ingest", "run", config, "--json").document["snapshots"] == {"shop.orders": 1}
    assert rest_catalog.catalog.load("shop.orders").snapshots.latest_id() == 1
    assert sum(reported["recordCount"] for reported in rest_catalog.statistics) > 0
