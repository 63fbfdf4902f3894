"""Recovery options: the position that each of them gives to a pipeline that can't prove its own position.

    accept the gap       no record is read twice; the records in between are in no table
    rewind               records are read again; an append table then holds their rows twice
    from a snapshot      the position of a snapshot of the table; its offsets are used in the current source

The next snapshot records the decision (`SourcePosition.accepted`), so that the break in the positions is explained.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Final

from tidelake.checkpoint.offsets import OffsetRange, RecoveryDecision, SourcePosition, TopicPartition
from tidelake.checkpoint.position_problems import (
    POSITION_LOST,
    PositionProblem,
    ProblemKind,
    SourceState,
    compare_with_source,
    first_few,
)
from tidelake.checkpoint.recovery import RecoveredTable, last_before_chain_break, position_of
from tidelake.checkpoint.table_state import TableState
from tidelake.errors import CorruptFile, PositionRefused


def offsets_past_gap(
    recovered: RecoveredTable,
    problems: Sequence[PositionProblem],
    source: SourceState,
    routed: Collection[TopicPartition],
) -> dict[TopicPartition, int] | None:
    """Return the next offset of each partition. None if the source doesn't report the offsets that are needed.

    routed: partitions of the source that may hold records for the table.
    """
    reached = _reached(problems)
    if reached is None:
        return None
    offsets = _offsets_after_loss(recovered, problems, source, routed)
    if offsets is None:
        return None
    further = {p: end for p, end in reached.items() if end > offsets.get(p, 0)}
    return offsets | {p: _within(source.bounds[p], end) if p in source.bounds else end for p, end in further.items()}


def _reached(problems: Iterable[PositionProblem]) -> dict[TopicPartition, int] | None:
    """Return how far others have read into the table; None if their offsets can't be compared with the source."""
    reached: dict[TopicPartition, int] = {}
    for problem in problems:
        if problem.kind is ProblemKind.ANOTHER_COMMIT_USER:
            if problem.reached is None:
                return None
            reached |= {p: max(end, reached.get(p, 0)) for p, end in problem.reached.items()}
    return reached


def _offsets_after_loss(
    recovered: RecoveredTable,
    problems: Sequence[PositionProblem],
    source: SourceState,
    routed: Collection[TopicPartition],
) -> dict[TopicPartition, int] | None:
    kinds = {problem.kind for problem in problems}
    if kinds & POSITION_LOST or ProblemKind.ANOTHER_SOURCE in kinds:
        lost = recovered.lost.ends if recovered.lost is not None and ProblemKind.ANOTHER_SOURCE not in kinds else {}
        partitions = {*routed, *lost}
        if not partitions or any(p not in source.bounds and p not in lost for p in partitions):
            return None
        ends = dict(lost) | {p: bounds.end for p, bounds in source.bounds.items() if p in partitions and p not in lost}
        return {p: _within(source.bounds[p], end) if p in source.bounds else end for p, end in ends.items()}
    offsets = dict(recovered.position.ends)
    for problem in problems:
        if problem.kind is ProblemKind.ANOTHER_COMMIT_USER:
            continue
        if problem.kind in _OTHER_RECORDS:
            topics = {partition.topic for partition in problem.partitions}
            offsets = {p: offset for p, offset in offsets.items() if p.topic not in topics}
            offsets |= {p: bounds.start for p, bounds in source.bounds.items() if p.topic in topics}
        elif problem.partitions:
            offsets |= {p: _within(source.bounds[p], offsets[p]) for p in problem.partitions if p in offsets}
    return offsets


