"""Which processes may commit, decided by the snapshots since the last look."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tidelake.checkpoint.epoch import EPOCH_PROPERTY, Epoch
from tidelake.checkpoint.fence import EpochFence
from tidelake.errors import RecoveryOutdated, WriterFenced
from tidelake.storage.model.format import BATCH_COMMIT_IDENTIFIER, CommitKind
from tidelake.storage.model.snapshots.snapshot import Snapshot

OURS = Epoch(4, "we")


def snapshot(id_: int, epoch: Epoch | None, user: str = "shop", identifier: int = 1) -> Snapshot:
    properties = {} if epoch is None else {EPOCH_PROPERTY: epoch.to_text()}
    return Snapshot(
        id_, 0, "b", "d", user, identifier, CommitKind.APPEND, 1_795_196_040_376, 0, 0, properties=properties
    )


@dataclass(frozen=True)
class Case:
    """We are epoch 4, and our position comes from snapshot 10."""

    id: str
    seen: Snapshot
    raises: type[Exception] | None = None


@pytest.mark.parametrize(
    "case",
    [
        Case("our own", snapshot(11, OURS)),
        Case("what our position comes from", snapshot(10, Epoch(3, "old"))),
        Case("another user's", snapshot(11, None, user="other")),
        Case("maintenance under our name", snapshot(11, None, identifier=BATCH_COMMIT_IDENTIFIER)),
        Case("a newer process", snapshot(11, Epoch(5, "new")), WriterFenced),
        Case("a concurrent start that took over first", snapshot(11, Epoch(4, "twin")), WriterFenced),
        Case("an older process that committed while we looked", snapshot(11, Epoch(3, "old")), RecoveryOutdated),
        Case("a release without epochs", snapshot(11, None), RecoveryOutdated),
    ],
    ids=lambda case: case.id,
)
def test_the_fence_decides_by_newer_snapshots(case: Case) -> None:
    fence = EpochFence("shop.orders", "shop")
    fence.epoch, fence.known_id = OURS, 10
    if case.raises is None:
        fence([case.seen])
    else:
        with pytest.raises(case.raises, match=r"^shop\.orders: "):
            fence([snapshot(11, OURS), case.seen])


def test_commits_pass_the_fence_before_the_process_has_an_epoch() -> None:
    fence, newer = EpochFence("shop.orders", "shop"), snapshot(11, Epoch(5, "new"))
    fence([newer])
    fence.epoch = OURS
    with pytest.raises(WriterFenced):
        fence([newer])


def test_the_fencing_error_names_the_new_process_and_the_time() -> None:
    fence = EpochFence("shop.orders", "shop")
    fence.epoch = OURS
    with pytest.raises(WriterFenced) as raised:
        fence([snapshot(11, Epoch(5, "db2:4711:ab"))])
    assert "snapshot 11, epoch 5, db2:4711:ab, at 2026-11-20" in str(raised.value)
