"""Rows from map tasks to the tasks that write buckets, as Arrow IPC blobs: one a bucket and 50,000 rows.

Blobs and not rows: turning rows into Spark's form and back costs more than everything else.
Every blob bears the slot of its bucket; all blobs of a slot reach one task.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import pyarrow as pa

from checkpoint.offsets import OffsetRange, TopicPartition
from ingest.spark.batch_rows import BatchInput, Seen, raw_batches
from storage.bucketing import Bucketing
from storage.table import TableContext
from storage.write.router import BucketKey, Router

PARTS_SCHEMA: Final = "slot int, kind string, payload binary"

_ROWS_A_BLOB: Final = 50_000


class Kind(StrEnum):
    ROWS = "rows"  # payload: Arrow IPC
    SEEN = "seen"  # payload: JSON of what raw records were met
    MESSAGES = "messages"  # payload: pickled commit messages
    ALONE = "alone"  # a value may lie with another task's rows: write the batch in one task


@dataclass(frozen=True)
class MakeParts:
    """The map side: for `mapInArrow`. slots: how many tasks will write."""

    context: TableContext
    input: BatchInput
    slots: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = self.context
        router = Router(context.schema, Bucketing.of(context.schema, context.options))
        seen = Seen()
        gathered = _Gathered()
        for batch in batches:
            for rows in self.input.rows(batch, context, seen):
                gathered.add(rows)
                if gathered.row_count >= _ROWS_A_BLOB:
                    yield from self._parts(router, gathered.take())
        if gathered.row_count:
            yield from self._parts(router, gathered.take())
        if seen.ranges or seen.letters:
            yield part(0, Kind.SEEN, seen_to_json(seen))

    def _parts(self, router: Router, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        for key, of_bucket in router.route(rows):
            yield part(slot_of(key, self.slots), Kind.ROWS, to_ipc(of_bucket))


def meet_offsets(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Only the offsets of raw records, nothing decoded."""
    seen = Seen()
    for batch in batches:
        for raw in raw_batches(batch):
            seen.add(raw)
    yield part(0, Kind.SEEN, seen_to_json(seen))


@dataclass(slots=True)
class _Gathered:
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


def slot_of(key: BucketKey, slots: int) -> int:
    """The same in every process: not `hash()`, which differs between Python workers."""
    return (zlib.crc32(key.partition) + key.bucket) % slots


def part(slot: int, kind: Kind, payload: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([slot], pa.int32()), pa.array([str(kind)]), pa.array([payload], pa.binary())],
        names=["slot", "kind", "payload"],
    )


def to_ipc(rows: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_batch(rows)
    return bytes(sink.getvalue())


def from_ipc(payload: bytes) -> pa.RecordBatch:
    with pa.ipc.open_stream(payload) as stream:
        return next(iter(stream))


def seen_to_json(seen: Seen) -> bytes:
    ranges = [[p.topic, p.partition, r.start, r.end] for p, r in seen.ranges.items()]
    return json.dumps({"ranges": ranges, "sources": sorted(seen.sources), "letters": seen.letters}).encode()


def merge_seen(payloads: list[bytes]) -> Seen:
    merged = Seen()
    for payload in payloads:
        one = json.loads(payload)
        for topic, partition, start, end in one["ranges"]:
            merged.include(TopicPartition(topic, partition), OffsetRange(start, end))
        merged.sources.update(one["sources"])
        merged.letters += one["letters"]
    return merged
