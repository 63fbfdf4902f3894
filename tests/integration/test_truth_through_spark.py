"""After Spark has read the change stream of a source database, our tables equal the database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tidelake
from tests.support.cases import raw_lines
from tests.support.levels import is_of_the_day
from tests.support.recorded_truth import RECORDED_TABLES, RecordedTable, differences, format_options_for
from tidelake.ingest.formats.registry import open_format
from tidelake.spark import register, sink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MICRO_BATCHES = 3  # a batch costs Spark a second, whatever its rows


def recorded_tables_of_the_day() -> Iterator[Any]:
    """Every second one; the others on the next day. `test_captures_between_drivers` has each capture each day."""
    for number, recorded in enumerate(RECORDED_TABLES):
        marks = [] if is_of_the_day(number, 2) else [pytest.mark.long]
        yield pytest.param(recorded, id=recorded.id, marks=marks)


@pytest.mark.exhaustive
@pytest.mark.parametrize("recorded", list(recorded_tables_of_the_day()))
def test_a_capture_read_by_spark_gives_the_source_table(
    recorded: RecordedTable, spark: SparkSession, tmp_path: Path
) -> None:
    catalog = tidelake.open_catalog(str(tmp_path / "lake"))
    catalog.create_database("shop")
    name = f"shop.{recorded.name}"
    table = catalog.create_table(name, recorded.schema, primary_key=recorded.primary_key, options=two_buckets(recorded))
    log = tmp_path / "log"
    split_into_files(recorded, log, MICRO_BATCHES)
    register(spark)
    with format_options_for(recorded) as options:
        headers = ",".join(open_format(recorded.format, options).KEPT_HEADERS)
        source = spark.readStream.format("tidelake-changelog-folder").option("maxFilesPerTrigger", 1)
        records = source.option("headers", headers).load(str(log))
        writer = records.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = (
            writer.trigger(availableNow=True)
            .foreachBatch(
                sink(
                    name,
                    str(tmp_path / "lake"),
                    format=recorded.format,
                    match=recorded.topics,
                    source_types=recorded.source_types,
                    connector=options,
                    truncates="skip",
                )
            )
            .start()
        )
        query.awaitTermination()
    assert differences(recorded, table.scan().to_arrow(), are_truncates_skipped=True) == []


def two_buckets(recorded: RecordedTable) -> dict[str, str]:
    return {"bucket": "2"} if recorded.primary_key else {}


def split_into_files(recorded: RecordedTable, folder: Path, count: int) -> None:
    """The records in their order, so that Spark reads them in several micro-batches as they once came."""
    folder.mkdir()
    lines = [line for path in recorded.files for line in raw_lines(path)]
    size = -(-len(lines) // count)
    for number, start in enumerate(range(0, len(lines), size)):
        path = folder / f"{number}.jsonl"
        path.write_bytes(b"\n".join(lines[start : start + size]) + b"\n")
