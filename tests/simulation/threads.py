"""Threads, locks, events, futures and pools of the scheduler, with the methods of those that the product uses."""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent import futures
from concurrent.futures import ALL_COMPLETED, FIRST_COMPLETED, FIRST_EXCEPTION
from concurrent.futures._base import DoneAndNotDoneFutures
from functools import partial
from itertools import count
from typing import Any, Final, Self, TypeVar

from tests.simulation.scheduler import Process, ProcessDied, Scheduler, SimulatedThread

T = TypeVar("T")


def nanoseconds(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1_000_000_000)


class ThreadKit:
    """Makes them, for one scheduler. Its members have the names of `tidelake.storage.base.env`."""

    def __init__(self, scheduler: Scheduler) -> None:
        class Lock(SimulatedLock):
            sched = scheduler

        class Condition(SimulatedCondition):
            sched = scheduler

        class Event(SimulatedEvent):
            sched = scheduler

        class Future(SimulatedFuture[T]):
            sched = scheduler

        class Thread(SimulatedThreadObject):
            sched = scheduler

        class Pool(SimulatedPool):
            sched = scheduler
            future_class = Future

        class Queue(SimulatedQueue[T]):
            condition_class = Condition

        self.Lock, self.Condition, self.Event, self.Future = Lock, Condition, Event, Future
        self.Thread, self.ThreadPoolExecutor, self.Queue = Thread, Pool, Queue
        self.scheduler = scheduler

    def wait(
        self, fs: Iterable[futures.Future[T]], timeout: float | None = None, return_when: str = ALL_COMPLETED
    ) -> DoneAndNotDoneFutures[T]:
        """Do what `concurrent.futures.wait` does."""
        every = list(fs)

        def is_over() -> bool:
            done = [f for f in every if f.done()]
            if len(done) == len(every) or (done and return_when == FIRST_COMPLETED):
                return True
            return return_when == FIRST_EXCEPTION and any(
                not f.cancelled() and f.exception(0) is not None for f in done
            )

        wait_until(self.scheduler, is_over, [f.add_done_callback for f in every if not f.done()], timeout)
        return DoneAndNotDoneFutures({f for f in every if f.done()}, {f for f in every if not f.done()})


def wait_until(
    scheduler: Scheduler,
    is_over: Callable[[], bool],
    subscriptions: Iterable[Callable[[Callable[[Any], None]], object]],
    timeout: float | None = None,
) -> bool:
    """Wait until the condition holds, which is looked at again when a subscription calls. Returns whether it holds."""
    if is_over():
        return True
    thread = scheduler.current
    assert thread is not None, "only a simulated thread can wait"
    for subscribe in subscriptions:
        subscribe(lambda *_: scheduler.unpark(thread))
    left = nanoseconds(timeout)
    end = None if left is None else scheduler.now_ns + left
    while not is_over():
        if end is not None and scheduler.now_ns >= end:
            return False
        scheduler.park(None if end is None else end - scheduler.now_ns)
    return True


class SimulatedLock:
    """A lock. Its owner may take it again only if it is a condition's (`is_reentrant`)."""

    sched: Scheduler
    is_reentrant = False

    def __init__(self) -> None:
        self._owner: object = None
        self._depth = 0
        self._waiting: deque[SimulatedThread] = deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        thread = self.sched.current
        me = thread or self
        if self._owner is me and self.is_reentrant:
            self._depth += 1
            return True
        if self._owner is not None:
            if not blocking:
                return False
            if thread is None or thread.process.is_dead:
                raise ProcessDied
            end = None if timeout < 0 else self.sched.now_ns + int(timeout * 1e9)
            while self._owner is not None:
                if end is not None and self.sched.now_ns >= end:
                    return False
                self._waiting.append(thread)
                try:
                    self.sched.park(None if end is None else end - self.sched.now_ns)
                finally:
                    if thread in self._waiting:
                        self._waiting.remove(thread)
        self._owner, self._depth = me, 1
        return True

    def release(self) -> None:
        if self._owner is None:
            raise RuntimeError("release unlocked lock")
        self._depth -= 1
        if not self._depth:
            self._owner = None
            while self._waiting:
                waiting = self._waiting.popleft()
                if not waiting.is_done and not waiting.process.is_dead:
                    self.sched.unpark(waiting)
                    break

    def locked(self) -> bool:
        return self._owner is not None

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()


