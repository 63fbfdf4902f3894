"""The clock is passed to its users as a parameter, so that tests control the time."""

from __future__ import annotations

import asyncio
from typing import Protocol

from tidelake.storage.base import env


class Clock(Protocol):
    """A monotonic clock in milliseconds. Its methods never go back, and their zero has no meaning."""

    def now_ms(self) -> int: ...
    async def sleep_ms(self, duration_ms: int) -> None: ...


class SystemClock:
    """The monotonic clock of the process."""

    def now_ms(self) -> int:
        return env.monotonic_ns() // 1_000_000

    async def sleep_ms(self, duration_ms: int) -> None:
        await asyncio.sleep(duration_ms / 1000)


async def wait_at_most(event: asyncio.Event, limit_ms: int | None, clock: Clock) -> bool:
    """Wait for the event, no longer than `limit_ms` (None: forever). Returns whether it is set.

    If cancelled, nothing has changed.
    """
    if event.is_set() or limit_ms == 0:
        return event.is_set()
    waits: set[asyncio.Future[object]] = {asyncio.ensure_future(event.wait())}
    if limit_ms is not None:
        waits.add(asyncio.ensure_future(clock.sleep_ms(limit_ms)))
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
    return event.is_set()
