"""Runs blocking work in threads, for an event loop. The pipeline and `tidelake.aio` run tables here.

A thread cannot be cancelled. A cancelled caller therefore waits for its thread, then re-raises. An abandoned thread
could still write during cleanup. Cancelling again changes nothing, and would not end the process sooner: Python waits
for its threads before it exits.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from contextvars import copy_context
from functools import partial
from itertools import chain
from typing import Final, Generic, ParamSpec, Protocol, Self, TypeVar, cast

from tidelake.storage.base import env

P = ParamSpec("P")
A = TypeVar("A")
T = TypeVar("T")


_SHARES_A_CORE: Final = 16  # for many items: enough shares for each core that none is idle at the end
IO_THREADS_MAX: Final = 64  # threads that wait for disks, stores and locks; asyncio's own are 6 on two cores
_BACKGROUND_THREADS: Final = 8


class _Threads:
    """The thread pools of this process.

    cpu_bound: one thread, for `run_cpu_bound`
    uncancellable: for `run_uncancellable`
    parallel_io: for `map_parallel`, `map_to_end` and `run_side_by_side`. Their caller does what no thread has begun, so
        they may call one another
    fetching: for `Begun`, which only waits for answers of a store
    background: for `run_in_background`; tasks of all other pools may wait for it
    idle: at most one pool of one thread, which no call of `map_on_cores` uses at the moment
    """

    def __init__(self) -> None:
        self._make()
        # A forked child does not have the parent's threads: work for them would wait forever.
        os.register_at_fork(after_in_child=self._make)

    def _make(self) -> None:
        self.cpu_bound = env.ThreadPoolExecutor(1, "cpu-bound")
        self.uncancellable = env.ThreadPoolExecutor(IO_THREADS_MAX, "waiting")
        self.parallel_io = env.ThreadPoolExecutor(IO_THREADS_MAX, "reading")
        self.fetching = env.ThreadPoolExecutor(IO_THREADS_MAX, "fetching")
        self.background = env.ThreadPoolExecutor(_BACKGROUND_THREADS, "background")
        self.idle = deque[env.ThreadPoolExecutor]()

    @contextmanager
    def single_thread_pool(self) -> Iterator[env.ThreadPoolExecutor]:
        """Return a pool of one thread that only this caller uses. The thread is kept for the next caller."""
        try:
            pool = self.idle.pop()
        except IndexError:  # other callers use the one that was kept
            pool = env.ThreadPoolExecutor(1, "core")
        try:
            yield pool
        finally:
            self.idle.append(pool)
            while len(self.idle) > 1:
                with suppress(IndexError):  # another caller closes it
                    self.idle.popleft().shutdown()


_threads: Final = _Threads()


def map_parallel(work: Callable[[A], T], items: Iterable[A]) -> Iterator[T]:
    """Run `work` for all items in parallel; results are in the order of items. Blocks.

    An error is raised in its place in the order. Items that no thread has begun by then are left out.

    work: mostly waits. It may itself call this: the caller processes each item that no thread has begun when its
        result is needed, so nobody waits for a free thread.
    """
    begun = deque((item, _try_submit(_threads.parallel_io, partial(work, item))) for item in items)
    return _results(work, begun)


def _results(work: Callable[[A], T], begun: deque[tuple[A, env.Future[T] | None]]) -> Iterator[T]:
    try:
        while begun:
            item, running = begun.popleft()
            yield work(item) if running is None or running.cancel() else running.result()
    finally:
        for _, running in begun:
            if running is not None:
                running.cancel()


def map_to_end(work: Callable[[A], T], items: Sequence[A], at_once: int = IO_THREADS_MAX) -> list[T]:
    """Do the same as `map_parallel`, in `at_once` threads, each of which takes items until none is left. Blocks.

    The caller's thread is one of them. For many short tasks: more threads than a disk can use would only compete for
    the GIL. An error is raised when no task is running any more; tasks that have not started by then are skipped.
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

    helpers = [_try_submit(_threads.parallel_io, take) for _ in range(min(at_once, len(items)) - 1)]
    try:
        take()
    finally:
        running = [helper for helper in helpers if helper is not None and not helper.cancel()]
        env.wait(running)
    for one in running:
        one.result()
    return [outcomes[number] for number in range(len(items))]


