"""Plans which task assigns the buckets of which rows: divides the shuffle partitions of key groups among tasks.

assigners of a table    as many as the work of the batch needs, or as many as the table's options say
tasks                   a task has all shuffle partitions of an assigner, and those whose rows take values from them
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tidelake.ingest.spark.batch_statistics import BatchStatistics, BatchTableStatistics
from tidelake.ingest.spark.shuffling.key_groups import fixed_assigners, keys_change_partition, owners_of
from tidelake.ingest.spark.shuffling.task_plan import ShufflePlan, plan_shuffle
from tidelake.storage.base.clock import epoch_ms
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.storage.write.assigners import BucketAssigner, CrossPartitionAssigner, DynamicBucketAssigner
from tidelake.storage.write.assigners.cross_partition.assigner import KeyIndexPart
from tidelake.storage.write.assigners.dynamic import AssignerPart


@dataclass(frozen=True, slots=True)
class AssignPlan:
    """The plan of a task that assigns buckets. It can be pickled.

    Two runs of a task must have the same result: Spark runs a task again if its output is lost, and other tasks may
    have written rows of that output before. So the driver determines the time and the table's state.

    snapshots: for each table number, the snapshot from which the index is built.
    now_ms: the time, epoch milliseconds.
    shuffle_partitions: number of shuffle partitions.
    own_shuffle_partitions: the shuffle partitions of this task.
    groups: see `ShufflePlan`.
    num_assigners: number of assigners of tables whose options don't set it.
    """

    snapshots: Mapping[int, Snapshot | None] = field(default_factory=dict)
    now_ms: int = 0
    shuffle_partitions: int = 1
    own_shuffle_partitions: Sequence[int] = ()
    groups: Sequence[Sequence[int]] = ()
    num_assigners: int = 1

    def assigner(
        self, number: int, context: TableContext, *, replaces: bool, spill_directory: str | None
    ) -> BucketAssigner:
        snapshot = self.snapshots[number]
        own = sorted({shuffle_partition % self.num_assigners for shuffle_partition in self.own_shuffle_partitions})
        if keys_change_partition(context):
            part = KeyIndexPart(snapshot, self.now_ms, self.num_assigners, own[0])
            return CrossPartitionAssigner(context, spill_directory=spill_directory, replaces=replaces, part=part)
        owners = owners_of(context, self.shuffle_partitions, self.num_assigners)
        fixed = fixed_assigners(context)
        # With many assigners set by an option, a task has keys of all of them, of other ones in each partition.
        of_task = own if fixed is None else range(fixed)
        return DynamicBucketAssigner(
            context, replaces=replaces, part=AssignerPart(snapshot, fixed or self.num_assigners, owners, of_task)
        )

    def to_payload(self) -> bytes:
        return pickle.dumps(self)

    @staticmethod
    def of_payload(payload: bytes) -> AssignPlan:
        plan = pickle.loads(payload)
        assert isinstance(plan, AssignPlan)
        return plan


def plan_assigners(
    tables: Mapping[int, TableContext], statistics: BatchStatistics, shuffle_partitions: int, cores: int
) -> tuple[ShufflePlan, list[AssignPlan]]:
    """Return the plan of the shuffle to the assigners, and the plan of each task. Reads the tables' newest snapshots.

    tables: the tables with an index and rows in the batch, by number.
    statistics: the statistics of the shuffle by key groups.
    """
    by_key_group = {
        number: BatchTableStatistics(shuffle_bytes=of.shuffle_bytes, linked_partitions=of.linked_partitions)
        for number, of in statistics.tables.items()
        if number in tables
    }
    assigners = plan_shuffle(BatchStatistics({}, by_key_group), shuffle_partitions, cores).tasks
    linked = {(number % assigners, number) for number in range(assigners, shuffle_partitions)}
    joined = {
        number: replace(of, linked_partitions=of.linked_partitions | linked) for number, of in by_key_group.items()
    }
    plan = plan_shuffle(BatchStatistics({}, joined), shuffle_partitions, cores)
    groups = plan_shuffle(BatchStatistics({}, by_key_group), shuffle_partitions, cores).groups
    snapshots = {number: context.snapshots.latest() for number, context in tables.items()}
    now_ms = epoch_ms()
    plans = [
        AssignPlan(
            snapshots,
            now_ms,
            shuffle_partitions,
            [number for number, of in enumerate(plan.task_of_partition) if of == task],
            groups,
            assigners,
        )
        for task in range(plan.tasks)
    ]
    return plan, plans
