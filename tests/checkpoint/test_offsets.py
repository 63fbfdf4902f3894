"""Positions advance without gap or overlap, and a broken chain is detected."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelake.checkpoint.offsets import (
    OffsetRange,
    SourceIdentity,
    SourcePosition,
    TopicPartition,
    chain_breaks,
    identity_changes,
)
from tidelake.errors import BadInput

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)

CLUSTER = SourceIdentity("c1")


def position(*ranges: tuple[TopicPartition, int, int], identity: SourceIdentity = CLUSTER) -> SourcePosition:
    return SourcePosition(identity, {partition: OffsetRange(start, end) for partition, start, end in ranges})


def test_the_next_position_starts_where_the_last_one_ended() -> None:
    before = position((P0, 0, 10), (P1, 5, 5))
    assert before.advanced_to({P0: 12, P1: 9}) == position((P0, 10, 12), (P1, 5, 9))


def test_a_partition_without_new_records_stays_in_the_position() -> None:
    assert position((P0, 0, 10), (P1, 0, 4)).advanced_to({P0: 12}) == position((P0, 10, 12), (P1, 4, 4))


def test_records_reread_after_a_restart_do_not_move_the_position_back() -> None:
    assert position((P0, 0, 10)).advanced_to({P0: 7}) == position((P0, 10, 10))


def test_partitions_of_other_tables_are_not_in_the_position() -> None:
    assert position((P0, 0, 10)).advanced_to({P0: 11, P1: 3}) == position((P0, 10, 11))


def test_a_new_partition_starts_at_its_first_read_offset() -> None:
    grown = position((P0, 0, 10)).with_partitions({P1: 7, P0: 99})
    assert grown.advanced_to({P0: 10, P1: 20}) == position((P0, 10, 10), (P1, 7, 20))


@pytest.mark.parametrize(("start", "end"), [(3, 2), (-1, 2)])
def test_an_invalid_offset_range_is_refused(start: int, end: int) -> None:
    with pytest.raises(BadInput, match="orders-0"):
        position((P0, start, end))


def test_topic_ids_found_later_are_added_and_other_topics_are_ignored() -> None:
    known = position((P0, 0, 1), identity=SourceIdentity("c1", {"orders": "a"}))
    seen = known.with_identity(SourceIdentity("c1", {"orders": "a", "users": "b"}))
    assert seen.identity == SourceIdentity("c1", {"orders": "a"})
    unknown = position((P0, 0, 1)).with_identity(SourceIdentity("c1", {"orders": "a"}))
    assert unknown.identity.topic_ids == {"orders": "a"}


@dataclass(frozen=True)
class ChainCase:
    id: str
    after: SourcePosition
    breaks: tuple[str, ...] = ()


FIRST = position((P0, 0, 10), (P1, 0, 4), identity=SourceIdentity("c1", {"orders": "id1"}))
IDENTITY = FIRST.identity

CHAIN_CASES = [
    ChainCase("joined", position((P0, 10, 20), (P1, 4, 4), identity=IDENTITY)),
    ChainCase(
        "a new partition", position((P0, 10, 20), (P1, 4, 4), (TopicPartition("new", 0), 7, 9), identity=IDENTITY)
    ),
    ChainCase(
        "a gap",
        position((P0, 11, 20), (P1, 4, 4), identity=IDENTITY),
        ("orders-0 continues at 11 instead of 10: a gap",),
    ),
    ChainCase(
        "an overlap",
        position((P0, 9, 20), (P1, 4, 4), identity=IDENTITY),
        ("orders-0 continues at 9 instead of 10: an overlap",),
    ),
    ChainCase(
        "a partition is lost", position((P0, 10, 20), identity=IDENTITY), ("orders-1 is missing; it was read up to 4",)
    ),
    ChainCase(
        "another cluster",
        position((P0, 10, 20), (P1, 4, 4), identity=SourceIdentity("c2", {"orders": "id1"})),
        ("the cluster is c2, not c1",),
    ),
    ChainCase(
        "the topic was created again",
        position((P0, 10, 20), (P1, 4, 4), identity=SourceIdentity("c1", {"orders": "id2"})),
        ("topic orders has id id2, not id1: it was created again",),
    ),
]


@pytest.mark.parametrize("case", CHAIN_CASES, ids=lambda case: case.id)
def test_chain_check(case: ChainCase) -> None:
    found = chain_breaks([(3, FIRST), (4, case.after)])
    assert [(b.before, b.after, b.reason) for b in found] == [(3, 4, reason) for reason in case.breaks]


def test_both_snapshots_of_one_identifier_carry_the_same_position() -> None:
    moved = FIRST.advanced_to({P0: 20})
    assert chain_breaks([(3, FIRST), (3, FIRST), (4, moved)]) == []
    assert [b.reason for b in chain_breaks([(3, FIRST), (3, moved)])] == [
        "two snapshots of one identifier have different positions"
    ]


@given(
    st.lists(st.dictionaries(st.integers(0, 4).map(lambda p: TopicPartition("t", p)), st.integers(0, 1000)), max_size=8)
)
def test_advancing_positions_form_an_unbroken_chain(steps: list[dict[TopicPartition, int]]) -> None:
    current = SourcePosition()
    history = [(0, current)]
    for identifier, reached in enumerate(steps, start=1):
        current = current.with_partitions(dict.fromkeys(reached, 0)).advanced_to(reached)
        history.append((identifier, current))
    assert chain_breaks(history) == []


def test_identities_unknown_to_one_side_are_not_compared() -> None:
    assert identity_changes(SourceIdentity(None, {"a": "1"}), SourceIdentity("c", {"b": "2"})) == []
