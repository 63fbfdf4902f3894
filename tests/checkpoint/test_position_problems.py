"""A position compared with the current source."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from tidelake.checkpoint.offsets import OffsetRange, SourceIdentity, SourcePosition, TopicPartition
from tidelake.checkpoint.position_problems import ProblemKind, SourceState, compare_with_source, first_few

P0, P1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
IDENTITY = SourceIdentity("c1", {"t": "id1", "u": "id2"})
POSITION = SourcePosition(IDENTITY, {P0: OffsetRange(0, 20), P1: OffsetRange(0, 5), U0: OffsetRange(0, 7)})
BOUNDS = {P0: OffsetRange(3, 30), P1: OffsetRange(5, 5), U0: OffsetRange(0, 9)}


@dataclass(frozen=True)
class Case:
    id: str
    problems: tuple[ProblemKind, ...]
    message: str = ""
    identity: SourceIdentity = IDENTITY
    there: frozenset[TopicPartition] = frozenset(BOUNDS)
    bounds: dict[TopicPartition, OffsetRange] = field(default_factory=lambda: BOUNDS)


@pytest.mark.parametrize(
    "case",
    [
        Case("all is there", ()),
        Case("a source that tells no bounds", (), bounds={}),
        Case("a source that tells no ids", (), identity=SourceIdentity()),
        Case(
            "new partitions and topics", (), there=frozenset({*BOUNDS, TopicPartition("t", 2), TopicPartition("v", 0)})
        ),
        Case("a topic that is not configured any more", (), there=frozenset({P0, P1})),
        Case(
            "another cluster",
            (ProblemKind.ANOTHER_SOURCE,),
            "the cluster is c2, not c1",
            identity=SourceIdentity("c2", {"t": "x"}),
            bounds={P0: OffsetRange(25, 30)},
        ),
        Case(
            "a topic created again: its offsets are not looked at",
            (ProblemKind.TOPIC_RECREATED,),
            "topic t has id new, not id1",
            identity=SourceIdentity("c1", {"t": "new", "u": "id2"}),
            bounds={**BOUNDS, P0: OffsetRange(0, 2)},
        ),
        Case("fewer partitions", (ProblemKind.PARTITION_GONE,), "t-1 was read up to 5", there=frozenset({P0, U0})),
        Case(
            "retention",
            (ProblemKind.DELETED,),
            "t-0 was read up to 20, but its oldest record is now 21. The source no longer has 1 offset, so no option",
            bounds={**BOUNDS, P0: OffsetRange(21, 30)},
        ),
        Case(
            "retention in two partitions",
            (ProblemKind.DELETED,),
            "The source no longer has 7 offsets, so no option brings back these changes",
            bounds={**BOUNDS, P0: OffsetRange(21, 30), P1: OffsetRange(11, 30)},
        ),
        Case(
            "past the end",
            (ProblemKind.PAST_THE_END,),
            "u-0 was read up to 7, but it ends at 6",
            bounds={**BOUNDS, U0: OffsetRange(0, 6)},
        ),
        Case(
            "several at once",
            (ProblemKind.TOPIC_RECREATED, ProblemKind.PAST_THE_END),
            identity=SourceIdentity("c1", {"t": "new", "u": "id2"}),
            bounds={**BOUNDS, U0: OffsetRange(0, 6)},
        ),
    ],
    ids=lambda case: case.id,
)
def test_position_problems_are_found(case: Case) -> None:
    found = compare_with_source("a", POSITION, SourceState(case.identity, case.there, case.bounds))
    assert tuple(problem.kind for problem in found) == case.problems
    assert not found or case.message in found[0].text


def test_a_long_list_is_shortened_to_its_first_items() -> None:
    assert first_few(f"p{n}" for n in range(3)) == "p0, p1, p2"
    assert first_few(f"p{n}" for n in range(9)) == "p0, p1, p2 and 6 more"
