"""`df.writeStream.format("tidelake")`: Spark's calls of a writer, made here; then queries of Spark itself."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

import tidelake
from tidelake.errors import BadInput, PositionRefused, UnsupportedFeature
from tidelake.spark import register, sink, stream_writer
from tidelake.spark.stream_writer import StreamWriter
from tidelake.spark.table_data_source import TidelakeDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG = pa.schema([("day", pa.string()), ("id", pa.int64())])
QUERY = "5d0b"

Messages = list[WriterCommitMessage | None]


@pytest.fixture
def lake(tmp_path: Path) -> tidelake.Catalog:
    catalog = tidelake.open_catalog(str(tmp_path / "lake"))
    catalog.create_database("shop")
    catalog.create_table("shop.log", LOG, partition_by=["day"])
    return catalog


@pytest.fixture
def _in_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_writer, "running_batch", lambda: (QUERY, 0))


def writer(home: Path, options: Mapping[str, str] | None = None, *, overwrite: bool = False) -> StreamWriter:
    """As a task and the committing process have it: made again, or pickled."""
    of_query = {"checkpointLocation": str(home / "checkpoint"), "queryName": "log"}
    source = TidelakeDataSource({"warehouse": str(home / "lake"), "table": "shop.log", **of_query, **(options or {})})
    made: StreamWriter = pickle.loads(pickle.dumps(source.streamWriter(StructType([]), overwrite=overwrite)))
    return made


def written(by: StreamWriter, *tasks: Sequence[tuple[str | None, int]]) -> Messages:
    batches = [[pa.RecordBatch.from_pylist([{"day": d, "id": i} for d, i in rows], LOG)] for rows in tasks]
    return [pickle.loads(pickle.dumps(by.write(iter(batch)))) for batch in batches]


def rows_of(lake: tidelake.Catalog, name: str = "shop.log") -> list[tuple[Any, ...]]:
    rows = lake.table(name).scan().to_arrow().to_pylist()
    return sorted((tuple(row.values()) for row in rows), key=repr)


def files_of(home: Path) -> set[Path]:
    return set((home / "lake").rglob("data-*"))


@pytest.mark.usefixtures("_in_tasks")
class TestAWriter:
    def test_the_rows_of_all_tasks_of_a_batch_are_one_snapshot_with_its_number(
        self, lake: tidelake.Catalog, tmp_path: Path
    ) -> None:
        batches: list[list[tuple[str | None, int]]] = [[("a", 1)], [(None, 2)], [("ü 🦭", 3)]]
        for batch_id, rows in enumerate(batches):
            stream = writer(tmp_path)
            writer(tmp_path).commit(written(stream, rows, [], [("b", 9)]), batch_id)
        assert rows_of(lake) == [("a", 1), ("b", 9), ("b", 9), ("b", 9), ("ü 🦭", 3), (None, 2)]
        assert [snapshot.commit_identifier for snapshot in lake.table("shop.log").snapshots()] == [0, 1, 2]

    def test_a_repeated_batch_changes_nothing_and_its_files_are_deleted(
        self, lake: tidelake.Catalog, tmp_path: Path
    ) -> None:
        stream = writer(tmp_path)
        stream.commit(written(stream, [("a", 1)]), 0)
        before = files_of(tmp_path)
        again = writer(tmp_path)
        messages = written(again, [("a", 1)])
        assert files_of(tmp_path) > before
        again.commit(messages, 0)
        assert (rows_of(lake), files_of(tmp_path)) == ([("a", 1)], before)

    def test_the_same_messages_twice_delete_no_file_of_the_table(self, lake: tidelake.Catalog, tmp_path: Path) -> None:
        stream = writer(tmp_path)
        messages = written(stream, [("a", 1)])
        for _ in range(2):
            stream.commit(messages, 0)
        assert rows_of(lake) == [("a", 1)]

    def test_a_batch_older_than_the_newest_is_refused(self, lake: tidelake.Catalog, tmp_path: Path) -> None:
        stream = writer(tmp_path)
        stream.commit(written(stream, [("a", 1)]), 4)
        with pytest.raises(PositionRefused, match=r"this is batch 3, but .* has already committed batch 4"):
            stream.commit(written(stream, [("a", 2)]), 3)
        assert rows_of(lake) == [("a", 1)]

    def test_another_checkpoint_directory_is_another_query(
        self, lake: tidelake.Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stream = writer(tmp_path)
        stream.commit(written(stream, [("a", 1)]), 0)
        monkeypatch.setattr(stream_writer, "running_batch", lambda: ("other", 0))
        stream.commit(written(stream, [("a", 2)]), 0)
        assert rows_of(lake) == [("a", 1), ("a", 2)]

    def test_batches_without_rows_make_no_snapshot(self, lake: tidelake.Catalog, tmp_path: Path) -> None:
        stream = writer(tmp_path)
        stream.commit(written(stream, [], []), 0)
        stream.commit([], 1)
        assert lake.table("shop.log").snapshots() == []

    def test_in_mode_complete_a_batch_replaces_all_rows_also_by_none(
        self, lake: tidelake.Catalog, tmp_path: Path
    ) -> None:
        for batch_id, rows in enumerate(([("a", 1), ("b", 2)], [("b", 3)])):
            stream = writer(tmp_path, overwrite=True)
            stream.commit(written(stream, rows), batch_id)
        assert rows_of(lake) == [("b", 3)]
        stream = writer(tmp_path, overwrite=True)
        stream.commit(written(stream, []), 2)
        stream.commit(written(stream, [("z", 0)]), 2)
        assert rows_of(lake) == []

    def test_files_are_deleted_if_a_task_failed_and_stay_if_the_commit_did(
        self, lake: tidelake.Catalog, tmp_path: Path
    ) -> None:
        stream = writer(tmp_path)
        whole = written(stream, [("a", 1)])
        stream.abort([*written(stream, [("b", 2)]), None], 0)
        kept = files_of(tmp_path)
        assert len(kept) == 1
        stream.abort(whole, 0)
        assert files_of(tmp_path) == kept

    def test_the_table_is_expired_and_the_newest_batch_stays(self, lake: tidelake.Catalog, tmp_path: Path) -> None:
        options = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "2", "snapshot.time-retained": "1 ms"}
        lake.create_table("shop.short", LOG, options=options)
        stream = writer(tmp_path, {"table": "shop.short"})
        for batch_id in range(6):
            stream.commit(written(stream, [("a", batch_id)]), batch_id)
        kept = [snapshot.commit_identifier for snapshot in lake.table("shop.short").snapshots()]
        assert 5 in kept
        assert len(kept) < 4
        assert len(rows_of(lake, "shop.short")) == 6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"snapshot": "1"}, "option snapshot is only for reads"),
        ({"partitionOverwriteMode": "dynamic"}, "partitionOverwriteMode is only for batch writes"),
        ({"table": "shop.log$files"}, "can't be written|no system table"),
    ],
)
def test_options_unrelated_to_a_stream_are_refused(
    lake: tidelake.Catalog, tmp_path: Path, options: dict[str, str], message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        writer(tmp_path, options)


def test_a_table_with_buckets_is_refused(lake: tidelake.Catalog, tmp_path: Path) -> None:
    lake.create_table("shop.keyed", LOG, primary_key=["id"])
    with pytest.raises(UnsupportedFeature, match=r"shop\.keyed.*tidelake\.spark\.sink"):
        writer(tmp_path, {"table": "shop.keyed"})


def test_a_task_outside_of_a_batch_is_refused(lake: tidelake.Catalog, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedFeature, match=r"trigger\(continuous=…\).*trigger\(processingTime=…\)"):
        writer(tmp_path).write(iter([]))


@pytest.mark.parametrize(
    "properties",
    [
        pytest.param({}, id="no query"),
        pytest.param({"sql.streaming.queryId": QUERY}, id="no batch"),
        pytest.param(
            {"sql.streaming.queryId": QUERY, "streaming.sql.batchId": "3", "__is_continuous_processing": "true"},
            id="the batch of a query that started this one",
        ),
    ],
)
def test_a_task_of_continuous_processing_is_known_by_its_properties(
    monkeypatch: pytest.MonkeyPatch, properties: dict[str, str]
) -> None:
    monkeypatch.setattr(TaskContext, "get", lambda: SimpleNamespace(getLocalProperty=properties.get))
    with pytest.raises(UnsupportedFeature, match=r"trigger\(continuous=…\)"):
        stream_writer.running_batch()


# ---------------------------------------------------------------- Spark itself


def put(home: Path, number: int, rows: Sequence[tuple[str, int]]) -> None:
    (home / "in").mkdir(exist_ok=True)
    path = home / "in" / f"{number}.json"
    path.write_text("".join(json.dumps({"day": day, "id": n}) + "\n" for day, n in rows), encoding="utf-8")
    os.utime(path, (number + 1, number + 1))  # Spark reads files in the order of their times


def forget_commit(home: Path, batch_id: int) -> None:
    """As if the driver had died after our commit and before Spark's own."""
    (home / "checkpoint" / "commits" / str(batch_id)).unlink()
    (home / "checkpoint" / "commits" / f".{batch_id}.crc").unlink(missing_ok=True)