class SimulatedCondition(SimulatedLock):
    is_reentrant = True

    def __init__(self, lock: SimulatedLock | None = None) -> None:
        super().__init__()
        self._lock = lock
        self._sleepers: deque[SimulatedThread] = deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        return super().acquire(blocking, timeout) if self._lock is None else self._lock.acquire(blocking, timeout)

    def release(self) -> None:
        if self._lock is None:
            super().release()
        else:
            self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        thread, lock = self.sched.current, self._lock or self
        assert thread is not None, "only a simulated thread can wait"
        if thread.process.is_dead:
            raise ProcessDied
        depth, lock._depth = lock._depth, 1
        self._sleepers.append(thread)
        self.release()
        try:
            was_woken = self.sched.park(nanoseconds(timeout))
        finally:
            if thread in self._sleepers:
                self._sleepers.remove(thread)
            if thread.process.is_dead:
                # The lock is held when an error leaves `wait`. No other thread of the process will run.
                lock._owner, lock._depth = thread, depth
        self.acquire()
        lock._depth = depth
        return was_woken

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        end = None if timeout is None else self.sched.now_ns + int(timeout * 1e9)
        while not (result := predicate()):
            if end is not None and self.sched.now_ns >= end:
                break
            self.wait(None if end is None else (end - self.sched.now_ns) / 1e9)
        return result

    def notify(self, n: int = 1) -> None:
        for _ in range(min(n, len(self._sleepers))):
            self.sched.unpark(self._sleepers.popleft())

    def notify_all(self) -> None:
        self.notify(len(self._sleepers))


class SimulatedEvent:
    sched: Scheduler

    def __init__(self) -> None:
        self._is_set = False
        self._waiting: list[Callable[[Any], None]] = []

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        waiting, self._waiting = self._waiting, []
        for wake in waiting:
            wake(self)

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        return wait_until(self.sched, self.is_set, [self._waiting.append], timeout)


class SimulatedFuture(futures.Future[T]):
    sched: Scheduler

    def result(self, timeout: float | None = None) -> T:
        self._wait(timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._wait(timeout)
        return super().exception(0)

    def _wait(self, timeout: float | None) -> None:
        if not self.done() and timeout != 0:
            wait_until(self.sched, self.done, [self.add_done_callback], timeout)


class SimulatedThreadObject:
    sched: Scheduler
    _numbers: Final = count()

    def __init__(
        self,
        group: None = None,
        target: Callable[..., object] | None = None,
        name: str | None = None,
        args: Iterable[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        daemon: bool | None = None,
    ) -> None:
        self.name = name or "thread"
        self.daemon = bool(daemon)
        self._target = target or (lambda: None)
        self._args, self._kwargs = tuple(args), dict(kwargs or {})
        self._thread: SimulatedThread | None = None

    def start(self) -> None:
        process = self.sched.process
        self._thread = self.sched.start(process, self.name, lambda: self._target(*self._args, **self._kwargs))

    def is_alive(self) -> bool:
        return self._thread is not None and not self._thread.is_done

    def join(self, timeout: float | None = None) -> None:
        thread = self._thread
        if thread is not None and not thread.is_done:
            wait_until(
                self.sched,
                lambda: thread.is_done,
                [lambda wake: thread.watchers.append(partial(wake, thread))],
                timeout,
            )


class SimulatedPool(futures.Executor):
    """A thread pool. Each process has its own threads and queue in it, as if the pool had been made there."""

    sched: Scheduler
    future_class: type[SimulatedFuture[Any]]

    def __init__(self, max_workers: int | None = None, thread_name_prefix: str = "pool", **_: Any) -> None:
        self._max_workers = max_workers or 8
        self._prefix = thread_name_prefix or "pool"
        self._is_closed = False
        self._queues: dict[Process, deque[Callable[[], None]]] = {}
        self._running: dict[Process, int] = {}
        self._idle: list[Callable[[Any], None]] = []

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> futures.Future[T]:
        if self._is_closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        process = self.sched.process
        if process.is_dead:
            raise ProcessDied
        future: futures.Future[T] = self.future_class()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:
                future.set_exception(error)
                if isinstance(error, ProcessDied):
                    raise
            else:
                future.set_result(result)

        self._queues.setdefault(process, deque()).append(run)
        if self._running.get(process, 0) < self._max_workers:
            self._running[process] = self._running.get(process, 0) + 1
            self.sched.start(process, self._prefix, lambda: self._work(process))
        return future

    def _work(self, process: Process) -> None:
        waiting = self._queues[process]
        try:
            while waiting:
                waiting.popleft()()
        finally:
            self._running[process] -= 1
            if not self._running[process]:
                idle, self._idle = self._idle, []
                for wake in idle:
                    wake(self)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._is_closed = True
        thread = self.sched.current
        if wait and thread is not None and not thread.process.is_dead:
            process = thread.process
            wait_until(self.sched, lambda: not self._running.get(process), [self._subscribe])

    def _subscribe(self, wake: Callable[[Any], None]) -> None:
        def again(_: Any) -> None:
            wake(self)
            self._idle.append(again)

        self._idle.append(again)

    def __enter__(self) -> Self:
        return self


class SimulatedQueue(queue.Queue[T]):
    condition_class: type[SimulatedCondition]

    def __init__(self, maxsize: int = 0) -> None:
        super().__init__(maxsize)
        lock = self.condition_class()
        self.mutex = lock  # type: ignore[assignment]
        for name in ("not_empty", "not_full", "all_tasks_done"):
            setattr(self, name, self.condition_class(lock))
