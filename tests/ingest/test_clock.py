"""Waiting for an event up to a time limit."""

from __future__ import annotations

import asyncio

from tests.support.manual_clock import ManualClock
from tidelake.ingest.clock import SystemClock, wait_at_most


async def test_a_set_event_is_not_awaited() -> None:
    event = asyncio.Event()
    event.set()
    assert await wait_at_most(event, None, ManualClock())


async def test_a_wait_of_zero_returns_at_once() -> None:
    assert not await wait_at_most(asyncio.Event(), 0, ManualClock())


async def test_a_wait_ends_with_the_event() -> None:
    event, clock = asyncio.Event(), ManualClock()
    waiting = asyncio.create_task(wait_at_most(event, 1_000, clock))
    await clock.sleeper()
    event.set()
    assert await waiting


async def test_a_wait_ends_at_its_time_limit() -> None:
    event, clock = asyncio.Event(), ManualClock()
    waiting = asyncio.create_task(wait_at_most(event, 1_000, clock))
    await clock.sleeper()
    clock.advance(1_000)
    assert not await waiting


async def test_the_system_clock_sleeps_and_advances() -> None:
    clock = SystemClock()
    before = clock.now_ms()
    await clock.sleep_ms(2)
    assert clock.now_ms() > before