def rewound_offsets(
    recovered: RecoveredTable, problems: Sequence[PositionProblem], starts: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return the next offset of each partition: that of `starts`, or the proven offset of other partitions."""
    kinds = {problem.kind for problem in problems}
    reached = _reached(problems) or {}
    unproven = {partition for problem in problems for partition in problem.partitions} - reached.keys()
    ends = {} if kinds & POSITION_LOST else dict(recovered.position.ends)
    ends |= {p: max(end, ends.get(p, 0)) for p, end in reached.items()}
    return {p: end for p, end in ends.items() if p not in unproven} | dict(starts)


def decided_position(
    recovered: RecoveredTable, offsets: Mapping[TopicPartition, int], source: SourceState, accepted: RecoveryDecision
) -> SourcePosition:
    """Return the position of the next snapshot, which records the decision."""
    before = recovered.position.ranges
    ranges = {
        p: before[p] if p in before and before[p].end == offset else OffsetRange(offset, offset)
        for p, offset in offsets.items()
    }
    return SourcePosition(ranges=ranges, accepted=accepted).with_identity(source.identity)


def _within(bounds: OffsetRange, offset: int) -> int:
    return min(max(offset, bounds.start), bounds.end)


# ---------------------------------------------------------------- the refusal


@dataclass(frozen=True, slots=True)
class RefusedTable:
    """A table whose recovery is refused, with the data for its options."""

    table: str
    recovered: RecoveredTable
    problems: Sequence[PositionProblem]
    table_state: TableState
    routed: Collection[TopicPartition]


def position_refused(refused: Sequence[RefusedTable], source: SourceState, command: str) -> PositionRefused:
    """Return the error to raise for the refused tables.

    command: the command that runs the pipeline; each option adds its flags to it
    """
    found = [f"{one.table}: {problem.text}" for one in refused for problem in one.problems]
    found.append(
        "Continuing could lose or duplicate records, so nothing more was read or written, and the tables were not "
        "changed. Choose one of the options. It applies to one start, and the next snapshot records it"
    )
    commands = [
        f"{command} {' '.join(flag for flag, _ in options)}\n{_indented(effect for _, effect in options)}"
        for options in (
            _for_all_tables([_accept_gap(one, source) for one in refused]),
            _for_all_tables([_rewind(one) for one in refused]),
            _for_all_tables([_from_snapshot(one, source) for one in refused]),
        )
        if options
    ]
    return PositionRefused("\n".join(found), [*commands, *_options_for_other_users(refused)])


def batch_refused(problem: PositionProblem, position: SourcePosition) -> PositionRefused:
    """Return the error to raise for the batch of a Spark query.

    problem: READ_AGAIN or GAP.
    position: the position of the table.
    """
    topics: dict[str, dict[str, int]] = {}
    for partition, end in sorted(position.ends.items()):
        topics.setdefault(partition.topic, {})[str(partition.partition)] = end
    offsets = json.dumps(topics)
    at_the_end = (
        f"start the query at the table's position: option(\"startingOffsets\", '{offsets}'), or for "
        f"`tidelake spark run` in its configuration source.start: {{offsets: {offsets}}}"
    )
    who = "the checkpoint directory of that query, or the pipeline that `tidelake ingest run` runs"
    flag = BATCH_FLAGS[problem.kind]
    if problem.kind is ProblemKind.READ_AGAIN:
        remedies = [
            at_the_end,
            f"continue with the writer of these records: {who}",
            f"{flag}, if it is harmless to apply records again (a primary key that deduplicates)",
        ]
    else:
        remedies = [
            f"{at_the_end}, with a new checkpoint directory",
            f"continue with the writer of the table's records: {who}",
            f"{flag}, if they may be skipped or don't exist: the source deleted them, or the offsets are transaction "
            "markers and compacted records. The snapshot records this choice",
        ]
    return PositionRefused(f"{problem.table}: {problem.text}", remedies)


BATCH_FLAGS: Final[Mapping[ProblemKind, str]] = {
    ProblemKind.READ_AGAIN: "sink(…, reread=True)",
    ProblemKind.GAP: "sink(…, accept_gap=True)",
}
"""The argument with which an operator accepts each kind of problem of a query's batch."""


def _options_for_other_users(refused: Sequence[RefusedTable]) -> list[str]:
    if not any(problem.kind is ProblemKind.ANOTHER_COMMIT_USER for one in refused for problem in one.problems):
        return []
    return [
        "leave this pipeline stopped, and continue with the other writer: the Spark query, or the pipeline under its "
        "old name",
        "`tables[].shared_with: [its commit user]`, if both write different records to the table",
    ]


_OTHER_RECORDS: Final = frozenset({ProblemKind.ANOTHER_SOURCE, ProblemKind.TOPIC_RECREATED, ProblemKind.PARTITION_GONE})
_Option = tuple[str, str]  # flag, and its effect


def _for_all_tables(options: Sequence[_Option | None]) -> list[_Option]:
    """Return the options of all tables; an empty list if any table lacks the option."""
    return [option for option in options if option is not None] if all(options) else []


def _indented(effects: Iterable[str]) -> str:
    return "\n".join(f"      {effect}" for effect in effects)


def _accept_gap(one: RefusedTable, source: SourceState) -> _Option | None:
    offsets = offsets_past_gap(one.recovered, one.problems, source, one.routed)
    if offsets is None:
        return None
    at = f"{one.table} continues at {_places(offsets)}"
    kinds = {problem.kind for problem in one.problems}
    if kinds == {ProblemKind.ANOTHER_COMMIT_USER}:
        return f"--accept-gap {quote(one.table)}", (
            f"{at}, after all records that are already in the table; no duplicates"
        )
    if kinds <= {ProblemKind.CHAIN_BREAK, ProblemKind.ROUTING}:
        return f"--accept-gap {quote(one.table)}", f"{at}, its current position: skipped records stay skipped"
    if kinds & {ProblemKind.TOPIC_RECREATED, ProblemKind.PARTITION_GONE}:
        return f"--accept-gap {quote(one.table)}", (
            f"{at}: what was not read of the old topic is lost, and what the new one repeats is applied again"
        )
    return f"--accept-gap {quote(one.table)}", f"{at}: no duplicates; the records in between are skipped"


def _rewind(one: RefusedTable) -> _Option:
    effect = (
        f"{one.table} is read again from the oldest record (or from a time, or TOPIC:PARTITION:OFFSET,…). This is "
        "harmless with a primary key, but an append table gets duplicate rows"
    )
    return f"--rewind-to {quote(one.table)}=earliest", effect


def _from_snapshot(one: RefusedTable, source: SourceState) -> _Option | None:
    """Return the option with the newest snapshot whose position the source can serve, or with the last one before a
    chain break.

    In another source only the newest snapshot makes sense, in case the topic was copied with its offsets.
    """
    last_valid = last_before_chain_break(one.table_state.own)
    candidates = (
        [last_valid]
        if last_valid is not None
        else sorted([*one.table_state.own, *one.table_state.others], key=lambda s: -s.id)
    )
    is_elsewhere = any(problem.kind in _OTHER_RECORDS for problem in one.problems)
    if is_elsewhere:
        candidates = candidates[:1]
    reached = _reached(one.problems) or {}
    for snapshot in candidates:
        try:
            position = position_of(snapshot)
        except CorruptFile:
            continue
        if position is not None and any(position.ends.get(p, 0) < end for p, end in reached.items()):
            continue  # from there, the records that others have read since would be duplicated
        if position is not None and not compare_with_source(
            one.table, position.assuming_identity(source.identity), source
        ):
            effect = f"{one.table} continues where snapshot {snapshot.id} ended, at {_places(position.ends)}"
            if is_elsewhere:
                effect += (
                    ". Only if the topic was copied with its offsets; otherwise these are offsets of other records, "
                    "and those before them are skipped"
                )
            return f"--from-snapshot {quote(one.table)}={snapshot.id}", effect
    return None


def _places(offsets: Mapping[TopicPartition, int]) -> str:
    return (
        first_few((f"{partition}: {offset}" for partition, offset in sorted(offsets.items())), 4) or "its first record"
    )
