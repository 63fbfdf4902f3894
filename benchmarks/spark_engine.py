"""Measures Tidelake on Spark, with two cores of this machine, in comparison with Spark alone.

The jobs are batches for many buckets and tables, pipelines, reads and compactions. As a program this module runs one of
these jobs. The contenders of a job take turns in one session.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

import tidelake
from benchmarks.change_log import CHANGES, ORDERS, write_change_log
from benchmarks.clock import Clock, tell
from benchmarks.contest import TIDELAKE, Sample, ours
from benchmarks.process_tree import TreeClock
from benchmarks.sections import Goal, PageSection, Plan
from tests.support.cases import recorded_lines
from tests.support.kafka_broker import KafkaBroker
from tests.support.recorded_truth import differences
from tidelake.compaction.jobs.compact_job import compact_table
from tidelake.compaction.jobs.request import CompactionRequest
from tidelake.ingest.formats.debezium.debezium_json import DebeziumJson
from tidelake.ingest.spark.sink import write_batch
from tidelake.spark import procedures, read, register, sink
from tidelake.spark.session import SETTINGS
from tidelake.storage.catalog.opening import open_catalog

Turns = Mapping[str, list[tuple[float, float]]]
"""By contender: wall seconds and CPU-seconds of each turn."""

_READ: Final = "tidelake.spark.read"
_FORMAT: Final = 'format("tidelake")'
_BATCH_ROWS: Final = 10_000
_MADE_UP_BATCH: Final = 30_000  # rows
_MADE_UP_PARTITIONS: Final = 4
_TURNS: Final = 8
_WARM_UP_TURNS: Final = 3  # the JVM compiles its code; a stream has as many batches in its first minute


def sections(plan: Plan) -> Iterator[PageSection]:
    scratch = plan.scratch / "spark"
    samples: dict[str, Sample] = {}
    for job in _JOBS:
        folder = scratch / job.replace(",", "")  # `spark.local.dir` is a list with commas
        arguments = {"job": job, "scratch": str(folder), "data": str(plan.data), "scale": plan.scale}
        samples[job] = ours("spark_engine", arguments).run()
        shutil.rmtree(folder, ignore_errors=True)
    lines = [
        [
            f"{job}, {name}",
            f"{statistics.median(w for w, _ in turns):.2f}",
            f"{statistics.median(c for _, c in turns):.2f}",
        ]
        for job, sample in samples.items()
        for name, turns in sample.details["turns"].items()
    ]
    yield PageSection(
        "Spark",
        "PySpark on local[2], medians of five turns, after three turns that warm up the JVM; every fifth batch also "
        "compacts. The session has the settings of `tidelake spark run`. CPU time is that of the driver, the JVM and "
        "its Python workers. Buckets: a batch of "
        f"{_BATCH_ROWS:,} typed rows of eight columns. Pipeline: recorded Debezium lines are written to a table, in "
        "comparison with Spark's from_json of before and after, written as Parquet. From Kafka: `tidelake-kafka` reads "
        "the same records from a topic, and the CPU time of the broker is not included. Reading: two million rows of a "
        "compacted table are read and dropped, in four ways. With tidelake.spark.read, Spark's own Parquet reader "
        'reads the files. With format("tidelake"), the data source reads them. A source in Python only generates rows, '
        "which is the minimum for any source in Python. Spark's Parquet reader reads the same rows from files that "
        "Spark wrote. Compaction: one job compacts three overlapping runs of eight million rows each in eight buckets, "
        "and runs of twice as many rows.",
        ["", "seconds", "CPU-seconds"],
        lines,
        list(_goals(samples)),
        {TIDELAKE: list(samples.values())},
    )


def _goals(samples: Mapping[str, Sample]) -> Iterator[Goal]:
    for job, (name, at_most) in _AT_MOST_S.items():
        wall = statistics.median(w for w, _ in samples[job].details["turns"][name])
        yield Goal(f"{job}: at most {at_most} s", f"{wall:.1f} s", wall <= at_most)
    for job, (one, other, at_least, place) in _RATIOS.items():
        turns = samples[job].details["turns"]
        pairs = zip(turns[one], turns[other], strict=True)
        ratio = statistics.median(b[place] / a[place] for a, b in pairs)
        what = ("time", "CPU time")[place]
        yield Goal(f"{job}: {what} of {other} / {one} ≥ {at_least:.2f}", f"{ratio:.2f}", ratio >= at_least)


def _session(scratch: Path) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    session = (
        builder.config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.local.dir", str(scratch / "local"))
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    register(session)
    return session


def _in_turns(contenders: Mapping[str, Callable[[int], object]]) -> Turns:
    clock = TreeClock()
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
    for turn in range(_TURNS):
        for name, work in contenders.items():
            with clock:
                work(turn)
            if turn >= _WARM_UP_TURNS:
                found[name].append((clock.wall_s, clock.cpu_s))
    return found


def _rows(count: int) -> pa.Table:
    rng = np.random.default_rng(15)
    texts = pa.array([f"text {i}" for i in range(count)])
    numbers = {name: rng.random(count) for name in ("a", "b")} | {
        n: rng.integers(0, 99, count) for n in ("c", "d", "e")
    }
    return pa.table(
        {"id": np.arange(count), "text": texts, "kind": pa.array([f"k{i % 7}" for i in range(count)]), **numbers}
    )


def _table(scratch: Path, name: str, schema: pa.Schema, key: str, **options: str) -> tidelake.Table:
    catalog = tidelake.open_catalog(str(scratch / "lake"))
    catalog.create_database("bench", if_not_exists=True)
    return catalog.create_table(f"bench.{name}", schema, primary_key=[key], options=options)


def _many_buckets(buckets: int) -> Callable[[SparkSession, Path, Mapping[str, Any]], Turns]:
    def job(spark: SparkSession, scratch: Path, arguments: Mapping[str, Any]) -> Turns:
        _table(scratch, "t", _rows(1).schema, "id", bucket=str(max(2, int(buckets * min(1, arguments["scale"])))))
        into = sink("bench.t", str(scratch / "lake"), commit_user="bench")
        batch = spark.createDataFrame(_rows(_BATCH_ROWS)).repartition(2).cache()
        batch.count()
        return _in_turns({TIDELAKE: lambda turn: into(batch, turn)})

    return job


def _many_tables(spark: SparkSession, scratch: Path, arguments: Mapping[str, Any]) -> Turns:
    count = max(2, int(40 * min(1, arguments["scale"])))
    columns = pa.schema([pa.field("id", pa.int64(), False), ("n", pa.int64())])
    sinks = []
    for number in range(count):
        _table(scratch, f"t{number}", columns, "id", bucket="2")
        sinks.append(
            sink(
                f"bench.t{number}",
                str(scratch / "lake"),
                format="debezium-json",
                match=f"t{number}",
                commit_user="bench",
            )
        )
    per_turn = _BATCH_ROWS // count

    def batch(turn: int) -> DataFrame:
        lines = []
        for offset in range(turn * per_turn * count, (turn + 1) * per_turn * count):
            value = {
                "before": None,
                "after": {"id": offset, "n": offset},
                "op": "c",
                "source": {"table": f"t{offset % count}"},
            }
            record = {"topic": "t", "partition": 0, "offset": offset, "timestamp_ms": 0, "key": None}
            lines.append([json.dumps({**record, "value": json.dumps(value)})])
        return spark.createDataFrame(lines, "value string").repartition(2).cache()

    batches = [batch(turn) for turn in range(_TURNS)]
    for one in batches:
        one.count()
    return _in_turns({TIDELAKE: lambda turn: write_batch(sinks, batches[turn], turn)})


def _pipeline(spark: SparkSession, scratch: Path, arguments: Mapping[str, Any]) -> Turns:
    files = _change_log(arguments)
    return _compared_with_spark_alone(spark, scratch, files, lambda: spark.read.text(files))


def _from_kafka(spark: SparkSession, scratch: Path, arguments: Mapping[str, Any]) -> Turns:
    """Measure the pipeline from Kafka. The broker is no child of this process, so its CPU time is not included."""
    files = _change_log(arguments)
    records = [record for path in ORDERS.files for record in recorded_lines(path)]
    broker = KafkaBroker(scratch / "kafka")
    broker.start()
    try:
        topic = broker.create_topic(partitions=1 + max(record["partition"] for record in records))
        for _ in range(_passes(arguments)):
            broker.send(records, topic)
        options = {"kafka.bootstrap.servers": broker.address, "subscribe": topic}
        options |= {"headers": ",".join(DebeziumJson.KEPT_HEADERS)}  # as `spark run` reads such records
        return _compared_with_spark_alone(
            spark, scratch, files, lambda: spark.read.format("tidelake-kafka").options(**options).load()
        )
    finally:
        broker.purge()


def _passes(arguments: Mapping[str, Any]) -> int:
    return max(1, round(4 * float(arguments["scale"])))


def _change_log(arguments: Mapping[str, Any]) -> list[str]:
    log, passes = Path(arguments["data"]) / "change-log-for-spark", _passes(arguments)
    write_change_log(log, passes, files_per_pass=2)
    return [str(path) for path in sorted(log.glob("*.jsonl"))[: 2 * passes]]


def _compared_with_spark_alone(
    spark: SparkSession, scratch: Path, files: Sequence[str], records: Callable[[], DataFrame]
) -> Turns:
    """Compare the sink with Spark alone.

    records: returns the records of the files, as raw columns.
    """
    schema = ORDERS.schema
    columns = ", ".join(f"`{name}` string" for name in schema.names)
    key = schema.names[0]
    lake = str(scratch / "lake")

    def into_table(turn: int) -> None:
        _table(scratch, f"t{turn}", schema, key, bucket="4", **{"write-only": "true"})
        into = sink(f"bench.t{turn}", lake, format="debezium-json", commit_user="bench")
        into(records(), 0)

    def alone(turn: int) -> None:
        line = "from_json(value, 'value string').value"
        change = f"from_json({line}, 'before struct<{columns}>, after struct<{columns}>, op string')"
        rows = spark.read.text(list(files)).selectExpr(f"{change} AS c").selectExpr("c.op", "c.before", "c.after")
        rows.write.parquet(str(scratch / f"alone-{turn}"))

    turns = _in_turns({TIDELAKE: into_table, "Spark alone": alone})
    found = tidelake.open_catalog(lake).table(f"bench.t{_TURNS - 1}").scan().to_arrow()
    if wrong := differences(ORDERS, found):
        raise AssertionError(f"the table differs from its source: {wrong[:3]}")
    return turns


class _MadeUpRows(DataSource):
    """A source that only generates rows, to measure the minimum cost of a source in Python.

    Option `count`: number of rows in each partition.
    """

    @classmethod
    def name(cls) -> str:
        return "made-up"

    def schema(self) -> str:
        return "id long, text string, kind string, a double, b double, c long, d long, e long"

    def reader(self, schema: StructType) -> DataSourceReader:
        return _MadeUpReader(int(self.options["count"]))


class _MadeUpReader(DataSourceReader):
    def __init__(self, count: int) -> None:
        self._count = count

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(_MADE_UP_PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        rows = _rows(_MADE_UP_BATCH).to_batches()[0]
        for start in range(0, self._count, _MADE_UP_BATCH):
            yield rows.slice(0, min(_MADE_UP_BATCH, self._count - start))


def _reading(spark: SparkSession, scratch: Path, arguments: Mapping[str, Any]) -> Turns:
    rows = _rows(max(10_000, int(2_000_000 * arguments["scale"])))
    table = _table(scratch, "t", rows.schema, "id", bucket="4")
    with table.writer() as writer:
        writer.write(rows)
        writer.commit()
    table.compact(full=True)
    folder = scratch / "parquet"
    spark.read.format("tidelake").options(warehouse=str(scratch / "lake"), table="bench.t").load().write.parquet(
        str(folder)
    )

    def drop(frame: DataFrame) -> None:
        frame.write.format("noop").mode("overwrite").save()

    ours_ = {"warehouse": str(scratch / "lake"), "table": "bench.t"}
    spark.dataSource.register(_MadeUpRows)
    count = str(rows.num_rows // _MADE_UP_PARTITIONS)
    return _in_turns(
        {
            "a Python source without a table": lambda _: drop(
                spark.read.format("made-up").option("count", count).load()
            ),
            _FORMAT: lambda _: drop(spark.read.format("tidelake").options(**ours_).load()),
            _READ: lambda _: drop(read(spark, ours_["table"], ours_["warehouse"])),
            "Spark's Parquet": lambda _: drop(spark.read.parquet(str(folder))),
        }
    )


def _compaction(run_rows: int) -> Callable[[SparkSession, Path, Mapping[str, Any]], Turns]:
    """Return a job that compares a compaction on Spark with one process.

    The process compacts one bucket at a time; with one thread per core it would also use all cores. Two sizes of runs
    show the fixed cost of a Spark job.
    """

    def job(spark: SparkSession, scratch: Path, arguments: Mapping[str, Any]) -> Turns:
        return _compactions(spark, scratch, max(10_000, int(run_rows * arguments["scale"])))

    return job


def _compactions(spark: SparkSession, scratch: Path, run_rows: int) -> Turns:
    rows = _rows(run_rows)
    table = _table(scratch, "written", rows.schema, "id", bucket="8", **{"write-only": "true"})
    for _ in range(3):
        with table.writer() as writer:
            writer.write(rows)
            writer.commit()
    lake = scratch / "lake"
    source = lake / "bench.db" / "written"

    def linked(name: str) -> str:
        shutil.copytree(source, source.with_name(name), copy_function=os.link)  # files are never modified
        return f"bench.{name}"

    names = {(who, turn): linked(f"{who}{turn}") for who in ("spark", "one", "two") for turn in range(_TURNS)}

    def in_process(who: str, threads: int) -> Callable[[int], object]:
        def compact(turn: int) -> None:
            compact_table(open_catalog(str(lake)).load(names[who, turn]), CompactionRequest(full=True), threads=threads)

        return compact

    return _in_turns(
        {
            "on Spark": lambda turn: procedures.compact(spark, names["spark", turn], str(lake)),
            "one process": in_process("one", 1),
            "one process, two threads": in_process("two", 2),
        }
    )


_JOBS: Final[Mapping[str, Callable[[SparkSession, Path, Mapping[str, Any]], Turns]]] = {
    "1,000 buckets": _many_buckets(1_000),
    "10,000 buckets": _many_buckets(10_000),
    "40 tables": _many_tables,
    "pipeline": _pipeline,
    "pipeline from Kafka": _from_kafka,
    "reading": _reading,
    "compaction": _compaction(8_000_000),
    "compaction of twice as many rows": _compaction(16_000_000),
}
_AT_MOST_S: Final = {"1,000 buckets": (TIDELAKE, 1), "10,000 buckets": (TIDELAKE, 4), "40 tables": (TIDELAKE, 3)}
_RATIOS: Final = {  # job: two contenders, the target ratio of the second to the first, in wall (0) or CPU (1) seconds
    "pipeline": (TIDELAKE, "Spark alone", 1.5, 1),
    "pipeline from Kafka": (TIDELAKE, "Spark alone", 1.2, 1),
    "reading": (_READ, "Spark's Parquet", 1 / 1.6, 0),
    "compaction": ("on Spark", "one process", 1.6, 0),
    "compaction of twice as many rows": ("on Spark", "one process", 1.6, 0),
}


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    where = Path(given["scratch"])
    where.mkdir(parents=True, exist_ok=True)
    spark_session = _session(where)
    try:
        turns_of = _JOBS[given["job"]](spark_session, where, given)
    finally:
        spark_session.stop()
    tell(CHANGES, Clock(1.0, 1.0), turns=turns_of)
