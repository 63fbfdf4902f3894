"""Writes a batch to all its tables, with two Spark jobs, or three if an index chooses buckets.

1. Records are decoded once, for all tables, to chunks, which Spark persists. The driver gets their offsets and buckets.
   So a batch that must not be written is refused before any file is written.
2. For tables whose buckets an index chooses, the first job divides rows by key groups. A second job assigns their
   buckets (`tidelake.ingest.spark.assigning`), and Spark persists the result.
3. The driver reads the state of these buckets once, and sends each task its part. Tasks write files.

Then the tables are committed in parallel. If another writer's commit was first, a table is planned and written again,
from the same chunks of the first job. The files of the failed attempt are deleted.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.functions import array, coalesce, col, expr
from pyspark.sql.types import ArrayType
from pyspark.storagelevel import StorageLevel

from tidelake.ingest.spark.assigning.assign_plan import plan_assigners
from tidelake.ingest.spark.assigning.assign_task import AssignTask
from tidelake.ingest.spark.batch_rows import BatchInput, PipelineRecords, RawRecords, TypedColumns
from tidelake.ingest.spark.batch_statistics import BatchStatistics
from tidelake.ingest.spark.bucket_task import BucketTask
from tidelake.ingest.spark.job_names import named_jobs
from tidelake.ingest.spark.shuffling.key_groups import has_dynamic_buckets
from tidelake.ingest.spark.shuffling.partitioning import repartitioned
from tidelake.ingest.spark.shuffling.shuffle import SHUFFLE_SCHEMA, PayloadKind, ShuffleMap, collect_offsets
from tidelake.ingest.spark.shuffling.task_plan import PlannedWork, ShufflePlan, TaskWork, plan_shuffle, task_plans
from tidelake.storage.base import env
from tidelake.storage.base.garbage_collection import paused_collection
from tidelake.storage.commit.commit_message import CommitMessage
from tidelake.storage.model.table import TableContext

_SHUFFLE_PARTITIONS_MIN: Final = 8
_SHUFFLE_PARTITIONS_MAX: Final = 1_000
_ARROW_BYTES: Final = "spark.sql.execution.arrow.maxBytesPerBatch"  # bytes that a task gets at a time
# The plan for reading the chunks is fixed. With adaptive execution, Spark would plan each job again after each stage,
# which took a third of the JVM's CPU time of a small batch. The batch itself was planned with the session's settings,
# when it was persisted.
_FIXED_PLAN: Final = {"spark.sql.adaptive.enabled": "false"}
_CHUNKS_BYTES: Final = str(8 << 20)  # bytes of chunks that a task gets at a time
_COMMITS_AT_ONCE: Final = 64
PLANS_IN_CLOSURE_BYTES_MAX: Final = 1 << 20

Tables = Sequence[tuple[TableContext, BatchInput]]


@dataclass(frozen=True, slots=True)
class TaskOutput:
    """The output of tasks for one table.

    messages: commit messages of files that no snapshot names yet.
    dead_letters: dead letters that were found only while writing.
    """

    messages: list[CommitMessage] = field(default_factory=list)
    dead_letters: list[str] = field(default_factory=list)


class BatchChunks:
    """The chunks of a batch. Spark persists them until `decoded` ends.

    statistics: the statistics of the decoded batch.
    """

    def __init__(
        self, chunks: DataFrame, statistics: BatchStatistics, tables: Tables, shuffle_partitions: int, cores: int
    ) -> None:
        self._chunks = chunks
        self.statistics = statistics
        self._tables = tables
        self._shuffle_partitions = shuffle_partitions
        self.cores = cores

    @property
    def session(self) -> SparkSession:
        return self._chunks.sparkSession

    def write(self, numbers: Sequence[int], batch_id: int) -> dict[int, TaskOutput]:
        """Write the rows of these tables with Spark jobs. Returns the output for each table."""
        statistics = BatchStatistics(
            {}, {number: of for number, of in self.statistics.tables.items() if number in numbers}
        )
        found = {number: TaskOutput() for number in numbers}
        if not any(of.buckets for of in statistics.tables.values()):
            return found
        indexed = [
            number
            for number, of in statistics.tables.items()
            if of.buckets and has_dynamic_buckets(self._tables[number][0])
        ]
        rows = self._chunks.filter(col("kind") == str(PayloadKind.ROWS))
        if indexed or len(numbers) < len(self._tables):
            rows = rows.filter(col("table_number").isin(sorted({*numbers} - {*indexed})))
        if not indexed:
            self._write(rows, statistics, batch_id, found)
            return found
        with self._assigned(statistics, indexed, batch_id, found) as (assigned, of_buckets):
            of_others = {number: of for number, of in statistics.tables.items() if number not in indexed}
            self._write(rows.union(assigned), BatchStatistics({}, of_others | of_buckets.tables), batch_id, found)
        return found

    @contextmanager
    def _assigned(
        self, statistics: BatchStatistics, numbers: Sequence[int], batch_id: int, found: Mapping[int, TaskOutput]
    ) -> Iterator[tuple[DataFrame, BatchStatistics]]:
        """Yield chunks of these tables' rows with their buckets, and their statistics.

        Spark persists the chunks, because all later results must agree. The index's messages are added to `found`.
        """
        contexts = {number: self._tables[number][0] for number in numbers}
        plan, plans = plan_assigners(contexts, statistics, self._shuffle_partitions, self.cores)
        rows = self._chunks.filter(col("kind") == str(PayloadKind.ROWS)).filter(col("table_number").isin(list(numbers)))
        task = AssignTask(self._tables, batch_id)
        chunks = self._in_tasks(rows, plan, [one.to_payload() for one in plans], task).persist(
            StorageLevel.MEMORY_AND_DISK
        )
        try:
            with named_jobs(self.session, "assign buckets of", [context.name for context in contexts.values()]):
                assigned = self._collected(chunks.filter(col("kind") != str(PayloadKind.ROWS)), found)
            yield chunks.filter(col("kind") == str(PayloadKind.ROWS)), assigned
        finally:
            chunks.unpersist()

    def _write(
        self, rows: DataFrame, statistics: BatchStatistics, batch_id: int, found: Mapping[int, TaskOutput]
    ) -> None:
        """Write rows to files.

        rows: chunks with their buckets.
        """
        shuffle = plan_shuffle(statistics, self._shuffle_partitions, self.cores)
        plans = task_plans([context for context, _ in self._tables], statistics, shuffle)
        payloads = [plan.to_payload() for plan in plans]
        written = {self._tables[number][0].name: of for number, of in statistics.tables.items() if of.buckets}
        buckets = sum(of.bucket_count for of in written.values())
        with named_jobs(self.session, "write", list(written), buckets):
            self._collected(self._in_tasks(rows, shuffle, payloads, BucketTask(self._tables, batch_id)), found)

    def _in_tasks(self, chunks: DataFrame, shuffle: ShufflePlan, plans: Sequence[bytes], work: TaskWork) -> DataFrame:
        """Run the work in tasks. A single task runs where the chunks are read, without a shuffle.

        plans: the plan of each task. Small plans are part of the work, which is sent to every task: a separate source
            would cost Spark two more tasks.
        """
        if sum(map(len, plans)) <= PLANS_IN_CLOSURE_BYTES_MAX:
            planned = PlannedWork(work, shuffle.task_of_partition, plans)
            if shuffle.tasks == 1:
                return chunks.coalesce(1).mapInArrow(planned, SHUFFLE_SCHEMA)
            divided = repartitioned(chunks.withColumn("task", self._task(shuffle)), shuffle.tasks, "task")
            return divided.drop("task").mapInArrow(planned, SHUFFLE_SCHEMA)
        task = self._task(shuffle)
        rows = chunks.select(task.alias("task"), "table_number", "shuffle_partition", "kind", "payload")
        given = [(task, 0, 0, str(PayloadKind.PLAN), bytearray(plan)) for task, plan in enumerate(plans)]
        together = rows.union(self._chunks.sparkSession.createDataFrame(given, f"task int, {SHUFFLE_SCHEMA}"))
        return repartitioned(together, shuffle.tasks, "task").mapInArrow(work, SHUFFLE_SCHEMA)

    @staticmethod
    def _task(shuffle: ShufflePlan) -> Column:
        """Return the expression for the task of a chunk, by its shuffle partition."""
        return expr(f"element_at(array({', '.join(map(str, shuffle.task_of_partition))}), shuffle_partition + 1)")

    def _collected(self, payloads: DataFrame, found: Mapping[int, TaskOutput]) -> BatchStatistics:
        """Collect the output of all tasks, and return their statistics."""
        with _settings(self._chunks.sparkSession, {**_FIXED_PLAN, _ARROW_BYTES: _CHUNKS_BYTES}):
            rows = payloads.select("table_number", "kind", "payload").collect()
        of_tasks: list[bytes] = []
        with paused_collection():
            for row in rows:
                if row.kind == PayloadKind.MESSAGES:
                    found[row.table_number].messages.extend(pickle.loads(bytes(row.payload)))
                else:
                    of_tasks.append(bytes(row.payload))
        statistics = BatchStatistics.merged(of_tasks)
        for number, of in statistics.tables.items():
            found[number].dead_letters.extend(of.dead_letters)
        return statistics


@contextmanager
def decoded(batch: DataFrame, tables: Tables, pipeline: PipelineRecords | None = None) -> Iterator[BatchChunks]:
    """Decode a batch, and yield its chunks.

    tables: see `open_reader`.
    pipeline: see `RawReader`.
    """
    cores = cores_of(batch.sparkSession)
    shuffle_partitions = min(_SHUFFLE_PARTITIONS_MAX, max(_SHUFFLE_PARTITIONS_MIN, _max_cores(batch, cores)))
    if pipeline is not None or any(isinstance(one, RawRecords) for _, one in tables):
        batch = _with_lists_of_headers(batch)
    batch, read = _with_plain_names(batch, tables)
    mapped = batch.mapInArrow(ShuffleMap(read, shuffle_partitions, pipeline=pipeline), SHUFFLE_SCHEMA)
    chunks = mapped.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        names = [context.name for context, _ in tables]
        with _settings(batch.sparkSession, _FIXED_PLAN), named_jobs(batch.sparkSession, "decode", names):
            rows = chunks.filter(col("kind") == str(PayloadKind.STATISTICS)).select("payload").collect()
        statistics = BatchStatistics.merged(bytes(row.payload) for row in rows)
        yield BatchChunks(chunks, statistics, tables, shuffle_partitions, cores)
    finally:
        chunks.unpersist()


def offsets_of(batch: DataFrame) -> BatchStatistics:
    """Return statistics with only the offsets of the batch. A small separate job reads them, and decodes nothing."""
    with named_jobs(batch.sparkSession, "read offsets"):
        found = _with_lists_of_headers(batch).mapInArrow(collect_offsets, SHUFFLE_SCHEMA).select("payload").collect()
    return BatchStatistics.merged(bytes(row.payload) for row in found)


def _with_plain_names(batch: DataFrame, tables: Tables) -> tuple[DataFrame, Tables]:
    """Rename typed columns that `mapInArrow` can't find: PySpark looks them up by name, with Spark's rules for dots,
    backticks, and upper and lower case.
    """
    if not tables:
        return batch, tables
    names, (context, one) = batch.columns, tables[0]
    is_plain = not any(set(name) & set(".`") for name in names) and len(set(map(str.lower, names))) == len(names)
    if is_plain or not isinstance(one, TypedColumns):
        return batch, tables
    return batch.toDF(*[f"_{i}" for i in range(len(names))]), [(context, replace(one, names=tuple(names)))]


def _with_lists_of_headers(batch: DataFrame) -> DataFrame:
    """Replace null headers of raw records by empty lists.

    Null lists cost Spark's Arrow writer more than everything else: for each row it visits all earlier ones of the ten
    thousand rows that it passes on at once.
    """
    kinds = {field.name: field.dataType for field in batch.schema.fields}
    if not isinstance(kinds.get("headers"), ArrayType):
        return batch
    return batch.withColumn("headers", coalesce(col("headers"), array().cast(kinds["headers"])))


def run_in_parallel(work: Mapping[int, Callable[[], bool]]) -> list[int]:
    """Run the work in parallel. Returns the numbers whose work returned False.

    Raises the first error after all have ended. The results of the others stay.
    """
    if not work:
        return []
    with env.ThreadPoolExecutor(min(len(work), _COMMITS_AT_ONCE), "commit") as threads:
        done = {number: threads.submit(one) for number, one in work.items()}
    return [number for number, future in done.items() if not future.result()]


@contextmanager
def _settings(session: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Use these settings for plans that are made inside the block. Then restore the session's settings."""
    conf = session.conf
    before: dict[str, str | None] = {key: conf.get(key, None) for key in settings}
    for key, value in settings.items():
        with suppress(Exception):  # a release may not know a setting, or not allow it
            conf.set(key, value)
    try:
        yield
    finally:
        for key, given in before.items():
            with suppress(Exception):
                conf.unset(key) if given is None else conf.set(key, given)


def cores_of(spark: SparkSession) -> int:
    """Return the number of tasks that can run now."""
    configured = int(spark.conf.get("spark.default.parallelism", None) or 0)
    if configured:
        return configured
    try:
        return int(spark.sparkContext.defaultParallelism)
    except Exception:  # Spark Connect
        return 8


def _max_cores(batch: DataFrame, now: int) -> int:
    """Return the largest number of cores. With dynamic allocation, executors are added if there is more work."""
    conf = batch.sparkSession.conf
    if conf.get("spark.dynamicAllocation.enabled", "false") != "true":
        return now
    executors = conf.get("spark.dynamicAllocation.maxExecutors", None)
    if not executors:
        return _SHUFFLE_PARTITIONS_MAX
    return max(now, int(executors) * int(conf.get("spark.executor.cores", "1") or 1))
