"""Java continues a table whose partitions were rescaled."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

import tidelake
from tests.support.java_oracle import JavaOracle

NAME = "db.t"
COLUMNS: list[dict[str, object]] = [
    {"name": "id", "type": "BIGINT", "nullable": False},
    {"name": "v", "type": "STRING"},
]
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])


def test_java_reads_and_writes_a_rescaled_table(java_oracle: JavaOracle, tmp_path: Path) -> None:
    java_oracle.create(tmp_path, NAME, COLUMNS, primary_keys=["id"], options={"bucket": "2"})
    java_oracle.write(tmp_path, NAME, [{"id": key, "v": "java"} for key in range(20)])
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.rescale_table(NAME, 5)
    java_oracle.write(tmp_path, NAME, [{"id": key, "v": "again"} for key in range(10, 30)], full=True)
    expected = {key: "java" if key < 10 else "again" for key in range(30)}
    for read in (java_oracle.read(tmp_path, NAME), catalog.table(NAME).scan().to_arrow().to_pylist()):
        assert {row["id"]: row["v"] for row in read} == expected
    assert {row["bucket"] for row in java_oracle.system(tmp_path, NAME, "buckets")} == set(range(5))
