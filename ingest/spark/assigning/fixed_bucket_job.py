"""Moves the staged rows of a one-off write into buckets at once, for a table with `bucket = -2`: a job reads the files.

The driver decides the number of buckets of each partition from the staged rows. Then each task writes some of a
partition's buckets. For this it reads all staged rows of the partition.

Source: Java `spark/commands/PaimonSparkWriter.scala`, `table/PostponeUtils.java`.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql import SparkSession

from tidelake.compaction.fixed_bucket_batch import (
    FixedBucketWrite,
    FixedBucketWriter,
    Rescale,
    has_batch_write_fixed_bucket,
    plan_fixed_bucket_writes,
)
from tidelake.ingest.spark.job_names import named_jobs
from tidelake.ingest.spark.shuffling.partitioning import repartitioned
from tidelake.ingest.spark.shuffling.shuffle import SHUFFLE_SCHEMA, PayloadKind, payload_row
from tidelake.ingest.spark.task_start import begin_task, package_version
from tidelake.storage.commit.commit_message import CommitMessage
from tidelake.storage.commit.table_commit import TableCommit
from tidelake.storage.model.table import TableContext

_Subtask = tuple[FixedBucketWrite, int, int]  # (write, number of the subtask, parallelism)


def written_in_fixed_buckets(
    spark: SparkSession,
    context: TableContext,
    staged: Sequence[CommitMessage],
    *,
    commit_user: str,
    rescale: Rescale,
    replaces: bool,
    cores: int,
) -> list[CommitMessage]:
    """Return the messages to commit instead of the staged ones. The staged files are deleted.

    Raises the errors of the job. Then the staged files stay as orphans.
    """
    if not has_batch_write_fixed_bucket(context):
        return list(staged)
    plan = plan_fixed_bucket_writes(context, staged, rescale=rescale, replaces=replaces)
    if not plan.writes:
        return list(plan.kept)
    works = _split_into_tasks(plan.writes, cores)
    given = [(number, bytearray(pickle.dumps(one))) for number, one in enumerate(works)]
    tasks = repartitioned(spark.createDataFrame(given, "task int, work binary"), len(works), "task")
    with named_jobs(spark, "rescale", [context.name]):
        rows = tasks.mapInArrow(_FixedBucketTask(context, replaces), SHUFFLE_SCHEMA).select("payload").collect()
    messages = [message for row in rows for message in pickle.loads(bytes(row.payload))]
    TableCommit(context, commit_user).abort(plan.staged)
    return [*plan.kept, *messages]


def _split_into_tasks(writes: Sequence[FixedBucketWrite], cores: int) -> list[list[_Subtask]]:
    """Return the work of each task. With more cores than partitions, the buckets of a partition are divided."""
    each = max(1, cores // len(writes))
    found: list[_Subtask] = []
    for write in sorted(writes, key=lambda one: -one.size_bytes):
        parallelism = min(each, write.bucket_num)
        found += [(write, subtask, parallelism) for subtask in range(parallelism)]
    count = min(len(found), cores)
    return [found[task::count] for task in range(count)]


@dataclass(frozen=True)
class _FixedBucketTask:
    """The task for `mapInArrow`. A task that is retried writes other files: only messages in the driver count.

    version: the version of this package in the driver.
    """

    context: TableContext
    replaces: bool
    version: str = field(default_factory=package_version)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begin_task(self.version)
        writer = FixedBucketWriter(self.context, replaces=self.replaces)
        try:
            for batch in batches:
                for work in batch.column("work").to_pylist():
                    for write, subtask, parallelism in pickle.loads(work):
                        writer.write(write, subtask, parallelism)
            yield payload_row(0, 0, PayloadKind.MESSAGES, pickle.dumps(writer.prepare_commit()))
        finally:
            writer.close()
