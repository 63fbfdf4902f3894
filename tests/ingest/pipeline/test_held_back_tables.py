"""A table that would wait for a long compaction is held back: checkpoints publish the others, and lose no row of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import uuid4

import pytest

from tests.ingest.pipeline.fakes import FakeSource, FakeTable, Rig, raw_batch, until
from tests.ingest.pipeline.test_pipeline import T0, is_gap_free, until_waiting
from tidelake.checkpoint.offsets import OffsetRange
from tidelake.ingest.pipeline.progress_tracker import INTERVAL_MS, ProgressFile
from tidelake.storage.fileio.memory import MemoryFileIO


@dataclass
class Compaction:
    nbytes: int = 100
    is_done: bool = False


async def until_checkpoints(rig: Rig, count: int) -> None:
    """Let the pipeline run until it has taken so many checkpoints, and waits for the next one."""
    await until(lambda: rig.pipeline.metrics.checkpoints == count)
    await until_waiting(rig)


def both(*offsets: int) -> list[bytes]:
    """A record of table `a` and one of `b`, in turns."""
    return [f"{'ab'[offset % 2]}/v{offset}".encode() for offset in offsets]


@dataclass
class World:
    """Tables `a` and `b`. Each batch makes a checkpoint; `a` has a compaction."""

    def __post_init__(self) -> None:
        self.a, self.b = FakeTable("a"), FakeTable("b")
        self.progress = ProgressFile(MemoryFileIO(), f"memory://{uuid4()}/progress")
        self.batches = [raw_batch([at, at + 1], both(at, at + 1)) for at in range(0, 8, 2)]

    def rig(self, compactions: Sequence[Compaction] = (), *, ends: bool = True) -> Rig:
        source = FakeSource(self.batches, ends=ends)
        rig = Rig(source, [self.a, self.b], bytes_max=1, progress=self.progress)
        rig.sinks["a"].long_compactions = compactions
        return rig

    @property
    def ids(self) -> tuple[list[int], list[int]]:
        return [row for row, _ in self.a.rows], [row for row, _ in self.b.rows]


async def test_other_tables_are_published_in_every_checkpoint() -> None:
    world = World()
    rig = world.rig([Compaction()], ends=False)
    run = asyncio.create_task(rig.pipeline.run())
    await until_checkpoints(rig, 4)
    assert world.ids == ([], [1, 3, 5, 7])
    assert len(world.b.checkpoints) == 4
    rig.pipeline.stop()
    await run
    assert world.ids == ([0, 2, 4, 6], [1, 3, 5, 7])
    assert [s.position.ranges[T0] for s in world.a.checkpoints] == [OffsetRange(0, 8)]
    assert is_gap_free(world.a)
    assert is_gap_free(world.b)


async def test_the_end_of_a_run_waits_for_the_compaction() -> None:
    world = World()
    await world.rig([Compaction()]).pipeline.run()
    assert world.ids == ([0, 2, 4, 6], [1, 3, 5, 7])


async def test_the_table_is_published_after_its_compaction_although_no_record_comes() -> None:
    world, compaction = World(), Compaction()
    rig = world.rig([compaction], ends=False)
    run = asyncio.create_task(rig.pipeline.run())
    await until_checkpoints(rig, 4)
    compaction.is_done, rig.sinks["a"].long_compactions = True, ()
    rig.clock.advance(rig.interval_ms)
    await until_checkpoints(rig, 5)
    assert world.ids == ([0, 2, 4, 6], [1, 3, 5, 7])
    rig.pipeline.stop()
    await run


@pytest.mark.parametrize(("next_bytes", "is_published"), [(100, True), (51, True), (50, False), (10, False)], ids=str)
async def test_for_the_next_compaction_it_is_held_back_only_if_it_is_half_as_long(
    next_bytes: int, is_published: bool
) -> None:
    """Otherwise it could be held back for ever."""
    world, first = World(), Compaction(100)
    rig = world.rig([first], ends=False)
    run = asyncio.create_task(rig.pipeline.run())
    await until_checkpoints(rig, 4)
    first.is_done, rig.sinks["a"].long_compactions = True, [Compaction(next_bytes)]
    rig.clock.advance(rig.interval_ms)
    await until_checkpoints(rig, 5)
    assert bool(world.a.checkpoints) == is_published
    rig.pipeline.stop()
    await run
    assert world.ids == ([0, 2, 4, 6], [1, 3, 5, 7])


@pytest.mark.parametrize("minutes", [0, 3], ids=["at once", "after the progress file was written"])
async def test_after_a_crash_its_records_are_read_again_and_those_of_others_are_not_written_twice(minutes: int) -> None:
    world = World()
    rig = world.rig([Compaction()], ends=False)
    run = asyncio.create_task(rig.pipeline.run())
    await until_checkpoints(rig, 4)
    for number in range(minutes):
        rig.clock.advance(INTERVAL_MS)
        await until_checkpoints(rig, 5 + number)
    run.cancel()
    await asyncio.gather(run, return_exceptions=True)
    assert world.ids == ([], [1, 3, 5, 7])
    await world.rig().pipeline.run()
    assert world.ids == ([0, 2, 4, 6], [1, 3, 5, 7])
    assert is_gap_free(world.a)
    assert is_gap_free(world.b)
