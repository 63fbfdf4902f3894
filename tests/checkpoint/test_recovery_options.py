"""How each recovery option changes a position. tests/integration shows with a real broker that the pipeline then
continues.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from tidelake.checkpoint.offsets import OffsetRange, RecoveryDecision, SourceIdentity, SourcePosition, TopicPartition
from tidelake.checkpoint.position_problems import PositionProblem, ProblemKind, SourceState
from tidelake.checkpoint.recovery import RecoveredTable
from tidelake.checkpoint.recovery_options import (
    RefusedTable,
    decided_position,
    offsets_past_gap,
    position_refused,
    rewound_offsets,
)
from tidelake.checkpoint.table_state import TableState

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
NOW = SourceIdentity("c2", {"t": "new"})
BOUNDS = {P0: OffsetRange(30, 90), P1: OffsetRange(0, 9)}
SOURCE = SourceState(NOW, BOUNDS.keys(), BOUNDS)


def at(p0: int, p1: int, start: int = 0) -> SourcePosition:
    return SourcePosition(SourceIdentity("c1"), {P0: OffsetRange(start, p0), P1: OffsetRange(start, p1)})


@dataclass(frozen=True)
class Case:
    id: str
    problem: ProblemKind
    expected: Mapping[TopicPartition, int] | None
    position: SourcePosition = field(default_factory=lambda: at(20, 5))
    partitions: frozenset[TopicPartition] = frozenset()
    lost: SourcePosition | None = None
    source: SourceState = SOURCE


@pytest.mark.parametrize(
    "case",
    [
        Case("a chain break: it goes on where it stands", ProblemKind.CHAIN_BREAK, {P0: 20, P1: 5}),
        Case("other patterns: it goes on where it stands", ProblemKind.ROUTING, {P0: 20, P1: 5}),
        Case("retention: the oldest there is", ProblemKind.DELETED, {P0: 30, P1: 5}, partitions=frozenset({P0})),
        Case("past the end: the end", ProblemKind.PAST_THE_END, {P0: 20, P1: 9}, at(20, 50), frozenset({P1})),
        Case(
            "created again: all of the new topic",
            ProblemKind.TOPIC_RECREATED,
            {P0: 30, P1: 0},
            partitions=frozenset({P0, P1}),
        ),
        Case(
            "fewer partitions: all of the topic",
            ProblemKind.PARTITION_GONE,
            {P0: 30, P1: 0},
            partitions=frozenset({P1}),
        ),
        Case("another cluster: what comes from now on", ProblemKind.ANOTHER_SOURCE, {P0: 90, P1: 9}),
        Case("nothing known: what comes from now on", ProblemKind.EXPIRED, {P0: 90, P1: 9}, SourcePosition()),
        Case("rolled back, and where it stood is known", ProblemKind.ROLLED_BACK, {P0: 60, P1: 9}, lost=at(60, 9)),
        Case("where it stood is gone by now", ProblemKind.ROLLED_BACK, {P0: 30, P1: 5}, lost=at(10, 5)),
        Case(
            "a source that doesn't tell its end",
            ProblemKind.EXPIRED,
            None,
            SourcePosition(),
            source=SourceState(NOW, [P0, P1]),
        ),
        Case(
            "a source that knows no partition yet",
            ProblemKind.EXPIRED,
            None,
            SourcePosition(),
            source=SourceState(NOW, []),
        ),
        Case(
            "it doesn't, but where it stood is known",
            ProblemKind.ROLLED_BACK,
            {P0: 60, P1: 9},
            lost=at(60, 9),
            source=SourceState(NOW, [P0, P1]),
        ),
    ],
    ids=lambda case: case.id,
)
def test_an_accepted_gap_moves_the_position_beyond_it(case: Case) -> None:
    recovered = RecoveredTable(case.position, lost=case.lost)
    problems = [PositionProblem("a", case.problem, "…", case.partitions)]
    assert offsets_past_gap(recovered, problems, case.source, frozenset(case.source.partitions)) == case.expected


@pytest.mark.parametrize(
    ("problem", "partitions", "expected"),
    [
        pytest.param(None, (), {P0: 40, P1: 5}, id="the others stay where they are proven"),
        pytest.param(ProblemKind.DELETED, (P1,), {P0: 40}, id="those that are not are read as new ones"),
        pytest.param(ProblemKind.EXPIRED, (), {P0: 40}, id="where nothing is proven, too"),
    ],
)
def test_a_rewind_moves_the_position_to_the_given_offsets(
    problem: ProblemKind | None, partitions: tuple[TopicPartition, ...], expected: Mapping[TopicPartition, int]
) -> None:
    problems = [] if problem is None else [PositionProblem("a", problem, "…", frozenset(partitions))]
    assert rewound_offsets(RecoveredTable(at(20, 5)), problems, {P0: 40}) == expected


def test_a_recovery_decision_keeps_unaffected_partitions_in_the_chain() -> None:
    accepted = RecoveryDecision("--accept-gap a", ("hole",))
    found = decided_position(RecoveredTable(at(20, 5, start=2)), {P0: 30, P1: 5}, SOURCE, accepted)
    assert found.ranges == {P0: OffsetRange(30, 30), P1: OffsetRange(2, 5)}
    assert (found.identity, found.accepted) == (NOW, accepted)


def test_a_recovery_flag_is_offered_for_all_tables_or_for_none() -> None:
    chain_break = [PositionProblem("?", ProblemKind.CHAIN_BREAK, "…")]
    expired = [PositionProblem("?", ProblemKind.EXPIRED, "…")]
    folder = SourceState(NOW, [])
    tables = [
        RefusedTable("shop.a b", RecoveredTable(at(20, 5)), chain_break, TableState(1), frozenset()),
        RefusedTable("shop.c", RecoveredTable(SourcePosition()), expired, TableState(1), frozenset()),
    ]
    (only,) = position_refused(tables, folder, "tidelake ingest run x.yaml").ways_out
    assert (
        only.splitlines()[0] == "tidelake ingest run x.yaml --rewind-to 'shop.a b'=earliest --rewind-to shop.c=earliest"
    )
