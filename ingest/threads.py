"""Blocking work of a pipeline, in threads.

A thread can't be cancelled; to abandon one that writes would let it go on beside what cleans up after it. So whoever is
cancelled here waits until the work has ended, forgets its outcome, and lets the cancellation go on.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
A = TypeVar("A")
T = TypeVar("T")


class _OneThread:
    def __init__(self) -> None:
        self._make()
        os.register_at_fork(
            after_in_child=self._make
        )  # the parent's thread isn't there: work for it would wait forever

    def _make(self) -> None:
        self.executor = ThreadPoolExecutor(1, "in-turn")


_one_thread: Final = _OneThread()


async def to_its_end(work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Run `work`, which mostly waits (for a disk, a store, a lock), in some thread."""
    return await _not_abandoned(asyncio.ensure_future(asyncio.to_thread(work, *args, **kwargs)))


async def each_to_its_end(work: Callable[[A], T], items: Iterable[A], at_once: int) -> list[T]:
    """`work` for each item as in `to_its_end`, so many at a time; the outcomes in the order of the items.

    An error is raised when nothing goes on any more, and what had not begun is left; several at once come as a group.
    """
    left, outcomes = enumerate(items), dict[int, T]()

    async def one_after_another() -> None:
        for number, item in left:
            outcomes[number] = await to_its_end(work, item)

    try:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(at_once):
                tasks.create_task(one_after_another())
    except BaseExceptionGroup as group:
        raise only_error(group) from None
    return [outcomes[number] for number in range(len(outcomes))]


def only_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The one error in a group of groups; the group when there are several."""
    while len(group.exceptions) == 1:
        inner = group.exceptions[0]
        if not isinstance(inner, BaseExceptionGroup):
            return inner
        group = inner
    return group


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
