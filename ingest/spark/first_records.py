"""Finds the first record of each source table in a batch. Tables that don't exist yet are created from these."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from tidelake.ingest.formats.base import OpenedFormat
from tidelake.ingest.formats.source_table import SourceTable
from tidelake.ingest.raw_batch import Headers, RawBatch, binary_column
from tidelake.ingest.spark.job_names import named_jobs
from tidelake.ingest.spark.raw_columns import raw_batches
from tidelake.ingest.spark.task_start import begin_task, package_version

_SCHEMA: Final = "payload binary"


@dataclass(frozen=True, slots=True)
class FirstRecord:
    """The first record of a source table.

    timestamp_ms: -1 if the record has none.
    """

    source: SourceTable
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers

    @staticmethod
    def of(source: SourceTable, batch: RawBatch, row: int) -> FirstRecord:
        return FirstRecord(
            source,
            batch.topic,
            batch.partition,
            int(batch.offsets[row]),
            int(batch.timestamps_ms[row]),
            batch.keys[row].as_py(),
            batch.values[row].as_py(),
            tuple(batch.headers.get(row, ())),
        )

    def batch(self) -> RawBatch:
        """Return the record as a batch of one row."""
        return RawBatch(
            self.topic,
            self.partition,
            np.array([self.offset], np.int64),
            np.array([self.timestamp_ms], np.int64),
            binary_column([self.key]),
            binary_column([self.value]),
            self.offset + 1,
            {0: self.headers} if self.headers else {},
        )

    @property
    def order(self) -> tuple[int, str, int, int]:
        return self.timestamp_ms, self.topic, self.partition, self.offset


@dataclass(frozen=True)
class FirstRecordsTask:
    """The task for `mapInArrow`. It decodes no rows, only their source tables.

    version: the version of this package in the driver.
    """

    format: OpenedFormat
    version: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begin_task(self.version)
        decoder = self.format.decoder(lambda source: None)
        first: dict[SourceTable, FirstRecord] = {}
        for batch in batches:
            for raw in raw_batches(batch, self.format.KEPT_HEADERS):
                for source, row in decoder.decode(raw).creating.items():
                    found = FirstRecord.of(source, raw, row)
                    if source not in first or found.order < first[source].order:
                        first[source] = found
        yield pa.record_batch({"payload": pa.array([pickle.dumps(list(first.values()))], pa.binary())})


def first_records(batch: DataFrame, format: OpenedFormat) -> list[FirstRecord]:
    """Return one record of each source table, the oldest first. A small separate job finds them."""
    with named_jobs(batch.sparkSession, "find new tables"):
        rows = batch.mapInArrow(FirstRecordsTask(format, package_version()), _SCHEMA).collect()
    found = [record for row in rows for record in pickle.loads(bytes(row.payload))]
    first: dict[SourceTable, FirstRecord] = {}
    for record in sorted(found, key=lambda r: r.order):
        first.setdefault(record.source, record)
    return list(first.values())
