"""A fault in any call of a table's life: an error, a lost or late answer, half a file, the end of the process."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from uuid import uuid4

import pytest

from tests.crash.points import Points
from tests.crash.table_life import COMPACT_AT_TWO, EXPIRE_ALL_BUT_ONE, SUM_UP, Life, Summing, TableKind, look
from tests.crash.troubles import Trouble, every_point, some_points
from tests.support.faulty_file_io import Call, Fault, FaultyFileIO, FaultyIOError, ProcessDied
from tests.support.levels import random_half, sample
from tidelake.errors import BadInput, CommitConflict, TidelakeError
from tidelake.storage.fileio.base import FileIO
from tidelake.storage.fileio.memory import MemoryFileIO

VECTORS = {"deletion-vectors.enabled": "true"}
ALONE_OR_NOT = [
    TableKind("append", False, {"bucket": "-1", "manifest.merge-min-count": "2"}),
    TableKind("primary key with changelog", True, {"bucket": "2", "changelog-producer": "input"}, commits=2),
    TableKind("primary key with sequence field", True, {"bucket": "1", "sequence.field": "at"}),
    TableKind("compacting", True, {"bucket": "1", **COMPACT_AT_TWO}),
    TableKind("compacting, with its changelog", True, {"bucket": "1", "changelog-producer": "full-compaction"}),
    Summing("summing, compacting, with its changelog", True, {"bucket": "1", **SUM_UP, "changelog-producer": "lookup"}),
    TableKind("compacting, with deletion vectors", True, {"bucket": "1", **VECTORS}, commits=2),
    Summing("summing, compacting", True, {"bucket": "1", **SUM_UP, **COMPACT_AT_TWO}),
]
ALONE = [TableKind("expiring", False, {"bucket": "-1", **EXPIRE_ALL_BUT_ONE})]
LIVES = [
    *(pytest.param(kind, True, id=f"{kind.id}, with a rival") for kind in ALONE_OR_NOT),
    *(pytest.param(kind, False, id=f"{kind.id}, alone") for kind in (*ALONE, *ALONE_OR_NOT)),
]
_MANY_CALLS = 120
SHORT = [LIVES[0], LIVES[3], LIVES[4], LIVES[5], LIVES[6], LIVES[8], LIVES[-1]]


class World:
    """A warehouse in memory.

    has_rival: a rival commits once, just before our second snapshot is created.
    """

    def __init__(self, kind: TableKind, *, has_rival: bool) -> None:
        self.kind = kind
        self.warehouse = f"memory://{uuid4()}/lake"
        self.store: FileIO = MemoryFileIO()
        self.rival_is_due = has_rival

    def life(self, io: FaultyFileIO) -> Life:
        fault: Callable[[Call], Fault | None] = io.fault

        def decide(call: Call) -> Fault | None:
            if self.rival_is_due and call.name == "create_if_absent" and call.file_name == "snapshot-2":
                self.rival_is_due = False
                Life(self.store, self.warehouse, self.kind).rival_commits()
            return fault(call)

        io.fault = decide
        return Life(io, self.warehouse, self.kind)


def calls_of_a_life(kind: TableKind, *, has_rival: bool) -> list[Call]:
    world = World(kind, has_rival=has_rival)
    io = FaultyFileIO(world.store)
    with suppress(CommitConflict):
        world.life(io).run()
    return io.calls


def live_through(kind: TableKind, number: int, trouble: Trouble, *, has_rival: bool) -> None:
    """Runs a life with a fault in its number-th call, and then the next life."""
    world = World(kind, has_rival=has_rival)
    io = FaultyFileIO(world.store)
    trouble.await_in(io, number)
    life = world.life(io)
    with suppress(TidelakeError, FaultyIOError, ProcessDied):
        life.run()
    where = f"{kind.id}: {trouble.id}, call {number}: {io.calls[number : number + 1]}"

    found = look(world.store, world.warehouse)
    assert not found.problems, where
    assert found.rows == kind.after(found.identifiers), where
    assert set(life.acknowledged) <= set(found.identifiers), where

    after = FaultyFileIO(world.store)
    trouble.continue_in(after, io)
    life = world.life(after)
    # No other error is allowed. A late commit of the dead process makes our identifier outdated.
    expected = (CommitConflict, BadInput) if trouble.lands_after_death else CommitConflict
    try:
        life.run()
    except expected:
        life.run()
    io.land()
    found = look(world.store, world.warehouse)
    assert not found.problems, where
    assert [i for i in found.identifiers if i] == list(range(1, kind.commits + 1)), where


@pytest.mark.parametrize(("kind", "has_rival"), LIVES)
def test_each_life_does_what_its_name_says(kind: TableKind, has_rival: bool) -> None:
    world = World(kind, has_rival=has_rival)
    with suppress(CommitConflict):  # if the rival wrote to the same bucket, and no sequence field orders the rows
        world.life(FaultyFileIO(world.store)).run()
    found = look(world.store, world.warehouse)
    assert found.is_expired is (kind.id == "expiring")
    if not has_rival:
        assert found.is_compacted is ("compacting" in kind.id)
    assert (0 in found.identifiers) is has_rival


@pytest.mark.exhaustive(kept=2)
@pytest.mark.sampled
@pytest.mark.parametrize(("kind", "has_rival"), SHORT)
def test_after_a_fault_in_any_call_the_table_is_sound_and_the_next_process_completes_it(
    kind: TableKind, has_rival: bool, points: Points
) -> None:
    start = ALONE_OR_NOT.index(kind) if kind in ALONE_OR_NOT else 0
    tried = list(some_points(calls_of_a_life(kind, has_rival=has_rival), start))
    for number, trouble in sample(random_half(tried) if len(tried) > _MANY_CALLS else tried):
        live_through(kind, number, trouble, has_rival=has_rival)
        points.tried(f"table writer: {trouble.kind}")


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("kind", "has_rival"), LIVES)
def test_every_fault_at_every_call_is_survived(kind: TableKind, has_rival: bool, points: Points) -> None:
    for number, trouble in every_point(calls_of_a_life(kind, has_rival=has_rival)):
        live_through(kind, number, trouble, has_rival=has_rival)
        points.tried(f"table writer: {trouble.kind}")
