"""A Java class-data archive of the classes that Spark loads. It halves the processor time of a driver start.

`python -m tests.support.spark_classes` makes it where there is none yet: in the virtual environment, of its jars. A JVM
that finds that the archive is not of its jars or its release goes on without.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

# Sessions of tests live for seconds or minutes: what the second compiler makes of the code costs more than it saves.
_SHORT_LIVED: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_ARCHIVE: Final = Path(sys.prefix) / "spark-classes.jsa"
_QUIET: Final = "-Xlog:disable"  # it would warn on standard output


def short_lived_jvm() -> str:
    """Flags for a JVM of Spark. Spark splits them at spaces."""
    if _is_current() and not any(map(str.isspace, str(_ARCHIVE))):
        return f"{_SHORT_LIVED} -XX:SharedArchiveFile={_ARCHIVE} {_QUIET}"
    return _SHORT_LIVED


def _is_current() -> bool:
    found = find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    return _ARCHIVE.exists() and _ARCHIVE.stat().st_mtime > Path(found.origin).with_name("jars").stat().st_mtime


def make() -> None:
    """Lets a driver do once what tests let it do, and keeps the classes that it loaded."""
    with tempfile.TemporaryDirectory(dir=_ARCHIVE.parent) as folder:
        made = Path(folder) / _ARCHIVE.name
        os.environ["SPARK_SUBMIT_OPTS"] = f"{_SHORT_LIVED} -XX:ArchiveClassesAtExit={made} {_QUIET}"
        os.environ["PYSPARK_PYTHON"] = sys.executable
        _use_spark(Path(folder))
        made.replace(_ARCHIVE)


def _use_spark(folder: Path) -> None:
    from pyspark.sql import SparkSession  # noqa: PLC0415 - after what it reads of the environment is there

    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    _batch(session, folder)
    _stream(session, folder)
    gateway = session.sparkContext._gateway
    session.stop()
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()  # the archive is written as the JVM ends


def _batch(session: SparkSession, folder: Path) -> None:
    rows = session.range(100).selectExpr("id", "id % 3 AS k", "CAST(id AS STRING) AS text")
    rows.write.parquet(str(folder / "rows"))
    read = session.read.parquet(str(folder / "rows")).where("id > 5 AND text <> 'x'")
    read.groupBy("k").count().join(rows, "k").orderBy("id").toArrow()
    read.repartition(2, "k").sortWithinPartitions("id").mapInArrow(_as_it_is, rows.schema).collect()
    rows.createOrReplaceTempView("rows")
    session.sql("SELECT k, max(text) FROM rows GROUP BY k HAVING count(*) > 1").collect()


def _stream(session: SparkSession, folder: Path) -> None:
    def take(batch: DataFrame, number: int) -> None:
        batch.repartition(2, "k").mapInArrow(_as_it_is, batch.schema).collect()

    stream = session.readStream.schema("id BIGINT, k BIGINT, text STRING").parquet(str(folder / "rows"))
    started: Any = stream.writeStream.foreachBatch(take).option("checkpointLocation", str(folder / "checkpoint"))
    started.trigger(availableNow=True).start().awaitTermination()


def _as_it_is(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


if __name__ == "__main__" and not _is_current():
    make()
