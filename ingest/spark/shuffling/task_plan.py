"""Plans which task writes which rows: divides shuffle partitions among tasks, and gives each the state of its buckets.

The driver reads the table's manifests once per batch. Tasks read no manifests.
"""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, TypeAlias

import pyarrow as pa
import zstandard

from tidelake.ingest.spark.batch_statistics import BatchStatistics
from tidelake.ingest.spark.shuffling.shuffle import PayloadKind, has_unaware_buckets, payload_row, shuffle_partition_of
from tidelake.storage.base.garbage_collection import paused_collection
from tidelake.storage.base.threads import map_parallel
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.table import TableContext
from tidelake.storage.write.restored_table import RestoredState, restore_files

_BUCKET_COST_BYTES: Final = 40_000  # a file costs as much as writing this many bytes of rows
TASK_COST_BYTES: Final = 2_000_000  # a task costs as much as writing this many bytes of rows
_ZSTD_LEVEL: Final = 1
_BYTES_A_TASK_MAX: Final = 256_000_000

TaskWork: TypeAlias = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""The function that a task applies to its plan and its chunks."""


@dataclass(frozen=True, slots=True)
class ShufflePlan:
    """The division of shuffle partitions among tasks.

    tasks: number of tasks.
    task_of_partition: the task of each shuffle partition.
    groups: shuffle partitions that must be read together, because their rows take values from each other. Other shuffle
        partitions are read separately.
    """

    tasks: int
    task_of_partition: Sequence[int]
    groups: Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """The plan of a task. It can be pickled.

    groups: see `ShufflePlan`.
    restored: for each table number, the state of the buckets of the task's rows. If a task gets rows of another bucket,
        because the batch was recomputed with another result, it reads the state itself.
    """

    groups: Sequence[Sequence[int]] = ()
    restored: Mapping[int, RestoredState] = field(default_factory=dict)

    def to_payload(self) -> bytes:
        """Return the plan as compressed bytes. The metadata of files are similar, and compress well."""
        with paused_collection():
            return zstandard.ZstdCompressor(_ZSTD_LEVEL).compress(pickle.dumps(self))

    @staticmethod
    def of_payload(payload: bytes) -> TaskPlan:
        with paused_collection():
            plan = pickle.loads(zstandard.ZstdDecompressor().decompress(payload))
        assert isinstance(plan, TaskPlan)
        return plan


@dataclass(frozen=True, slots=True)
class PlannedWork:
    """The work of all tasks with their plans, for `mapInArrow`. A task finds its own plan by its first chunk.

    task_of_partition: see `ShufflePlan`.
    plans: the payload of each task's plan.
    """

    work: TaskWork
    task_of_partition: Sequence[int]
    plans: Sequence[bytes]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        first = next((batch for batch in batches if batch.num_rows), None)
        if first is not None:
            task = self.task_of_partition[first.column("shuffle_partition")[0].as_py()]
            plan = payload_row(0, 0, PayloadKind.PLAN, self.plans[task])
            yield from self.work(chain([plan, first], batches))


def plan_shuffle(statistics: BatchStatistics, shuffle_partitions: int, cores: int) -> ShufflePlan:
    """Divide the shuffle partitions evenly among tasks. Little work gets few tasks.

    cores: number of tasks that can run at once.
    """
    costs = [0.0] * shuffle_partitions
    for of in statistics.tables.values():
        total = sum(of.shuffle_bytes.values())
        for partition, nbytes in of.shuffle_bytes.items():
            costs[partition] += nbytes + _BUCKET_COST_BYTES * of.bucket_count * nbytes / max(1, total)
    cores = max(cores, int(sum(costs) // _BYTES_A_TASK_MAX))  # Spark may add executors for more work
    groups = _connected(
        [pair for of in statistics.tables.values() for pair in of.linked_partitions], shuffle_partitions
    )
    tasks = int(max(1, min(cores, sum(cost > 0 for cost in costs), -(-sum(costs) // TASK_COST_BYTES))))
    loads = [0.0] * tasks
    task_of_partition = [0] * shuffle_partitions
    for group in sorted(groups, key=lambda group: -sum(costs[partition] for partition in group)):
        task = loads.index(min(loads))
        loads[task] += sum(costs[partition] for partition in group)
        for partition in group:
            task_of_partition[partition] = task
    return ShufflePlan(tasks, task_of_partition, [group for group in groups if len(group) > 1])


def _connected(pairs: Collection[tuple[int, int]], count: int) -> list[list[int]]:
    """Return the connected components of a graph with `count` nodes."""
    parent = list(range(count))

    def root(node: int) -> int:
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    for a, b in pairs:
        parent[root(b)] = root(a)
    components: dict[int, list[int]] = defaultdict(list)
    for node in range(count):
        components[root(node)].append(node)
    return list(components.values())


def task_plans(tables: Sequence[TableContext], statistics: BatchStatistics, shuffle: ShufflePlan) -> list[TaskPlan]:
    """Return the plan of each task. Reads the manifests of the tables with rows."""
    restored: list[dict[int, RestoredState]] = [{} for _ in range(shuffle.tasks)]
    with_rows = {number: of for number, of in statistics.tables.items() if any(of.buckets.values())}

    def state_of(number: int) -> RestoredState:
        context = tables[number]
        with_files = context.schema.has_primary_key and not context.options.write_only
        with paused_collection():
            return restore_files(context, with_files=with_files, partitions=set(with_rows[number].buckets))

    states = zip(with_rows.items(), map_parallel(state_of, with_rows), strict=True)
    for (number, of), state in states:
        context = tables[number]
        keys = [BucketId(partition, bucket) for partition, buckets in of.buckets.items() for bucket in buckets]
        if has_unaware_buckets(context):
            for of_task in restored:
                of_task[number] = state.only(keys)
            continue
        keys_of_task: dict[int, list[BucketId]] = defaultdict(list)
        for key in keys:
            partition = shuffle_partition_of(context, key, len(shuffle.task_of_partition))
            keys_of_task[shuffle.task_of_partition[partition]].append(key)
        for task, own in keys_of_task.items():
            restored[task][number] = state.only(own)
    return [TaskPlan(shuffle.groups, of_task) for of_task in restored]
