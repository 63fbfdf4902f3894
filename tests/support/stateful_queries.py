"""Spark queries with every kind of operator state, in one driver that kills itself at a given step.

    python -m tests.support.stateful_queries FOLDER STEP

FOLDER/in holds JSON files of events, FOLDER/lake the tables of `TABLES`. Without a step (`-`) the queries run to the
end of the source. Otherwise each of them stops in batch `BATCH_OF_STEP[STEP]`. When all have arrived there, the
process and its JVM are killed.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STEPS: Final = ("plan", "write", "commit")
"""The rows are computed and nothing is written; files are written; the table is committed, and Spark's log is not."""
BATCH_OF_STEP: Final = {"plan": 1, "write": 2, "commit": 3}
EVENTS: Final = "t timestamp, id long, k string, amount long"
_ARRIVAL_SECONDS: Final = 240

TABLES: Final[dict[str, tuple[pa.Schema, list[str]]]] = {
    "windows": (
        pa.schema([("start", pa.timestamp("us", "UTC")), ("k", pa.string()), ("n", pa.int64())]),
        ["start", "k"],
    ),
    "sessions": (
        pa.schema([("start", pa.timestamp("us", "UTC")), ("k", pa.string()), ("n", pa.int64())]),
        [],
    ),
    "duplicates": (pa.schema([("id", pa.int64()), ("amount", pa.int64())]), []),
    "joined": (pa.schema([("id", pa.int64()), ("one", pa.int64()), ("two", pa.int64())]), []),
    "totals": (pa.schema([("k", pa.string()), ("total", pa.int64())]), ["k"]),
}
"""By query: the columns, and the primary key. Tables without a key show rows that come twice."""


def _windows(events: DataFrame) -> DataFrame:
    counts = events.withWatermark("t", "30 days").groupBy(_window(), "k").agg(_count())
    return counts.selectExpr("window.start start", "k", "n")


def _sessions(events: DataFrame) -> DataFrame:
    from pyspark.sql.functions import session_window  # noqa: PLC0415 - only this process needs Spark

    sessions = events.withWatermark("t", "1 second").groupBy(session_window("t", "5 minutes"), "k").agg(_count())
    return sessions.selectExpr("session_window.start start", "k", "n")


def _duplicates(events: DataFrame) -> DataFrame:
    return events.dropDuplicates(["id"]).select("id", "amount")


def _joined(events: DataFrame) -> DataFrame:
    one, two = events.filter("k = 'a'").alias("one"), events.filter("k = 'b'").alias("two")
    return one.join(two, "id").selectExpr("id", "one.amount one", "two.amount two")


def _totals(events: DataFrame) -> DataFrame:
    return events.groupBy("k").applyInPandasWithState(_add, "k string, total long", "total long", "update", "NoTimeout")


def _add(key: tuple[str], parts: Iterator[Any], state: Any) -> Iterator[Any]:
    import pandas as pd  # noqa: PLC0415 - as above

    total = (state.get[0] if state.exists else 0) + sum(int(part["amount"].sum()) for part in parts)
    state.update((total,))
    yield pd.DataFrame({"k": [key[0]], "total": [total]})


def _window() -> Any:
    from pyspark.sql.functions import window  # noqa: PLC0415 - as above

    return window("t", "10 minutes")


def _count() -> Any:
    from pyspark.sql.functions import count  # noqa: PLC0415 - as above

    return count("*").alias("n")


QUERIES: Final[dict[str, tuple[Callable[[DataFrame], DataFrame], str]]] = {
    "windows": (_windows, "update"),
    "sessions": (_sessions, "append"),
    "duplicates": (_duplicates, "append"),
    "joined": (_joined, "append"),
    "totals": (_totals, "update"),
}
"""By name: the query, and its output mode."""


def main(home: Path, step: str) -> None:
    from tidelake.ingest.spark import batch_write, sink  # noqa: PLC0415 - as above

    spark = _session()
    all_here = threading.Barrier(len(QUERIES), action=lambda: os.killpg(os.getpgrp(), signal.SIGKILL))

    def stop_at(name: str, batch_id: int) -> None:
        if step == name and batch_id == BATCH_OF_STEP[name]:
            all_here.wait(_ARRIVAL_SECONDS)

    write, commit = batch_write.BatchChunks.write, sink.TableBatch.commit

    def writing(chunks: Any, numbers: Any, batch_id: int) -> Any:
        stop_at("plan", batch_id)
        return write(chunks, numbers, batch_id)

    def committing(table: Any, *arguments: Any, **named: Any) -> Any:
        stop_at("write", table._batch_id)
        return commit(table, *arguments, **named)

    def applied(name: str) -> Callable[[DataFrame, int], None]:
        into = sink.sink(f"d.{name}", str(home / "lake"))

        def apply(batch: DataFrame, batch_id: int) -> None:
            into(batch, batch_id)
            stop_at("commit", batch_id)

        return apply

    with patch.object(batch_write.BatchChunks, "write", writing), patch.object(sink.TableBatch, "commit", committing):
        running = []
        for name, (query, mode) in QUERIES.items():
            events = spark.readStream.schema(EVENTS).option("maxFilesPerTrigger", 1).json(str(home / "in"))
            writer = query(events).writeStream.foreachBatch(applied(name)).outputMode(mode)
            writer = writer.option("checkpointLocation", str(home / f"checkpoint-{name}"))
            running.append(writer.trigger(availableNow=True).start())
        for one in running:
            one.awaitTermination()
    spark.stop()


def _session() -> SparkSession:
    from pyspark.sql import SparkSession  # noqa: PLC0415 - as above

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    builder = builder.config("spark.sql.session.timeZone", "UTC").config("spark.sql.shuffle.partitions", "2")
    return builder.getOrCreate()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
