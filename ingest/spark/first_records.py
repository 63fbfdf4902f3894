"""The first record of a source table in a batch. Tables that don't exist yet are created from such records."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tidelake.ingest.formats.source_table import SourceTable
from tidelake.ingest.raw_batch import Headers, RawBatch, binary_column


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
