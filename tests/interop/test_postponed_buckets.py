"""Rows in the postpone bucket: Java places ours into buckets, and we place Java's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import tidelake
from tests.support.java_oracle import JavaOracle
from tidelake.spark import sink, update, write
from tidelake.storage.commit.manifests.snapshot_files import live_entries
from tidelake.storage.maintenance.verify import verify
from tidelake.storage.model.format import POSTPONE_BUCKET

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME = "db.t"
COLUMNS: list[dict[str, object]] = [
    {"name": "id", "type": "BIGINT", "nullable": False},
    {"name": "v", "type": "STRING"},
]
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])


def test_each_moves_postponed_rows_of_the_other_into_buckets(java_oracle: JavaOracle, tmp_path: Path) -> None:
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


@pytest.mark.interop
def test_spark_batch_writes_get_buckets_at_once_and_streams_are_postponed(
    java_oracle: JavaOracle, spark: SparkSession, tmp_path: Path
) -> None:
    columns: list[dict[str, object]] = [*COLUMNS, {"name": "day", "type": "STRING", "nullable": False}]
    options = {"bucket": "-2", "postpone.target-row-num-per-bucket": "100"}
    java_oracle.create(tmp_path, NAME, columns, primary_keys=["id", "day"], partition_keys=["day"], options=options)
    table = tidelake.open_catalog(str(tmp_path)).table(NAME)

    def rows(v: str, day: str, ids: range) -> DataFrame:
        return spark.createDataFrame(pa.table({"id": [*ids], "v": [v] * len(ids), "day": [day] * len(ids)}))

    def found() -> dict[tuple[int, str], str]:
        ours = {(row["id"], row["day"]): row["v"] for row in table.scan().to_arrow().to_pylist()}
        assert {(row["id"], row["day"]): row["v"] for row in java_oracle.read(tmp_path, NAME)} == ours
        return ours

    def buckets() -> dict[int, int]:
        """By bucket, in all partitions."""
        latest = table.context.snapshots.latest()
        assert latest is not None
        counts: dict[int, int] = {}
        for entry in live_entries(table.context, latest):
            counts[entry.bucket] = max(counts.get(entry.bucket, 0), entry.total_buckets)
        return counts

    write(rows("old", "a", range(350)).union(rows("old", "b", range(30))), NAME, str(tmp_path))
    assert buckets() == {0: 4, 1: 4, 2: 4, 3: 4}
    write(rows("new", "a", range(100, 500)), NAME, str(tmp_path))  # their number stays
    expected = {(number, "a"): "old" if number < 100 else "new" for number in range(500)}
    assert found() == {**expected, **{(number, "b"): "old" for number in range(30)}}
    update(spark, NAME, str(tmp_path), {"v": "'changed'"}, "id = 7")
    write(rows("again", "b", range(3)), NAME, str(tmp_path), overwrite="dynamic")
    expected[7, "a"] = "changed"
    expected |= {(number, "b"): "again" for number in range(3)}
    assert found() == expected
    assert POSTPONE_BUCKET not in buckets()
    assert not list(Path(table.location).rglob("bucket-postpone/data-*"))  # where they were staged

    sink(NAME, str(tmp_path), commit_user="stream")(rows("streamed", "b", range(2)), 1)
    assert POSTPONE_BUCKET in buckets()
    assert found() == expected
    table.compact()
    assert found() == {**expected, (0, "b"): "streamed", (1, "b"): "streamed"}
    assert verify(table.context, deep=True) == []


def test_without_the_option_spark_batch_writes_are_postponed_too(spark: SparkSession, tmp_path: Path) -> None:
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("db")
    options = {"bucket": "-2", "postpone.batch-write-fixed-bucket": "false"}
    table = catalog.create_table(NAME, SCHEMA, primary_key=["id"], options=options)
    write(spark.createDataFrame(pa.table({"id": [1], "v": ["x"]})), NAME, str(tmp_path))
    assert table.scan().to_arrow().num_rows == 0
    table.compact()
    assert table.scan().to_arrow().num_rows == 1
