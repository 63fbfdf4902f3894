"""Blocking work of a pipeline, in threads.

A thread can't be cancelled; to abandon one that writes would let it go on beside what cleans up after it. So whoever is
cancelled here waits until the work has ended, forgets its outcome, and lets the cancellation go on.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class _OneThread:
    def __init__(self) -> None:
        self._make()
        os.register_at_fork(
            after_in_child=self._make
        )  # the parent's thread isn't there: work for it would wait forever

    def _make(self) -> None:
        self.executor = ThreadPoolExecutor(1, "python")


_one_thread: Final = _OneThread()


async def to_its_end(work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Run `work`, which mostly waits (for a disk, a store, a lock), in some thread."""
    return await _not_abandoned(asyncio.ensure_future(asyncio.to_thread(work, *args, **kwargs)))


async def in_turn(work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Run `work`, which mostly makes Python objects or many small arrays, in the one thread of this process for it.

    Two threads at such work get no more done than one, as it holds the interpreter's lock. But whenever the lock
    changes hands, data goes from one core's cache to another's, and who gives it up for a moment waits 5 ms to get it
    back: a folder of change logs took 40 % more CPU time that way, and no less of anybody's time. Work that waits would
    make all others wait here.
    """
    call = partial(copy_context().run, partial(work, *args, **kwargs))
    return await _not_abandoned(asyncio.get_running_loop().run_in_executor(_one_thread.executor, call))


async def _not_abandoned(running: asyncio.Future[T]) -> T:
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait({running})
        if not running.cancelled():
            running.exception()  # seen, or asyncio complains that nobody looked
        raise
