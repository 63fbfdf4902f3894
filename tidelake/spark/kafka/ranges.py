"""Ranges of offsets, and how they are divided into tasks. Does not connect to Kafka."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from tidelake.checkpoint.offsets import OffsetRange, TopicPartition
from tidelake.spark.kafka.connector_offsets import Offsets

TASK_OFFSETS_MIN: Final = 5_000  # a task costs Spark as much as decoding some thousand records


@dataclass(frozen=True, slots=True)
class RecordRange:
    """Records of one partition, from `start` up to, but not including, `end`."""

    partition: TopicPartition
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.partition} [{self.start}, {self.end})"


def ranges_between(starts: Offsets, ends: Offsets) -> list[RecordRange]:
    """Return the ranges of the partitions that have a start; empty ones are left out."""
    return [RecordRange(p, starts[p], end) for p, end in sorted(ends.items()) if p in starts and starts[p] < end]


def missing_ranges(wanted: Sequence[RecordRange], held: Mapping[TopicPartition, OffsetRange]) -> list[RecordRange]:
    """Return the parts that the brokers don't hold.

    held: without partitions that no longer exist
    """
    lost = []
    for part in wanted:
        available = held.get(part.partition, OffsetRange(part.end, part.end))
        lost += [
            RecordRange(part.partition, part.start, min(part.end, available.start)),
            RecordRange(part.partition, max(part.start, available.end), part.end),
        ]
    return [part for part in lost if part.start < part.end]


def held_parts(wanted: Sequence[RecordRange], held: Mapping[TopicPartition, OffsetRange]) -> list[RecordRange]:
    """Return the parts that the brokers hold."""
    parts = [
        RecordRange(
            part.partition, max(part.start, held[part.partition].start), min(part.end, held[part.partition].end)
        )
        for part in wanted
        if part.partition in held
    ]
    return [part for part in parts if part.start < part.end]


def limited(starts: Offsets, ends: Offsets, offsets_max: int) -> dict[TopicPartition, int]:
    """Return the ends of a batch of about so many offsets.

    A partition's share is in proportion to its size, rounded down.

    A share below one becomes one, so that each partition makes progress: the batch exceeds `offsets_max` by at most the
    number of such partitions.

    Same as Spark's KafkaMicroBatchStream.rateLimit.
    """
    behind = {p: max(0, end - starts.get(p, end)) for p, end in ends.items()}
    total = sum(behind.values())
    if total <= offsets_max:
        return dict(ends)
    return {
        p: min(end, starts[p] + max(1, behind[p] * offsets_max // total)) if behind[p] else end
        for p, end in ends.items()
    }


def tasks(
    ranges: Sequence[RecordRange], partitions_min: int | None, records_max: int | None
) -> list[list[RecordRange]]:
    """Return the ranges of each task, in order.

    partitions_min: the minimal number of tasks. None: a task reads one partition, or several small ones.
    records_max: the largest number of offsets of a task
    """
    total = sum(map(len, ranges))
    share = max(1, total // partitions_min) if partitions_min is not None and len(ranges) < partitions_min else total
    share = min(share, records_max or total)
    pieces = [piece for part in ranges for piece in _split_range(part, share)]
    if partitions_min is not None:
        return [[piece] for piece in pieces]
    packed: list[list[RecordRange]] = []
    size = 0
    for piece in pieces:
        if packed and size + len(piece) <= min(TASK_OFFSETS_MIN, share):
            packed[-1].append(piece)
            size += len(piece)
        else:
            packed.append([piece])
            size = len(piece)
    return packed


def _split_range(part: RecordRange, share: int) -> list[RecordRange]:
    """Cut a range into pieces of nearly equal size, none larger than `share`."""
    count = max(1, -(-len(part) // max(1, share)))
    edges = [part.start + len(part) * number // count for number in range(count + 1)]
    return [RecordRange(part.partition, a, b) for a, b in pairwise(edges)]
