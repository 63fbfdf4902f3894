"""`df.write.format("tidelake")`: Spark's calls of a writer, made here; then by Spark itself."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

import tidelake
from tidelake.errors import BadInput
from tidelake.spark import register
from tidelake.spark.batch_writer import AppendWriter
from tidelake.spark.table_data_source import TidelakeDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG = pa.schema([("day", pa.string()), ("id", pa.int64())])


@pytest.fixture
def lake(tmp_path: Path) -> tidelake.Catalog:
    catalog = tidelake.open_catalog(str(tmp_path / "lake"))
    catalog.create_database("shop")
    catalog.create_table("shop.log", LOG, partition_by=["day"])
    return catalog


def writer(home: Path, options: Mapping[str, str] | None = None, *, overwrite: bool = False) -> AppendWriter:
    """As a task has it: pickled."""
    source = TidelakeDataSource({"warehouse": str(home / "lake"), "table": "shop.log", **(options or {})})
    made: AppendWriter = pickle.loads(pickle.dumps(source.writer(StructType([]), overwrite=overwrite)))
    return made


def written(by: AppendWriter, *tasks: Sequence[tuple[str, int]]) -> list[WriterCommitMessage | None]:
    batches = [[pa.RecordBatch.from_pylist([{"day": d, "id": i} for d, i in rows], LOG)] for rows in tasks]
    return [pickle.loads(pickle.dumps(by.write(iter(batch)))) for batch in batches]


def rows_of(lake: tidelake.Catalog) -> list[tuple[Any, Any]]:
    return sorted((row["day"], row["id"]) for row in lake.table("shop.log").scan().to_arrow().to_pylist())


def files_of(home: Path) -> list[Path]:
    return list((home / "lake").rglob("data-*"))


def test_the_rows_of_all_tasks_are_one_snapshot(lake: tidelake.Catalog, tmp_path: Path) -> None:
    append = writer(tmp_path)
    append.commit(written(append, [("a", 1), ("b", 2)], [("a", 3)], []))
    assert rows_of(lake) == [("a", 1), ("a", 3), ("b", 2)]
    assert len(lake.table("shop.log").snapshots()) == 1


@pytest.mark.parametrize(
    ("mode", "left"),
    [("static", [("b", 9)]), ("dynamic", [("a", 1), ("b", 9)])],
)
def test_an_overwrite_replaces_all_rows_or_those_of_its_partitions(
    lake: tidelake.Catalog, tmp_path: Path, mode: str, left: list[tuple[str, int]]
) -> None:
    append = writer(tmp_path)
    append.commit(written(append, [("a", 1), ("b", 2)]))
    replacing = writer(tmp_path, {"partitionOverwriteMode": mode}, overwrite=True)
    replacing.commit(written(replacing, [("b", 9)]))
    assert rows_of(lake) == left


def test_files_of_a_failed_write_are_deleted(lake: tidelake.Catalog, tmp_path: Path) -> None:
    append = writer(tmp_path)
    messages = written(append, [("a", 1)])
    assert files_of(tmp_path)
    append.abort([*messages, None])
    assert files_of(tmp_path) == []


def test_an_abort_after_a_published_commit_deletes_nothing(lake: tidelake.Catalog, tmp_path: Path) -> None:
    append = writer(tmp_path)
    messages = written(append, [("a", 1)])
    append.commit(messages)
    append.abort(messages)
    assert rows_of(lake) == [("a", 1)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"snapshot": "1"}, "option snapshot is only for reads"),
        ({"push-filters": "once"}, "option push-filters is only for reads"),
        ({"min-partitions": "2"}, "option min-partitions is only for reads"),
        ({"read.stream.maxRowsPerTrigger": "2"}, r"option read\.stream\.… is only for reads"),
        ({"partitionOverwriteMode": "all"}, "static or dynamic"),
        ({"table": "shop.log$files"}, "can't be written|no system table"),
    ],
)
def test_options_unrelated_to_a_write_are_refused(
    lake: tidelake.Catalog, tmp_path: Path, options: dict[str, str], message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        writer(tmp_path, options)


@pytest.mark.interop
def test_spark_appends_and_overwrites(spark: SparkSession, lake: tidelake.Catalog, tmp_path: Path) -> None:
    register(spark)
    frame = spark.createDataFrame([("a", 1), ("a", 2), ("b", 3)], "day string, id long").repartition(2)
    into = {"warehouse": str(tmp_path / "lake"), "table": "shop.log"}
    frame.write.format("tidelake").options(**into).mode("append").save()
    frame.where("id = 3").write.format("tidelake").options(**into).mode("append").save()
    assert rows_of(lake) == [("a", 1), ("a", 2), ("b", 3), ("b", 3)]
    new = spark.createDataFrame([("b", 9)], "day string, id long")
    new.write.format("tidelake").options(**into, partitionOverwriteMode="dynamic").mode("overwrite").save()
    assert rows_of(lake) == [("a", 1), ("a", 2), ("b", 9)]
