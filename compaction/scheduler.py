"""The compaction threads of a process: few, and shared fairly by all tables.

A table with many buckets to compact waits after each of them until every other table had its turn. Long compactions
never keep short ones waiting: if all threads run long ones, there is one thread more, for short ones.

Threads start and end with the work; none is idle. When the main thread ends, tasks are cancelled, so that an unfinished
compaction does not delay the end of the process.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import CancelledError
from contextlib import suppress
from functools import cache
from itertools import count
from typing import Final, Generic, TypeVar

import pyarrow as pa

from tidelake.compaction.cancellation import IsCancelled
from tidelake.storage.base import env

T = TypeVar("T")

_THREADS_MAX: Final = 4  # a compaction uses some hundred MB, and writers need processors, too
LONG_BYTES: Final = 64 << 20
"""A compaction of more bytes takes longer than a second, for which other tables should not wait."""


def is_long(nbytes: int) -> bool:
    """Return whether other tables should not wait for a compaction of so many bytes."""
    return nbytes > LONG_BYTES


class ScheduledTask(Generic[T]):
    """Work that waits for its turn, runs, or has ended.

    nbytes: how much it reads
    awaited: called before a caller waits for the result
    waited: called afterwards, with the seconds that it waited
    """

    def __init__(
        self,
        work: Callable[[IsCancelled], T],
        awaited: Callable[[], None] = lambda: None,
        waited: Callable[[float], None] = lambda _: None,
        nbytes: int = 0,
    ) -> None:
        self.nbytes = nbytes
        self.is_long = is_long(nbytes)
        self._work = work
        self._awaited = awaited
        self._waited = waited
        self._cancelled = env.Event()
        self._future: env.Future[T] = env.Future()
        self.ran_s = 0.0  # set at the end

    @property
    def is_done(self) -> bool:
        return self._future.done()

    def result(self) -> T:
        """Wait for the end. Raises the error of the work; CancelledError if it was cancelled before it started."""
        if self._future.done():
            return self._future.result()
        self._awaited()
        began_s = env.monotonic_s()
        try:
            return self._future.result()
        finally:
            self._waited(env.monotonic_s() - began_s)

    def cancel(self) -> None:
        """Cancel without waiting for the end. Calling it again, or after the end, has no effect."""
        self._cancelled.set()
        self._future.cancel()

    def cancel_and_wait(self) -> BaseException | None:
        """Cancel, and wait for the end. Returns the error of the work; None if it had succeeded before."""
        self.cancel()
        try:
            return self._future.exception()
        except CancelledError as e:
            return e

    def run(self) -> None:
        if not self._future.set_running_or_notify_cancel():
            return
        started = env.monotonic_s()
        try:
            result = self._work(self._is_cancelled)
        except BaseException as e:
            self.ran_s = env.monotonic_s() - started
            self._future.set_exception(e)
        else:
            self.ran_s = env.monotonic_s() - started
            self._future.set_result(result)

    def _is_cancelled(self) -> bool:
        return self._cancelled.is_set() or not threading.main_thread().is_alive()


class CompactionScheduler:
    """Runs compactions in threads. Thread-safe.

    threads: how many compactions run at a time; one more if these are all long, and a short one waits

    Tasks wait for no other task, take no lock of a writer and no memory of the write budget. So a caller that holds one
    of these while it waits for a task waits for a bounded time.
    """

    def __init__(self, threads: int) -> None:
        if threads < 1:
            raise ValueError(f"threads={threads}: a compaction needs at least 1 thread")
        self._threads = threads
        self._running = self._running_long = 0
        self._numbers = count(1)
        # By table and length; the first one is next.
        self._waiting: OrderedDict[tuple[str, bool], deque[ScheduledTask[object]]] = OrderedDict()
        self._paused_until_s = 0.0  # of the monotonic clock
        self.waited_s = 0.0  # how long callers waited for results, all together
        self._lock = env.Condition()

    @property
    def running(self) -> int:
        """The number of running tasks."""
        return self._running

    @property
    def waiting(self) -> int:
        """The number of tasks that wait for a thread."""
        with self._lock:
            return sum(map(len, self._waiting.values()))

    def submit(self, table: str, work: Callable[[IsCancelled], T], nbytes: int = 0) -> ScheduledTask[T]:
        """Schedule work.

        work: polls its argument, which returns whether it is cancelled.
        nbytes: how much it reads.

        Raises RuntimeError if the system can't start a thread; the work is then dropped.
        """
        task: ScheduledTask[T] = ScheduledTask(work, self.resume, self._count_wait, nbytes)
        with self._lock:
            if self._may_run(self._running, is_long=task.is_long):
                self._start_thread()
            self._waiting.setdefault((table, task.is_long), deque()).append(task)  # type: ignore[arg-type]
        return task

    def _may_run(self, others: int, *, is_long: bool) -> bool:
        """Return whether a task may run beside so many others."""
        is_extra = others == self._threads and self._running_long >= self._threads and not is_long
        return others < self._threads or is_extra

    def _start_thread(self) -> None:
        self._running += 1
        try:
            env.Thread(target=self._run, name=f"compaction-{next(self._numbers)}", daemon=False).start()
        except RuntimeError:
            self._running -= 1
            raise

    def pause(self, at_most_s: float) -> None:
        """Start no task until `resume`, for at most this time, or until a caller waits for a task.

        Running tasks continue.

        Flush and commit use it, as their rows are urgent: the compactions that a flush triggers would take processors
        from the flush of the next bucket, and from the commit.
        """
        with self._lock:
            self._paused_until_s = env.monotonic_s() + at_most_s

    def resume(self) -> None:
        """Continue after `pause`. Without a pause it has no effect."""
        with self._lock:
            self._paused_until_s = 0.0
            self._lock.notify_all()

    def _count_wait(self, waited_s: float) -> None:
        with self._lock:
            self.waited_s += waited_s

    def _run(self) -> None:
        while (task := self._next()) is not None:
            task.run()
            if task.is_long:
                with self._lock:
                    self._running_long -= 1
            del task  # otherwise its result would be kept until the next task

    def _next(self) -> ScheduledTask[object] | None:
        with self._lock:
            while self._waiting and (left_s := self._paused_until_s - env.monotonic_s()) > 0:
                self._lock.wait(left_s)
            allowed = (key for key in self._waiting if self._may_run(self._running - 1, is_long=key[1]))
            key = next(allowed, None)
            if key is None:  # if any wait, the other threads take them
                self._running -= 1
                return None
            tasks = self._waiting.pop(key)
            task = tasks.popleft()
            if tasks:
                self._waiting[key] = tasks
            if task.is_long:
                self._running_long += 1
                self._start_extra()
            return task

    def _start_extra(self) -> None:
        """Start the thread for short tasks that wait, if all others now run long ones."""
        has_short = any(not is_long for _, is_long in self._waiting)
        if has_short and self._running == self._threads and self._may_run(self._running, is_long=False):
            with suppress(RuntimeError):  # the other threads take them
                self._start_thread()


class InlineScheduler(CompactionScheduler):
    """Runs each compaction at once in the caller: for a process with one core, and memory for one thing at a time.

    A writer submits after a flush, with an empty buffer. Arrow's pool first returns the memory of the flush to the
    system.
    """

    def __init__(self) -> None:
        super().__init__(1)

    def submit(self, table: str, work: Callable[[IsCancelled], T], nbytes: int = 0) -> ScheduledTask[T]:
        task = ScheduledTask(work)
        pa.default_memory_pool().release_unused()
        task.run()
        return task


@cache
def shared_scheduler() -> CompactionScheduler:
    """Return the shared scheduler of this process, for callers without their own."""
    return CompactionScheduler(max(1, min(_THREADS_MAX, (os.cpu_count() or 1) // 2)))
