"""A Spark driver with one query with state, which kills itself and its JVM (kill -9) at a step of a batch.

usage: python -m tests.integration.stateful_driver HOME QUERY STEP BATCH

STEP: `plan` (before the sink is called), `write` (files are written, no snapshot is published), `commit` (the table is
committed, Spark's own log is not); `none` runs to the end.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import count as count_of
from pyspark.sql.functions import expr, window

from tidelake.ingest.spark import batch_commits
from tidelake.spark import sink


def _windows(rows: DataFrame) -> DataFrame:
    counts = rows.withWatermark("t", "1 hour").groupBy(window("t", "10 minutes"), "k").agg(count_of("*").alias("n"))
    return counts.selectExpr("cast(window.start as string) w", "k", "n")


def _join(rows: DataFrame) -> DataFrame:
    left = rows.filter("side = 'l'").selectExpr("k", "n", "t lt").withWatermark("lt", "1 hour")
    right = rows.filter("side = 'r'").selectExpr("k rk", "n rn", "t rt").withWatermark("rt", "1 hour")
    joined = left.join(right, expr("k = rk AND rt BETWEEN lt - INTERVAL 1 HOUR AND lt + INTERVAL 1 HOUR"))
    return joined.selectExpr("cast(rn as string) w", "k", "n")


QUERIES: Final[dict[str, tuple[Callable[[DataFrame], DataFrame], str]]] = {
    "windows": (_windows, "update"),
    "join": (_join, "append"),
}


def main() -> None:
    home, name, step, batch = Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings: dict[str, Any] = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    settings |= {"spark.sql.session.timeZone": "UTC", "spark.sql.shuffle.partitions": "2"}
    spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    into, now = sink("s.t", str(home / "lake")), [-1]

    def die_at(reached: str) -> None:
        if (reached, now[0]) == (step, batch):
            os.killpg(0, signal.SIGKILL)

    publish = batch_commits.BatchCommits.publish

    def published(*given: Any, **named: Any) -> Any:
        die_at("write")
        return publish(*given, **named)

    batch_commits.BatchCommits.publish = published  # type: ignore[method-assign]

    def write(rows: DataFrame, batch_id: int) -> None:
        now[0] = batch_id
        die_at("plan")
        into(rows, batch_id)
        die_at("commit")

    change, mode = QUERIES[name]
    rows = spark.readStream.schema("t timestamp, k string, n long, side string").option("maxFilesPerTrigger", 1)
    writer = change(rows.json(str(home / "in"))).writeStream.outputMode(mode).foreachBatch(write)
    query = writer.option("checkpointLocation", str(home / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
