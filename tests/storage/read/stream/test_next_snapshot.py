"""What a stream asks while it waits for the next snapshot of a table in an object store."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from tests.storage.model.snapshots.tables import added, committer, make_table
from tests.support.faulty_file_io import FaultyFileIO
from tidelake.errors import BadInput, SnapshotExpired
from tidelake.storage.commit.commit_message import Committable
from tidelake.storage.fileio.memory import MemoryFileIO
from tidelake.storage.maintenance.rollback import roll_back
from tidelake.storage.model.table import TableContext
from tidelake.storage.read.changes.change_reader import ChangeReader
from tidelake.storage.read.changes.position import ChangePosition
from tidelake.storage.read.stream.next_snapshot import NextSnapshot

_EIGHT = 8


@pytest.fixture
def table() -> TableContext:
    table = make_table(MemoryFileIO(), f"memory://{uuid.uuid4()}/t")
    for number in (1, 2):
        commit(table, number)
    return table


def commit(table: TableContext, number: int) -> None:
    committer(table).commit(Committable(number, [added(f"a{number}")]))


def waiting_for(table: TableContext, snapshot_id: int) -> tuple[FaultyFileIO, NextSnapshot, ChangePosition]:
    """A stream that has waited for one round."""
    io = FaultyFileIO(MemoryFileIO())
    context = replace(table, io=io)
    found, position = NextSnapshot(context, ChangeReader(context)), ChangePosition(snapshot_id)
    assert found.find(position) is None
    io.calls.clear()
    return io, found, position


def test_a_round_asks_only_for_the_next_snapshot(table: TableContext) -> None:
    io, stream, position = waiting_for(table, 3)
    for _ in range(_EIGHT - 1):
        assert stream.find(position) is None
    assert [str(call.path.rpartition("/")[2]) for call in io.calls] == ["snapshot-3"] * (_EIGHT - 1)


def test_the_next_snapshot_is_found_in_the_first_round_after_its_commit(table: TableContext) -> None:
    for rounds in range(2 * _EIGHT):
        _, stream, position = waiting_for(table, 3 + rounds)
        for _ in range(rounds):
            assert stream.find(position) is None
        commit(table, 3 + rounds)
        found = stream.find(position)
        assert found is not None
        assert found.id == 3 + rounds


def test_a_rollback_is_noticed_within_eight_rounds(table: TableContext) -> None:
    _, stream, position = waiting_for(table, 3)
    roll_back(replace(table), table.snapshots.get(1))
    with pytest.raises(BadInput, match="rolled back"):
        for _ in range(_EIGHT):
            stream.find(position)


def test_a_snapshot_that_came_and_expired_between_two_rounds_is_noticed_within_eight(table: TableContext) -> None:
    _, stream, position = waiting_for(table, 3)
    for number in (3, 4):
        commit(table, number)
    for expired in (1, 2, 3):
        table.io.delete(table.paths.snapshot(expired))
    with pytest.raises(SnapshotExpired):
        for _ in range(_EIGHT):
            stream.find(position)
