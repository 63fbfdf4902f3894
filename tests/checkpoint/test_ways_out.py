"""What each way out makes of a position. That they lead on is shown with a real broker (tests/integration)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from checkpoint.evidence import Evidence
from checkpoint.findings import Finding, Problem, SourceView
from checkpoint.offsets import Accepted, OffsetRange, SourceIdentity, SourcePosition, TopicPartition
from checkpoint.recovery import Standing
from checkpoint.ways_out import Refused, decided, gap_accepted, refusal, rewound

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
NOW = SourceIdentity("c2", {"t": "new"})
BOUNDS = {P0: OffsetRange(30, 90), P1: OffsetRange(0, 9)}
SOURCE = SourceView(NOW, BOUNDS.keys(), BOUNDS)


def at(p0: int, p1: int, start: int = 0) -> SourcePosition:
    return SourcePosition(SourceIdentity("c1"), {P0: OffsetRange(start, p0), P1: OffsetRange(start, p1)})


@dataclass(frozen=True)
class Case:
    id: str
    problem: Problem
    expected: Mapping[TopicPartition, int] | None
    position: SourcePosition = field(default_factory=lambda: at(20, 5))
    partitions: frozenset[TopicPartition] = frozenset()
    lost: SourcePosition | None = None
    source: SourceView = SOURCE


@pytest.mark.parametrize(
    "case",
    [
        Case("a hole: it goes on where it stands", Problem.HOLE, {P0: 20, P1: 5}),
        Case("other patterns: it goes on where it stands", Problem.ROUTING, {P0: 20, P1: 5}),
        Case("retention: the oldest there is", Problem.DELETED, {P0: 30, P1: 5}, partitions=frozenset({P0})),
        Case("past the end: the end", Problem.PAST_THE_END, {P0: 20, P1: 9}, at(20, 50), frozenset({P1})),
        Case(
            "created again: all of the new topic",
            Problem.TOPIC_MADE_ANEW,
            {P0: 30, P1: 0},
            partitions=frozenset({P0, P1}),
        ),
        Case("fewer partitions: all of the topic", Problem.PARTITION_GONE, {P0: 30, P1: 0}, partitions=frozenset({P1})),
        Case("another cluster: what comes from now on", Problem.ANOTHER_SOURCE, {P0: 90, P1: 9}),
        Case("nothing known: what comes from now on", Problem.EXPIRED, {P0: 90, P1: 9}, SourcePosition()),
        Case("rolled back, and where it stood is known", Problem.ROLLED_BACK, {P0: 60, P1: 9}, lost=at(60, 9)),
        Case("where it stood is gone by now", Problem.ROLLED_BACK, {P0: 30, P1: 5}, lost=at(10, 5)),
        Case(
            "a source that doesn't tell its end",
            Problem.EXPIRED,
            None,
            SourcePosition(),
            source=SourceView(NOW, [P0, P1]),
        ),
        Case(
            "a source that knows no partition yet", Problem.EXPIRED, None, SourcePosition(), source=SourceView(NOW, [])
        ),
        Case(
            "it doesn't, but where it stood is known",
            Problem.ROLLED_BACK,
            {P0: 60, P1: 9},
            lost=at(60, 9),
            source=SourceView(NOW, [P0, P1]),
        ),
    ],
    ids=lambda case: case.id,
)
def test_beyond_a_gap(case: Case) -> None:
    standing = Standing(case.position, lost=case.lost)
    findings = [Finding("a", case.problem, "…", case.partitions)]
    assert gap_accepted(standing, findings, case.source, frozenset(case.source.partitions)) == case.expected


@pytest.mark.parametrize(
    ("problem", "partitions", "expected"),
    [
        pytest.param(None, (), {P0: 40, P1: 5}, id="the others stay where they are proven"),
        pytest.param(Problem.DELETED, (P1,), {P0: 40}, id="those that are not are read as new ones"),
        pytest.param(Problem.EXPIRED, (), {P0: 40}, id="where nothing is proven, too"),
    ],
)
def test_rewound_to_offsets(
    problem: Problem | None, partitions: tuple[TopicPartition, ...], expected: Mapping[TopicPartition, int]
) -> None:
    findings = [] if problem is None else [Finding("a", problem, "…", frozenset(partitions))]
    assert rewound(Standing(at(20, 5)), findings, {P0: 40}) == expected


def test_a_decision_joins_the_chain_where_nothing_changed() -> None:
    accepted = Accepted("--accept-gap a", ("hole",))
    found = decided(Standing(at(20, 5, start=2)), {P0: 30, P1: 5}, SOURCE, accepted)
    assert found.ranges == {P0: OffsetRange(30, 30), P1: OffsetRange(2, 5)}
    assert (found.identity, found.accepted) == (NOW, accepted)


def test_a_way_out_is_offered_for_all_tables_or_for_none() -> None:
    hole = [Finding("?", Problem.HOLE, "…")]
    expired = [Finding("?", Problem.EXPIRED, "…")]
    folder = SourceView(NOW, [])
    tables = [
        Refused("shop.a b", Standing(at(20, 5)), hole, Evidence(1), frozenset()),
        Refused("shop.c", Standing(SourcePosition()), expired, Evidence(1), frozenset()),
    ]
    (only,) = refusal(tables, folder, "tidelake ingest run x.yaml").ways_out
    assert (
        only.splitlines()[0] == "tidelake ingest run x.yaml --rewind-to 'shop.a b'=earliest --rewind-to shop.c=earliest"
    )
