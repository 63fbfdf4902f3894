"""The chain of a pipeline's positions in an inspection."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from tidelake.checkpoint.epoch import Epoch
from tidelake.checkpoint.offsets import OffsetRange, RecoveryDecision, SourcePosition, TopicPartition, position_to_text
from tidelake.checkpoint.position_problems import ProblemKind
from tidelake.storage.maintenance.verify import Severity
from tidelake.storage.model.format import BATCH_COMMIT_IDENTIFIER, CommitKind
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.verification import chain_findings

PARTITION = TopicPartition("orders", 0)


def stamped(number: int, user: str = "shop", **properties: str) -> Snapshot:
    properties = {f"tidelake.{name}": text for name, text in properties.items()}
    return Snapshot(number, 0, "b", "d", user, number, CommitKind.APPEND, 0, 0, 0, properties=properties)


def position(start: int, end: int, accepted: RecoveryDecision | None = None) -> str:
    return position_to_text(SourcePosition(ranges={PARTITION: OffsetRange(start, end)}, accepted=accepted))


def snapshot(
    number: int, start: int, end: int, *, user: str = "shop", accepted: RecoveryDecision | None = None
) -> Snapshot:
    return stamped(number, user, position=position(start, end, accepted))


def of_epoch(number: int, epoch: int, *, writer: str = "db2:1", accepted: RecoveryDecision | None = None) -> Snapshot:
    return stamped(number, position=position(5, 5, accepted), epoch=Epoch(epoch, writer).to_text())


NO_POSITION = RecoveryDecision("--accept-gap shop.orders", [ProblemKind.NO_POSITION.value])


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
        [snapshot(1, 0, 5), snapshot(2, 7, 9, accepted=RecoveryDecision("--accept-gap shop.orders"))],
        [(Severity.NOTE, "accepted with --accept-gap shop.orders")],
    ),
    History("epochs that grow", [of_epoch(1, 1), of_epoch(2, 1), of_epoch(3, 4)], []),
    History(
        "an epoch that falls",
        [of_epoch(1, 4), of_epoch(2, 3)],
        [(Severity.PROBLEM, "it has epoch 3, db2:1, but an earlier")],
    ),
    History(
        "an epoch of two processes",
        [of_epoch(1, 4), of_epoch(2, 4, writer="db3:1")],
        [
            (
                Severity.PROBLEM,
                "snapshot 2 of pipeline shop: it has epoch 4, db3:1, but an earlier snapshot has epoch 4, db2:1",
            )
        ],
    ),
    History(
        "an epoch that can't be read",
        [of_epoch(1, 1), stamped(2, position=position(5, 5), epoch="zz"), of_epoch(3, 1)],
        [(Severity.PROBLEM, "snapshot 2 of pipeline shop: a start that continues from it fails")],
    ),
    History(
        "a routing that can't be read",
        [stamped(1, position=position(5, 5), routing="zz")],
        [(Severity.PROBLEM, "tidelake.routing")],
    ),
    History(
        "no position amidst a pipeline's",
        [of_epoch(1, 1), stamped(2), of_epoch(3, 1)],
        [(Severity.PROBLEM, "snapshot 2 of pipeline shop: it has no source position")],
    ),
    History(
        "no position at the end of a pipeline's",
        [of_epoch(1, 1), stamped(2, epoch=Epoch(1, "db2:1").to_text())],
        [(Severity.PROBLEM, "snapshot 2 of pipeline shop: it has no source position")],
    ),
    History(
        "no position, which a person accepted, and a pipeline that counts its epochs from 1 again",
        [of_epoch(1, 4), stamped(2), of_epoch(3, 1, accepted=NO_POSITION), of_epoch(4, 1)],
        [(Severity.NOTE, "accepted with --accept-gap shop.orders")],
    ),
    History("no position of a user that is no pipeline", [stamped(1), stamped(2, **{"spark-query": "q"})], []),
    History(
        "a one-off commit under a pipeline's name",
        [of_epoch(1, 1), replace(stamped(2), commit_identifier=BATCH_COMMIT_IDENTIFIER), of_epoch(3, 1)],
        [],
    ),
    History("each user its own chain", [snapshot(1, 0, 5), snapshot(2, 0, 3, user="b"), snapshot(3, 5, 6)], []),
]


@pytest.mark.parametrize("history", [pytest.param(history, id=history.id) for history in HISTORIES])
def test_gaps_in_the_position_chain_are_findings(history: History) -> None:
    found = list(chain_findings(history.snapshots))
    assert [finding.severity for finding in found] == [severity for severity, _ in history.says]
    for finding, (_, says) in zip(found, history.says, strict=True):
        assert says in str(finding)


def test_an_unreadable_position_is_a_finding() -> None:
    (finding,) = chain_findings([stamped(1, position="{")])
    assert finding.check == "position"
