"""Runs blocking work in threads, for an event loop. The pipeline and `tidelake.aio` run tables here.

A thread cannot be cancelled. A cancelled caller therefore waits for its thread, then re-raises. An abandoned thread
could still write during cleanup. Cancelling again changes nothing, and would not end the process sooner: Python waits
for its threads before it exits.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from itertools import chain
from typing import Final, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
A = TypeVar("A")
T = TypeVar("T")


_SHARES_A_CORE: Final = 16  # of many items: as many as leave no core idle at the end
IO_THREADS_MAX: Final = 32  # threads that wait for disks, stores and locks; asyncio's own are 6 on two cores


class _Threads:
    """The thread pools of this process.

    cpu_bound: one thread, for `run_cpu_bound`
    uncancellable: for `run_uncancellable`
    parallel_io: for `map_parallel`, which `uncancellable` work calls; in one pool they could deadlock
    """

    def __init__(self) -> None:
        self._make()
        # In a child the parent's threads aren't there: work for them would wait forever.
        os.register_at_fork(after_in_child=self._make)

    def _make(self) -> None:
        self.cpu_bound = ThreadPoolExecutor(1, "cpu-bound")
        self.uncancellable = ThreadPoolExecutor(IO_THREADS_MAX, "waiting")
        self.parallel_io = ThreadPoolExecutor(IO_THREADS_MAX, "reading")


_threads: Final = _Threads()


def map_parallel(work: Callable[[A], T], items: Iterable[A]) -> Iterator[T]:
    """Run `work` for all items in parallel; results are in the order of items. Blocks.

    work: mostly waits, and starts no parallel work itself
    """
    return _threads.parallel_io.map(work, items)


def map_to_end(work: Callable[[A], T], items: Sequence[A], at_once: int = IO_THREADS_MAX) -> list[T]:
    """Like `map_parallel`, in `at_once` threads, each of which takes items until none is left. Blocks.

    For many short tasks: more threads than a disk can use would only compete for the GIL. An error is raised when no
    task runs any more; tasks that have not started by then are skipped.
    """
    outcomes, left = dict[int, T](), deque(range(len(items)))

    def take() -> None:
        while left:
            try:
                number = left.popleft()
            except IndexError:  # another thread took the last one
                return
            try:
                outcomes[number] = work(items[number])
            except BaseException:
                left.clear()
                raise

    taking = [_threads.parallel_io.submit(take) for _ in range(min(at_once, len(items)))]
    wait(taking)
    for one in taking:
        one.result()
    return [outcomes[number] for number in range(len(items))]


def map_on_cores(work: Callable[[A], T], items: Sequence[A]) -> list[T]:
    """`work`, which computes much in Arrow, for each item, at once on as many threads as there are cores. Blocks.

    A single item stays in the caller's thread: a new thread fills Arrow's and the interpreter's caches again, and took
    a quarter of the CPU time of a small flush. So do many small ones: a thread takes some at a time. An error is raised
    when nothing goes on any more; what had not begun by then is left.
    """
    if len(items) == 1:
        return [work(items[0])]
    cores = os.cpu_count() or 1
    size = max(1, len(items) // (cores * _SHARES_A_CORE))
    shares = [items[start : start + size] for start in range(0, len(items), size)]
    with ThreadPoolExecutor(max(1, min(len(shares), cores)), "cores") as threads:
        return list(chain.from_iterable(threads.map(lambda share: [work(item) for item in share], shares)))


async def run_uncancellable(work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Run `work`, which mostly waits (for a disk, a store, a lock), in some thread."""
    return await _await_to_end(_submit(_threads.uncancellable, partial(work, *args, **kwargs)))


async def run_with_cancel(
    cancel: Callable[[], object], work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
) -> T:
    """As `run_uncancellable`; cancelled, it calls `cancel` first, which has the work end early."""
    return await _await_to_end(_submit(_threads.uncancellable, partial(work, *args, **kwargs)), cancel)


