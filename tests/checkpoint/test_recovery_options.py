"""How each recovery option changes a position. tests/integration shows with a real broker that the pipeline then
continues.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from tidelake.checkpoint.offsets import (
    POSITION_PROPERTY,
    OffsetRange,
    RecoveryDecision,
    SourceIdentity,
    SourcePosition,
    TopicPartition,
    position_to_text,
)
from tidelake.checkpoint.position_problems import PositionProblem, ProblemKind, SourceState
from tidelake.checkpoint.recovery import RecoveredTable
from tidelake.checkpoint.recovery_options import (
    RefusedTable,
    batch_refused,
    decided_position,
    offsets_past_gap,
    position_refused,
    rewound_offsets,
)
from tidelake.checkpoint.table_state import SnapshotSummary, TableState

P0, P1, P2, U0 = (TopicPartition(*one) for one in (("t", 0), ("t", 1), ("t", 2), ("u", 0)))
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


def another_user(reached: Mapping[TopicPartition, int] | None) -> PositionProblem:
    return PositionProblem("a", ProblemKind.ANOTHER_COMMIT_USER, "…", reached=reached)


@pytest.mark.parametrize(
    ("reached", "expected"),
    [
        pytest.param([{P0: 40}], {P0: 40, P1: 5}, id="further"),
        pytest.param([{P0: 40}, {P0: 50}, {P0: 45}], {P0: 50, P1: 5}, id="the furthest of several"),
        pytest.param([{P0: 120}], {P0: 90, P1: 5}, id="not beyond the end of the source"),
        pytest.param([{P0: 10}], {P0: 20, P1: 5}, id="less far"),
        pytest.param([{P0: 20}], {P0: 20, P1: 5}, id="as far"),
        pytest.param([{P2: 1}], {P0: 20, P1: 5, P2: 1}, id="a record of another partition"),
        pytest.param([{P2: 0}], {P0: 20, P1: 5}, id="none of another partition"),
        pytest.param([{P0: 40}, None], None, id="offsets of another source"),
    ],
)
def test_records_of_other_commit_users_are_not_written_again(
    reached: Sequence[Mapping[TopicPartition, int] | None], expected: Mapping[TopicPartition, int] | None
) -> None:
    problems = [another_user(one) for one in reached]
    assert offsets_past_gap(RecoveredTable(at(20, 5)), problems, SOURCE, BOUNDS.keys()) == expected


@pytest.mark.parametrize(
    ("problems", "expected"),
    [
        pytest.param(
            [PositionProblem("a", ProblemKind.TOPIC_RECREATED, "…", frozenset({P0}))],
            {P0: 30, P1: 0, U0: 7},
            id="a topic created again: no other topic",
        ),
        pytest.param(
            [PositionProblem("a", ProblemKind.PARTITION_GONE, "…", frozenset({P2}))],
            {P0: 30, P1: 0, U0: 7},
            id="a partition that is gone has no offset",
        ),
        pytest.param(
            [another_user({}), PositionProblem("a", ProblemKind.DELETED, "…", frozenset({P0}))],
            {P0: 30, P1: 5, P2: 4, U0: 7},
            id="after another problem",
        ),
        pytest.param(
            [PositionProblem("a", ProblemKind.DELETED, "…", frozenset({P0, TopicPartition("t", 9)}))],
            {P0: 30, P1: 5, P2: 4, U0: 7},
            id="a partition that the table has not read",
        ),
    ],
)
def test_only_partitions_with_a_problem_move(
    problems: Sequence[PositionProblem], expected: Mapping[TopicPartition, int]
) -> None:
    ends = {P0: 20, P1: 5, P2: 4, U0: 7}
    position = SourcePosition(SourceIdentity("c1"), {p: OffsetRange(0, end) for p, end in ends.items()})
    bounds = {**BOUNDS, U0: OffsetRange(2, 9)}
    source = SourceState(NOW, bounds.keys(), bounds)
    assert offsets_past_gap(RecoveredTable(position), problems, source, bounds.keys()) == expected


def test_a_lost_position_needs_the_end_of_every_partition() -> None:
    problems = [PositionProblem("a", ProblemKind.EXPIRED, "…")]
    source = SourceState(NOW, [P0, P2], {P0: OffsetRange(30, 90)})
    assert offsets_past_gap(RecoveredTable(SourcePosition()), problems, source, [P0, P2]) is None


@pytest.mark.parametrize(
    ("reached", "expected"),
    [
        pytest.param({P0: 40}, {P0: 40, P1: 2}, id="further than the table"),
        pytest.param({P0: 10}, {P0: 20, P1: 2}, id="less far"),
        pytest.param({P2: 0}, {P0: 20, P1: 2, P2: 0}, id="a partition that the table has not read"),
        pytest.param(None, {P0: 20, P1: 2}, id="offsets of another source"),
    ],
)
def test_a_rewind_of_some_partitions_continues_the_others_after_all_commit_users(
    reached: Mapping[TopicPartition, int] | None, expected: Mapping[TopicPartition, int]
) -> None:
    assert rewound_offsets(RecoveredTable(at(20, 5)), [another_user(reached)], {P1: 2}) == expected


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


# ---------------------------------------------------------------- the refusal


def refused(*problems: PositionProblem, state: TableState | None = None) -> RefusedTable:
    position = SourcePosition(SourceIdentity("c1"), {P0: OffsetRange(0, 40), P1: OffsetRange(0, 5)})
    return RefusedTable("shop.t", RecoveredTable(position), problems, state or TableState(1), BOUNDS.keys())


def problem(kind: ProblemKind, *partitions: TopicPartition) -> PositionProblem:
    return PositionProblem("shop.t", kind, f"because of {kind.name}", frozenset(partitions))


@pytest.mark.parametrize(
    ("problems", "effect"),
    [
        pytest.param(
            [another_user({P0: 50})],
            "at t-0: 50, t-1: 5, after all records that are already in the table; no duplicates",
            id="of another commit user",
        ),
        pytest.param(
            [problem(ProblemKind.CHAIN_BREAK), problem(ProblemKind.ROUTING)],
            "at t-0: 40, t-1: 5, its current position: skipped records stay skipped",
            id="what was skipped",
        ),
        pytest.param(
            [problem(ProblemKind.CHAIN_BREAK)], "its current position: skipped records stay skipped", id="of one kind"
        ),
        pytest.param(
            [problem(ProblemKind.DELETED, P0), problem(ProblemKind.CHAIN_BREAK)],
            "at t-0: 40, t-1: 5: no duplicates; the records in between are skipped",
            id="what was deleted",
        ),
        pytest.param(
            [problem(ProblemKind.TOPIC_RECREATED, P0, P1)],
            "at t-0: 30, t-1: 0: what was not read of the old topic is lost, and what the new one repeats is applied",
            id="another topic of this name",
        ),
    ],
)
def test_accepting_a_gap_is_offered_with_its_effect(problems: Sequence[PositionProblem], effect: str) -> None:
    error = position_refused([refused(*problems)], SOURCE, "run")
    assert error.ways_out[0].startswith("run --accept-gap shop.t\n")
    assert effect in error.ways_out[0]
    assert all(f"shop.t: {one.text}" in str(error) for one in problems)
    assert "Continuing could lose or duplicate records" in str(error)


def test_a_table_without_partitions_continues_at_its_first_record() -> None:
    nowhere = RefusedTable(
        "t", RecoveredTable(SourcePosition()), [problem(ProblemKind.ROUTING)], TableState(1), frozenset()
    )
    assert "t continues at its first record" in position_refused([nowhere], SOURCE, "run").ways_out[0]


def test_a_long_list_of_partitions_ends_with_their_number() -> None:
    ranges = {TopicPartition("t", number): OffsetRange(0, number) for number in range(6)}
    many = RefusedTable(
        "t",
        RecoveredTable(SourcePosition(NOW, ranges)),
        [problem(ProblemKind.ROUTING)],
        TableState(1),
        ranges.keys(),
    )
    assert "at t-0: 0, t-1: 1, t-2: 2, t-3: 3 and 2 more" in position_refused([many], SOURCE, "run").ways_out[0]


@pytest.mark.parametrize("also", [(), (problem(ProblemKind.DELETED, P0),)], ids=["alone", "among others"])
def test_another_commit_user_may_go_on_instead(also: Sequence[PositionProblem]) -> None:
    ways_out = position_refused([refused(another_user({P0: 50}), *also)], SOURCE, "run").ways_out
    assert "leave this pipeline stopped" in ways_out[-2]
    assert "tables[].shared_with" in ways_out[-1]
    without = position_refused([refused(problem(ProblemKind.DELETED, P0))], SOURCE, "run").ways_out
    assert not any("shared_with" in one for one in without)


def snapshot(id_: int, ends: Mapping[TopicPartition, int] | str | None) -> SnapshotSummary:
    """ends: its position, or an unreadable one; None: it has none."""
    properties = {}
    if isinstance(ends, str):
        properties[POSITION_PROPERTY] = ends
    elif ends is not None:
        ranges = {p: OffsetRange(0, end) for p, end in ends.items()}
        properties[POSITION_PROPERTY] = position_to_text(SourcePosition(SourceIdentity("c1"), ranges))
    return SnapshotSummary(id_, f"snapshot-{id_}", "shop", id_ * 10, f"list-{id_}", properties)


def served(id_: int, p0: int = 50) -> SnapshotSummary:
    return snapshot(id_, {P0: p0, P1: 5})


@pytest.mark.parametrize(
    ("kind", "is_warned"),
    [
        (ProblemKind.TOPIC_RECREATED, True),
        (ProblemKind.PARTITION_GONE, True),
        (ProblemKind.ANOTHER_SOURCE, True),
        (ProblemKind.ROUTING, False),
    ],
    ids=lambda value: value.name if isinstance(value, ProblemKind) else None,
)
def test_the_offsets_of_another_topic_are_offered_with_the_condition_that_it_is_a_copy(
    kind: ProblemKind, is_warned: bool
) -> None:
    table = refused(problem(kind, P0), state=TableState(1, own=[served(3)]))
    (option,) = (one for one in position_refused([table], SOURCE, "run").ways_out if "--from-snapshot" in one)
    assert ("Only if the topic was copied with its offsets" in option) is is_warned


@pytest.mark.parametrize(
    ("problems", "own", "others", "chosen"),
    [
        pytest.param([problem(ProblemKind.ROUTING)], [served(3)], [served(2)], 3, id="the newest"),
        pytest.param([problem(ProblemKind.ROUTING)], [served(3)], [served(4)], 4, id="of any commit user"),
        pytest.param(
            [problem(ProblemKind.ROUTING)],
            [],
            [snapshot(5, "?"), snapshot(4, None), served(3, 95), served(2), served(1)],
            2,
            id="the newest whose position can be read, and is in the source",
        ),
        pytest.param(
            [problem(ProblemKind.TOPIC_RECREATED, P0), problem(ProblemKind.ROUTING)],
            [],
            [served(3), served(2)],
            3,
            id="of another source the newest",
        ),
        pytest.param(
            [problem(ProblemKind.TOPIC_RECREATED, P0), problem(ProblemKind.ROUTING)],
            [],
            [served(3, 95), served(2)],
            None,
            id="and no older one",
        ),
        pytest.param(
            [another_user({P0: 60, P1: 3})],
            [],
            [served(4, 50), snapshot(3, None), served(2, 60), served(1, 70)],
            2,
            id="the newest that is as far as other commit users",
        ),
        pytest.param(
            [another_user({P0: 60, P2: 1})], [], [served(4, 70), served(3, 60)], None, id="in every partition"
        ),
        pytest.param([another_user(None)], [served(4, 50)], [], 4, id="whose offsets may be of another source"),
        pytest.param(
            [problem(ProblemKind.CHAIN_BREAK)],
            [
                snapshot(3, {P0: 60, P1: 5}),
                SnapshotSummary(
                    2,
                    "snapshot-2",
                    "shop",
                    20,
                    "list-2",
                    {
                        POSITION_PROPERTY: position_to_text(
                            SourcePosition(SourceIdentity("c1"), {P0: OffsetRange(55, 60), P1: OffsetRange(5, 5)})
                        )
                    },
                ),
                served(1),
            ],
            [],
            1,
            id="the last one before a chain break",
        ),
        pytest.param([problem(ProblemKind.ROUTING)], [snapshot(3, None)], [], None, id="none has a position"),
    ],
)
def test_the_position_of_a_snapshot_is_offered(
    problems: Sequence[PositionProblem],
    own: Sequence[SnapshotSummary],
    others: Sequence[SnapshotSummary],
    chosen: int | None,
) -> None:
    state = TableState(1, own, others)
    found = [one for one in position_refused([refused(*problems, state=state)], SOURCE, "run").ways_out if "run" in one]
    offered = [one for one in found if one.startswith("run --from-snapshot")]
    assert [one.partition("\n")[0] for one in offered] == (
        [] if chosen is None else [f"run --from-snapshot shop.t={chosen}"]
    )
    assert all(f"where snapshot {chosen} ended, at t-0: " in one for one in offered)


@pytest.mark.parametrize(
    ("kind", "remedies"),
    [
        (
            ProblemKind.READ_AGAIN,
            ["start the query", "continue with the writer of these records", "sink(…, reread=True), if it is harmless"],
        ),
        (
            ProblemKind.GAP,
            ["start the query", "continue with the writer of the table's records", "sink(…, accept_gap=True), if they"],
        ),
    ],
)
def test_a_refused_batch_names_the_argument_that_accepts_it(kind: ProblemKind, remedies: Sequence[str]) -> None:
    error = batch_refused(problem(kind, P0), at(20, 5))
    assert f"because of {kind.name}" in str(error)
    assert len(error.ways_out) == len(remedies)
    assert all(way.startswith(remedy) for way, remedy in zip(error.ways_out, remedies, strict=True))
    assert '{"t": {"0": 20, "1": 5}}' in error.ways_out[0]
    assert error.ways_out[0].endswith("with a new checkpoint directory") is (kind is ProblemKind.GAP)
