"""Threads for the compactions of a process: few, shared by all tables, in fair turns.

A table with many buckets to compact waits after each of them until every other table had its turn.

Threads begin with work and end without: none is idle. When the main thread ends, tasks are cancelled, so that an
unfinished compaction does not hold up the process.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from functools import cache
from itertools import count
from typing import Final, Generic, TypeVar

import pyarrow as pa

from compaction.cancellation import IsCancelled

T = TypeVar("T")

_THREADS_MAX: Final = 4  # a compaction holds some hundred MB, and writers need processors, too


class ScheduledTask(Generic[T]):
    """Work that waits for its turn, runs, or has ended.

    awaited: called before a caller waits for the result
    """

    def __init__(self, work: Callable[[IsCancelled], T], awaited: Callable[[], None] = lambda: None) -> None:
        self._work = work
        self._awaited = awaited
        self._cancelled = threading.Event()
        self._future: Future[T] = Future()
        self.ran_s = 0.0  # once it is done

    @property
    def is_done(self) -> bool:
        return self._future.done()

    def result(self) -> T:
        """Waits for the end. Raises what the work raised; CancelledError when it was cancelled before it started."""
        if not self._future.done():
            self._awaited()
        return self._future.result()

    def cancel(self) -> None:
        """Does not wait for the end. Calling again, or after the end, is harmless."""
        self._cancelled.set()
        self._future.cancel()

    def cancel_and_wait(self) -> BaseException | None:
        """Cancels, and waits for the end. Returns what it raised; None when it had succeeded before."""
        self.cancel()
        try:
            return self._future.exception()
        except CancelledError as e:
            return e

    def run(self) -> None:
        if not self._future.set_running_or_notify_cancel():
            return
        started = time.monotonic()
        try:
            result = self._work(self._is_cancelled)
        except BaseException as e:
            self.ran_s = time.monotonic() - started
            self._future.set_exception(e)
        else:
            self.ran_s = time.monotonic() - started
            self._future.set_result(result)

    def _is_cancelled(self) -> bool:
        return self._cancelled.is_set() or not threading.main_thread().is_alive()


class CompactionScheduler:
    """Runs compactions in threads. Thread-safe.

    threads: how many compactions run at a time

    Tasks wait for none, take no lock of a writer and no memory of the write budget: a caller that waits for a task,
    holding either, waits for a bounded time.
    """

    def __init__(self, threads: int) -> None:
        if threads < 1:
            raise ValueError(f"{threads} threads compact nothing")
        self._threads = threads
        self._running = 0
        self._numbers = count(1)
        self._waiting: OrderedDict[str, deque[ScheduledTask[object]]] = (
            OrderedDict()
        )  # by table; the next turn is first
        self._paused_until_s = 0.0  # of the monotonic clock
        self._lock = threading.Condition()

    @property
    def running(self) -> int:
        """How many run now."""
        return self._running

    @property
    def waiting(self) -> int:
        """How many wait for a thread."""
        with self._lock:
            return sum(map(len, self._waiting.values()))

    def submit(self, table: str, work: Callable[[IsCancelled], T]) -> ScheduledTask[T]:
        """work: polls its argument, which says whether it is cancelled.

        Raises RuntimeError when the system has no thread left to begin with; the work is dropped then.
        """
        task: ScheduledTask[T] = ScheduledTask(work, self.resume)
        with self._lock:
            if self._running < self._threads:
                self._running += 1
                try:
                    threading.Thread(target=self._run, name=f"compaction-{next(self._numbers)}", daemon=False).start()
                except RuntimeError:
                    self._running -= 1
                    raise
            self._waiting.setdefault(table, deque()).append(task)  # type: ignore[arg-type]
        return task

    def pause(self, at_most_s: float) -> None:
        """Start no task until `resume`, for so long at most, or until one is waited for; those that run go on.

        For flush and commit: their rows are awaited, and the compactions that a flush gives rise to
        would take the processors from the flush of the next bucket, and from the commit.
        """
        with self._lock:
            self._paused_until_s = time.monotonic() + at_most_s

    def resume(self) -> None:
        """Harmless where nothing is paused."""
        with self._lock:
            self._paused_until_s = 0.0
            self._lock.notify_all()

    def _run(self) -> None:
        while (task := self._next()) is not None:
            task.run()
            del task  # or its result would live until the next one

    def _next(self) -> ScheduledTask[object] | None:
        with self._lock:
            while self._waiting and (left_s := self._paused_until_s - time.monotonic()) > 0:
                self._lock.wait(left_s)
            if not self._waiting:
                self._running -= 1
                return None
            table, tasks = self._waiting.popitem(last=False)
            task = tasks.popleft()
            if tasks:
                self._waiting[table] = tasks
            return task


class InlineScheduler(CompactionScheduler):
    """Runs each compaction at once, where it is submitted: for a process that has one core, and memory for one thing
    at a time. A writer submits when it has flushed, and its buffer is empty: what the flush took, Arrow's pool gives
    back to the system first.
    """

    def __init__(self) -> None:
        super().__init__(1)

    def submit(self, table: str, work: Callable[[IsCancelled], T]) -> ScheduledTask[T]:
        task = ScheduledTask(work)
        pa.default_memory_pool().release_unused()
        task.run()
        return task


@cache
def shared_scheduler() -> CompactionScheduler:
    """The shared scheduler of this process, for callers without their own."""
    return CompactionScheduler(max(1, min(_THREADS_MAX, (os.cpu_count() or 1) // 2)))
