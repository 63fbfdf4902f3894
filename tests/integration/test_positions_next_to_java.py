"""A pipeline's position next to Java: Java's expiry keeps it, its snapshots do not hide it, and its rollback is
detected.
"""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa

import tidelake
from tests.support.command_line import Call
from tests.support.java_oracle import JavaOracle

NAME = "shop.orders"


def change(offset: int) -> str:
    source = {"db": "shop", "schema": "public", "table": "orders", "connector": "postgresql"}
    value = json.dumps({"before": None, "after": {"id": offset}, "op": "c", "source": source})
    return json.dumps({"topic": "log", "partition": 0, "offset": offset, "key": None, "value": value}) + "\n"


def test_java_may_expire_snapshots_during_a_pipeline_and_roll_its_table_back(
    call: Call, java_oracle: JavaOracle, tmp_path: Path
) -> None:
    lake, changes, config = tmp_path / "lake", tmp_path / "changes", tmp_path / "shop.yaml"
    catalog = tidelake.open_catalog(str(lake))
    catalog.create_database("shop")
    table = catalog.create_table(NAME, pa.schema([("id", pa.int64())]), options={"ignore-delete": "true"})
    source = f"{{type: change-log-folder, path: {changes}, until: end}}"
    config.write_text(f"warehouse: {lake}\nsource: {source}\ntables: [{{name: {NAME}}}]\n")
    changes.mkdir()
    (changes / "0.jsonl").write_text("".join(map(change, range(5))))
    assert call("ingest", "run", config).code == 0
    own = table.snapshots()[-1]

    for id_ in range(100, 104):
        java_oracle.write(lake, NAME, [{"id": id_}])
    java_oracle.expire(lake, NAME, retain_max=1, retain_min=1)
    assert table.snapshots()[0].id == own.id  # otherwise its position would be unknown

    (changes / "1.jsonl").write_text("".join(map(change, range(5, 8))))
    assert call("ingest", "run", config).code == 0
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [*range(8), *range(100, 104)]

    java_oracle.rollback(lake, NAME, snapshot=own.id)
    result = call("ingest", "run", config, "--log-level", "error")
    assert result.code == 3
    assert "the table was rolled back" in result.err
    assert call("ingest", "run", config, "--from-snapshot", f"{NAME}={own.id}").code == 0
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == list(range(8))
