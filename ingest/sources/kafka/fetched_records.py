"""The fetched records of a partition that were not taken yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from tidelake.checkpoint.offsets import TopicPartition
from tidelake.ingest.raw_batch import RawBatch
from tidelake.ingest.sources.kafka.fetched_batch import FetchedBatch
from tidelake.ingest.sources.kafka.record_columns import RecordColumns, columns_of


class FetchedRecords:
    """Fetched records of a partition. They stay compressed until they are taken.

    limit_bytes: maximum size of an uncompressed batch.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._left: deque[Any] = deque()
        self.next_offset = 0
        """The offset after the last record."""

    def __bool__(self) -> bool:
        return bool(self._left)

    def add(self, fetched: Iterable[Any]) -> int:
        """Add the result of a poll: `FetchedBatch`es, or aiokafka's records. Returns its bytes."""
        nbytes = 0
        for one in fetched:
            self._left.append(one)
            self.next_offset = one.offset + 1
            nbytes += _nbytes(one)
        return nbytes

    def take(self, bytes_max: int, end: int | None = None) -> tuple[RecordColumns, int | None]:
        """Take the first records. Returns them, and the offset of the next remaining record; None if none remains.

        bytes_max: whole batches are taken until they have this many bytes.
        end: records from this offset on are not taken.

        Raises CorruptRecordException for data that is no batch, and DecompressionLimitExceeded with a batch's offset.
        """
        taken: list[Any] = []
        nbytes = 0
        while self._left and nbytes < bytes_max and (end is None or _start(self._left[0]) < end):
            one = self._left[0]
            if isinstance(one, FetchedBatch):
                one.uncompress(self._limit_bytes)
            nbytes += _nbytes(one)
            taken.append(one)
            if end is not None and one.offset >= end:
                break
            self._left.popleft()
        columns = columns_of(taken)
        if end is not None:
            columns = columns.below(end)
            if self._left and isinstance(self._left[0], FetchedBatch):
                self._left[0].start = max(self._left[0].start, end)
        return columns, _start(self._left[0]) if self._left else None


def _start(one: Any) -> int:
    start: int = one.start if isinstance(one, FetchedBatch) else one.offset
    return start


def _nbytes(one: Any) -> int:
    if isinstance(one, FetchedBatch):
        return one.payload_bytes
    return len(one.key or b"") + len(one.value or b"")


def raw_batch(
    partition: TopicPartition, columns: RecordColumns, next_offset: int, kept_headers: frozenset[str]
) -> RawBatch:
    """Return the records as a raw batch.

    next_offset: where reading of the partition continues, after offsets that the consumer skipped.
    """
    return RawBatch(
        partition.topic,
        partition.partition,
        columns.offsets,
        columns.timestamps_ms,
        columns.keys,
        columns.values,
        next_offset,
        columns.headers_named(kept_headers),
        columns.timestamp_types.astype(np.int8),
    )


def truncate_at(batch: RawBatch, ends: Mapping[TopicPartition, int]) -> RawBatch | None:
    """Return the batch up to the end of its partition; None if the whole batch is after the end."""
    end = ends.get(TopicPartition(batch.topic, batch.partition), 0)
    if batch.next_offset <= end:
        return batch
    rows = int(np.searchsorted(batch.offsets, end))
    return batch.slice(0, rows) if rows else None