async def map_uncancellable(
    work: Callable[[A], T],
    items: Iterable[A],
    at_once: int,
    on_result: Callable[[A, T], object] = lambda item, outcome: None,
    *,
    keep_going: bool = False,
) -> list[T]:
    """`work` for each item as in `run_uncancellable`, `at_once` at a time; the outcomes in the order of the items.

    on_result: called in the event loop with each outcome as soon as it is there. An error is raised when nothing goes
    on any more; several at once come as a group. What had not begun by then is left, also by a cancellation.
    keep_going: in either case it is done all the same, and reported.
    """
    left, outcomes, errors = enumerate(items), dict[int, T](), list[Exception]()

    async def one_after_another() -> None:
        for number, item in left:
            try:
                outcomes[number] = await run_uncancellable(work, item)
            except Exception as error:
                if not keep_going:
                    raise
                errors.append(error)
            else:
                on_result(item, outcomes[number])

    async def all_of_them() -> None:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(at_once):
                tasks.create_task(one_after_another())
        if errors:
            raise ExceptionGroup("several failed", errors)

    try:
        await (_await_to_end(asyncio.ensure_future(all_of_them())) if keep_going else all_of_them())
    except BaseExceptionGroup as group:
        one = sole_error(group)
        raise one from one.__cause__  # not None: that would take the cause away
    return [outcomes[number] for number in range(len(outcomes))]


def sole_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The one error in a group of groups; the group when there are several."""
    while len(group.exceptions) == 1:
        inner = group.exceptions[0]
        if not isinstance(inner, BaseExceptionGroup):
            return inner
        group = inner
    return group


async def run_cpu_bound(work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Run `work`, which mostly makes Python objects or many small arrays, in the one thread of this process for it.

    Two threads at such work get no more done than one, as it holds the interpreter's lock. But whenever the lock
    changes hands, data goes from one core's cache to another's, and who gives it up for a moment waits 5 ms to get it
    back: a folder of change logs took 40 % more CPU time that way, and took as long. Work that waits would
    make all others wait here.
    """
    return await _await_to_end(_submit(_threads.cpu_bound, partial(work, *args, **kwargs)))


class RunCpuBound(Protocol):
    """`run_cpu_bound`, or what stands in its place."""

    async def __call__(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...


class ShortWork:
    """Runs CPU-bound work that never waits in the event loop's own thread, while it is short; else as `run_cpu_bound`.

    For pipelines whose event loop makes many Python objects itself, as one that reads from Kafka does: in parallel to
    it, in another thread, decoding a batch took half as much CPU time again, as the interpreter's lock went to and fro.
    The loop has to wait in either case: a thread gives the lock up after 5 ms, and most batches take less than 10.

    short_ms: CPU time. A function runs in the other thread at first, and whenever it took longer the last time. (What
        takes twice as long is slow to asyncio's debug mode.)
    """

    def __init__(self, short_ms: float = 50) -> None:
        self._short_s = short_ms / 1000
        self._last_s: dict[object, float] = {}

    async def __call__(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        function = getattr(work, "__func__", work)  # of a method: whatever object it is of
        timed = partial(self._timed, function, partial(work, *args, **kwargs))
        if self._last_s.get(function, float("inf")) > self._short_s:
            return await run_cpu_bound(timed)
        result = timed()
        await asyncio.sleep(0)  # others' turn
        return result

    def _timed(self, function: object, work: Callable[[], T]) -> T:
        begin = time.thread_time()
        try:
            return work()
        finally:
            self._last_s[function] = time.thread_time() - begin


def _submit(executor: Executor, work: Callable[[], T]) -> asyncio.Future[T]:
    # A task around `asyncio.to_thread` would be cancelled when `asyncio.run` ends, as all tasks are: work abandoned.
    return asyncio.get_running_loop().run_in_executor(executor, copy_context().run, work)


async def _await_to_end(running: asyncio.Future[T], cancel: Callable[[], object] = lambda: None) -> T:
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        cancel()
        while not running.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait({running})
        if not running.cancelled():
            running.exception()  # seen, or asyncio logs that it was never retrieved
        raise
