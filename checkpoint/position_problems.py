"""Problems with the position of a pipeline, found in a table alone, or by comparing the position with the source."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from tidelake.checkpoint.offsets import (
    CHAIN_BREAK,
    OffsetRange,
    SourceIdentity,
    SourcePosition,
    TopicPartition,
    identity_changes,
)


class ProblemKind(Enum):
    """The kinds of position problems.

    Snapshots keep the values forever (`RecoveryDecision.accepted_problems`): never change the meaning of a value.
    """

    EXPIRED = "own snapshots expired"
    ROLLED_BACK = "rolled back"
    NO_POSITION = "no position"
    CHAIN_BREAK = CHAIN_BREAK
    ROUTING = "routing changed"
    ANOTHER_SOURCE = "another source"
    TOPIC_RECREATED = "topic recreated"
    PARTITION_GONE = "partition gone"
    DELETED = "deleted by retention"
    PAST_THE_END = "past the end"
    ANOTHER_COMMIT_USER = "another driver"  # snapshots keep it: the text of earlier releases
    READ_AGAIN = "read again"
    GAP = "gap"


POSITION_LOST: Final = frozenset({ProblemKind.EXPIRED, ProblemKind.ROLLED_BACK, ProblemKind.NO_POSITION})


@dataclass(frozen=True, slots=True)
class PositionProblem:
    """A reason why a position can't be proven.

    text: one or two sentences that name the cause
    partitions: the partitions that can't continue; empty for the whole table
    reached: only of ANOTHER_COMMIT_USER: the next offset of the other commit user in each partition. None if its
        offsets can't be compared
    """

    table: str
    kind: ProblemKind
    text: str
    partitions: frozenset[TopicPartition] = frozenset()
    reached: Mapping[TopicPartition, int] | None = None


@dataclass(frozen=True, slots=True)
class SourceState:
    """The current state of the source.

    bounds: the oldest offset that each partition holds, and its next one. A source that doesn't know which offsets it
        holds leaves them out.
    """

    identity: SourceIdentity
    partitions: Collection[TopicPartition]
    bounds: Mapping[TopicPartition, OffsetRange] = field(default_factory=dict)

    @property
    def topics(self) -> set[str]:
        return {partition.topic for partition in self.partitions}


def compare_with_source(table: str, position: SourcePosition, source: SourceState) -> list[PositionProblem]:
    """Return the problems of a position whose offsets no longer refer to the same records in the source.

    Partitions of topics that are no longer configured are ignored.
    """
    changes = identity_changes(position.identity, source.identity)
    known, now = position.identity, source.identity
    if changes and None not in (known.cluster_id, now.cluster_id) and known.cluster_id != now.cluster_id:
        text = f"{changes[0]}; its offsets refer to other records"
        return [PositionProblem(table, ProblemKind.ANOTHER_SOURCE, text, frozenset(position.ranges))]
    recreated = {topic for topic, id_ in known.topic_ids.items() if now.topic_ids.get(topic, id_) != id_}
    problems = []
    if recreated:
        partitions = frozenset(p for p in position.ranges if p.topic in recreated)
        problems.append(PositionProblem(table, ProblemKind.TOPIC_RECREATED, "; ".join(changes), partitions))
    ends = {p: end for p, end in position.ends.items() if p.topic in source.topics - recreated}
    return problems + _offsets(table, ends, source)


def compare_with_batch(
    table: str,
    position: SourcePosition,
    first_read_partitions: Collection[TopicPartition],
    batch: Mapping[TopicPartition, OffsetRange],
) -> list[PositionProblem]:
    """Return the problems of a batch whose offsets don't continue the table's position.

    position: the position of the table.
    first_read_partitions: the partitions that the query reads for the first time. Only these are checked for gaps: in
        the others the query itself knows the offsets between two batches.
    """
    ends = position.ends
    reread = frozenset(p for p, range_ in batch.items() if range_.start < ends.get(p, 0))
    past = frozenset(p for p, range_ in batch.items() if p in first_read_partitions and range_.start > ends[p])
    problems = []
    if reread:
        first = min(reread)
        text = (
            f"the batch reads {first} from offset {batch[first].start}, but the table already has the records up to "
            f"{ends[first]}: they would be duplicated"
        )
        problems.append(PositionProblem(table, ProblemKind.READ_AGAIN, text, reread))
    if past:
        first = min(past)
        text = (
            f"the query begins to read {first} at offset {batch[first].start}, but the table has only the records up "
            f"to {ends[first]}: the records in between would be in no table"
        )
        problems.append(PositionProblem(table, ProblemKind.GAP, text, past))
    return problems


def _offsets(table: str, ends: Mapping[TopicPartition, int], source: SourceState) -> list[PositionProblem]:
    missing = {p: end for p, end in ends.items() if p not in source.partitions}
    held = {p: (end, source.bounds[p]) for p, end in ends.items() if p in source.bounds}
    deleted = {p: (end, bounds.start) for p, (end, bounds) in held.items() if end < bounds.start}
    past = {p: (end, bounds.end) for p, (end, bounds) in held.items() if end > bounds.end}
    problems = []
    if missing:
        what = first_few(f"{p} was read up to {end}" for p, end in sorted(missing.items()))
        text = f"the topic has lost partitions, so it was created again: {what}"
        problems.append(PositionProblem(table, ProblemKind.PARTITION_GONE, text, frozenset(missing)))
    if deleted:
        what = first_few(
            f"{p} was read up to {end}, but its oldest record is now {now}" for p, (end, now) in _sorted(deleted)
        )
        lost = sum(now - end for end, now in deleted.values())
        text = (
            f"retention has deleted records before they were read: {what}. The source no longer has "
            f"{lost:,} {'offset' if lost == 1 else 'offsets'}, so no option brings back these changes; a new snapshot "
            "of the source does"
        )
        problems.append(PositionProblem(table, ProblemKind.DELETED, text, frozenset(deleted)))
    if past:
        what = first_few(f"{p} was read up to {end}, but it ends at {now}" for p, (end, now) in _sorted(past))
        text = f"the topic has lost records that were already read: {what}"
        problems.append(PositionProblem(table, ProblemKind.PAST_THE_END, text, frozenset(past)))
    return problems


def _sorted(found: Mapping[TopicPartition, tuple[int, int]]) -> list[tuple[TopicPartition, tuple[int, int]]]:
    return sorted(found.items())


def first_few(texts: Iterable[str], most: int = 3) -> str:
    """Return the first texts, and the number of the others."""
    listed = list(texts)
    rest = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + rest
