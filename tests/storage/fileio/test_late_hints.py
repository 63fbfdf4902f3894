"""Hints that are written while nobody waits."""

from __future__ import annotations

import os
import threading
import uuid

import pytest

from tests.storage.model.snapshots.tables import added, committer, make_table
from tests.support.faulty_file_io import Call, Fault, FaultyFileIO
from tidelake.storage.commit.commit_message import Committable
from tidelake.storage.fileio.late_hints import settle_hints, write_hint_later
from tidelake.storage.fileio.memory import MemoryFileIO


@pytest.fixture
def place() -> str:
    return f"memory://{uuid.uuid4()}/t"


class Gate:
    """Lets writes wait. waiting: set as soon as one does."""

    def __init__(self) -> None:
        self.waiting, self.opened = threading.Event(), threading.Event()

    def __call__(self, call: Call) -> None:
        if call.name == "write":
            self.waiting.set()
            assert self.opened.wait(10)


class Gated(FaultyFileIO):
    """Its writes wait outside of the lock of `FaultyFileIO`."""

    def __init__(self, gate: Gate) -> None:
        super().__init__(MemoryFileIO())
        self._gate = gate

    def write(self, path: str, data: bytes, *, durable: bool = True) -> None:
        self._gate(Call("write", path))
        super().write(path, data, durable=durable)


def written(io: FaultyFileIO) -> list[str]:
    return [call.file_name for call in io.calls if call.name == "write"]


def test_of_the_hints_that_come_during_a_write_only_the_largest_is_written(place: str) -> None:
    gate = Gate()
    io = Gated(gate)
    for number in (1, 4, 3, 2):
        write_hint_later(io, f"{place}/LATEST", number)
        assert gate.waiting.wait(10)
    gate.opened.set()
    settle_hints(place)
    assert io.read(f"{place}/LATEST") == b"4"
    assert len(written(io)) == 2


def test_two_tables_wait_for_their_own_hints_only(place: str) -> None:
    gate = Gate()
    write_hint_later(Gated(gate), f"{place}/one/LATEST", 1)
    assert gate.waiting.wait(10)
    settle_hints(f"{place}/on")
    settle_hints(f"{place}/two")
    gate.opened.set()
    settle_hints(place)


def test_a_hint_that_can_not_be_written_is_forgotten(place: str) -> None:
    io = FaultyFileIO(MemoryFileIO(), lambda _: Fault.BEFORE)
    write_hint_later(io, f"{place}/LATEST", 1)
    settle_hints(place)
    io.fault = lambda _: None
    assert not io.exists(f"{place}/LATEST")
    write_hint_later(io, f"{place}/LATEST", 2)
    settle_hints(place)
    assert io.read(f"{place}/LATEST") == b"2"


@pytest.mark.parametrize("end", ["drop", "rename"])
def test_no_hint_appears_in_a_directory_that_was_removed_after_a_commit(place: str, end: str) -> None:
    gate = Gate()
    io = Gated(gate)
    table = make_table(io, place)
    committer(table).commit(Committable(1, [added("a")]))
    assert gate.waiting.wait(10)
    threading.Timer(0.05, gate.opened.set).start()
    if end == "drop":
        io.delete_directory(place)
    else:
        io.rename_directory(place, f"{place}-renamed")
    assert not io.list_directory(f"{place}/snapshot")


def test_a_read_after_a_commit_of_the_same_process_finds_the_hint(place: str) -> None:
    io = FaultyFileIO(MemoryFileIO())
    table = make_table(io, place)
    commit = committer(table)
    for number in range(5):
        commit.commit(Committable(number, [added(f"a{number}")]))
        io.calls.clear()
        assert table.snapshots.latest_id() == number + 1
        assert "list_directory" not in [call.name for call in io.calls]


def test_a_forked_child_does_not_wait_for_hints_of_its_parent(place: str) -> None:
    gate = Gate()
    write_hint_later(Gated(gate), f"{place}/LATEST", 1)
    assert gate.waiting.wait(10)
    child = os.fork()
    if child == 0:
        settle_hints(place)
        os._exit(7)
    gate.opened.set()
    settle_hints(place)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
