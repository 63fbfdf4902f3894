"""Measures the costs of a batch in the driver of a large cluster, without the cluster.

It runs the driver's steps for a given number of buckets and tasks. `python -m benchmarks.spark_costs` measures a
small batch, computes the costs of a large batch from it, and also runs the driver's steps of the large batch, to check
the computed figures. It prints the tables of docs/spark-costs.md.
"""

from __future__ import annotations

import pickle
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import pyarrow as pa

import tidelake
from benchmarks.clock import Clock
from tidelake.checkpoint.offsets import OffsetRange, TopicPartition
from tidelake.ingest.spark.batch_commits import BatchCommits
from tidelake.ingest.spark.batch_statistics import BatchStatistics, BatchTableStatistics
from tidelake.ingest.spark.bucket_task import renumbered
from tidelake.ingest.spark.shuffling.shuffle import (
    BUCKET_COLUMN,
    buckets_of,
    from_ipc,
    shuffle_partition_of,
    to_ipc,
    with_buckets,
)
from tidelake.ingest.spark.shuffling.task_plan import plan_shuffle, task_plans
from tidelake.storage.commit.commit_increment import CommitIncrement
from tidelake.storage.commit.commit_message import CommitMessage
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.metadata_cache import MetadataCache
from tidelake.storage.model.table import TableContext
from tidelake.storage.write.table_writer import TableWriter

SHUFFLE_PARTITIONS: Final = 1_000
_SCHEMA: Final = pa.schema([pa.field("id", pa.int64(), False), *((f"c{n}", pa.string()) for n in range(8))])
_RANGES: Final = {TopicPartition("t", n): OffsetRange(0, 1_000) for n in range(100)}
CAPABILITIES, PLAN, UNPACK, COMMIT = "statistics of map tasks", "plan", "messages of tasks", "commit"
_STEPS: Final = {  # each step, and the number that its costs are proportional to
    CAPABILITIES: "map tasks × buckets",
    PLAN: "files of the table",
    UNPACK: "buckets",
    COMMIT: "files of the table",
}


@dataclass(frozen=True)
class Shape:
    """The shape of a batch with rows for all buckets.

    levels: number of files in each bucket.
    """

    buckets: int
    map_tasks: int
    write_tasks: int
    levels: int = 5

    def amount(self, step: str) -> int:
        """Return the number that the step's costs are proportional to."""
        return {
            CAPABILITIES: self.map_tasks * self.buckets,
            PLAN: self.buckets * self.levels,
            UNPACK: self.buckets,
            COMMIT: self.buckets * self.levels,
        }[step]


@dataclass
class Costs:
    """The costs of a batch in the driver.

    cpu_s: CPU-seconds of each step.
    facts_bytes: bytes that map tasks send to the driver.
    plan_bytes: bytes that the driver sends to write tasks.
    message_bytes: bytes that write tasks send back.
    metadata_reads, metadata_bytes: number and size of the table's files that the driver read.
    """

    shape: Shape
    cpu_s: dict[str, float] = field(default_factory=dict)
    facts_bytes: int = 0
    plan_bytes: int = 0
    message_bytes: int = 0
    metadata_reads: int = 0
    metadata_bytes: int = 0

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        clock = Clock()
        with clock:
            yield
        self.cpu_s[name] = clock.cpu_s


