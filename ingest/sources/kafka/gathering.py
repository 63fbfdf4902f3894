"""Records of several polls, put together into columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from checkpoint.offsets import TopicPartition
from ingest.raw_batch import KEPT_HEADERS, Headers, RawBatch


class Gathering:
    """One partition's records until they are worth a batch: 500 records of a poll are too few for what comes after.

    Records are taken apart at once: thousands of them, alive, would keep the garbage collector busy.
    """

    def __init__(self) -> None:
        self.nbytes = 0
        self._offsets: list[int] = []
        self._timestamps_ms: list[int] = []
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._headers: dict[int, Headers] = {}

    def add(self, records: Sequence[Any]) -> None:
        """Append aiokafka's ConsumerRecords."""
        first = len(self._offsets)
        self._offsets += [record.offset for record in records]
        self._timestamps_ms += [-1 if record.timestamp is None else record.timestamp for record in records]
        self._keys += [record.key for record in records]
        self._values += [record.value for record in records]
        self.nbytes += sum(record.serialized_key_size + record.serialized_value_size + 16 for record in records)
        for row in {
            row for row, record in enumerate(records) for header in record.headers if header[0] in KEPT_HEADERS
        }:
            self._headers[first + row] = tuple(header for header in records[row].headers if header[0] in KEPT_HEADERS)

    def batch(self, partition: TopicPartition, next_offset: int) -> RawBatch:
        """All of them. next_offset: where the consumer stands, past what it skipped."""
        return RawBatch(
            partition.topic,
            partition.partition,
            np.array(self._offsets, np.int64),
            np.array(self._timestamps_ms, np.int64),
            pa.array(self._keys, pa.binary()),
            pa.array(self._values, pa.binary()),
            next_offset,
            self._headers,
        )


def gather(polled: Mapping[Any, Sequence[Any]], into: dict[TopicPartition, Gathering]) -> int:
    """Add what a poll brought, by partition. Returns its bytes."""
    nbytes = 0
    for partition, records in polled.items():
        gathering = into.setdefault(TopicPartition(*partition), Gathering())
        before = gathering.nbytes
        gathering.add(records)
        nbytes += gathering.nbytes - before
    return nbytes
