"""The task that assigns buckets to rows: from chunks of key groups it makes chunks with buckets, and index files."""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import xxhash

from tidelake.errors import TidelakeError
from tidelake.ingest.spark.assigning.assign_plan import AssignPlan
from tidelake.ingest.spark.batch_rows import ORDER_PREFIX, BatchInput
from tidelake.ingest.spark.batch_statistics import BatchStatistics
from tidelake.ingest.spark.bucket_task import TableTask, grouped
from tidelake.ingest.spark.chunk_store import ChunkStore, local_folder
from tidelake.ingest.spark.shuffling.shuffle import (
    BUCKET_COLUMN,
    PayloadKind,
    TableShuffle,
    payload_row,
    shuffle_partition_of,
)
from tidelake.ingest.spark.task_start import begin_task, package_version
from tidelake.storage.files.partition_times import partition_check
from tidelake.storage.model.table import TableContext
from tidelake.storage.write.assigners import CrossPartitionAssigner
from tidelake.storage.write.bucket_router import BucketRouter

_ORDER_COLUMN = f"{ORDER_PREFIX}0"


@dataclass(frozen=True)
class AssignTask:
    """The task for `mapInArrow` after the shuffle by key groups.

    tables: see `open_reader`.
    batch_id: the commit identifier.
    version: the version of this package in the driver.

    Rows are assigned after all have arrived, in their source's order. Unavailable values are filled in before. The
    result has this order as a number, which is valid among rows of one key.

    A task that runs again makes the same result from the same chunks, in any order of arrival. Only its index files
    have other names. Valid are those of the run whose messages the driver received.
    """

    tables: Sequence[tuple[TableContext, BatchInput]]
    batch_id: int
    version: str = field(default_factory=package_version)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begin_task(self.version)
        plan = AssignPlan()
        statistics = BatchStatistics()
        digests: dict[tuple[int, int], list[bytes]] = defaultdict(list)
        with ChunkStore() as store:
            for batch in batches:
                columns = (batch.column(name).to_pylist() for name in ("table_number", "shuffle_partition", "kind"))
                for number, shuffle_partition, kind, payload in zip(*columns, batch.column("payload"), strict=True):
                    if kind == PayloadKind.ROWS:
                        store.add(number, shuffle_partition, payload.as_buffer())
                        digests[number, shuffle_partition].append(xxhash.xxh3_128_digest(payload.as_buffer()))
                    elif kind == PayloadKind.PLAN:
                        plan = AssignPlan.of_payload(payload.as_py())
            for number, shuffle_partitions in sorted(store.chunks().items()):
                self._check_keys_of_task(number, shuffle_partitions, plan)
                ordered = {
                    shuffle_partition: _by_digest(chunks, digests[number, shuffle_partition])
                    for shuffle_partition, chunks in sorted(shuffle_partitions.items())
                }
                yield from self._assigned(number, ordered, plan, statistics)
            shuffle_partitions = ordered = None  # type: ignore[assignment] # they refer to the store's file
        yield payload_row(0, 0, PayloadKind.STATISTICS, statistics.to_payload())

    def _check_keys_of_task(self, number: int, shuffle_partitions: Iterable[int], plan: AssignPlan) -> None:
        """Raise TidelakeError for keys of another task: they would seem to be new, and get a second bucket."""
        if not set(shuffle_partitions) <= set(plan.own_shuffle_partitions):
            name = self.tables[number][0].name
            raise TidelakeError(
                f"{name}: Spark merged tasks, so a task got rows whose buckets another task must choose. Nothing was "
                "published. Set spark.sql.adaptive.enabled = false for this query"
            )

    def _assigned(
        self,
        number: int,
        shuffle_partitions: Mapping[int, list[pa.RecordBatch]],
        plan: AssignPlan,
        statistics: BatchStatistics,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the chunks of one table with buckets, and the messages of its index."""
        context, rows_of = self.tables[number]
        assigner = plan.assigner(number, context, replaces=rows_of.replaces, spill_directory=local_folder())
        if isinstance(assigner, CrossPartitionAssigner):
            for chunk in (chunk for chunks in shuffle_partitions.values() for chunk in chunks):
                assigner.expect(chunk)
        router = BucketRouter(context.schema, assigner, partition_check(context))
        shuffle = TableShuffle(
            number, context, router, lambda key: shuffle_partition_of(context, key, plan.shuffle_partitions), statistics
        )
        task = TableTask(context, rows_of, statistics.table(number))
        count = 0
        for group in grouped(shuffle_partitions, plan.groups):
            for rows in task.row_batches([chunk.replace_schema_metadata(None) for chunk in group]):
                order = pa.array(np.arange(count, count + rows.num_rows))
                yield from shuffle.chunks(rows.drop_columns([BUCKET_COLUMN]).append_column(_ORDER_COLUMN, order))
                count += rows.num_rows
        messages = assigner.prepare_commit(self.batch_id)
        yield payload_row(number, 0, PayloadKind.MESSAGES, pickle.dumps(list(messages)))


def _by_digest(chunks: Sequence[pa.RecordBatch], digests: Sequence[bytes]) -> list[pa.RecordBatch]:
    """Return the chunks in a fixed order, because a shuffle returns them in a different order each time."""
    return [chunks[i] for i in sorted(range(len(chunks)), key=digests.__getitem__)]
