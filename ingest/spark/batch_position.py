"""Compares the offsets of a batch with the table's position: the same, in the table already, next, or past it.

The table's position is how far each partition was read into it, by any commit user (`tidelake.checkpoint.other_users`).
Within a query, Spark's offset log connects the batches. So offsets between two batches held no readable records
(compacted records, transaction markers, aborted transactions). If a query reads a partition for the first time, this is
not known: it must begin at the table's position. Until then the partition is *unread*, and the query's snapshots list
the unread partitions.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from tidelake.checkpoint.fence import summarize
from tidelake.checkpoint.offsets import (
    POSITION_PROPERTY,
    OffsetRange,
    RecoveryDecision,
    SourcePosition,
    TopicPartition,
    position_to_text,
)
from tidelake.checkpoint.other_users import table_position
from tidelake.checkpoint.position_problems import ProblemKind, compare_with_batch, first_few
from tidelake.checkpoint.recovery import position_of
from tidelake.checkpoint.recovery_options import BATCH_FLAGS, batch_refused
from tidelake.storage.model.snapshots.snapshot import Snapshot, SnapshotStore

UNREAD_PROPERTY: Final = "tidelake.spark-unread"  # key in Snapshot.properties: JSON, topic to partitions

Ranges: TypeAlias = Mapping[TopicPartition, OffsetRange]


@dataclass(frozen=True, slots=True)
class BatchPosition:
    """The position in the snapshot of a batch.

    position: the source position.
    unread: partitions of the position that the query has not read yet.
    reads_new_partitions: the query reads a partition for the first time. This must be recorded even without rows.
    """

    position: SourcePosition
    unread: frozenset[TopicPartition]
    reads_new_partitions: bool

    @property
    def properties(self) -> dict[str, str]:
        properties = {POSITION_PROPERTY: position_to_text(self.position)}
        if self.unread:
            properties[UNREAD_PROPERTY] = _unread_to_text(self.unread)
        return properties


@dataclass(frozen=True, slots=True)
class TablePosition:
    """The position of a table before a batch.

    unread: partitions of the position that the batch's query never read.
    """

    table: str
    position: SourcePosition
    unread: frozenset[TopicPartition]

    @staticmethod
    def of(
        table: str,
        snapshots: SnapshotStore,
        own: Snapshot | None,
        reached: Mapping[TopicPartition, int],
        shared_with: Collection[str] = (),
        read: Mapping[TopicPartition, int] | None = None,
    ) -> TablePosition:
        """Return the position of the table.

        own: the newest snapshot of the batch's query; None before its first.
        reached: see `SparkSink`.
        shared_with: see `SparkSink`.
        read: see `SparkSink`.
        """
        latest: Snapshot | None = snapshots.latest()
        history = snapshots.backwards_from(latest) if latest is not None else ()
        position = table_position(summarize(one, table) for one in history if one.commit_user not in shared_with)
        for known in (reached, read or {}):
            further = {p: OffsetRange(end, end) for p, end in known.items() if end > position.ends.get(p, -1)}
            position = replace(position, ranges={**position.ranges, **further})
        of_query = recorded_position(own).ranges.keys() - _unread_ranges(own) if own is not None else frozenset()
        return TablePosition(table, position, frozenset(position.ranges.keys() - of_query - (read or {}).keys()))

    def next_position(self, found: Ranges, *, reread: bool, accept_gap: bool) -> BatchPosition:
        """Return the position after the batch.

        found: the offsets of the batch.
        reread: see `sink`.
        accept_gap: see `sink`.

        Raises PositionRefused for offsets that are in the table already, and for a query that begins past its position.
        """
        problems = {one.kind: one for one in compare_with_batch(self.table, self.position, self.unread, found)}
        accepted = {ProblemKind.READ_AGAIN: reread, ProblemKind.GAP: accept_gap}
        for kind, problem in problems.items():
            if not accepted[kind]:
                raise batch_refused(problem, self.position)
        gap = problems.get(ProblemKind.GAP)
        begun = {p: OffsetRange(found[p].start, found[p].start) for p in (gap.partitions if gap else ())}
        before = replace(self.position, ranges={**self.position.ranges, **begun})
        position = before.with_partitions({p: r.start for p, r in found.items()}).advanced_to(
            {p: r.end for p, r in found.items()}
        )
        if gap:
            position = replace(position, accepted=RecoveryDecision(BATCH_FLAGS[gap.kind], (gap.kind.value,)))
        return BatchPosition(position, self.unread - found.keys(), not self.unread.isdisjoint(found))


def is_from_batch(snapshot: Snapshot, found: Ranges, *, reread: bool) -> bool:
    """Return whether the snapshot was made from a batch with these offsets. A repeated batch reads the same offsets.

    A position begins where the previous one ended. This may be before the batch's first record, or with `reread` after
    it.
    """
    ranges = recorded_position(snapshot).ranges
    return advanced_ranges(snapshot).keys() <= found.keys() <= ranges.keys() and all(
        (reread or ranges[p].start <= start) and max(ranges[p].start, end) == ranges[p].end
        for p, (start, end) in found.items()
    )


def advanced_ranges(snapshot: Snapshot) -> Ranges:
    """Return the ranges of partitions with records in this snapshot."""
    return {p: range_ for p, range_ in recorded_position(snapshot).ranges.items() if range_.end > range_.start}


def ranges_text(ranges: Ranges) -> str:
    return (
        first_few(f"{partition} [{start}, {end})" for partition, (start, end) in sorted(ranges.items())) or "no offsets"
    )


def recorded_position(snapshot: Snapshot) -> SourcePosition:
    """Return the snapshot's position, as a pipeline's recovery reads it. It is empty if the snapshot has none."""
    return position_of(summarize(snapshot, "the table")) or SourcePosition()


def _unread_to_text(unread: Iterable[TopicPartition]) -> str:
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(unread):
        topics.setdefault(topic, []).append(number)
    return json.dumps(topics, ensure_ascii=False, separators=(",", ":"))


def _unread_ranges(snapshot: Snapshot) -> set[TopicPartition]:
    topics = json.loads(snapshot.properties.get(UNREAD_PROPERTY, "{}"))
    return {TopicPartition(topic, number) for topic, numbers in topics.items() for number in numbers}
