"""Where a pipeline stands in a table: its own snapshots decide, and what it left beside them may refuse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest

from checkpoint.epoch import EPOCH_PROPERTY, Epoch
from checkpoint.evidence import NO_TABLE, Evidence, SeenSnapshot
from checkpoint.findings import Problem
from checkpoint.offsets import Accepted, OffsetRange, SourceIdentity, SourcePosition, TopicPartition
from checkpoint.position_text import POSITION_PROPERTY, position_to_text
from checkpoint.progress import IdleTable, Progress
from checkpoint.recovery import before_holes, read_from, stand
from checkpoint.routing import ROUTING_PROPERTY, Routing
from storage.errors import CorruptFile

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
IDENTITY = SourceIdentity("c1", {"t": "id1"})
CREATED_MS = 111


def at(*ranges: tuple[int, int], accepted: Accepted | None = None) -> SourcePosition:
    """[start, end) of partitions 0, 1, …"""
    found = {TopicPartition("t", number): OffsetRange(*range_) for number, range_ in enumerate(ranges)}
    return SourcePosition(IDENTITY, found, accepted)


def own(id_: int, position: SourcePosition | None, **properties: str) -> SeenSnapshot:
    """The identifier is ten times the id."""
    if position is not None:
        properties[POSITION_PROPERTY] = position_to_text(position)
    return SeenSnapshot(id_, f"snapshot-{id_}", "shop", id_ * 10, f"list-{id_}", properties)


def table(*newest_first: SeenSnapshot, earliest: int = 1, latest: int = 99, registered: int | None = None) -> Evidence:
    return Evidence(CREATED_MS, newest_first, (), earliest, latest, registered)


def progress(snapshot_id: int | None, *reached: int, created_ms: int | None = CREATED_MS) -> Progress:
    """Of table "a", idle since that own snapshot."""
    entry = IdleTable(created_ms, snapshot_id, None if snapshot_id is None else f"list-{snapshot_id}")
    position = at(*((end, end) for end in reached))
    return Progress(position, {"a": entry}, 500, 7)


def struck(snapshot_id: int | None, *, created_ms: int = CREATED_MS) -> Progress:
    """Table "a" was struck out when that was its newest own snapshot, and the source was read up to 50."""
    entry = IdleTable(created_ms, snapshot_id, None if snapshot_id is None else f"list-{snapshot_id}")
    return Progress(at((50, 50)), {}, 500, 7, {"a": entry})


NONE = Progress()
NOWHERE = SourcePosition()


@dataclass(frozen=True)
class Case:
    id: str
    evidence: Evidence
    progress: Progress = NONE
    position: SourcePosition = NOWHERE
    is_fresh: bool = False


@pytest.mark.parametrize(
    "case",
    [
        Case("no table", NO_TABLE, is_fresh=True),
        Case("a table that others wrote", table(), is_fresh=True),
        Case("an empty table", Evidence(CREATED_MS), is_fresh=True),
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
            "progress of a table that didn't exist", NO_TABLE, progress(None, 50, created_ms=None), at((50, 50)), True
        ),
        Case("it exists now", Evidence(CREATED_MS), progress(None, 50, created_ms=None), at((50, 50)), is_fresh=True),
        Case("it exists, and had no snapshot either", Evidence(CREATED_MS), progress(None, 50), at((50, 50)), True),
        Case("it was dropped", NO_TABLE, progress(9, 50), is_fresh=True),
        Case("own ones expired, and the file bridges it", table(earliest=10), progress(9, 50), at((50, 50))),
        Case("struck out: progress is void", table(own(9, at((5, 20)))), struck(9), at((20, 20))),
        Case("struck out, and a later one was published", table(own(9, at((5, 20)))), struck(4), at((20, 20))),
        Case("struck out, and the table was dropped", NO_TABLE, struck(9), is_fresh=True),
        Case("struck out, and it was created again", table(earliest=10), struck(9, created_ms=5), is_fresh=True),
        Case("struck out before its first one, which never came", Evidence(CREATED_MS), struck(None), is_fresh=True),
        Case("the same, and others wrote", table(earliest=1), struck(None), is_fresh=True),
        Case("also when an older one was registered", table(earliest=10, registered=7), progress(9, 50), at((50, 50))),
    ],
    ids=lambda case: case.id,
)
def test_what_a_table_proves(case: Case) -> None:
    standing = stand("a", case.evidence, case.progress, None)
    assert list(standing.findings) == []
    assert standing.position == case.position
    assert standing.is_fresh is case.is_fresh


@dataclass(frozen=True)
class RefusedCase:
    id: str
    evidence: Evidence
    problem: Problem
    said: str
    progress: Progress = NONE
    routing: Routing | None = None


ORDERS = Routing.of("debezium-json", ["orders"], ["*"])
FIRST, SECOND = own(1, at((0, 10))), own(2, at((12, 20)))  # offsets 10 and 11 are missing


@pytest.mark.parametrize(
    "case",
    [
        RefusedCase(
            "own ones expired", table(earliest=10, registered=9), Problem.EXPIRED, "last as far as is known snapshot 9"
        ),
        RefusedCase(
            "expired, and the file is older than the last one",
            table(earliest=10, registered=9),
            Problem.EXPIRED,
            "none of its snapshots is left: the oldest one there is 10",
            progress(7, 50),
        ),
        RefusedCase(
            "expired, and the file has it struck out",
            table(earliest=10),
            Problem.EXPIRED,
            "last as far as is known snapshot 7",
            struck(7),
        ),
        RefusedCase(
            "expired, and struck out before its first one",
            table(earliest=10),
            Problem.EXPIRED,
            "has committed to the table, or was about to when it last ran, but none of its snapshots is left",
            struck(None),
        ),
        RefusedCase(
            "the one that was struck out is gone",
            table(own(7, at((0, 10)))),
            Problem.ROLLED_BACK,
            "snapshot 9 of this pipeline is gone, and its newest one now is 7",
            struck(9),
        ),
        RefusedCase(
            "the registered one is gone",
            table(own(7, at((0, 10))), registered=9),
            Problem.ROLLED_BACK,
            "snapshot 9 of this pipeline is gone, and its newest one now is 7",
        ),
        RefusedCase(
            "the one in the progress file is gone",
            table(own(7, at((0, 10)))),
            Problem.ROLLED_BACK,
            "snapshot 9 of this pipeline is gone",
            progress(9, 50),
        ),
        RefusedCase(
            "its id was given away again",
            table(own(9, at((0, 10)))),
            Problem.ROLLED_BACK,
            "snapshot 9 of this pipeline is gone",
            Progress(at((50, 50)), {"a": IdleTable(CREATED_MS, 9, "another list")}),
        ),
        RefusedCase(
            "all own ones were rolled back",
            table(earliest=1, latest=3, registered=9),
            Problem.ROLLED_BACK,
            "with all others of its (the newest one there is 3)",
        ),
        RefusedCase(
            "everything was rolled back",
            Evidence(CREATED_MS, registered_id=9),
            Problem.ROLLED_BACK,
            "with all others of its (it has none at all)",
        ),
        RefusedCase("no position", table(own(9, None)), Problem.NO_POSITION, "snapshot-9, the newest snapshot of this"),
        RefusedCase(
            "an unreadable position",
            table(own(9, None, **{POSITION_PROPERTY: '{"version":1,"clu'})),
            Problem.NO_POSITION,
            "carries a source position that can't be read: '{\"version\":1,\"clu'",
        ),
        RefusedCase(
            "a hole in the chain",
            table(SECOND, FIRST),
            Problem.HOLE,
            "between checkpoints 10 and 20: t-0 goes on at 12 instead of 10: a gap",
        ),
        RefusedCase(
            "other patterns",
            table(own(9, at((0, 10)), **{ROUTING_PROPERTY: ORDERS.to_text()})),
            Problem.ROUTING,
            "`match` is orders, returns, it was orders.",
            routing=Routing.of("debezium-json", ["returns", "orders"], ["*"]),
        ),
    ],
    ids=lambda case: case.id,
)
def test_what_is_refused(case: RefusedCase) -> None:
    (finding,) = stand("a", case.evidence, case.progress, case.routing).findings
    assert finding.problem is case.problem
    assert case.said in finding.text


@pytest.mark.parametrize(
    ("newest", "problem"),
    [
        pytest.param(
            own(2, at((12, 20), accepted=Accepted("--accept-gap a"))), None, id="the next snapshot explains it"
        ),
        pytest.param(own(2, at((0, 20), accepted=Accepted("--rewind-to a"))), None, id="an overlap, explained"),
        pytest.param(own(2, at((10, 20))), None, id="no hole"),
        pytest.param(own(2, at((0, 20))), Problem.HOLE, id="an overlap"),
    ],
)
def test_a_hole_that_somebody_accepted_is_none(newest: SeenSnapshot, problem: Problem | None) -> None:
    found = [finding.problem for finding in stand("a", table(newest, FIRST), NONE, None).findings]
    assert found == ([] if problem is None else [problem])


@pytest.mark.parametrize(
    ("found", "holes"), [(["hole"], []), (["deleted by retention"], [Problem.HOLE])], ids=["of the hole", "of another"]
)
def test_a_later_decision_covers_the_holes_it_was_about(found: Sequence[str], holes: Sequence[Problem]) -> None:
    later = own(3, at((20, 20), accepted=Accepted("--accept-gap a", found)))
    assert [f.problem for f in stand("a", table(later, SECOND, FIRST), NONE, None).findings] == holes


def test_the_snapshot_before_the_oldest_hole_is_found() -> None:
    assert before_holes([own(4, at((25, 30))), own(3, at((20, 20))), SECOND, FIRST]) == FIRST
    assert before_holes([FIRST]) is None


@pytest.mark.parametrize(
    "routing",
    [
        pytest.param(Routing.of("debezium-json", ["orders", "orders"], ["*"]), id="the same patterns, one twice"),
        pytest.param(None, id="nothing to compare"),
    ],
)
def test_the_same_routing_passes(routing: Routing | None) -> None:
    evidence = table(own(9, at((0, 10)), **{ROUTING_PROPERTY: ORDERS.to_text()}))
    assert stand("a", evidence, NONE, routing).findings == []


def test_a_snapshot_of_a_release_that_kept_no_routing_passes() -> None:
    assert stand("a", table(own(9, at((0, 10)))), NONE, ORDERS).findings == []


def test_progress_under_other_patterns_says_nothing_of_a_table_without_snapshots() -> None:
    """A pattern that took nothing was mended: what it passed over is wanted."""
    idle = Progress(at((50, 50)), {"a": IdleTable(routing=ORDERS)})
    assert stand("a", NO_TABLE, idle, ORDERS).position == at((50, 50))
    assert stand("a", NO_TABLE, idle, Routing.of("debezium-json", ["orders*"], ["*"])).position == NOWHERE


def test_expired_snapshots_are_not_bridged_into_other_patterns_in_silence() -> None:
    idle = Progress(at((50, 50)), {"a": IdleTable(CREATED_MS, 9, "list-9", ORDERS)})
    standing = stand("a", table(earliest=10), idle, Routing.of("debezium-json", ["orders*"], ["*"]))
    assert ([f.problem for f in standing.findings], standing.position) == ([Problem.ROUTING], at((50, 50)))


def test_progress_counts_only_for_topics_that_feed_the_table() -> None:
    reached = SourcePosition(IDENTITY, {P0: OffsetRange(50, 50), TopicPartition("other", 0): OffsetRange(7, 7)})
    idle = Progress(reached, {"a": IdleTable(CREATED_MS, 9, "list-9")})
    standing = stand("a", table(own(9, at((5, 20)))), idle, Routing.of("debezium-json", ["a"], ["t*"]))
    assert standing.position == at((20, 50))


def test_progress_in_another_source_is_void() -> None:
    reached = SourcePosition(SourceIdentity("c2"), {P0: OffsetRange(50, 50)})
    idle = Progress(reached, {"a": IdleTable(CREATED_MS, 9, "list-9")})
    assert stand("a", table(own(9, at((5, 20)))), idle, None).position == at((20, 20))


@pytest.mark.parametrize(
    ("evidence", "known", "expected"),
    [
        pytest.param(table(own(9, at((0, 1)))), NONE, (90, 0), id="of the newest own one"),
        pytest.param(table(earliest=10), progress(9, 50), (500, 7), id="of the progress file, when all expired"),
        pytest.param(table(own(7, at((0, 1)))), progress(9, 50), (500, 7), id="above what was rolled back"),
        pytest.param(table(earliest=10), struck(9), (500, 7), id="of the progress file, when it was struck out"),
        pytest.param(NO_TABLE, progress(9, 50), (500, 7), id="above those of a table that was dropped"),
        pytest.param(
            table(earliest=700, latest=800, registered=1), NONE, (800, 0), id="large enough, if nothing tells"
        ),
    ],
)
def test_identifiers_and_epochs_go_on_above_all_that_were_used(
    evidence: Evidence, known: Progress, expected: tuple[int, int]
) -> None:
    standing = stand("a", evidence, known, None)
    assert (standing.identifier, standing.epoch) == expected


def test_how_far_a_table_was_that_is_struck_out_nobody_knows() -> None:
    """`reached` is from before what is missing was written."""
    assert stand("a", table(earliest=10), struck(9), None).lost is None
    assert stand("a", table(own(7, at((0, 1)))), struck(9), None).lost is None


def test_the_epoch_is_the_one_of_the_newest_own_snapshot() -> None:
    newest = own(9, at((0, 1)), **{EPOCH_PROPERTY: Epoch(4, "w").to_text()})
    assert stand("a", table(newest), NONE, None).epoch == 4


@pytest.mark.parametrize("properties", [{EPOCH_PROPERTY: "4"}, {ROUTING_PROPERTY: "[]"}])
def test_an_unreadable_property_is_an_error_that_names_the_snapshot(properties: Mapping[str, str]) -> None:
    newest = SeenSnapshot(
        9, "/t/snapshot-9", "shop", 1, "l", {POSITION_PROPERTY: position_to_text(at((0, 1))), **properties}
    )
    with pytest.raises(CorruptFile, match="snapshot-9"):
        stand("a", table(newest), NONE, ORDERS)


def test_the_source_is_read_from_the_smallest_position() -> None:
    assert read_from([at((0, 20)), at((0, 10), (0, 3)), SourcePosition()]) == {P0: 10, P1: 3}
