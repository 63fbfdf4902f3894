"""Rows that wait for their bucket: Java moves ours, we move Java's."""

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


def test_each_gives_buckets_to_rows_that_the_other_wrote(java_oracle: JavaOracle, tmp_path: Path) -> None:
    options = {"bucket": "-2", "postpone.default-bucket-num": "2"}
    java_oracle.create(tmp_path, NAME, COLUMNS, primary_keys=["id"], options=options)
    table = tidelake.open_catalog(str(tmp_path)).table(NAME)
    expected: dict[int, str] = {}
    for turn in range(6):
        ours = {turn: f"ours {turn}", 100: f"ours {turn}"}
        java = {50 + turn: f"java {turn}"}  # between two writers there is no order
        with table.writer(commit_user="etl") as writer:
            writer.write(pa.table({"id": list(ours), "v": list(ours.values())}, SCHEMA))
            writer.commit(identifier=turn + 1)
        java_oracle.write(tmp_path, NAME, [{"id": key, "v": value} for key, value in java.items()])
        java_oracle.write(tmp_path, NAME, [{"_kind": "-D", "id": turn - 1, "v": ""}])
        expected = {**expected, **ours, **java}
        expected.pop(turn - 1, None)
        if turn % 2:
            java_oracle.step(tmp_path, NAME, {"op": "rescue", "buckets": 2})
        else:
            table.compact()
        for read in (java_oracle.read(tmp_path, NAME), table.scan().to_arrow().to_pylist()):
            assert {row["id"]: row["v"] for row in read} == expected
