"""An asyncio event loop whose clock and waiting are the scheduler's. Each simulated process has its own.

Callbacks run in the order in which they were registered, as asyncio promises. Between two of them other threads may
run.
"""

from __future__ import annotations

import asyncio
import heapq
from asyncio import events
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from contextlib import suppress
from contextvars import Context
from threading import get_ident
from typing import Any, TypeVar, TypeVarTuple, Unpack

from tests.simulation.scheduler import Process, Scheduler, SimulatedThread

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class SimulatedLoop(asyncio.BaseEventLoop):
    """See the module. Only for coroutines that use threads, timers and no sockets."""

    _thread_id: Any
    _ready: Any
    _scheduled: Any

    def __init__(self, scheduler: Scheduler, process: Process, pool: Executor) -> None:
        super().__init__()
        self._scheduler = scheduler
        self._process = process
        self._pool = pool
        self._sleeper: SimulatedThread | None = None

    def time(self) -> float:
        return self._scheduler.now_ns / 1e9

    def run_forever(self) -> None:
        self._thread_id = get_ident()
        try:
            while not getattr(self, "_stopping", False):
                self._run_once()
        finally:
            self._stopping = False
            self._thread_id = None

    def _run_once(self) -> None:
        while self._scheduled and (self._scheduled[0]._cancelled or self._scheduled[0]._when <= self.time() + 1e-9):
            handle = heapq.heappop(self._scheduled)
            handle._scheduled = False
            if not handle._cancelled:
                self._ready.append(handle)
        if not self._ready:
            self._sleeper = self._scheduler.current
            wait_ns = None
            if self._scheduled:
                wait_ns = max(1, int((self._scheduled[0]._when - self.time()) * 1e9) + 1000)
            try:
                self._scheduler.park(wait_ns)
            finally:
                self._sleeper = None
            return
        self._scheduler.step()
        handle = self._ready.popleft()
        if not handle._cancelled:
            events._set_running_loop(self)
            try:
                handle._run()
            finally:
                events._set_running_loop(None)

    def call_soon_threadsafe(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        handle = self.call_soon(callback, *args, context=context)
        if self._sleeper is not None:
            self._scheduler.unpark(self._sleeper)
        return handle

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        handle = super().call_soon(callback, *args, context=context)
        if self._sleeper is not None:
            self._scheduler.unpark(self._sleeper)
        return handle

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> asyncio.Future[T]:
        return asyncio.wrap_future((executor or self._pool).submit(func, *args), loop=self)

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - asyncio's
        """The pool is the world's."""

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """A killed process leaves tasks and futures that nobody will look at."""


def run_coroutine(scheduler: Scheduler, process: Process, pool: Executor, coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in this thread of a process, as `asyncio.run` does. If the process is killed, so is its loop."""
    loop = SimulatedLoop(scheduler, process, pool)
    try:
        return loop.run_until_complete(coroutine)
    finally:
        for task in asyncio.all_tasks(loop):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            with suppress(BaseException):
                task.get_coro().close()
        loop.close()
