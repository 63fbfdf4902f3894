"""Where a pipeline goes on: the tables decide."""

from __future__ import annotations

import pytest

from checkpoint.offsets import OffsetRange, SourceIdentity, SourcePosition, TopicPartition
from checkpoint.position_text import POSITION_PROPERTY, position_to_text
from checkpoint.recovery import OwnSnapshot, check_identity, read_from, recover
from storage.errors import CorruptFile, PositionRefused

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
IDENTITY = SourceIdentity("c1", {"t": "id1"})


def position(**ends: int) -> SourcePosition:
    return SourcePosition(IDENTITY, {TopicPartition("t", int(p[1:])): OffsetRange(0, end) for p, end in ends.items()})


def snapshot(identifier: int, at: SourcePosition) -> OwnSnapshot:
    return OwnSnapshot("/t/snapshot/snapshot-9", identifier, {POSITION_PROPERTY: position_to_text(at)})


def test_nothing_was_committed_yet() -> None:
    found = recover({"a": None, "b": None})
    assert (found.positions, found.fresh, found.last_identifier) == ({}, ("a", "b"), 0)


def test_tables_of_different_checkpoints_keep_their_own_positions() -> None:
    found = recover({"a": snapshot(7, position(p0=20)), "b": snapshot(5, position(p0=10, p1=3)), "c": None})
    assert found.positions == {"a": position(p0=20), "b": position(p0=10, p1=3)}
    assert (found.fresh, found.last_identifier) == (("c",), 7)


def test_the_source_is_read_from_the_smallest_position() -> None:
    assert read_from([position(p0=20), position(p0=10, p1=3), SourcePosition()]) == {P0: 10, P1: 3}


def test_an_own_snapshot_without_a_position_is_refused() -> None:
    with pytest.raises(PositionRefused) as raised:
        recover({"shop.orders": OwnSnapshot("/t/snapshot/snapshot-9", 3, {})})
    assert "shop.orders: /t/snapshot/snapshot-9" in raised.value.found
    assert len(raised.value.ways_out) == 2


def test_an_unreadable_position_is_an_error_that_names_the_snapshot() -> None:
    with pytest.raises(CorruptFile, match="snapshot-9"):
        recover({"a": OwnSnapshot("/t/snapshot/snapshot-9", 3, {POSITION_PROPERTY: "{}"})})


@pytest.mark.parametrize(
    ("identity", "said"),
    [
        pytest.param(SourceIdentity("c2", {"t": "id1"}), "a: the cluster is c2, not c1", id="another cluster"),
        pytest.param(SourceIdentity("c1", {"t": "id2"}), "a: topic t has id id2, not id1", id="a topic made anew"),
    ],
)
def test_another_source_is_refused(identity: SourceIdentity, said: str) -> None:
    with pytest.raises(PositionRefused) as raised:
        check_identity({"a": position(p0=1)}, identity)
    assert said in raised.value.found


@pytest.mark.parametrize(
    "identity", [IDENTITY, SourceIdentity("c1"), SourceIdentity(None), SourceIdentity("c1", {"t": "id1", "new": "x"})]
)
def test_the_same_source_or_one_that_says_less_passes(identity: SourceIdentity) -> None:
    check_identity({"a": position(p0=1)}, identity)
