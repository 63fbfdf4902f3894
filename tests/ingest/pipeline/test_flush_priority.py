"""What is delayed while a checkpoint is flushed and published, and for how long."""

from __future__ import annotations

import asyncio
import threading
from typing import Final

import pytest

from tests.support.manual_clock import ManualClock
from tidelake.compaction.scheduler import CompactionScheduler
from tidelake.ingest.pipeline.checkpointer import FlushPriority

WAIT_S: Final = 30


async def test_decoding_waits_until_the_rows_are_published() -> None:
    priority = FlushPriority(10_000, ManualClock(), CompactionScheduler(1))
    await priority.wait_for_flush()  # nothing is on its way
    priority.begin()
    decoding = asyncio.create_task(priority.wait_for_flush())
    await asyncio.sleep(0)
    assert not decoding.done()
    priority.end()
    await asyncio.wait_for(decoding, WAIT_S)


@pytest.mark.parametrize(("interval_ms", "at_most_ms"), [(500, 100), (200, 40), (60_000, 100)])
async def test_decoding_waits_for_a_fifth_of_an_interval_at_most(interval_ms: int, at_most_ms: int) -> None:
    clock = ManualClock()
    priority = FlushPriority(interval_ms, clock, CompactionScheduler(1))
    priority.begin()
    decoding = asyncio.create_task(priority.wait_for_flush())
    await clock.sleeper()
    clock.advance(at_most_ms - 1)
    await asyncio.sleep(0)
    assert not decoding.done()
    clock.advance(1)
    await asyncio.wait_for(decoding, WAIT_S)
    await priority.wait_for_flush()  # its time is over: the next batch does not wait again


async def test_a_compaction_starts_after_the_rows_are_published() -> None:
    scheduler, begun = CompactionScheduler(1), threading.Event()
    priority = FlushPriority(3_600_000, ManualClock(), scheduler)
    priority.begin()
    await asyncio.to_thread(scheduler.submit, "t", lambda _: begun.set())
    priority.end()
    assert await asyncio.to_thread(begun.wait, WAIT_S)


async def test_a_compaction_that_a_writer_waits_for_starts_at_once() -> None:
    scheduler = CompactionScheduler(1)
    priority = FlushPriority(3_600_000, ManualClock(), scheduler)
    priority.begin()
    assert await asyncio.to_thread(lambda: scheduler.submit("t", lambda _: "compacted").result()) == "compacted"


async def test_at_half_pace_no_compaction_starts_by_itself_in_the_first_half_of_an_interval() -> None:
    clock, scheduler, begun = ManualClock(), CompactionScheduler(1), threading.Event()
    priority = FlushPriority(3_600_000, clock, scheduler)
    priority.compaction_pause_ms = 1_800_000
    priority.begin()
    waits = await asyncio.to_thread(scheduler.submit, "t", lambda _: begun.set())
    priority.end()
    assert not await asyncio.to_thread(begun.wait, 0.05)
    clock.advance(1_800_000)
    priority.begin()
    clock.advance(1_800_000)
    priority.end()  # a checkpoint that takes as long as the pause
    await asyncio.to_thread(waits.result)
