"""How a pipeline goes on where it can't prove its position: what each way out makes of the position.

    accept the gap       nothing is read twice; what lies between is in no table
    rewind               reads again; an append table then holds those rows twice
    from a snapshot      the position that a snapshot of the table carries, taken at its word in the present source

Whatever is chosen, the next snapshot keeps it (`SourcePosition.accepted`), so that the chain explains itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Final

from checkpoint.evidence import Evidence
from checkpoint.findings import LOSES_POSITION, Finding, Problem, SourceView, against_source, few
from checkpoint.offsets import Accepted, OffsetRange, SourcePosition, TopicPartition
from checkpoint.recovery import Standing, before_holes, position_of
from storage.errors import CorruptFile, PositionRefused


def gap_accepted(
    standing: Standing, findings: Sequence[Finding], source: SourceView, routed: Collection[TopicPartition]
) -> dict[TopicPartition, int] | None:
    """The next offset of each partition. None when the source doesn't tell the offsets that this needs.

    routed: partitions of the source that may hold records for the table.
    """
    reached = _reached(findings)
    if reached is None:
        return None
    offsets = _beyond_what_is_lost(standing, findings, source, routed)
    if offsets is None:
        return None
    further = {p: end for p, end in reached.items() if end > offsets.get(p, 0)}
    return offsets | {p: _within(source.bounds[p], end) if p in source.bounds else end for p, end in further.items()}


def _reached(findings: Iterable[Finding]) -> dict[TopicPartition, int] | None:
    """How far others have read into the table; None where that can't be compared with the source."""
    reached: dict[TopicPartition, int] = {}
    for finding in findings:
        if finding.problem is Problem.ANOTHER_DRIVER:
            if finding.reached is None:
                return None
            reached |= {p: max(end, reached.get(p, 0)) for p, end in finding.reached.items()}
    return reached


def _beyond_what_is_lost(
    standing: Standing, findings: Sequence[Finding], source: SourceView, routed: Collection[TopicPartition]
) -> dict[TopicPartition, int] | None:
    problems = {finding.problem for finding in findings}
    if problems & LOSES_POSITION or Problem.ANOTHER_SOURCE in problems:
        lost = standing.lost.ends if standing.lost is not None and Problem.ANOTHER_SOURCE not in problems else {}
        partitions = {*routed, *lost}
        if not partitions or any(p not in source.bounds and p not in lost for p in partitions):
            return None
        ends = lost | {p: bounds.end for p, bounds in source.bounds.items() if p in partitions and p not in lost}
        return {p: _within(source.bounds[p], end) if p in source.bounds else end for p, end in ends.items()}
    offsets = standing.position.ends
    for finding in findings:
        if finding.problem is Problem.ANOTHER_DRIVER:
            continue
        if finding.problem in _OTHER_RECORDS:
            topics = {partition.topic for partition in finding.partitions}
            offsets = {p: offset for p, offset in offsets.items() if p.topic not in topics}
            offsets |= {p: bounds.start for p, bounds in source.bounds.items() if p.topic in topics}
        elif finding.partitions:
            offsets |= {p: _within(source.bounds[p], offsets[p]) for p in finding.partitions if p in offsets}
    return offsets