def run_side_by_side(*tasks: Callable[[], T]) -> list[T]:
    """Run all at the same time, and return their results in the same order. Blocks.

    tasks: mostly wait, for a store. They may themselves call this: the caller runs its first task, and each one that no
        thread has taken by then. So no caller waits for a free thread, and no two can wait for one another.

    The first error, in the order of the tasks, is raised when none of them is running any more. All of them are run.
    """
    outcomes: list[env.Future[T]] = [env.Future() for _ in tasks]

    def run(number: int) -> None:
        try:
            outcomes[number].set_result(tasks[number]())
        except BaseException as error:
            outcomes[number].set_exception(error)

    taken = {
        number: future
        for number in range(1, len(tasks))
        if (future := _try_submit(_threads.parallel_io, partial(run, number)))
    }
    try:
        for number in range(len(tasks)):
            if number not in taken or taken[number].cancel():
                run(number)
    finally:
        # Not for cancelled ones: they count as done only when a thread has taken them from the queue.
        env.wait([future for future in taken.values() if not future.cancelled()])
    return [outcome.result() for outcome in outcomes]


class Begun(Generic[T]):
    """Work that another thread has begun, if one was free. For one consumer.

    work: mostly waits, for a store. It may itself begin work: no consumer waits for a free thread.
    decodes: whether it also decodes what comes. Each thread that ever did keeps memory of Arrow's allocator, so these
        are other threads than the many that only wait.
    """

    def __init__(self, work: Callable[[], T], *, decodes: bool = False) -> None:
        self._work: Callable[[], T] | None = work
        pool = _threads.parallel_io if decodes else _threads.fetching
        self._running: env.Future[object] | None = _try_submit(pool, work)

    def result(self) -> T:
        """Return the result, or raise the error. If no thread has taken the work by now, the caller does it."""
        work, self._work = self._work, None
        if work is not None and (self._running is None or self._running.cancel()):
            self._running = env.Future()
            try:
                self._running.set_result(work())
            except BaseException as error:
                self._running.set_exception(error)
        assert self._running is not None
        return cast(T, self._running.result())

    def drop(self) -> None:
        """Don't begin the work any more. Work that is running ends by itself."""
        if self._running is not None and self._work is not None:
            self._running.cancel()

    def end(self) -> None:
        """Don't begin the work any more. Wait for its end if it is running."""
        self.drop()
        if self._running is not None and not self._running.cancelled():
            env.wait([self._running])


def map_ahead(work: Callable[[A], T], items: Iterable[A], at_once: int) -> Generator[T]:
    """Yield the results in the order of items. Up to `at_once` of them are begun ahead of the consumer. Blocks.

    work: as for `Begun`.
    """
    begun = deque[Begun[T]]()
    try:
        for item in items:
            begun.append(Begun(partial(work, item)))
            if len(begun) >= at_once:
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()
    finally:
        for one in begun:
            one.drop()


class ReadAhead(Iterator[T]):
    """The same items; the next one is computed in another thread while the consumer works with the current one.

    The first one is begun at once. Several of these begin side by side. Use it in a `with` block: at its end no thread
    works for it any more, and the items are closed.

    items: mostly waits. If no thread is free, the consumer computes the item itself.
    """

    _END: Final = object()

    def __init__(self, items: Iterator[T]) -> None:
        self._items = items
        self._running: env.Future[object] | None = self._begun()

    def __next__(self) -> T:
        running, self._running = self._running, None
        item = next(self._items, self._END) if running is None or running.cancel() else running.result()
        if item is self._END:
            raise StopIteration
        self._running = self._begun()
        return cast(T, item)

    def _begun(self) -> env.Future[object] | None:
        return _try_submit(_threads.parallel_io, partial(next, self._items, self._END))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        running, self._running = self._running, None
        if running is not None and not running.cancel():
            env.wait([running])
        if isinstance(self._items, Generator):
            self._items.close()


def run_in_background(work: Callable[[], object]) -> None:
    """Run short work that waits for a store, and raises nothing, in some thread. The process doesn't end before it.

    Others may wait for it, so it waits for no thread itself.
    """
    if _try_submit(_threads.background, work) is None:
        work()


def _try_submit(pool: Executor, work: Callable[[], T]) -> env.Future[T] | None:
    """Return None if the process ends, and starts no more work."""
    try:
        return pool.submit(work)
    except RuntimeError:
        return None


