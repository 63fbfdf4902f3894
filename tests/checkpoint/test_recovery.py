"""Where a pipeline continues in a table: its own snapshots decide, and its progress file may lead to a refusal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest

from tidelake.checkpoint.epoch import EPOCH_PROPERTY, Epoch
from tidelake.checkpoint.idle_progress import IdleProgress, ProgressEntry
from tidelake.checkpoint.offsets import (
    POSITION_PROPERTY,
    OffsetRange,
    RecoveryDecision,
    SourceIdentity,
    SourcePosition,
    TopicPartition,
    position_to_text,
)
from tidelake.checkpoint.position_problems import ProblemKind
from tidelake.checkpoint.recovery import last_before_chain_break, recover_table, resume_offsets
from tidelake.checkpoint.routing import ROUTING_PROPERTY, Routing
from tidelake.checkpoint.table_state import MISSING_TABLE, SnapshotSummary, TableState
from tidelake.errors import CorruptFile

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
IDENTITY = SourceIdentity("c1", {"t": "id1"})
CREATED_MS = 111


def at(*ranges: tuple[int, int], accepted: RecoveryDecision | None = None) -> SourcePosition:
    """[start, end) of partitions 0, 1, …"""
    found = {TopicPartition("t", number): OffsetRange(*range_) for number, range_ in enumerate(ranges)}
    return SourcePosition(IDENTITY, found, accepted)


def own(id_: int, position: SourcePosition | None, **properties: str) -> SnapshotSummary:
    """The identifier is ten times the id."""
    if position is not None:
        properties[POSITION_PROPERTY] = position_to_text(position)
    return SnapshotSummary(id_, f"snapshot-{id_}", "shop", id_ * 10, f"list-{id_}", properties)


def table(
    *newest_first: SnapshotSummary, earliest: int = 1, latest: int = 99, registered: int | None = None
) -> TableState:
    return TableState(CREATED_MS, newest_first, (), earliest, latest, registered)


def progress(snapshot_id: int | None, *reached: int, created_ms: int | None = CREATED_MS) -> IdleProgress:
    """Of table "a", idle since that own snapshot."""
    entry = ProgressEntry(created_ms, snapshot_id, None if snapshot_id is None else f"list-{snapshot_id}")
    position = at(*((end, end) for end in reached))
    return IdleProgress(position, {"a": entry}, 500, 7)


def active(snapshot_id: int | None, *, created_ms: int = CREATED_MS) -> IdleProgress:
    """Table "a" was marked active when that was its newest own snapshot, and the source was read up to 50."""
    entry = ProgressEntry(created_ms, snapshot_id, None if snapshot_id is None else f"list-{snapshot_id}")
    return IdleProgress(at((50, 50)), {}, 500, 7, {"a": entry})


NONE = IdleProgress()
NOWHERE = SourcePosition()


@dataclass(frozen=True)
class Case:
    id: str
    table_state: TableState
    progress: IdleProgress = NONE
    position: SourcePosition = NOWHERE
    is_fresh: bool = False


@pytest.mark.parametrize(
    "case",
    [
        Case("no table", MISSING_TABLE, is_fresh=True),
        Case("a table that others wrote", table(), is_fresh=True),
        Case("an empty table", TableState(CREATED_MS), is_fresh=True),
        Case("an own snapshot", table(own(9, at((5, 20)))), position=at((20, 20))),
        Case("it is registered", table(own(9, at((5, 20))), registered=9), position=at((20, 20))),
        Case("an older one is registered", table(own(9, at((5, 20))), registered=4), position=at((20, 20))),
        Case("idle since", table(own(9, at((5, 20)))), progress(9, 50), at((20, 50))),
        Case("idle since, with a new partition", table(own(9, at((5, 20)))), progress(9, 50, 8), at((20, 50), (8, 8))),
        Case("progress of an older state is void", table(own(9, at((5, 20)))), progress(4, 50), at((20, 20))),
        Case(
            "progress of a dropped table of the same name is void",
            table(own(9, at((5, 20)))),
            progress(9, 50, created_ms=5),
            at((20, 20)),
        ),
        Case(
            "a table created again is fresh, whatever the dropped one had",
            table(earliest=1, latest=1),
            progress(9, 50, created_ms=5),
            is_fresh=True,
        ),
        Case(
            "progress of a table that didn't exist",
            MISSING_TABLE,
            progress(None, 50, created_ms=None),
            at((50, 50)),
            True,
        ),
        Case("it exists now", TableState(CREATED_MS), progress(None, 50, created_ms=None), at((50, 50)), is_fresh=True),
        Case("it exists, and had no snapshot either", TableState(CREATED_MS), progress(None, 50), at((50, 50)), True),
        Case("it was dropped", MISSING_TABLE, progress(9, 50), is_fresh=True),
        Case("own ones expired, and the file bridges it", table(earliest=10), progress(9, 50), at((50, 50))),
        Case("struck out: progress is void", table(own(9, at((5, 20)))), active(9), at((20, 20))),
        Case("struck out, and a later one was published", table(own(9, at((5, 20)))), active(4), at((20, 20))),
        Case("struck out, and the table was dropped", MISSING_TABLE, active(9), is_fresh=True),
        Case("struck out, and it was created again", table(earliest=10), active(9, created_ms=5), is_fresh=True),
        Case("struck out before its first one, which never came", TableState(CREATED_MS), active(None), is_fresh=True),
        Case("the same, and others wrote", table(earliest=1), active(None), is_fresh=True),
        Case("also when an older one was registered", table(earliest=10, registered=7), progress(9, 50), at((50, 50))),
    ],
    ids=lambda case: case.id,
)
def test_snapshots_of_a_table_prove_its_position(case: Case) -> None:
    recovered = recover_table("a", case.table_state, case.progress, None)
    assert list(recovered.problems) == []
    assert recovered.position == case.position
    assert recovered.is_fresh is case.is_fresh


@dataclass(frozen=True)
class RefusedCase:
    id: str
    table_state: TableState
    problem: ProblemKind
    message: str
    progress: IdleProgress = NONE
    routing: Routing | None = None


ORDERS = Routing.of("debezium-json", ["orders"], ["*"])
FIRST, SECOND = own(1, at((0, 10))), own(2, at((12, 20)))  # offsets 10 and 11 are missing


@pytest.mark.parametrize(
    "case",
    [
        RefusedCase(
            "own ones expired",
            table(earliest=10, registered=9),
            ProblemKind.EXPIRED,
            "last known snapshot 9",
        ),
        RefusedCase(
            "expired, and the file is older than the last one",
            table(earliest=10, registered=9),
            ProblemKind.EXPIRED,
            "none of its snapshots is left: the table's oldest snapshot is 10",
            progress(7, 50),
        ),
        RefusedCase(
            "expired, and the file has it struck out",
            table(earliest=10),
            ProblemKind.EXPIRED,
            "last known snapshot 7",
            active(7),
        ),
        RefusedCase(
            "expired, and struck out before its first one",
            table(earliest=10),
            ProblemKind.EXPIRED,
            "has committed to the table, or was about to when it last ran, but none of its snapshots is left",
            active(None),
        ),
        RefusedCase(
            "the same, and the second snapshot is the oldest",
            table(earliest=2),
            ProblemKind.EXPIRED,
            "the table's oldest snapshot is 2",
            active(None),
        ),
        RefusedCase(
            "the last known id has another snapshot now",
            table(earliest=9, registered=9),
            ProblemKind.ROLLED_BACK,
            "snapshot 9 and all others of this pipeline no longer exist",
        ),
        RefusedCase(
            "two are gone: the newer one is named",
            table(own(7, at((0, 10))), registered=12),
            ProblemKind.ROLLED_BACK,
            "snapshot 12 of this pipeline no longer exists",
            progress(9, 50),
        ),
        RefusedCase(
            "the one that was marked active is gone",
            table(own(7, at((0, 10)))),
            ProblemKind.ROLLED_BACK,
            "snapshot 9 of this pipeline no longer exists, and its newest one is now 7",
            active(9),
        ),
        RefusedCase(
            "the registered one is gone",
            table(own(7, at((0, 10))), registered=9),
            ProblemKind.ROLLED_BACK,
            "snapshot 9 of this pipeline no longer exists, and its newest one is now 7",
        ),
        RefusedCase(
            "the one in the progress file is gone",
            table(own(7, at((0, 10)))),
            ProblemKind.ROLLED_BACK,
            "snapshot 9 of this pipeline no longer exists",
            progress(9, 50),
        ),
        RefusedCase(
            "its id was given away again",
            table(own(9, at((0, 10)))),
            ProblemKind.ROLLED_BACK,
            "snapshot 9 of this pipeline no longer exists",
            IdleProgress(at((50, 50)), {"a": ProgressEntry(CREATED_MS, 9, "another list")}),
        ),
        RefusedCase(
            "all own ones were rolled back",
            table(earliest=1, latest=3, registered=9),
            ProblemKind.ROLLED_BACK,
            "and all others of this pipeline no longer exist (the newest one is 3)",
        ),
        RefusedCase(
            "everything was rolled back",
            TableState(CREATED_MS, consumer_snapshot_id=9),
            ProblemKind.ROLLED_BACK,
            "and all others of this pipeline no longer exist (the table has none)",
        ),
        RefusedCase(
            "no position", table(own(9, None)), ProblemKind.NO_POSITION, "snapshot-9, the newest snapshot of this"
        ),
        RefusedCase(
            "an unreadable position",
            table(own(9, None, **{POSITION_PROPERTY: '{"version":1,"clu'})),
            ProblemKind.NO_POSITION,
            "has a source position that can't be read: '{\"version\":1,\"clu'",
        ),
        RefusedCase(
            "a chain break",
            table(SECOND, FIRST),
            ProblemKind.CHAIN_BREAK,
            "between checkpoints 10 and 20: t-0 continues at 12 instead of 10: a gap",
        ),
        RefusedCase(
            "other patterns",
            table(own(9, at((0, 10)), **{ROUTING_PROPERTY: ORDERS.to_text()})),
            ProblemKind.ROUTING,
            "`match` is now orders, returns, but was orders.",
            routing=Routing.of("debezium-json", ["returns", "orders"], ["*"]),
        ),
    ],
    ids=lambda case: case.id,
)
def test_unproven_positions_are_refused(case: RefusedCase) -> None:
    (problem,) = recover_table("a", case.table_state, case.progress, case.routing).problems
    assert problem.kind is case.problem
    assert case.message in problem.text


@pytest.mark.parametrize(
    ("newest", "problem"),
    [
        pytest.param(
            own(2, at((12, 20), accepted=RecoveryDecision("--accept-gap a"))), None, id="the next snapshot explains it"
        ),
        pytest.param(own(2, at((0, 20), accepted=RecoveryDecision("--rewind-to a"))), None, id="an overlap, explained"),
        pytest.param(own(2, at((10, 20))), None, id="no chain break"),
        pytest.param(own(2, at((0, 20))), ProblemKind.CHAIN_BREAK, id="an overlap"),
    ],
)
def test_an_accepted_gap_is_not_reported_again(newest: SnapshotSummary, problem: ProblemKind | None) -> None:
    found = [problem.kind for problem in recover_table("a", table(newest, FIRST), NONE, None).problems]
    assert found == ([] if problem is None else [problem])


@pytest.mark.parametrize(
    ("accepted", "breaks"),
    [(["hole"], []), (["deleted by retention"], [ProblemKind.CHAIN_BREAK])],
    ids=["of the chain break", "of another problem"],
)
def test_a_later_decision_covers_the_earlier_gaps(accepted: Sequence[str], breaks: Sequence[ProblemKind]) -> None:
    later = own(3, at((20, 20), accepted=RecoveryDecision("--accept-gap a", accepted)))
    assert [f.kind for f in recover_table("a", table(later, SECOND, FIRST), NONE, None).problems] == breaks


def test_the_snapshot_before_the_oldest_gap_is_found() -> None:
    assert last_before_chain_break([own(4, at((25, 30))), own(3, at((20, 20))), SECOND, FIRST]) == FIRST
    assert last_before_chain_break([FIRST]) is None
    accepted = own(2, at((12, 20), accepted=RecoveryDecision("--accept-gap a")))
    assert last_before_chain_break([own(3, at((25, 30))), accepted, FIRST]) == accepted


@pytest.mark.parametrize(
    "routing",
    [
        pytest.param(Routing.of("debezium-json", ["orders", "orders"], ["*"]), id="the same patterns, one twice"),
        pytest.param(None, id="nothing to compare"),
    ],
)
def test_unchanged_routing_is_accepted(routing: Routing | None) -> None:
    table_state = table(own(9, at((0, 10)), **{ROUTING_PROPERTY: ORDERS.to_text()}))
    assert recover_table("a", table_state, NONE, routing).problems == []


def test_a_snapshot_of_an_older_release_without_routing_is_accepted() -> None:
    assert recover_table("a", table(own(9, at((0, 10)))), NONE, ORDERS).problems == []


def test_progress_under_other_patterns_is_ignored_for_a_table_without_snapshots() -> None:
    """The user corrected a pattern that matched nothing, so the skipped records are wanted."""
    idle = IdleProgress(at((50, 50)), {"a": ProgressEntry(routing=ORDERS)})
    assert recover_table("a", MISSING_TABLE, idle, ORDERS).position == at((50, 50))
    assert recover_table("a", MISSING_TABLE, idle, Routing.of("debezium-json", ["orders*"], ["*"])).position == NOWHERE


def test_expired_snapshots_are_not_silently_bridged_to_other_patterns() -> None:
    idle = IdleProgress(at((50, 50)), {"a": ProgressEntry(CREATED_MS, 9, "list-9", ORDERS)})
    recovered = recover_table("a", table(earliest=10), idle, Routing.of("debezium-json", ["orders*"], ["*"]))
    assert ([f.kind for f in recovered.problems], recovered.position) == ([ProblemKind.ROUTING], at((50, 50)))


def test_progress_counts_only_for_topics_that_feed_the_table() -> None:
    reached = SourcePosition(IDENTITY, {P0: OffsetRange(50, 50), TopicPartition("other", 0): OffsetRange(7, 7)})
    idle = IdleProgress(reached, {"a": ProgressEntry(CREATED_MS, 9, "list-9")})
    recovered = recover_table("a", table(own(9, at((5, 20)))), idle, Routing.of("debezium-json", ["a"], ["t*"]))
    assert recovered.position == at((20, 50))


def test_progress_of_another_source_is_ignored() -> None:
    reached = SourcePosition(SourceIdentity("c2"), {P0: OffsetRange(50, 50)})
    idle = IdleProgress(reached, {"a": ProgressEntry(CREATED_MS, 9, "list-9")})
    assert recover_table("a", table(own(9, at((5, 20)))), idle, None).position == at((20, 20))


@pytest.mark.parametrize(
    ("table_state", "known", "expected"),
    [
        pytest.param(table(own(9, at((0, 1)))), NONE, (90, 0), id="of the newest own one"),
        pytest.param(table(earliest=10), progress(9, 50), (500, 7), id="of the progress file, when all expired"),
        pytest.param(table(own(7, at((0, 1)))), progress(9, 50), (500, 7), id="above what was rolled back"),
        pytest.param(table(earliest=10), active(9), (500, 7), id="of the progress file, when it was marked active"),
        pytest.param(MISSING_TABLE, progress(9, 50), (500, 7), id="above those of a table that was dropped"),
        pytest.param(
            table(earliest=700, latest=800, registered=1), NONE, (800, 0), id="large enough, if nothing tells"
        ),
        pytest.param(TableState(CREATED_MS, consumer_snapshot_id=9), NONE, (0, 0), id="the table has no snapshot left"),
    ],
)
def test_identifiers_and_epochs_continue_above_all_used_ones(
    table_state: TableState, known: IdleProgress, expected: tuple[int, int]
) -> None:
    recovered = recover_table("a", table_state, known, None)
    assert (recovered.identifier, recovered.epoch) == expected


@pytest.mark.parametrize(
    ("table_state", "lost"),
    [
        pytest.param(table(own(7, at((0, 10)))), at((50, 50)), id="it was rolled back to an older own one"),
        pytest.param(table(own(7, at((0, 10))), registered=12), None, id="the file knows only an older one"),
        pytest.param(table(earliest=1, latest=3), at((50, 50)), id="all own ones were rolled back"),
        pytest.param(table(earliest=1, latest=3, registered=12), None, id="all, and the file knows only an older one"),
    ],
)
def test_the_progress_file_says_how_far_the_missing_snapshot_was(
    table_state: TableState, lost: SourcePosition | None
) -> None:
    assert recover_table("a", table_state, progress(9, 50), None).lost == lost


@pytest.mark.parametrize(
    ("newest", "position"),
    [
        pytest.param(own(7, at((0, 10))), at((10, 10)), id="of the newest own one that is left"),
        pytest.param(own(7, None), NOWHERE, id="it has none"),
    ],
)
def test_after_a_rollback_the_position_is_that_of_what_is_left(
    newest: SnapshotSummary, position: SourcePosition
) -> None:
    recovered = recover_table("a", table(newest, registered=9), NONE, None)
    assert recovered.position.ranges == position.ranges


def test_a_table_removed_from_the_progress_file_has_no_known_position() -> None:
    """`reached` is from before what is missing was written."""
    assert recover_table("a", table(earliest=10), active(9), None).lost is None
    assert recover_table("a", table(own(7, at((0, 1)))), active(9), None).lost is None


def test_the_epoch_is_the_one_of_the_newest_own_snapshot() -> None:
    newest = own(9, at((0, 1)), **{EPOCH_PROPERTY: Epoch(4, "w").to_text()})
    assert recover_table("a", table(newest), NONE, None).epoch == 4


@pytest.mark.parametrize("properties", [{EPOCH_PROPERTY: "4"}, {ROUTING_PROPERTY: "[]"}])
def test_an_unreadable_property_is_an_error_that_names_the_snapshot(properties: Mapping[str, str]) -> None:
    newest = SnapshotSummary(
        9, "/t/snapshot-9", "shop", 1, "l", {POSITION_PROPERTY: position_to_text(at((0, 1))), **properties}
    )
    with pytest.raises(CorruptFile, match="snapshot-9"):
        recover_table("a", table(newest), NONE, ORDERS)


def test_the_source_is_read_from_the_smallest_position() -> None:
    assert resume_offsets([at((0, 20)), at((0, 10), (0, 3)), SourcePosition()]) == {P0: 10, P1: 3}