def run(
    spark: SparkSession, home: Path, *, into: str = "shop.log", mode: str = "append", with_sink: bool = False
) -> None:
    rows = spark.readStream.schema("day string, id long").option("maxFilesPerTrigger", 1).json(str(home / "in"))
    if mode == "complete":
        rows = rows.groupBy("day").count().withColumnRenamed("count", "id")
    stream = rows.repartition(2).writeStream.outputMode(mode).trigger(availableNow=True)
    stream = stream.option("checkpointLocation", str(home / "checkpoint"))
    if with_sink:
        stream.foreachBatch(sink(into, str(home / "lake"))).start().awaitTermination()
        return
    options = {"warehouse": str(home / "lake"), "table": into}
    stream.format("tidelake").options(**options).queryName("log").start().awaitTermination()


@pytest.mark.interop
@pytest.mark.needs("Spark")
def test_a_query_writes_each_batch_once_also_after_a_restart_and_as_a_sink(
    spark: SparkSession, lake: tidelake.Catalog, tmp_path: Path
) -> None:
    register(spark)
    for number in range(3):
        put(tmp_path, number, [("ü", number), ("b", number + 10)])
    run(spark, tmp_path)
    forget_commit(tmp_path, 2)
    put(tmp_path, 3, [("c", 3)])
    run(spark, tmp_path)
    forget_commit(tmp_path, 3)
    put(tmp_path, 4, [("d", 4)])
    run(spark, tmp_path, with_sink=True)
    once = [*(("ü", n) for n in range(3)), *(("b", n + 10) for n in range(3)), ("c", 3), ("d", 4)]
    assert rows_of(lake) == sorted(once, key=repr)
    assert [snapshot.commit_identifier for snapshot in lake.table("shop.log").snapshots()] == [0, 1, 2, 3, 4]


@pytest.mark.interop
@pytest.mark.needs("Spark")
def test_mode_complete_replaces_the_rows_of_the_batch_before(
    spark: SparkSession, lake: tidelake.Catalog, tmp_path: Path
) -> None:
    register(spark)
    lake.create_table("shop.counts", LOG)
    for number in range(2):
        put(tmp_path, number, [("a", 1), ("b", 2)][: number + 1])
    run(spark, tmp_path, into="shop.counts", mode="complete")
    assert rows_of(lake, "shop.counts") == [("a", 2), ("b", 1)]