def map_on_cores(work: Callable[[A], T], items: Sequence[A]) -> list[T]:
    """Run `work`, which mostly computes in Arrow, for each item, in parallel on all cores. Blocks.

    A single item runs in a thread that is kept from call to call. A new thread would have to fill the caches of Arrow
    and of the interpreter again, which took a quarter of the CPU time of a small flush. In the caller's thread Arrow's
    allocator kept 35 MiB more after ten flushes. Of many small items, a thread takes several at once.
    An error is raised when no task is running any more; tasks that have not started by then are skipped.
    """
    if len(items) == 1:
        with _threads.single_thread_pool() as thread:
            running = thread.submit(copy_context().run, work, items[0])
            try:
                return [running.result()]
            finally:
                env.wait([running])  # an interrupt came before its end
    cores = os.cpu_count() or 1
    size = max(1, len(items) // (cores * _SHARES_A_CORE))
    shares = [items[start : start + size] for start in range(0, len(items), size)]
    with env.ThreadPoolExecutor(max(1, min(len(shares), cores)), "cores") as threads:
        return list(chain.from_iterable(threads.map(lambda share: [work(item) for item in share], shares)))


async def run_uncancellable(work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Run `work`, which mostly waits (for a disk, a store, a lock), in some thread."""
    return await _await_to_end(_submit(_threads.uncancellable, partial(work, *args, **kwargs)))


async def run_with_cancel(
    cancel: Callable[[], object], work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
) -> T:
    """Do the same as `run_uncancellable`. If it is cancelled, it calls `cancel` first, to end the work early."""
    return await _await_to_end(_submit(_threads.uncancellable, partial(work, *args, **kwargs)), cancel)


async def map_uncancellable(
    work: Callable[[A], T],
    items: Iterable[A],
    at_once: int,
    on_result: Callable[[A, T], object] = lambda item, outcome: None,
    *,
    keep_going: bool = False,
) -> list[T]:
    """Run `work` for each item as `run_uncancellable` does, `at_once` at a time. Returns results in the items' order.

    An error is raised when no task is running any more; several errors are raised as a group. After an error or a
    cancellation, tasks that have not started are skipped.

    on_result: called in the event loop with each result as soon as it exists.
    keep_going: after an error or a cancellation, the remaining items are processed and reported nevertheless.
    """
    items = list(items)
    left, outcomes, errors = enumerate(items), dict[int, T](), list[Exception]()

    async def run_sequentially() -> None:
        for number, item in left:
            try:
                outcomes[number] = await run_uncancellable(work, item)
            except Exception as error:
                if not keep_going:
                    raise
                errors.append(error)
            else:
                on_result(item, outcomes[number])

    async def run_all() -> None:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(min(at_once, len(items))):
                tasks.create_task(run_sequentially())
        if errors:
            raise ExceptionGroup("several failed", errors)

    try:
        await (_await_to_end(asyncio.ensure_future(run_all())) if keep_going else run_all())
    except BaseExceptionGroup as group:
        one = single_error(group)
        raise one from one.__cause__  # `from None` would remove the cause
    return [outcomes[number] for number in range(len(outcomes))]


def single_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the single error in nested groups; the group if there are several."""
    while len(group.exceptions) == 1:
        inner = group.exceptions[0]
        if not isinstance(inner, BaseExceptionGroup):
            return inner
        group = inner
    return group


async def run_cpu_bound(work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Run `work`, which mostly creates Python objects or many small arrays, in this process's one thread for it.

    Two threads with such work are no faster than one, because it holds the interpreter's lock. But each time the lock
    changes its owner, data moves between the caches of the cores, and a thread that released it for a moment waits 5 ms
    to get it back. A folder of change logs took 40 % more CPU time this way, and the same total time. Work that waits
    would make all other work wait here.
    """
    return await _await_to_end(_submit(_threads.cpu_bound, partial(work, *args, **kwargs)))


class RunCpuBound(Protocol):
    """`run_cpu_bound`, or a replacement."""

    async def __call__(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...


class ShortTaskRunner:
    """Runs short CPU-bound work that never waits in the event loop's own thread; longer work as `run_cpu_bound` does.

    For pipelines whose event loop creates many Python objects itself, as for a Kafka source. Decoding a batch in
    another thread at the same time took 50 % more CPU time, because the interpreter's lock moved between the threads.
    The loop must wait in both cases: a thread releases the lock after 5 ms, and most batches take less than 10 ms.

    short_ms: limit of CPU time. A function runs in the other thread the first time, and whenever its last call took
        longer. (asyncio's debug mode reports work of twice the default as slow.)
    """

    def __init__(self, short_ms: float = 50) -> None:
        self._short_s = short_ms / 1000
        self._last_s: dict[object, float] = {}

    async def __call__(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        function = getattr(work, "__func__", work)  # the same for methods of different objects
        timed = partial(self._timed, function, partial(work, *args, **kwargs))
        if self._last_s.get(function, float("inf")) > self._short_s:
            return await run_cpu_bound(timed)
        result = timed()
        await asyncio.sleep(0)  # lets other tasks run
        return result

    def _timed(self, function: object, work: Callable[[], T]) -> T:
        begin = env.thread_cpu_s()
        try:
            return work()
        finally:
            self._last_s[function] = env.thread_cpu_s() - begin


def _submit(executor: Executor, work: Callable[[], T]) -> asyncio.Future[T]:
    # `asyncio.run` cancels all tasks at its end, which would abandon the work of a task around `asyncio.to_thread`.
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
            running.exception()  # retrieved; otherwise asyncio logs that it never was
        raise
