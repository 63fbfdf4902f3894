"""Blocking work of a pipeline, in threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def to_its_end(work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Run `work` in a thread, and don't leave it alone.

    A thread can't be cancelled; to abandon one that writes would let it go on beside what cleans up after it.
    Cancelled, this waits until the work has ended, forgets its outcome, and lets the cancellation go on.
    """
    running = asyncio.ensure_future(asyncio.to_thread(work, *args, **kwargs))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait({running})
        if not running.cancelled():
            running.exception()  # seen, or asyncio complains that nobody looked
        raise
