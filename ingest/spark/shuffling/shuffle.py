"""Sends rows from map tasks to the tasks that write buckets, as Arrow IPC chunks of some megabytes.

Chunks are used because converting rows to Spark's format and back costs more than everything else. A shuffle partition
is a share of the buckets of all tables. A chunk has rows of one table and one shuffle partition. Every chunk names the
buckets of its rows, so that they are not routed again. All chunks of a shuffle partition reach one task, which the
driver chooses.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import count
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark import TaskContext

from tidelake.ingest.spark.batch_rows import (
    OLD_KEY_PREFIX,
    UNAVAILABLE_COLUMN,
    BatchInput,
    PipelineRecords,
    open_reader,
)
from tidelake.ingest.spark.batch_statistics import BatchStatistics, BatchTableStatistics
from tidelake.ingest.spark.raw_columns import raw_batches
from tidelake.ingest.spark.shuffling.key_groups import (
    KeyGroupAssigner,
    has_dynamic_buckets,
    shuffle_partition_of_key_group,
)
from tidelake.ingest.spark.task_start import begin_task, package_version
from tidelake.storage.files.partition_times import partition_check
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.bucketing import BucketMode, bucket_mode
from tidelake.storage.model.format import KIND_COLUMN, RowKind
from tidelake.storage.model.table import TableContext
from tidelake.storage.write.assigners import BucketAssigner, BucketAssignerFactory, bucket_assigner_of
from tidelake.storage.write.bucket_router import BucketRouter, split_by_group

SHUFFLE_SCHEMA: Final = "table_number int, shuffle_partition int, kind string, payload binary"

_ROWS_HELD: Final = 50_000  # rows in memory before they become chunks
_BUFFER_BYTES: Final = 16 << 20
BUCKET_COLUMN: Final = "_bucket"  # for each row the index of its bucket in the chunk's list of buckets
_BUCKETS: Final = b"buckets"  # key in a chunk's metadata


class PayloadKind(StrEnum):
    ROWS = "rows"  # payload: Arrow IPC
    STATISTICS = "statistics"  # payload: see `BatchStatistics`
    PLAN = "plan"  # payload: see `TaskPlan`
    MESSAGES = "messages"  # payload: pickled commit messages of a table


@dataclass(frozen=True)
class ShuffleMap:
    """The map side of the shuffle, for `mapInArrow`.

    tables: see `open_reader`.
    shuffle_partitions: number of shuffle partitions, into which the buckets are divided.
    bucket_assigner: creates the assigner of each table in each task. Buckets must be a function of the rows. For tables
        where they are not (`has_dynamic_buckets`), rows are divided by key groups, and get buckets in another task.
    version: the version of this package in the driver.
    pipeline: see `RawReader`.
    """

    tables: Sequence[tuple[TableContext, BatchInput]]
    shuffle_partitions: int
    bucket_assigner: BucketAssignerFactory = bucket_assigner_of
    version: str = field(default_factory=package_version)
    pipeline: PipelineRecords | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begin_task(self.version)
        statistics = BatchStatistics()
        reader = open_reader(self.tables, statistics, self.pipeline)
        buffers: dict[int, _RowBuffer] = {}
        shuffles: dict[int, TableShuffle] = {}
        held_rows, held_bytes = 0, 0

        def chunks() -> Iterator[pa.RecordBatch]:
            for number, buffer in buffers.items():
                if number not in shuffles:
                    context = self.tables[number][0]
                    router = BucketRouter(context.schema, self._assigner_of(context), partition_check(context))
                    shuffles[number] = TableShuffle(
                        number, context, router, self._shuffle_partition_of(context), statistics
                    )
                yield from shuffles[number].chunks(buffer.take())

        for number, rows in self._rewritten():
            buffers.setdefault(number, _RowBuffer()).add(rows)
        for batch in batches:
            for number, rows in reader.rows(batch):
                if rows.num_rows:
                    buffers.setdefault(number, _RowBuffer()).add(rows)
                    held_rows, held_bytes = held_rows + rows.num_rows, held_bytes + rows.nbytes
            if held_rows >= _ROWS_HELD or held_bytes >= _BUFFER_BYTES:
                yield from chunks()
                buffers, held_rows, held_bytes = {}, 0, 0
        yield from chunks()
        yield payload_row(0, 0, PayloadKind.STATISTICS, statistics.to_payload())

    def _rewritten(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield rows of earlier batches that are written again. Of all tasks, the first one sends them."""
        task = TaskContext.get()
        if task is None or task.partitionId() == 0:
            for number, (_, one) in enumerate(self.tables):
                for rows in one.rewritten:
                    yield number, rows

    def _assigner_of(self, context: TableContext) -> BucketAssigner:
        if has_dynamic_buckets(context):
            return KeyGroupAssigner(context, self.shuffle_partitions)
        return self.bucket_assigner(context)

    def _shuffle_partition_of(self, context: TableContext) -> Callable[[BucketId], int]:
        if has_dynamic_buckets(context):
            return lambda key: shuffle_partition_of_key_group(context, key, self.shuffle_partitions)
        if not has_unaware_buckets(context):
            return lambda key: shuffle_partition_of(context, key, self.shuffle_partitions)
        task = TaskContext.get()  # a retried task has the same id, so its rows keep their shuffle partitions
        numbers = count(zlib.crc32(context.name.encode()) + (0 if task is None else task.partitionId()))
        return lambda key: next(numbers) % self.shuffle_partitions


