"""A clock that moves only when a test moves it."""

from __future__ import annotations

import asyncio
import heapq
import math
from collections.abc import Callable


class ManualClock:
    """Sleepers wake when `advance` passes their time, in the order of their times."""

    def __init__(self) -> None:
        self._now_ms = 1_000_000
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []
        self._count = 0
        self._arrivals = asyncio.Condition()

    def now_ms(self) -> int:
        return self._now_ms

    async def sleep_ms(self, duration_ms: int) -> None:
        wake: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._count += 1
        heapq.heappush(self._sleepers, (self._now_ms + duration_ms, self._count, wake))
        async with self._arrivals:
            self._arrivals.notify_all()
        await wake

    async def sleeper(self, below_ms: float = math.inf) -> None:
        """Returns once a caller sleeps for less than this time."""

        await self._until(lambda at_ms: at_ms < self._now_ms + below_ms)

    async def sleeper_until(self, at_ms: int) -> None:
        """Returns once a caller sleeps until exactly this time."""
        await self._until(lambda wakes_ms: wakes_ms == at_ms)

    async def _until(self, is_meant: Callable[[int], bool]) -> None:
        """Until one sleeps whose time is meant."""
        async with self._arrivals:
            await self._arrivals.wait_for(
                lambda: any(not wake.done() and is_meant(at_ms) for at_ms, _, wake in self._sleepers)
            )

    def advance(self, duration_ms: int) -> None:
        self._now_ms += duration_ms
        while self._sleepers and self._sleepers[0][0] <= self._now_ms:
            *_, wake = heapq.heappop(self._sleepers)
            if not wake.done():
                wake.set_result(None)
