"""Who writes what of a batch: shuffle partitions become tasks, and each task learns what its buckets hold.

The driver reads the table's manifests once a batch; tasks read none.
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

from ingest.spark.batch_facts import BatchFacts
from ingest.spark.shuffling.shuffle import PayloadKind, has_unaware_buckets, payload_row, shuffle_partition_of
from storage.collector import paused_collection
from storage.table import TableContext
from storage.write.bucket_router import BucketKey
from storage.write.restored_table import RestoredState, restore_files

_BUCKET_COST_BYTES: Final = 40_000  # a file costs as much as to write so many bytes of rows
TASK_COST_BYTES: Final = 2_000_000  # a task costs as much
_ZSTD_LEVEL: Final = 1
_BYTES_A_TASK_MAX: Final = 256_000_000

TaskWork: TypeAlias = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""What a task does with its plan and its blobs."""


@dataclass(frozen=True, slots=True)
class ShufflePlan:
    """tasks: how many there are.
    task_of_partition: the task of each shuffle partition.
    groups: shuffle partitions that must be read together, as rows take values from one another; others are groups of
        one.
    """

    tasks: int
    task_of_partition: Sequence[int]
    groups: Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """What a task must know. Pickles.

    groups: see `ShufflePlan`.
    restored: by table number, what the buckets of the task's rows hold. A task that finds rows of another bucket (the
        batch was recomputed, and gave others) looks for itself.
    """

    groups: Sequence[Sequence[int]] = ()
    restored: Mapping[int, RestoredState] = field(default_factory=dict)

    def to_payload(self) -> bytes:
        """Compressed: what is said of one file is much like what is said of the next."""
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
    """Work of all tasks, which finds the plan of its own by the first blob it is given. For `mapInArrow`.

    task_of_partition: see `ShufflePlan`.
    plans: of each task, a payload.
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


def plan_shuffle(facts: BatchFacts, shuffle_partitions: int, cores: int) -> ShufflePlan:
    """Few tasks for little work, and as much for each as for the others.

    cores: how many tasks can run at once.
    """
    costs = [0.0] * shuffle_partitions
    for of in facts.tables.values():
        total = sum(of.shuffle_bytes.values())
        for partition, nbytes in of.shuffle_bytes.items():
            costs[partition] += nbytes + _BUCKET_COST_BYTES * of.bucket_count * nbytes / max(1, total)
    cores = max(cores, int(sum(costs) // _BYTES_A_TASK_MAX))  # more machines come where there is work for them
    groups = _connected([pair for of in facts.tables.values() for pair in of.linked_partitions], shuffle_partitions)
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
    """Components of a graph with `count` nodes."""
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


def task_plans(tables: Sequence[TableContext], facts: BatchFacts, shuffle: ShufflePlan) -> list[TaskPlan]:
    """Of each task. Reads the manifests of the tables that rows go to."""
    restored: list[dict[int, RestoredState]] = [{} for _ in range(shuffle.tasks)]
    for number, of in facts.tables.items():
        context = tables[number]
        keys = [BucketKey(partition, bucket) for partition, buckets in of.buckets.items() for bucket in buckets]
        if not keys:
            continue
        with_files = context.schema.has_primary_key and not context.options.write_only
        with paused_collection():
            state = restore_files(context, with_files=with_files, partitions=set(of.buckets))
        if has_unaware_buckets(context):
            for of_task in restored:
                of_task[number] = state.only(keys)
            continue
        keys_of_task: dict[int, list[BucketKey]] = defaultdict(list)
        for key in keys:
            partition = shuffle_partition_of(context, key, len(shuffle.task_of_partition))
            keys_of_task[shuffle.task_of_partition[partition]].append(key)
        for task, own in keys_of_task.items():
            restored[task][number] = state.only(own)
    return [TaskPlan(shuffle.groups, of_task) for of_task in restored]
