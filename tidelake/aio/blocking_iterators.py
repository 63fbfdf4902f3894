"""Blocking iterators and followers for async code."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import TypeVar

from tidelake.storage.base.threads import run_uncancellable
from tidelake.storage.read.follow import Follower

T = TypeVar("T")


async def iterate(start: Callable[[], Iterator[T]]) -> AsyncGenerator[T]:
    """Yield a blocking iterator's items. Each item is fetched in a thread when it is requested.

    When it is closed, also by the event loop after a `break`, it closes the iterator in a thread: that may delete spill
    files. When it is cancelled, it waits for the item that is being fetched: a running iterator can't be closed.
    """
    iterator = await run_uncancellable(start)
    end = object()
    try:
        while (item := await run_uncancellable(next, iterator, end)) is not end:
            yield item  # type: ignore[misc]
    finally:
        close = getattr(iterator, "close", None)
        if close is not None:
            await run_uncancellable(close)


async def wait_for_snapshot(follower: Follower) -> None:
    """Wait until there is a new snapshot, or until it is time to check again."""
    loop, snapshot_exists = asyncio.get_running_loop(), asyncio.Event()

    def wake() -> None:
        loop.call_soon_threadsafe(snapshot_exists.set)

    cancel = follower.call_when_exists(wake)
    if cancel is None:
        await asyncio.sleep(follower.wait_ms / 1000)
        return
    try:
        async with asyncio.timeout(follower.longest_wait_ms / 1000):
            await snapshot_exists.wait()
    except TimeoutError:
        pass
    finally:
        cancel()
