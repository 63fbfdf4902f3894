"""A log in memory: topics, partitions, records with offsets. A source reads it like Kafka, up to its end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from tidelake.checkpoint.offsets import OffsetRange, SourceIdentity, TopicPartition
from tidelake.ingest.raw_batch import Headers, RawBatch, timestamp_types_of
from tidelake.ingest.sources.source import Earliest, Start

pa.array([b""])  # Arrow's first array from Python objects imports pandas, which would block the event loop


@dataclass
class MemoryLog:
    """A log that outlives its pipelines. first: the first offset of each partition; older records are deleted.
    timestamp_types: Kafka's names of types, which records have in turn.
    """

    cluster_id: str = "memory"
    topic_ids: dict[str, str] = field(default_factory=dict)
    records: dict[TopicPartition, list[tuple[bytes | None, bytes | None]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    headers: dict[tuple[TopicPartition, int], Headers] = field(default_factory=dict)
    first: dict[TopicPartition, int] = field(default_factory=dict)
    timestamp_types: Sequence[str | None] = (None,)

    def append(
        self, topic: str, value: bytes | None, key: bytes | None = None, partition: int = 0, headers: Headers = ()
    ) -> int:
        """Returns the record's offset."""
        self.topic_ids.setdefault(topic, f"id-of-{topic}")
        records = self.records[TopicPartition(topic, partition)]
        records.append((key, value))
        if headers:
            self.headers[TopicPartition(topic, partition), len(records) - 1] = headers
        return len(records) - 1

    def bounds(self, partition: TopicPartition) -> OffsetRange:
        end = len(self.records[partition])
        return OffsetRange(min(self.first.get(partition, 0), end), end)


class MemoryLogSource:
    """See `tidelake.ingest.sources.source.Source`. Partitions are read in turns, a batch each, in an order that never
    varies.

    first: these are read before, each time a batch, as far as they have one.
    """

    def __init__(self, log: MemoryLog, batch_records: int = 3, first: Sequence[int] = ()) -> None:
        self._log = log
        self._batch_records = batch_records
        self._first = first
        self.confirmed: dict[TopicPartition, int] = {}

    @property
    def identity(self) -> SourceIdentity:
        return SourceIdentity(self._log.cluster_id, dict(self._log.topic_ids))

    async def open(self, known: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        return frozenset(self._log.records)

    async def offsets(self, partitions: Collection[TopicPartition], start: Start) -> dict[TopicPartition, int]:
        bounds = {partition: self._log.bounds(partition) for partition in partitions}
        return {partition: (at.start if start == Earliest() else at.end) for partition, at in bounds.items()}

    async def bounds(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, OffsetRange]:
        return {partition: self._log.bounds(partition) for partition in partitions if partition in self._log.records}

    async def read(self, positions: Mapping[TopicPartition, int]) -> AsyncGenerator[RawBatch, None]:
        at = dict(positions)
        for number in self._first:
            for partition in sorted(self._log.records):
                if partition.partition == number and at.get(partition, 0) < len(self._log.records[partition]):
                    batch = self._batch(partition, at.get(partition, 0))
                    at[partition] = batch.next_offset
                    yield batch
        while left := [p for p in sorted(self._log.records) if at.get(p, 0) < len(self._log.records[p])]:
            for partition in left:
                batch = self._batch(partition, at.get(partition, 0))
                at[partition] = batch.next_offset
                yield batch

    def _batch(self, partition: TopicPartition, start: int) -> RawBatch:
        records = self._log.records[partition][start : start + self._batch_records]
        offsets = np.arange(start, start + len(records), dtype=np.int64)
        keys, values = (pa.array([record[part] for record in records], pa.binary()) for part in (0, 1))
        types = self._log.timestamp_types
        headers = {row: self._log.headers.get((partition, start + row), ()) for row in range(len(records))}
        return RawBatch(
            partition.topic,
            partition.partition,
            offsets,
            offsets,
            keys,
            values,
            start + len(records),
            {row: found for row, found in headers.items() if found},
            timestamp_types_of([types[offset % len(types)] for offset in offsets.tolist()]),
        )

    async def check_identity(self) -> None:
        """A log stays what it is while it is read."""

    async def deleted_topics(self) -> Collection[str]:
        return ()

    async def commit_offsets(self, ends: Mapping[TopicPartition, int]) -> None:
        self.confirmed = dict(ends)

    async def close(self) -> None:
        """Nothing is held."""