def measured(shape: Shape) -> Costs:
    """Run the driver's steps of a batch of this shape. Data files have names, but do not exist."""
    with tempfile.TemporaryDirectory() as home:
        catalog = tidelake.open_catalog(home)
        catalog.create_database("x")
        options = {"bucket": str(shape.buckets), "write-only": "false", "num-sorted-run.compaction-trigger": "100"}
        context = catalog.create_table("x.t", _SCHEMA, primary_key=["id"], options=options).context
        context = context.with_cache(MetadataCache())
        template = _message(context)
        for batch_id in range(shape.levels):
            _publish(context, batch_id, _messages(context, template, shape.buckets))
        costs = Costs(shape)
        statistics = _statistics(costs, context, template.partition)
        with costs.step(PLAN):
            plans = task_plans([context], statistics, plan_shuffle(statistics, SHUFFLE_PARTITIONS, shape.write_tasks))
            payloads = [plan.to_payload() for plan in plans]
        costs.plan_bytes = sum(map(len, payloads))
        written = _messages(context, template, shape.buckets)
        shares = [pickle.dumps(written[n :: len(plans)]) for n in range(len(plans))]
        costs.message_bytes = sum(map(len, shares))
        with costs.step(UNPACK):
            messages = [message for share in shares for message in pickle.loads(share)]
        before = _metadata(home)
        with costs.step(COMMIT):
            _publish(context, shape.levels, messages)
        new = _metadata(home).items() - before.items()
        costs.metadata_reads, costs.metadata_bytes = len(new), sum(size for _, size in new)
        return costs


def _statistics(costs: Costs, context: TableContext, partition: bytes) -> BatchStatistics:
    shape = costs.shape
    keys = [BucketId(partition, bucket) for bucket in range(shape.buckets)]
    shuffle_bytes = {shuffle_partition_of(context, key, SHUFFLE_PARTITIONS): 1_000_000 for key in keys}
    of_task = BatchTableStatistics({"t"}, [], shuffle_bytes, {partition: set(range(shape.buckets))})
    payload = BatchStatistics(dict(list(_RANGES.items())[:1]), {0: of_task}).to_payload()
    costs.facts_bytes = len(payload) * shape.map_tasks
    with costs.step(CAPABILITIES):
        return BatchStatistics.merged(payload for _ in range(shape.map_tasks))


def _message(context: TableContext) -> CommitMessage:
    """Return the commit message of a small file that was really written."""
    writer = TableWriter(context)
    try:
        rows = {name: [1] if name == "id" else ["some text"] for name in _SCHEMA.names}
        writer.write(pa.table(rows, _SCHEMA))
        (message,) = writer.prepare_commit()
        return message
    finally:
        writer.abort()


def _messages(context: TableContext, template: CommitMessage, buckets: int) -> list[CommitMessage]:
    base = replace(template.base, snapshot_id=context.snapshots.latest_id())
    (file,) = template.increment.new_files
    files = [replace(file, file_name=f"data-{uuid.uuid4()}-0.parquet") for _ in range(buckets)]
    return [
        CommitMessage(BucketId(template.partition, bucket), CommitIncrement(new_files=(one,)), base)
        for bucket, one in enumerate(files)
    ]


def _publish(context: TableContext, batch_id: int, messages: Sequence[CommitMessage]) -> None:
    commits = BatchCommits(context, "bench", None, None, accept_gap=False)
    commits.publish(batch_id, messages, None)


def _metadata(home: str) -> Mapping[str, int]:
    """Return the manifest files, with their sizes."""
    return {str(p): p.stat().st_size for p in Path(home, "x.db", "t", "manifest").iterdir()}


def cost_of_a_chunk(rows: int, chunks: int = 500) -> tuple[int, float]:
    """Return the bytes of a chunk, and the CPU-seconds of the task that makes it and the task that reads it."""
    columns: dict[str, pa.Array] = {
        name: pa.array(range(rows) if name == "id" else ["some text"] * rows, _SCHEMA.field(name).type)
        for name in _SCHEMA.names
    }
    batch = pa.record_batch({**columns, BUCKET_COLUMN: pa.array([0] * rows, pa.int32())})
    clock = Clock()
    with clock:
        for _ in range(chunks):
            chunk = to_ipc(with_buckets(batch, [BucketId(b"", 0)]))
            taken = from_ipc(pa.py_buffer(chunk))
            renumbered(taken, [0] * len(buckets_of(taken)))
    return len(chunk), clock.cpu_s / chunks