def rewound(
    standing: Standing, findings: Sequence[Finding], starts: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The next offset of each partition: those of `starts`, and what is proven of the others."""
    problems = {finding.problem for finding in findings}
    reached = _reached(findings) or {}
    unproven = {partition for finding in findings for partition in finding.partitions} - reached.keys()
    ends = {} if problems & LOSES_POSITION else standing.position.ends
    ends |= {p: max(end, ends.get(p, 0)) for p, end in reached.items()}
    return {p: end for p, end in ends.items() if p not in unproven} | dict(starts)


def decided(
    standing: Standing, offsets: Mapping[TopicPartition, int], source: SourceView, accepted: Accepted
) -> SourcePosition:
    """The position of the next snapshot, which says what was decided."""
    before = standing.position.ranges
    ranges = {
        p: before[p] if p in before and before[p].end == offset else OffsetRange(offset, offset)
        for p, offset in offsets.items()
    }
    return SourcePosition(ranges=ranges, accepted=accepted).identified(source.identity)


def _within(bounds: OffsetRange, offset: int) -> int:
    return min(max(offset, bounds.start), bounds.end)


# ---------------------------------------------------------------- the refusal


@dataclass(frozen=True, slots=True)
class Refused:
    """A table that can't go on, with all that is needed to say how it could."""

    table: str
    standing: Standing
    findings: Sequence[Finding]
    evidence: Evidence
    routed: Collection[TopicPartition]


def refusal(refused: Sequence[Refused], source: SourceView, command: str) -> PositionRefused:
    """The error to raise. command: runs the pipeline; to it each way out adds its options."""
    found = [f"{one.table}: {finding.text}" for one in refused for finding in one.findings]
    found.append(
        "Going on could lose records or bring them twice, so nothing more was read or written; what is in the "
        "tables stays as it is. Choose one way out, for one start: it is kept in the next snapshot"
    )
    ways = [
        f"{command} {' '.join(option for option, _ in way)}\n{_indented(effect for _, effect in way)}"
        for way in (
            _way([_accept_gap(one, source) for one in refused]),
            _way([_rewind(one) for one in refused]),
            _way([_from_snapshot(one, source) for one in refused]),
        )
        if way
    ]
    return PositionRefused("\n".join(found), [*ways, *_beside_other_drivers(refused)])


def _beside_other_drivers(refused: Sequence[Refused]) -> list[str]:
    if not any(finding.problem is Problem.ANOTHER_DRIVER for one in refused for finding in one.findings):
        return []
    return [
        "leave this pipeline stopped, and go on with what has read into the table: the Spark query, or the pipeline "
        "under its old name",
        "`tables[].shared_with: [its commit user]`, where both are meant to read into the table, each other records",
    ]


_OTHER_RECORDS: Final = frozenset({Problem.ANOTHER_SOURCE, Problem.TOPIC_MADE_ANEW, Problem.PARTITION_GONE})
_Offer = tuple[str, str]  # option, and what it does


def _way(offers: Sequence[_Offer | None]) -> list[_Offer]:
    """Nothing unless every table has it."""
    return [offer for offer in offers if offer is not None] if all(offers) else []


def _indented(effects: Iterable[str]) -> str:
    return "\n".join(f"      {effect}" for effect in effects)


def _accept_gap(one: Refused, source: SourceView) -> _Offer | None:
    offsets = gap_accepted(one.standing, one.findings, source, one.routed)
    if offsets is None:
        return None
    at = f"{one.table} goes on at {_places(offsets)}"
    problems = {finding.problem for finding in one.findings}
    if problems == {Problem.ANOTHER_DRIVER}:
        return f"--accept-gap {quote(one.table)}", f"{at}, behind all that is in the table: nothing comes twice"
    if problems <= {Problem.HOLE, Problem.ROUTING}:
        return f"--accept-gap {quote(one.table)}", f"{at}, where it stands: what was passed over stays out"
    return f"--accept-gap {quote(one.table)}", f"{at}: nothing comes twice, what lies between is in no table"


def _rewind(one: Refused) -> _Offer:
    effect = (
        f"{one.table} is read again from the oldest record there is (or from a time, or TOPIC:PARTITION:OFFSET,…): "
        "harmless with a primary key, but an append table then holds rows twice"
    )
    return f"--rewind-to {quote(one.table)}=earliest", effect


def _from_snapshot(one: Refused, source: SourceView) -> _Offer | None:
    """The newest snapshot whose position the source can serve; before a hole, if there is one.

    In another source only the very newest makes sense: where somebody copied the topic with its offsets.
    """
    hole = before_holes(one.evidence.own)
    candidates = [hole] if hole is not None else sorted([*one.evidence.own, *one.evidence.others], key=lambda s: -s.id)
    if any(finding.problem in _OTHER_RECORDS for finding in one.findings):
        candidates = candidates[:1]
    reached = _reached(one.findings) or {}
    for snapshot in candidates:
        try:
            position = position_of(snapshot)
        except CorruptFile:
            continue
        if position is not None and any(position.ends.get(p, 0) < end for p, end in reached.items()):
            continue  # from there what others read since would come twice
        if position is not None and not against_source(one.table, position.trusted(source.identity), source):
            effect = f"{one.table} goes on where snapshot {snapshot.id} ended, at {_places(position.ends)}"
            return f"--from-snapshot {quote(one.table)}={snapshot.id}", effect
    return None


def _places(offsets: Mapping[TopicPartition, int]) -> str:
    return few((f"{partition}: {offset}" for partition, offset in sorted(offsets.items())), 4) or "its first record"
