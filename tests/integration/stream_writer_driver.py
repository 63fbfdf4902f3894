"""A Spark driver with a query into `format("tidelake")`, which kills itself and its JVM (kill -9) at a step of a batch.

usage: python -m tests.integration.stream_writer_driver HOME STEP BATCH

STEP: `task` (a task has written its files), `files` (all tasks have, no snapshot is published), `publish` (the table is
committed, Spark's own log is not); `none` runs to the end. The rows pass an operator with state.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from tidelake.spark.stream_writer import BatchFiles, StreamWriter, running_batch
from tidelake.spark.table_data_source import TidelakeDataSource

FORMAT: Final = "tidelake-mortal"
_DEATH: Final = "DEATH"  # environment variable: process group of the driver, step, batch


def _die_at(step: str, batch_id: int) -> None:
    """Kill the driver and its JVM. Python workers are in a group of their own, and end when the JVM has."""
    group, of_step, of_batch = os.environ[_DEATH].split()
    if (step, str(batch_id)) == (of_step, of_batch):
        os.killpg(int(group), signal.SIGKILL)
        signal.pause()


class _MortalWriter(StreamWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> BatchFiles:
        written = super().write(iterator)
        _die_at("task", running_batch()[1])
        return written

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        _die_at("files", batchId)
        super().commit(messages, batchId)
        _die_at("publish", batchId)


class _MortalDataSource(TidelakeDataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802 - Spark's name
        made = super().streamWriter(schema, overwrite)
        made.__class__ = _MortalWriter
        return made


def main() -> None:
    home, step, batch = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings: dict[str, Any] = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        f"spark.executorEnv.{_DEATH}": f"{os.getpgid(0)} {step} {batch}",
    }
    spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    spark.dataSource.register(_MortalDataSource)
    rows = spark.readStream.schema("k string, n long").option("maxFilesPerTrigger", 1).json(str(home / "in"))
    stream = rows.dropDuplicates(["n"]).writeStream.format(FORMAT).trigger(availableNow=True)
    stream = stream.options(warehouse=str(home / "lake"), table="s.t", checkpointLocation=str(home / "checkpoint"))
    stream.start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