# ---------------------------------------------------------------- the page

SMALL: Final = Shape(buckets=1_000, map_tasks=80, write_tasks=80)
LARGE: Final = Shape(buckets=10_000, map_tasks=800, write_tasks=800)
_BYTES_A_DAY: Final = 10**12
_INTERVALS_S: Final = (60, 300)
_RECORD_BYTES: Final = 500
_CHUNK_BYTES: Final = 16 << 20  # size of the rows before they become chunks


def computed(small: Costs, shape: Shape) -> Costs:
    """Return the costs of a larger shape: each step is scaled by its number."""
    rates = {step: seconds / small.shape.amount(step) for step, seconds in small.cpu_s.items()}
    tasks, buckets = shape.map_tasks / small.shape.map_tasks, shape.buckets / small.shape.buckets
    return Costs(
        shape,
        {step: rate * shape.amount(step) for step, rate in rates.items()},
        int(small.facts_bytes * tasks * buckets),
        int(small.plan_bytes * buckets),
        int(small.message_bytes * buckets),
        small.metadata_reads,
        int(small.metadata_bytes * buckets),
    )


def chunks_of(shape: Shape, batch_bytes: int) -> tuple[int, int]:
    """Return the number of chunks of a batch, and their mean size.

    A task passes its rows on when it holds 16 MiB, as one chunk per shuffle partition.
    """
    flushes = max(1, -(-batch_bytes // shape.map_tasks // _CHUNK_BYTES))
    count = shape.map_tasks * flushes * min(SHUFFLE_PARTITIONS, shape.buckets)
    return count, batch_bytes // count


def tables(small: Costs, large: Costs) -> Iterator[str]:
    predicted = computed(small, large.shape)
    shapes = "1,000 buckets, 80 tasks | 10,000 buckets, 800 tasks, computed | the same, run"
    yield f"| In the driver | grows with | {shapes} |"
    yield "|---|---|---|---|---|"
    for step, grows in _STEPS.items():
        found = [f"{costs.cpu_s[step]:.2f} s" for costs in (small, predicted, large)]
        yield f"| {step} | {grows} | {' | '.join(found)} |"
    total = [f"{sum(costs.cpu_s.values()):.2f} s" for costs in (small, predicted, large)]
    yield f"| together | | {' | '.join(total)} |"
    for name, member in (
        ("statistics, to the driver", "facts_bytes"),
        ("plans, to the tasks", "plan_bytes"),
        ("messages, back", "message_bytes"),
        ("manifests that the commit wrote, and the next batch reads", "metadata_bytes"),
    ):
        sizes = [f"{getattr(costs, member) / 1e6:.1f} MB" for costs in (small, predicted, large)]
        yield f"| {name} | | {' | '.join(sizes)} |"
    yield ""
    of_chunks = "chunks | rows in one | bytes of one | chunks, CPU-seconds a core"
    yield f"| A batch every | records | {of_chunks} | driver, of the time | files a day |"
    yield "|---|---|---|---|---|---|---|---|"
    for interval_s in _INTERVALS_S:
        batch_bytes = _BYTES_A_DAY * interval_s // 86_400
        count, held = chunks_of(large.shape, batch_bytes)
        rows = max(1, held // _RECORD_BYTES)
        size, cpu_s = cost_of_a_chunk(rows)
        share = sum(large.cpu_s.values()) / interval_s
        files = large.shape.buckets * 86_400 // interval_s
        yield (
            f"| {interval_s} s | {batch_bytes / 1e9:.2f} GB | {count:,} | {rows} | {size:,} | "
            f"{count * cpu_s / large.shape.write_tasks:.2f} s | {share:.0%} | {files:,} |"
        )


def main() -> None:
    small, large = measured(SMALL), measured(LARGE)
    sys.stdout.write("\n".join(tables(small, large)) + "\n")


if __name__ == "__main__":
    main()
