"""Records of several polls, put together into columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any, Final

import numpy as np

from checkpoint.offsets import TopicPartition
from ingest.raw_batch import Headers, RawBatch, binary_column

_NAME: Final = itemgetter(0)  # of a header


class PollBatcher:
    """One partition's records until they are worth a batch: 500 records of a poll are too few for what comes after.

    kept_headers: names of the record headers that the format reads.

    Records are taken apart at once: thousands of them, alive, would keep the garbage collector busy.
    """

    def __init__(self, kept_headers: frozenset[str]) -> None:
        self._kept_headers = kept_headers
        self.nbytes = 0
        self._offsets: list[int] = []
        self._timestamps_ms: list[int] = []
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._headers: dict[int, Headers] = {}

    def add(self, records: Sequence[Any]) -> None:
        """Append aiokafka's records, wrapped as ConsumerRecords or as its parser made them."""
        first = len(self._offsets)
        keys = [record.key for record in records]
        values = [record.value for record in records]
        self._offsets += [record.offset for record in records]
        self._timestamps_ms += [-1 if record.timestamp is None else record.timestamp for record in records]
        self._keys += keys
        self._values += values
        self.nbytes += sum(map(len, filter(None, chain(keys, values)))) + 16 * len(records)
        kept = self._kept_headers
        if kept:
            has_none = kept.isdisjoint
            for row in [row for row, record in enumerate(records) if not has_none(map(_NAME, record.headers))]:
                self._headers[first + row] = tuple(header for header in records[row].headers if header[0] in kept)

    @property
    def next_offset(self) -> int:
        """After the last record."""
        return self._offsets[-1] + 1 if self._offsets else 0

    def batch(self, partition: TopicPartition, next_offset: int) -> RawBatch:
        """All of them.

        next_offset: where the consumer stands, past what it skipped.
        """
        return RawBatch(
            partition.topic,
            partition.partition,
            np.array(self._offsets, np.int64),
            np.array(self._timestamps_ms, np.int64),
            binary_column(self._keys),
            binary_column(self._values),
            next_offset,
            self._headers,
        )


def add_polled(
    polled: Mapping[Any, Sequence[Any]], into: dict[TopicPartition, PollBatcher], kept_headers: frozenset[str]
) -> int:
    """Add what a poll brought, by partition. Returns its bytes."""
    nbytes = 0
    for partition, records in polled.items():
        batcher = into.setdefault(TopicPartition(*partition), PollBatcher(kept_headers))
        before = batcher.nbytes
        batcher.add(records)
        nbytes += batcher.nbytes - before
    return nbytes


def cut_at(batch: RawBatch, ends: Mapping[TopicPartition, int]) -> RawBatch | None:
    """The batch up to where its partition ends; None for one that lies behind it."""
    end = ends.get(TopicPartition(batch.topic, batch.partition), 0)
    if batch.next_offset <= end:
        return batch
    rows = int(np.searchsorted(batch.offsets, end))
    return batch.slice(0, rows) if rows else None
