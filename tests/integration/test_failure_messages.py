"""The messages of failed commits: what happened, what is known to be safe, and what to do. They are reviewed as
text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest

from tests.storage.model.snapshots.tables import added, committer, make_table
from tests.support.faulty_file_io import Fault, FaultyFileIO
from tests.support.golden_text import matches_golden_text
from tidelake.checkpoint.committable import TableCommittable
from tidelake.checkpoint.epoch import Epoch
from tidelake.checkpoint.offsets import SourcePosition
from tidelake.errors import TidelakeError
from tidelake.ingest.tables.table_sink import TableSink
from tidelake.storage.commit.commit_message import Committable
from tidelake.storage.fileio.memory import MemoryFileIO
from tidelake.storage.model.snapshots.snapshot import SnapshotStore
from tidelake.storage.model.table import TableContext
from tidelake.storage.write.memory_budget import MemoryBudget

MESSAGES = Path(__file__).with_name("failure_messages.txt")
HARDLY_WAITING = {"commit.min-retry-wait": "1 ms", "commit.max-retry-wait": "1 ms"}


class Lake:
    """A table, and a process of pipeline `shop` that committed to it in epoch 4."""

    def __init__(self) -> None:
        self.io = FaultyFileIO(MemoryFileIO())
        self.home = f"memory://failures/{uuid4().hex}"
        self.context: TableContext = make_table(self.io, f"{self.home}/t", primary_key=True, options=HARDLY_WAITING)
        self.ours = self.process()
        self.ours.commit(committable(1, 4, "a"))

    def process(self) -> TableSink:
        return TableSink(self.context, "shop", MemoryBudget(1 << 20))

    def other(self, *names: str) -> None:
        committer(self.context, "other").commit(Committable(1, [added(*names, base=1)]))

    def snapshot_path(self, id_: int) -> str:
        return self.context.paths.snapshot(id_)


def committable(identifier: int, epoch: int, *files: str) -> TableCommittable:
    base = identifier - 1 or None
    messages = [added(*files, base=base)] if files else []
    return TableCommittable("t", identifier, messages, SourcePosition(), Epoch(epoch, "HOST:PID:ID"))


def an_older_process_still_commits(lake: Lake) -> None:
    """Between the look and the take-over of the newer one."""
    newer = lake.process()
    newer.read_state()
    lake.ours.commit(committable(2, 4, "b"))
    newer.commit(committable(2, 5))


def another_writer_came_between(lake: Lake) -> None:
    lake.other("x")
    lake.ours.commit(committable(2, 4, "b"))


def our_snapshot_was_replaced(lake: Lake) -> None:
    theirs = committer(make_table(lake.io.inner, f"{lake.home}/elsewhere", primary_key=True), "java")
    theirs.commit(Committable(1, [added("x")]))
    lake.io.inner.write(lake.snapshot_path(1), lake.io.inner.read(f"{lake.home}/elsewhere/snapshot/snapshot-1"))
    lake.ours.commit(committable(2, 4, "b"))


def the_table_was_rolled_back(lake: Lake) -> None:
    lake.io.inner.delete(lake.snapshot_path(1))
    lake.ours.commit(committable(2, 4, "b"))


def the_store_gives_no_answer(lake: Lake) -> None:
    lake.io.fault = lambda call: Fault.BEFORE if call.name == "create_if_absent" else None
    lake.ours.commit(committable(2, 4, "b"))


def snapshots_expired_while_it_slept(lake: Lake) -> None:
    for user in ("one", "another"):
        committer(lake.context, user).commit(Committable(1))
    for id_ in SnapshotStore(lake.io, lake.context.paths).ids()[:-1]:
        lake.io.inner.delete(lake.snapshot_path(id_))
    lake.ours.commit(committable(2, 4, "b"))


@dataclass(frozen=True)
class Case:
    happens: Callable[[Lake], None]

    @property
    def id(self) -> str:
        return self.happens.__name__.replace("_", " ")


@pytest.mark.parametrize(
    "case",
    [
        Case(an_older_process_still_commits),
        Case(another_writer_came_between),
        Case(our_snapshot_was_replaced),
        Case(the_table_was_rolled_back),
        Case(the_store_gives_no_answer),
        Case(snapshots_expired_while_it_slept),
    ],
    ids=lambda case: case.id,
)
def test_a_failure_message_explains_the_cause_the_state_and_the_remedy(case: Case) -> None:
    lake = Lake()
    with pytest.raises(TidelakeError) as raised:
        case.happens(lake)
    text = f"{type(raised.value).__name__}: {raised.value}".replace(lake.home, "/srv")
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "UUID", text)
    matches_golden_text(MESSAGES, case.id, text)
