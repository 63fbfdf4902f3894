"""What a pipeline needs from the log it reads."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from checkpoint.offsets import OffsetRange, SourceIdentity, TopicPartition
from ingest.raw_batch import RawBatch
from storage.errors import TidelakeError


class SourceUnavailable(TidelakeError):
    """The source didn't answer within its time limit. Nothing is lost: start again when it is back."""


@dataclass(frozen=True, slots=True)
class Earliest:
    """From the oldest record there is."""


@dataclass(frozen=True, slots=True)
class Latest:
    """Only what comes after now."""


@dataclass(frozen=True, slots=True)
class AtTimestamp:
    """From the first record of each partition that is not older; a partition without one starts at its end."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """From these next offsets. A partition that is not named is refused."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class FromGroup:
    """From where a consumer group stands. A partition without a committed offset is refused."""

    group_id: str


Start: TypeAlias = Earliest | Latest | AtTimestamp | AtOffsets | FromGroup


def empty_batch(partition: TopicPartition, next_offset: int) -> RawBatch:
    """A batch without records: the partition is read from here, or holds nothing more up to here."""
    offsets = np.empty(0, np.int64)
    # Not `pa.array([])`: Arrow's first array from Python objects imports pandas where there is one, and that takes a
    # while.
    nulls = pa.nulls(0, pa.binary())
    return RawBatch(partition.topic, partition.partition, offsets, offsets, nulls, nulls, next_offset)


class Source(Protocol):
    """A set of ordered logs. Used by one task, in the order open, offsets, read, close; `close` in any case, and then
    it may be opened again. `check_identity` and `commit_offsets` are called during `read`.

    Every wait ends: an unreachable source raises SourceUnavailable within its time limit, it never hangs.
    """

    async def open(self, known: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        """Connect, and say which partitions there are. Others may come up while reading.

        known: those that tables have positions for. What a source can't see before reading it takes from them.
        """
        ...

    @property
    def identity(self) -> SourceIdentity:
        """As known now, from `open` on; it gains topic ids with topics, and never changes what it has said."""
        ...

    async def offsets(self, partitions: Collection[TopicPartition], start: Start) -> dict[TopicPartition, int]:
        """The next offset of each partition for a first read. Raises BadInput for a start the source can't find."""
        ...

    async def bounds(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, OffsetRange]:
        """Which offsets there are now: the oldest record's, and the next to come. Left out where it is unknown."""
        ...

    def read(self, positions: Mapping[TopicPartition, int]) -> AsyncGenerator[RawBatch, None]:
        """Records from these next offsets on, partition by partition in offset order, forever or to the end.

        A partition that `positions` lacks is read from its oldest record, and announced: its first batch has no
        records, and its `next_offset` is where reading begins. Batches without records also report offsets that hold
        nothing. Raises PositionRefused when a position is not there any more, BadInput for what is no record. A
        cancelled iteration is over: what it had read and not yet yielded is read again from the positions of a new
        one.
        """
        ...

    async def check_identity(self) -> None:
        """Everything handed on so far is from the logs that `identity` names; asked before it is published.

        Raises PositionRefused when it may be from a log that took the place of one of them.
        """
        ...

    async def deleted_topics(self) -> Collection[str]:
        """Those that are read and not there any more, as far as that can be said."""
        ...

    async def commit_offsets(self, ends: Mapping[TopicPartition, int]) -> None:
        """Every table has these. A hint for people who watch: trouble is logged, nothing is ever read back."""
        ...

    async def close(self) -> None: ...
