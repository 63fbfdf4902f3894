"""A fault in any call of a pipeline's life: start-up, flush, commit, dead letters, progress, shutdown."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import pytest

from tests.crash.pipeline_life import PipelineWorld, Seen
from tests.crash.points import Points
from tests.crash.table_life import COMPACT_AT_TWO
from tests.crash.troubles import Trouble, every_point, some_points
from tests.support.faulty_file_io import Call, FaultyFileIO, FaultyIOError
from tests.support.levels import random_half, sample
from tidelake.errors import CommitConflict, TidelakeError, WriterFenced

INPUT = {"changelog-producer": "input"}
PARTS: Final = 10  # of the 2,000 to 3,000 points of a world, so that a run shows how far it is
WORLDS = [
    pytest.param(False, INPUT, False, id="alone"),
    pytest.param(True, {**INPUT, "sequence.field": "note"}, False, id="with a rival"),
    pytest.param(True, INPUT, False, id="with a rival in its bucket"),
    pytest.param(False, COMPACT_AT_TWO, False, id="compacting"),
    pytest.param(True, INPUT, True, id="with a rival, bootstrapping"),
    pytest.param(False, {"changelog-producer": "lookup"}, True, id="bootstrapping"),
]


def calls_of_a_life(has_rival: bool, options: Mapping[str, str], bootstraps: bool) -> list[Call]:
    world = PipelineWorld(has_rival, options, bootstraps)
    io = FaultyFileIO(world.store)
    world.watch(io)
    with suppress(CommitConflict):
        assert world.run(io).checkpoints > 1
    folders = {call.path.split("/")[-2] for call in io.calls}
    assert {"snapshot", "manifest", "bucket-0", "schema", "consumer"} <= folders
    assert "moved-rows" in folders or has_rival  # whose commit may end a run earlier
    return io.calls


def live_through(number: int, trouble: Trouble, has_rival: bool, options: Mapping[str, str], bootstraps: bool) -> None:
    """Runs a pipeline with a fault in its number-th call, and then the next run."""
    world = PipelineWorld(has_rival, options, bootstraps)
    io = FaultyFileIO(world.store)
    trouble.await_in(io, number)
    world.watch(io)
    try:
        world.run(io)
    except (TidelakeError, FaultyIOError, ExceptionGroup):
        pass
    except BaseException:  # any error can end the process
        if not io.is_dead:
            raise
    where = f"{trouble.id}, call {number}: {io.calls[number : number + 1]}"

    for table, seen in world.look(deep=False).items():
        check_sound(seen, where)
        assert set(seen.rows) <= world.history[table], where

    after = FaultyFileIO(world.store)
    trouble.continue_in(after, io)
    world.watch(after)
    finish(world, after, trouble)
    io.land()
    for table, seen in world.look(deep=True).items():
        check_sound(seen, where)
        assert seen.rows == world.truth[table], where
    assert world.dead_letters(), where


def finish(world: PipelineWorld, io: FaultyFileIO, trouble: Trouble) -> None:
    """Makes the next run, and repeats it after a conflict with the rival, or if the dead process fences it.

    A late call of the dead process can publish its epoch, as if the process were alive.
    """
    left: list[type[TidelakeError]] = [CommitConflict] if world.has_rival else []
    left += [WriterFenced] if trouble.lands_after_death else []
    while True:
        try:
            world.run(io)
            return
        except (CommitConflict, WriterFenced) as error:
            if type(error) not in left:
                raise
            left.remove(type(error))


def check_sound(seen: Seen, where: str) -> None:
    assert not seen.problems, where
    assert not seen.breaks, where
    assert len(set(seen.identifiers)) == len(seen.identifiers), where


@pytest.mark.exhaustive
@pytest.mark.sampled
@pytest.mark.parametrize(("has_rival", "options", "bootstraps"), WORLDS[3:4] + WORLDS[-1:])
def test_after_a_fault_in_any_call_tables_are_sound_and_the_next_run_completes_them(
    has_rival: bool, options: Mapping[str, str], bootstraps: bool, points: Points
) -> None:
    for number, trouble in sample(random_half(list(some_points(calls_of_a_life(has_rival, options, bootstraps))))):
        live_through(number, trouble, has_rival, options, bootstraps)
        points.tried(f"pipeline: {trouble.kind}")


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize(("has_rival", "options", "bootstraps"), WORLDS)
def test_every_fault_at_every_call_is_survived(
    has_rival: bool, options: Mapping[str, str], bootstraps: bool, part: int, points: Points
) -> None:
    for number, trouble in list(every_point(calls_of_a_life(has_rival, options, bootstraps)))[part::PARTS]:
        live_through(number, trouble, has_rival, options, bootstraps)
        points.tried(f"pipeline: {trouble.kind}")
