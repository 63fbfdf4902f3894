"""The chain of a pipeline's positions, as an inspection tells of it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from checkpoint.offsets import Accepted, OffsetRange, SourcePosition, TopicPartition
from checkpoint.position_text import POSITION_PROPERTY, position_to_text
from storage.format import CommitKind
from storage.snapshots.snapshot import Snapshot
from storage.verify import Severity
from tidelake.verification import chain_findings

PARTITION = TopicPartition("orders", 0)


def snapshot(number: int, start: int, end: int, *, user: str = "shop", accepted: Accepted | None = None) -> Snapshot:
    position = SourcePosition(ranges={PARTITION: OffsetRange(start, end)}, accepted=accepted)
    text = position_to_text(position)
    return Snapshot(number, 0, "b", "d", user, number, CommitKind.APPEND, 0, 0, 0, properties={POSITION_PROPERTY: text})


@dataclass(frozen=True)
class History:
    id: str
    snapshots: list[Snapshot]
    says: list[tuple[Severity, str]]


HISTORIES = [
    History("no snapshot", [], []),
    History("one after the other", [snapshot(1, 0, 5), snapshot(2, 5, 5), snapshot(3, 5, 9)], []),
    History("a gap", [snapshot(1, 0, 5), snapshot(2, 7, 9)], [(Severity.PROBLEM, "at 7 instead of 5: a gap")]),
    History("an overlap", [snapshot(1, 0, 5), snapshot(2, 4, 9)], [(Severity.PROBLEM, "an overlap")]),
    History(
        "a gap that a person accepted",
        [snapshot(1, 0, 5), snapshot(2, 7, 9, accepted=Accepted("--accept-gap shop.orders"))],
        [(Severity.NOTE, "accepted with --accept-gap shop.orders")],
    ),
    History("each user its own chain", [snapshot(1, 0, 5), snapshot(2, 0, 3, user="b"), snapshot(3, 5, 6)], []),
]


@pytest.mark.parametrize("history", [pytest.param(history, id=history.id) for history in HISTORIES])
def test_breaks_of_the_chain_are_findings(history: History) -> None:
    found = list(chain_findings(history.snapshots))
    assert [finding.severity for finding in found] == [severity for severity, _ in history.says]
    for finding, (_, says) in zip(found, history.says, strict=True):
        assert says in str(finding)


def test_a_position_that_cannot_be_read_is_a_finding() -> None:
    broken = Snapshot(1, 0, "b", "d", "u", 1, CommitKind.APPEND, 0, 0, 0, properties={POSITION_PROPERTY: "{"})
    (finding,) = chain_findings([broken])
    assert finding.check == "position"
