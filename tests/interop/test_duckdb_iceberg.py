"""DuckDB's extension for Iceberg reads our tables. It finds the newest metadata by the hint, in the table's folder."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidelake
from tests.support.conformance import record
from tests.support.tools import TOOLS, build_tool

TOOL = TOOLS / "duckdb-iceberg"
COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string()), ("region", pa.string())])
VECTORS = {
    "metadata.iceberg.format-version": "3",
    "deletion-vectors.bitmap64": "true",
    "deletion-vectors.enabled": "true",
}

# options, arguments of create_table
TABLES = [
    pytest.param({}, {}, id="append table"),
    pytest.param({}, {"partition_by": ["region"]}, id="partitions"),
    pytest.param({}, {"primary_key": ["id"]}, id="primary key"),
    pytest.param(VECTORS, {}, id="deletion vectors of an append table"),
    pytest.param(VECTORS, {"primary_key": ["id"]}, id="deletion vectors of a primary-key table"),
]


@pytest.mark.parametrize(("options", "arguments"), TABLES)
def test_duckdb_reads_the_rows_that_the_table_holds(
    options: Mapping[str, str], arguments: Mapping[str, Any], tmp_path: Path
) -> None:
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("db")
    table = catalog.create_table(
        "db.t", COLUMNS, options={"metadata.iceberg.storage": "table-location", **options}, **arguments
    )
    with table.writer(commit_user="u") as writer:
        for start in (0, 5):
            ids = list(range(start, start + 10))
            regions = ["eu" if i % 2 else None for i in ids]
            writer.write(pa.table({"id": ids, "name": [f"{start}-{i}" for i in ids], "region": regions}, COLUMNS))
            writer.commit(identifier=start + 1)
    if options or "primary_key" in arguments:  # other tables can't delete by a condition
        table.delete("id in (3, 12)")
    if not options:
        table.compact(full=True)
    rows = table.scan().to_arrow()
    everything, of_a_region = _ask(
        tmp_path / "db.db" / "t",
        "from t order by id, name",
        "select id from t where region = 'eu' and id > 5 order by id",
    )
    assert everything == sorted([row["id"], row["name"], row["region"]] for row in rows.to_pylist())
    assert [i for (i,) in of_a_region] == sorted(
        row["id"] for row in rows.to_pylist() if row["region"] == "eu" and row["id"] > 5
    )


def _ask(table: Path, *queries: str) -> list[list[list[Any]]]:
    record("DuckDB", table.parent.parent, f"{table.parent.name.removesuffix('.db')}.{table.name}")
    python = build_tool(TOOL / "build")
    run = subprocess.run([python, TOOL / "query.py", table, *queries], capture_output=True, text=True, check=True)
    return [json.loads(line) for line in run.stdout.splitlines()]
