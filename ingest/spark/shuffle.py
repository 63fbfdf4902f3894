"""Rows from map tasks to the tasks that write buckets, as Arrow IPC blobs: one a shuffle partition and 50,000 rows.

Blobs and not rows: turning rows into Spark's form and back costs more than everything else.
Every blob names the buckets of its rows, so that they are not routed again; all blobs of a shuffle partition reach one
task.
"""

from __future__ import annotations

import json
import pickle
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import numpy as np
import pyarrow as pa

from checkpoint.offsets import OffsetRange, TopicPartition
from ingest.spark.batch_rows import BatchInput, BatchStatistics, raw_batches
from ingest.spark.package_version import check_version, package_version
from storage.table import TableContext
from storage.write.assigners import BucketAssignerFactory, bucket_assigner_of
from storage.write.bucket_router import BucketKey, BucketRouter, split_by_group

SHUFFLE_SCHEMA: Final = "shuffle_partition int, kind string, payload binary"

_ROWS_A_BLOB: Final = 50_000
BUCKET_COLUMN: Final = "_bucket"  # of each row the index of its bucket among those that the blob names
_BUCKETS: Final = b"buckets"  # in a blob's metadata


class PayloadKind(StrEnum):
    ROWS = "rows"  # payload: Arrow IPC
    STATISTICS = "statistics"  # payload: JSON of what raw records were met
    MESSAGES = "messages"  # payload: pickled commit messages
    SINGLE_TASK = "single task"  # a value may lie with another task's rows: write the batch in one task


@dataclass(frozen=True)
class ShuffleMap:
    """The map side: for `mapInArrow`.

    shuffle_partitions: how many tasks will write.
    bucket_assigner: makes the assigner of each map task; it must be a function of the rows.
    version: of this package in the driver.
    """

    context: TableContext
    input: BatchInput
    shuffle_partitions: int
    bucket_assigner: BucketAssignerFactory = bucket_assigner_of
    version: str = field(default_factory=package_version)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        check_version(self.version)
        context = self.context
        router = BucketRouter(context.schema, self.bucket_assigner(context))
        statistics = BatchStatistics()
        buffer = _RowBuffer()
        for batch in batches:
            for rows in self.input.rows(batch, context, statistics):
                buffer.add(rows)
                if buffer.row_count >= _ROWS_A_BLOB:
                    yield from self._parts(router, buffer.take())
        if buffer.row_count:
            yield from self._parts(router, buffer.take())
        if statistics.ranges or statistics.dead_letters:
            yield payload_row(0, PayloadKind.STATISTICS, statistics_to_json(statistics))

    def _parts(self, router: BucketRouter, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        rows, keys, buckets = router.numbered(rows)
        if rows.num_rows:
            to = np.array([shuffle_partition_of(key, self.shuffle_partitions) for key in keys])
            numbered = rows.append_column(BUCKET_COLUMN, pa.array(buckets))
            for shuffle_partition, part in split_by_group(numbered, to[buckets], self.shuffle_partitions):
                yield payload_row(shuffle_partition, PayloadKind.ROWS, to_ipc(with_buckets(part, keys)))


def collect_offsets(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Only the offsets of raw records, nothing decoded."""
    statistics = BatchStatistics()
    for batch in batches:
        for raw in raw_batches(batch, frozenset()):
            statistics.add(raw)
    yield payload_row(0, PayloadKind.STATISTICS, statistics_to_json(statistics))


@dataclass(slots=True)
class _RowBuffer:
    """Rows until there are enough for a blob; batches may differ in their last columns."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    row_count: int = 0

    def add(self, rows: pa.RecordBatch) -> None:
        self.batches.append(rows)
        self.row_count += rows.num_rows

    def take(self) -> pa.RecordBatch:
        taken = concat(self.batches)
        self.batches, self.row_count = [], 0
        return taken


def concat(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """One batch; a column that some batches lack is null there."""
    if len({batch.schema for batch in batches}) == 1:
        return pa.concat_batches(batches)
    table = pa.concat_tables([pa.Table.from_batches([b]) for b in batches], promote_options="default")
    return table.combine_chunks().to_batches()[0]


def shuffle_partition_of(key: BucketKey, shuffle_partitions: int) -> int:
    """The same in every process: not `hash()`, which differs between Python workers."""
    return (zlib.crc32(key.partition) + key.bucket) % shuffle_partitions


def payload_row(shuffle_partition: int, kind: PayloadKind, payload: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([shuffle_partition], pa.int32()), pa.array([str(kind)]), pa.array([payload], pa.binary())],
        names=["shuffle_partition", "kind", "payload"],
    )


def with_buckets(rows: pa.RecordBatch, keys: Sequence[BucketKey]) -> pa.RecordBatch:
    """Rows that say which buckets their numbers mean, in the metadata of their schema; see `buckets_of`."""
    found, numbers = np.unique(rows.column(BUCKET_COLUMN).to_numpy(), return_inverse=True)
    at = rows.schema.get_field_index(BUCKET_COLUMN)
    rows = rows.set_column(at, BUCKET_COLUMN, pa.array(numbers.astype(np.int32)))
    named = [(keys[number].partition, keys[number].bucket) for number in found.tolist()]
    return rows.replace_schema_metadata({_BUCKETS: pickle.dumps(named)})


def buckets_of(rows: pa.RecordBatch) -> list[BucketKey]:
    return [BucketKey(partition, bucket) for partition, bucket in pickle.loads(rows.schema.metadata[_BUCKETS])]


def to_ipc(rows: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_batch(rows)
    return bytes(sink.getvalue())


def from_ipc(payload: bytes) -> pa.RecordBatch:
    with pa.ipc.open_stream(payload) as stream:
        return next(iter(stream))


def statistics_to_json(statistics: BatchStatistics) -> bytes:
    ranges = [[p.topic, p.partition, r.start, r.end] for p, r in statistics.ranges.items()]
    return json.dumps(
        {"ranges": ranges, "sources": sorted(statistics.sources), "dead_letters": statistics.dead_letters}
    ).encode()


def merge_statistics(payloads: list[bytes]) -> BatchStatistics:
    merged = BatchStatistics()
    for payload in payloads:
        one = json.loads(payload)
        for topic, partition, start, end in one["ranges"]:
            merged.include(TopicPartition(topic, partition), OffsetRange(start, end))
        merged.sources.update(one["sources"])
        merged.dead_letters += one["dead_letters"]
    return merged