def has_unaware_buckets(context: TableContext) -> bool:
    """Return whether the table has unaware buckets: any task may write any rows.

    Each chunk of such a table gets the next shuffle partition.
    """
    return bucket_mode(context.schema, context.options) is BucketMode.UNAWARE


def shuffle_partition_of(context: TableContext, key: BucketId, shuffle_partitions: int) -> int:
    """Return the shuffle partition of a bucket's rows. It is the same in every process, unlike Python's `hash()`."""
    return (zlib.crc32(context.name.encode()) + zlib.crc32(key.partition) + key.bucket) % shuffle_partitions


@dataclass(slots=True)
class TableShuffle:
    """The shuffle of one table in one map task."""

    number: int
    context: TableContext
    router: BucketRouter
    shuffle_partition_of: Callable[[BucketId], int]
    statistics: BatchStatistics

    def chunks(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        routed, keys, buckets = self.router.numbered(rows)
        if not routed.num_rows:
            return
        shuffle_partitions = np.array([self.shuffle_partition_of(key) for key in keys])
        statistics = self.statistics.table(self.number)
        for key in keys:
            statistics.buckets.setdefault(key.partition, set()).add(key.bucket)
        if UNAVAILABLE_COLUMN in routed.schema.names:
            self._link(routed, shuffle_partitions[buckets], statistics)
        numbered = routed.append_column(BUCKET_COLUMN, pa.array(buckets))
        count = int(shuffle_partitions.max()) + 1
        for partition, part in split_by_group(numbered, shuffle_partitions[buckets], count):
            chunk = to_ipc(with_buckets(part, keys))
            statistics.shuffle_bytes[partition] = statistics.shuffle_bytes.get(partition, 0) + len(chunk)
            yield payload_row(self.number, partition, PayloadKind.ROWS, chunk)

    def _link(
        self, rows: pa.RecordBatch, shuffle_partitions: NDArray[np.integer[Any]], statistics: BatchTableStatistics
    ) -> None:
        """Link shuffle partitions: unavailable values are in the row of the old key, which may be in another bucket."""
        flagged = pa.array(np.flatnonzero(rows.column(UNAVAILABLE_COLUMN).is_valid().to_numpy(zero_copy_only=False)))
        primary_keys = set(self.context.schema.primary_keys)
        if not len(flagged) or not primary_keys:
            return
        columns = [
            rows.column(OLD_KEY_PREFIX + name).take(flagged)
            if name in primary_keys
            else rows.column(name).take(flagged)
            for name in self.context.schema.names
        ]
        kinds = pa.array(np.full(len(flagged), RowKind.INSERT, np.int8))
        old = pa.RecordBatch.from_arrays([*columns, kinds], [*self.context.schema.names, KIND_COLUMN])
        _, keys, buckets = self.router.numbered(old)
        of_old = np.array([self.shuffle_partition_of(key) for key in keys])[buckets]
        pairs = np.sort(np.column_stack([of_old, shuffle_partitions[flagged.to_numpy()]]), axis=1)
        distinct = np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0)
        statistics.linked_partitions.update((int(a), int(b)) for a, b in distinct)


def collect_offsets(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield only the offsets of raw records. No record is decoded."""
    statistics = BatchStatistics()
    for batch in batches:
        for raw in raw_batches(batch, frozenset()):
            statistics.add(raw)
    yield payload_row(0, 0, PayloadKind.STATISTICS, statistics.to_payload())


@dataclass(slots=True)
class _RowBuffer:
    """Collects rows for a chunk. Batches may differ in their last columns."""

    batches: list[pa.RecordBatch] = field(default_factory=list)

    def add(self, rows: pa.RecordBatch) -> None:
        self.batches.append(rows)

    def take(self) -> pa.RecordBatch:
        taken = concat(self.batches)
        self.batches = []
        return taken


def concat(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Concatenate batches. A column that a batch lacks is null in its rows."""
    if len({batch.schema for batch in batches}) == 1:
        return pa.concat_batches(batches)
    table = pa.concat_tables([pa.Table.from_batches([b]) for b in batches], promote_options="default")
    return table.combine_chunks().to_batches()[0]


def payload_row(table_number: int, shuffle_partition: int, kind: PayloadKind, payload: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            pa.array([table_number], pa.int32()),
            pa.array([shuffle_partition], pa.int32()),
            pa.array([str(kind)]),
            pa.array([payload], pa.binary()),
        ],
        names=["table_number", "shuffle_partition", "kind", "payload"],
    )


def with_buckets(rows: pa.RecordBatch, keys: Sequence[BucketId]) -> pa.RecordBatch:
    """Return the rows with the list of their buckets in the metadata of their schema; see `buckets_of`."""
    found, numbers = np.unique(rows.column(BUCKET_COLUMN).to_numpy(), return_inverse=True)
    at = rows.schema.get_field_index(BUCKET_COLUMN)
    rows = rows.set_column(at, BUCKET_COLUMN, pa.array(numbers.astype(np.int32)))
    named = [(keys[number].partition, keys[number].bucket) for number in found.tolist()]
    return rows.replace_schema_metadata({_BUCKETS: pickle.dumps(named)})


def buckets_of(rows: pa.RecordBatch) -> list[BucketId]:
    return [BucketId(partition, bucket) for partition, bucket in pickle.loads(rows.schema.metadata[_BUCKETS])]


def to_ipc(rows: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_batch(rows)
    return bytes(sink.getvalue())


def from_ipc(payload: pa.Buffer) -> pa.RecordBatch:
    with pa.ipc.open_stream(payload) as stream:
        return next(iter(stream))
