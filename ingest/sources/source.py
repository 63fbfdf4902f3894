"""The interface between a pipeline and the log that it reads."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from tidelake.checkpoint.offsets import OffsetRange, SourceIdentity, TopicPartition
from tidelake.ingest.raw_batch import RawBatch


@dataclass(frozen=True, slots=True)
class Earliest:
    """Start at the oldest existing record."""


@dataclass(frozen=True, slots=True)
class Latest:
    """Start at the current end."""


@dataclass(frozen=True, slots=True)
class AtTimestamp:
    """Start at the first record of each partition that is not older. A partition without such a record starts at its
    end.
    """

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """Start at these next offsets. A partition that is not named is refused."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class AtGroupOffsets:
    """Start at the committed offsets of a consumer group. A partition without a committed offset is refused."""

    group_id: str


Start: TypeAlias = Earliest | Latest | AtTimestamp | AtOffsets | AtGroupOffsets


def empty_batch(partition: TopicPartition, next_offset: int) -> RawBatch:
    """Return a batch without records: the partition is read from this offset, or has no more records below it."""
    offsets = np.empty(0, np.int64)
    # Not `pa.array([])`: Arrow's first array from Python objects imports pandas if it is installed, which takes time.
    nulls = pa.nulls(0, pa.binary())
    return RawBatch(partition.topic, partition.partition, offsets, offsets, nulls, nulls, next_offset)


class Source(Protocol):
    """A set of ordered logs.

    One task calls its methods in the order open, offsets, read, close. `close` is always called; afterwards the source
    may be opened again. `check_identity` and `commit_offsets` are called during `read`.

    No method waits forever: an unreachable source raises SourceUnavailable within its time limit.
    """

    async def open(self, known: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        """Connect, and return the existing partitions. Others may appear during reading.

        known: partitions with positions in the tables. A source that can't list its partitions before reading returns
            these.
        """
        ...

    @property
    def identity(self) -> SourceIdentity:
        """The identity as known now, valid from `open` on. New topics add their ids; existing values never change."""
        ...

    async def offsets(self, partitions: Collection[TopicPartition], start: Start) -> dict[TopicPartition, int]:
        """Return the next offset of each partition for a first read.

        Raises BadInput for a start that the source can't find.
        """
        ...

    async def bounds(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, OffsetRange]:
        """Return the current offsets of each partition: the oldest record's and the end. Unknown ones are left out."""
        ...

    def read(self, positions: Mapping[TopicPartition, int]) -> AsyncGenerator[RawBatch, None]:
        """Yield records from these next offsets on, each partition in offset order, forever or to the end.

        A partition that `positions` lacks is read from its oldest record. It is announced by a first batch without
        records, whose `next_offset` is where reading begins. Batches without records also report offsets without
        records.

        Raises PositionRefused if the source doesn't have a position any more, BadInput for data that is no record.

        A cancelled iteration can't continue. A new one reads again from its positions.
        """
        ...

    async def check_identity(self) -> None:
        """Check that all records delivered so far are from the logs of `identity`. Called before they are published.

        Raises PositionRefused if records may be from a log that replaced one of these.
        """
        ...

    async def deleted_topics(self) -> Collection[str]:
        """Return the topics that are being read and were deleted, as far as this is known."""
        ...

    async def commit_offsets(self, ends: Mapping[TopicPartition, int]) -> None:
        """Commit offsets that every table has passed. They only serve monitoring, and are never read back. Errors are
        logged.
        """
        ...

    async def close(self) -> None: ...
