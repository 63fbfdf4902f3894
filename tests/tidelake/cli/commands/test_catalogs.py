"""Commands and pipelines whose tables are named in a database."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

from tests.support.command_line import Call
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
