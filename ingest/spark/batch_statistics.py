"""Facts of a decoded batch: its offsets, and the tables and buckets of its rows.

Map tasks send the statistics to the driver, which needs all of them before a row is written.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from tidelake.checkpoint.offsets import OffsetRange, TopicPartition
from tidelake.checkpoint.record_times import RecordTimes
from tidelake.ingest.formats.base import DecodeFailure
from tidelake.ingest.formats.document_ids import DocumentIds
from tidelake.ingest.formats.source_table import SourceTable
from tidelake.ingest.raw_batch import RawBatch
from tidelake.ingest.spark.first_records import FirstRecord


@dataclass(frozen=True, slots=True)
class SchemaNeed:
    """A record that doesn't fit its table, or a DDL record.

    record: its place and error, for messages.
    partition: the partition of the record.
    """

    record: str
    partition: TopicPartition
    failure: DecodeFailure


@dataclass(frozen=True, slots=True)
class TruncateRecord:
    """The record of a truncate.

    failure: its failure; `row` is 0.
    raw: a batch of this record alone.
    """

    failure: DecodeFailure
    raw: RawBatch

    @classmethod
    def of(cls, failure: DecodeFailure, raw: RawBatch) -> TruncateRecord:
        """raw: the batch of the failed record."""
        return cls(replace(failure, row=0), raw.slice(failure.row, failure.row + 1))

    @property
    def partition(self) -> TopicPartition:
        return TopicPartition(self.raw.topic, self.raw.partition)


@dataclass(slots=True)
class BatchTableStatistics:
    """Facts of one table.

    sources: the source tables of its records.
    dead_letters: lines of JSON.
    shuffle_bytes: bytes of rows in each shuffle partition.
    buckets: partition (a serialized BinaryRow) to the buckets of its rows.
    linked_partitions: pairs of shuffle partitions, the smaller first. Rows of one may take values from the other.
    needs: the first need of each kind in a task. If any record needs columns, its rows are missing in the batch.
    document_ids: for each task with records of the table, the ids of MongoDB's documents in it and in the table.
    topics: topics of its rows.
    truncates: for each partition, its last truncate that is to be applied.
    past_truncate: partitions with rows from after the truncate that `RawRecords.marker` names.
    times: times of the records of its rows; None if they have none.
    """

    sources: set[str] = field(default_factory=set)
    dead_letters: list[str] = field(default_factory=list)
    shuffle_bytes: dict[int, int] = field(default_factory=dict)
    buckets: dict[bytes, set[int]] = field(default_factory=dict)
    linked_partitions: set[tuple[int, int]] = field(default_factory=set)
    needs: list[SchemaNeed] = field(default_factory=list)
    document_ids: list[DocumentIds] = field(default_factory=list)
    topics: set[str] = field(default_factory=set)
    truncates: dict[TopicPartition, TruncateRecord] = field(default_factory=dict)
    past_truncate: set[int] = field(default_factory=set)
    times: RecordTimes | None = None

    def include(self, other: BatchTableStatistics) -> None:
        self.sources |= other.sources
        self.dead_letters += other.dead_letters
        self.needs += other.needs
        self.document_ids += other.document_ids
        self.topics |= other.topics
        self.past_truncate |= other.past_truncate
        self.add_times(other.times)
        for record in other.truncates.values():
            self.add_truncate(record)
        self.linked_partitions |= other.linked_partitions
        for shuffle_partition, nbytes in other.shuffle_bytes.items():
            self.shuffle_bytes[shuffle_partition] = self.shuffle_bytes.get(shuffle_partition, 0) + nbytes
        for partition, buckets in other.buckets.items():
            self.buckets.setdefault(partition, set()).update(buckets)

    def add_truncate(self, record: TruncateRecord) -> None:
        known = self.truncates.get(record.partition)
        if known is None or known.failure.offset < record.failure.offset:
            self.truncates[record.partition] = record

    def add_times(self, times: RecordTimes | None) -> None:
        if times is not None:
            self.times = times.joined(self.times)

    @property
    def bucket_count(self) -> int:
        return sum(map(len, self.buckets.values()))


@dataclass(slots=True)
class BatchStatistics:
    """Facts of a task, or of all tasks of a batch.

    ranges: offsets of raw records, including records of tables that aren't configured.
    record_bytes: bytes of these records, uncompressed.
    tables: statistics of each table, by its number among the written tables.
    first_records: the first record of each source table that has a table which doesn't exist yet.
    dead_letters: lines of JSON, of records for which no table exists.
    sources: the source tables of the records, if entries stand for many tables.
    """

    ranges: dict[TopicPartition, OffsetRange] = field(default_factory=dict)
    tables: dict[int, BatchTableStatistics] = field(default_factory=dict)
    record_bytes: Counter[TopicPartition] = field(default_factory=Counter)
    first_records: dict[SourceTable, FirstRecord] = field(default_factory=dict)
    dead_letters: list[str] = field(default_factory=list)
    sources: set[SourceTable] = field(default_factory=set)

    @staticmethod
    def merged(payloads: Iterable[bytes]) -> BatchStatistics:
        statistics = BatchStatistics()
        for payload in payloads:
            ranges, tables, record_bytes, first_records, dead_letters, sources = pickle.loads(payload)
            statistics.record_bytes.update(record_bytes)
            statistics.dead_letters += dead_letters
            statistics.sources |= sources
            for record in first_records.values():
                statistics.add_first_record(record)
            for partition, found in ranges.items():
                statistics.add_range(partition, found)
            for number, (sources, dead_letters, shuffle_bytes, buckets, *others) in tables.items():
                as_sets = {partition: set(numbers.tolist()) for partition, numbers in buckets.items()}
                statistics.table(number).include(
                    BatchTableStatistics(sources, dead_letters, shuffle_bytes, as_sets, *others)
                )
        return statistics

    def to_payload(self) -> bytes:
        """Return the statistics as bytes. Buckets are arrays, because each of many tasks may have ten thousand."""
        tables = {
            number: (
                of.sources,
                of.dead_letters,
                of.shuffle_bytes,
                {partition: np.fromiter(numbers, np.int32) for partition, numbers in of.buckets.items()},
                of.linked_partitions,
                of.needs,
                of.document_ids,
                of.topics,
                of.truncates,
                of.past_truncate,
                of.times,
            )
            for number, of in self.tables.items()
        }
        return pickle.dumps(
            (self.ranges, tables, self.record_bytes, self.first_records, self.dead_letters, self.sources)
        )

    def table(self, number: int) -> BatchTableStatistics:
        return self.tables.setdefault(number, BatchTableStatistics())

    def add(self, batch: RawBatch) -> None:
        if len(batch):
            partition = TopicPartition(batch.topic, batch.partition)
            self.add_range(partition, OffsetRange(int(batch.offsets[0]), int(batch.offsets[-1]) + 1))
            self.record_bytes[partition] += batch.nbytes

    def add_first_record(self, record: FirstRecord) -> None:
        known = self.first_records.get(record.source)
        if known is None or record.order < known.order:
            self.first_records[record.source] = record

    def add_range(self, partition: TopicPartition, found: OffsetRange) -> None:
        known = self.ranges.get(partition, found)
        self.ranges[partition] = OffsetRange(min(known.start, found.start), max(known.end, found.end))
