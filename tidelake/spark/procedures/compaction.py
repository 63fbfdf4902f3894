"""Compaction on Spark: the driver plans and commits, tasks rewrite files."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import pyarrow as pa
from pyspark.sql import SparkSession

from tidelake.compaction.append.clustering import ClusteringStrategy
from tidelake.compaction.jobs.compact_job import compact_table
from tidelake.compaction.jobs.planner import CompactTask, TaskRunner
from tidelake.compaction.jobs.request import CompactionRequest
from tidelake.compaction.report import CompactionReport
from tidelake.errors import BadInput, CorruptFile
from tidelake.ingest.spark.batch_write import cores_of
from tidelake.ingest.spark.job_names import named_jobs
from tidelake.ingest.spark.shuffling.partitioning import repartitioned
from tidelake.ingest.spark.task_errors import explained_task_errors
from tidelake.ingest.spark.task_start import begin_task, package_version
from tidelake.storage.catalog.opening import open_catalog
from tidelake.storage.commit.commit_increment import CompactResult
from tidelake.storage.read.conditions import as_predicate
from tidelake.storage.read.predicate import Predicate

_SCHEMA: Final = "number int, payload binary"
_SHARES_A_CORE: Final = 4  # sizes of buckets and speeds of machines differ


def compact(
    spark: SparkSession,
    table: str,
    warehouse: str,
    *,
    compact_strategy: Literal["full", "minor"] = "full",
    order_strategy: Literal["none", "order", "zorder", "hilbert"] = "none",
    order_by: str = "",
    where: Predicate | str | None = None,
    options: Mapping[str, str] | None = None,
    catalog_options: Mapping[str, str] | None = None,
) -> CompactionReport:
    """Compact the files of a table in tasks of Spark. Rows are not changed.

    compact_strategy: `full` compacts all files, `minor` what is due
    order_strategy: how to sort the rows of an append table
    order_by: the columns to sort by (`a,b`)
    where: a condition on partition columns: SQL text, or made with `tidelake.col`
    options: of the table, for this compaction
    catalog_options: of the catalog and the store

    It commits once; for a table with a primary key again if one compaction makes another one due. Files of repeated
    tasks become orphans (`remove_orphan_files`).

    Raises CommitConflict if others repeatedly committed first.
    """
    _check_choice("compact_strategy", compact_strategy, ("full", "minor"))
    _check_choice("order_strategy", order_strategy, ("none", *ClusteringStrategy))
    columns = tuple(name.strip() for name in order_by.split(",") if name.strip())
    if bool(columns) != (order_strategy != "none"):
        raise BadInput("order_strategy and order_by need each other: the strategy, and the columns to sort by")
    context = open_catalog(warehouse, catalog_options or {}).load(table, options)
    request = CompactionRequest(
        full=compact_strategy == "full" and not columns,
        where=None if where is None else as_predicate(where, context.schema.arrow),
        order_by=columns,
        strategy=ClusteringStrategy(order_strategy) if columns else None,
    )
    return compact_table(context, request, task_runner=on_spark(spark, context.name))


def compact_database(
    spark: SparkSession,
    warehouse: str,
    *,
    including_databases: str = ".*",
    including_tables: str = ".*",
    excluding_tables: str = "",
    options: Mapping[str, str] | None = None,
    catalog_options: Mapping[str, str] | None = None,
) -> dict[str, CompactionReport]:
    """Compact what is due in each of many tables. Returns a report for each table.

    Patterns are regular expressions that must match the whole name.

    including_databases: matches the name of a database
    including_tables: matches `database.table`
    excluding_tables: matches `database.table`
    """
    catalog = open_catalog(warehouse, catalog_options or {})
    names = [
        f"{database}.{table}"
        for database in catalog.list_databases()
        if re.fullmatch(including_databases, database)
        for table in catalog.list_tables(database)
    ]
    chosen = [
        name
        for name in names
        if re.fullmatch(including_tables, name) and not (excluding_tables and re.fullmatch(excluding_tables, name))
    ]
    return {
        name: compact(
            spark, name, warehouse, compact_strategy="minor", options=options, catalog_options=catalog_options
        )
        for name in chosen
    }


def on_spark(spark: SparkSession, table: str) -> TaskRunner:
    """Return a function that runs tasks of a compaction job of a table on executors."""

    def run(tasks: Sequence[CompactTask]) -> list[CompactResult | CorruptFile]:
        shares = _assign_to_tasks(
            [task.size_bytes for task in tasks], min(len(tasks), _SHARES_A_CORE * cores_of(spark))
        )
        payloads = [pickle.dumps(task) for task in tasks]
        with named_jobs(spark, "compact", [table], len(tasks)), explained_task_errors():
            if isinstance(spark, SparkSession):
                found = _run_in_rdd(spark, shares, payloads)
            else:  # Connect has another class, and supports only this
                found = _run_in_dataframe(spark, shares, payloads)
        return [pickle.loads(bytes(found[number])) for number in range(len(tasks))]

    return run


def _run_in_rdd(spark: SparkSession, shares: Sequence[int], payloads: Sequence[bytes]) -> dict[int, bytes]:
    """Run one task per share.

    Spark plans and compiles no query and shuffles nothing, which would be a third of the cost.
    """
    work: list[list[tuple[int, bytes]]] = [[] for _ in range(max(shares) + 1)]
    for number, (share, payload) in enumerate(zip(shares, payloads, strict=True)):
        work[share].append((number, payload))
    return dict(spark.sparkContext.parallelize(work, len(work)).flatMap(_CompactionTask().run).collect())


def _run_in_dataframe(spark: SparkSession, shares: Sequence[int], payloads: Sequence[bytes]) -> dict[int, bytes]:
    given = [(share, number, bytearray(payloads[number])) for number, share in enumerate(shares)]
    frame = spark.createDataFrame(given, "share int, number int, payload binary")
    spread = repartitioned(frame, max(shares) + 1, "share")
    return {row.number: bytes(row.payload) for row in spread.mapInArrow(_CompactionTask(), _SCHEMA).collect()}


@dataclass(frozen=True)
class _CompactionTask:
    """The function that runs on executors.

    version: of this package in the driver
    """

    version: str = field(default_factory=package_version)

    def run(self, work: Sequence[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
        begin_task(self.version)
        for number, payload in work:
            task: CompactTask = pickle.loads(payload)
            try:
                result: CompactResult | CorruptFile = task.run(lambda: False)
            except CorruptFile as error:
                result = error
            yield number, pickle.dumps(result)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the tasks of a share, for `mapInArrow`."""
        for batch in batches:
            work = zip(batch.column("number").to_pylist(), batch.column("payload").to_pylist(), strict=True)
            for number, payload in self.run(list(work)):
                yield pa.RecordBatch.from_arrays(
                    [pa.array([number], pa.int32()), pa.array([payload], pa.binary())], names=["number", "payload"]
                )


def _assign_to_tasks(sizes: Sequence[int], count: int) -> list[int]:
    """Return the share of each task. The largest tasks are assigned first, each to the smallest share so far."""
    loads = [0] * count
    shares = [0] * len(sizes)
    for number in sorted(range(len(sizes)), key=lambda n: -sizes[n]):
        share = loads.index(min(loads))
        loads[share] += max(1, sizes[number])
        shares[number] = share
    return shares


def _check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise BadInput(f"{name} must be one of {', '.join(choices)}, not {value!r}")
