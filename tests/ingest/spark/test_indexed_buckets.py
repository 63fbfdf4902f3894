"""Spark writes into tables with dynamic buckets, and into tables whose keys move between partitions: each batch
once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest

from tests.ingest.spark.test_sink import Stream, rows_of
from tests.support.java_oracle import JavaOracle
from tidelake.errors import UnsupportedFeature
from tidelake.ingest.spark.sink import SparkSink
from tidelake.spark import delete, merge, sink, update, write
from tidelake.storage.commit.manifests.index_manifest import read_index_manifest
from tidelake.storage.maintenance.verify import verify

pytestmark = pytest.mark.interop

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA: Final = pa.schema([pa.field("id", pa.int64(), False), pa.field("day", pa.string(), False), ("v", pa.int64())])
INDEXED: Final = {"bucket": "-1", "dynamic-bucket.target-row-num": "20", "dynamic-bucket.initial-buckets": "2"}
KEYS: Final = {"keys keep their partition": ["day", "id"], "keys change it": ["id"]}


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stream:
    monkeypatch.setattr("tidelake.ingest.spark.shuffling.task_plan.TASK_COST_BYTES", 1)  # several tasks for little work
    return Stream(spark, tmp_path, "id long, day string, v long, at int", options={"order_by": ["at"]})


def batch(ids: Sequence[int], day: str, v: int) -> list[Mapping[str, Any]]:
    return [{"id": id_, "day": day, "v": v, "at": at} for at, id_ in enumerate(ids)]


def expected(key: Sequence[str], batches: Sequence[Sequence[Mapping[str, Any]]]) -> list[tuple[Any, ...]]:
    held = {tuple(row[name] for name in key): (row["id"], row["day"], row["v"]) for rows in batches for row in rows}
    return sorted(held.values())


@pytest.mark.interop
@pytest.mark.exhaustive
@pytest.mark.parametrize("key", KEYS.values(), ids=list(KEYS))
def test_spark_continues_after_a_writer_and_java_after_spark(
    key: list[str], stream: Stream, java_oracle: JavaOracle
) -> None:
    table = stream.create(SCHEMA, primary_key=key, partition_by=["day"], options=INDEXED)
    batches = [batch(range(100), "mon", 1), batch(range(50, 150), "tue", 2), batch(range(0, 200, 3), "mon", 3)]
    with table.writer(commit_user="before") as writer:
        writer.write(pa.Table.from_pylist(batches[0]).drop_columns(["at"]))
        writer.commit()
    for rows in batches[1:]:
        stream.put(rows)
    stream.run()
    java = batch(range(0, 250, 2), "tue", 4)
    java_oracle.write(
        stream.warehouse, "shop.t", [{name: row[name] for name in SCHEMA.names} for row in java], commit_user="java"
    )
    stream.put(after := batch(range(240, 260), "wed", 5))
    stream.run()
    assert rows_of(table) == expected(key, [*batches, java, after])
    assert verify(table.context, deep=True) == []
    of_java = java_oracle.read(stream.warehouse, "shop.t")
    assert sorted((row["id"], row["day"], row["v"]) for row in of_java) == rows_of(table)


@pytest.mark.exhaustive
@pytest.mark.parametrize("key", KEYS.values(), ids=list(KEYS))
def test_a_replayed_batch_changes_neither_rows_nor_index(key: list[str], stream: Stream) -> None:
    table = stream.create(SCHEMA, primary_key=key, partition_by=["day"], options=INDEXED)
    batches = [batch(range(30), "mon", 1), batch(range(10, 40), "tue", 2)]
    for rows in batches:
        stream.put(rows)
    stream.run()
    before = [snapshot.uuid for snapshot in table.snapshots()]
    stream.forget_commit(1)
    stream.run()
    assert [snapshot.uuid for snapshot in table.snapshots()] == before
    stream.put(again := batch(range(20, 60), "mon", 3))
    stream.run()
    assert rows_of(table) == expected(key, [*batches, again])
    assert verify(table.context, deep=True) == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("key", KEYS.values(), ids=list(KEYS))
def test_a_batch_whose_commit_lost_a_race_is_assigned_to_buckets_again(
    key: list[str], spark: SparkSession, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = stream.create(SCHEMA, primary_key=key, partition_by=["day"], options=INDEXED)
    keep_letters = SparkSink.keep_dead_letters  # comes after the rows were written
    others = [batch([5, 6], "mon", 1), batch([6, 8], "mon", 2)]
    made = list(others)

    def others_first(*arguments: Any) -> None:
        keep_letters(*arguments)
        if others:
            with table.writer() as writer:
                writer.write(pa.Table.from_pylist(others.pop(0)).drop_columns(["at"]))
                writer.commit()

    monkeypatch.setattr(SparkSink, "keep_dead_letters", others_first)
    rows = [*batch([5, 7], "mon", 9), *batch([8, 9], "tue", 9)]
    given = spark.createDataFrame([tuple(row.values()) for row in rows], stream.columns)
    sink("shop.t", stream.warehouse, commit_user="etl", order_by=["at"])(given, 0)
    assert rows_of(table) == expected(key, [*made, rows])
    assert [snapshot.commit_user for snapshot in table.snapshots()][2:] == ["etl"]
    assert verify(table.context, deep=True) == []
    there = {path.name for path in Path(stream.warehouse).rglob("index/index-*")}
    assert there == {
        entry.file.file_name
        for snapshot in table.snapshots()
        for entry in read_index_manifest(table.context, snapshot.index_manifest)
    }  # none of the attempts that lost


@pytest.mark.interop
@pytest.mark.exhaustive
@pytest.mark.parametrize("key", KEYS.values(), ids=list(KEYS))
def test_a_table_or_a_partition_is_overwritten(key: list[str], spark: SparkSession, stream: Stream) -> None:
    table = stream.create(SCHEMA, primary_key=key, partition_by=["day"], options=INDEXED)
    write(frame(spark, batch(range(50), "mon", 1) + batch(range(50, 60), "tue", 1)), "shop.t", stream.warehouse)
    replacing = frame(spark, batch(range(40, 70), "tue", 2) + batch(range(5), "mon", 2))
    write(replacing, "shop.t", stream.warehouse, overwrite="static")
    assert rows_of(table) == sorted([(n, "tue", 2) for n in range(40, 70)] + [(n, "mon", 2) for n in range(5)])
    assert verify(table.context, deep=True) == []
    of_partition = frame(spark, batch(range(65, 75), "tue", 3))
    if "day" in key:
        write(of_partition, "shop.t", stream.warehouse, overwrite="dynamic")
        assert rows_of(table) == sorted([(n, "tue", 3) for n in range(65, 75)] + [(n, "mon", 2) for n in range(5)])
        assert verify(table.context, deep=True) == []
    else:
        with pytest.raises(UnsupportedFeature, match="an overwrite of partitions of a table whose keys move"):
            write(of_partition, "shop.t", stream.warehouse, overwrite="dynamic")


@pytest.mark.interop
@pytest.mark.exhaustive
@pytest.mark.parametrize("key", KEYS.values(), ids=list(KEYS))
def test_rows_are_deleted_updated_and_merged(key: list[str], spark: SparkSession, stream: Stream) -> None:
    table = stream.create(SCHEMA, primary_key=key, partition_by=["day"], options=INDEXED)
    with table.writer() as writer:
        writer.write(pa.Table.from_pylist(batch(range(60), "mon", 1)).drop_columns(["at"]))
        writer.commit()
    delete(spark, "shop.t", stream.warehouse, "id < 10")
    moved = {"v": "v + 1"} if "day" in key else {"v": "v + 1", "day": "'tue'"}
    update(spark, "shop.t", stream.warehouse, moved, "id < 30")
    source = frame(spark, batch(range(20, 40), "tue", 7) + batch(range(100, 110), "mon", 7))
    merge(source, "shop.t", stream.warehouse, matched_update="*", not_matched_insert="*")
    held = {(n, "mon"): 1 for n in range(30, 60)} | {(n, "mon" if "day" in key else "tue"): 2 for n in range(10, 30)}
    for n in range(20, 40):
        if "day" not in key:
            held.pop((n, "mon"), None)
        held[n, "tue"] = 7
    held |= {(n, "mon"): 7 for n in range(100, 110)}
    assert rows_of(table) == sorted((n, day, v) for (n, day), v in held.items())
    assert verify(table.context, deep=True) == []


def frame(spark: SparkSession, rows: Sequence[Mapping[str, Any]]) -> DataFrame:
    return spark.createDataFrame([tuple(row.values())[:3] for row in rows], "id long, day string, v long")
