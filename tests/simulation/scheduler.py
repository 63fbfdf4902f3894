"""Runs threads of simulated processes one at a time, in an order that a seed decides, in virtual time.

A thread is a greenlet: a stack that is left in the middle of a call, and entered again there. So the code of the
product runs unchanged and synchronously, and another thread runs only where it lets others run: when it waits (for a
lock, an event, a future, a time), and at each call of the store. All threads share one thread of the system, so nothing
else can come between two steps.

A process that is killed ends at the point where each of its threads stands: `ProcessDied` is raised there. What its
clean-up code still asks for (a call of the store, a lock, a thread) raises the same.
"""

from __future__ import annotations

import heapq
from asyncio.events import _get_running_loop, _set_running_loop
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import count
from random import Random
from typing import Any, Final

from greenlet import greenlet

START_NS: Final = 1_790_000_000_000_000_000  # a moment in 2026
_TRACE_LINES: Final = 400


class ProcessDied(BaseException):
    """The end of a simulated process, which no code can handle."""


class Deadlock(Exception):
    """All threads wait for one another: nothing would ever happen again."""


@dataclass(eq=False)
class Process:
    """A simulated process.

    skew_ns: how far its wall clock is ahead.
    """

    name: str
    is_dead: bool = False
    skew_ns: int = 0
    threads: list[SimulatedThread] = field(default_factory=list)
    watchers: list[Callable[[Process], None]] = field(default_factory=list)  # called when it has ended
    singletons: dict[str, Any] = field(default_factory=dict)  # what the product has once in a process


class SimulatedThread:
    """A thread of a process. It begins when the scheduler first chooses it."""

    def __init__(self, scheduler: Scheduler, process: Process, name: str, work: Callable[[], object]) -> None:
        self.process = process
        self.name = name
        self.is_done = False
        self.waits = 0  # counts its waits: a timer of an earlier one is void
        self.timed_out = False
        self.is_parked = False
        self.watchers: list[Callable[[], None]] = []
        self._scheduler = scheduler
        self._work = work
        self.greenlet = greenlet(self._run, scheduler.hub)

    def _run(self) -> None:
        try:
            self._work()
        except ProcessDied:
            pass
        except BaseException as error:
            if not self.process.is_dead:
                self._scheduler.crashed(self, error)
        finally:
            self.is_done = True
            self.process.threads.remove(self)
            for watcher in self.watchers:
                watcher()


class Scheduler:
    """The threads, the virtual clock and the random numbers of a simulation.

    switch_rate: how often another thread may run between two calls that need not wait, 0 to 1.
    """

    def __init__(self, seed: int, switch_rate: float = 0.5) -> None:
        self.random = Random(seed)
        self.ids = Random(seed + 1)
        self.switch_rate = switch_rate
        self.now_ns = START_NS
        self.hub = greenlet.getcurrent()
        self.current: SimulatedThread | None = None
        self.ready: list[SimulatedThread] = []
        self.steps = 0
        self.failure: tuple[str, BaseException] | None = None
        self.between: Callable[[], None] | None = None  # called by the hub before it chooses
        self._frozen: dict[Process, list[SimulatedThread]] = {}
        self._timers: list[tuple[int, int, SimulatedThread, int]] = []
        self._numbers = count()
        self._exclusive: Process | None = None
        self._hash = blake2b(digest_size=8)
        self.recent: deque[str] = deque(maxlen=_TRACE_LINES)

    # ------------------------------------------------------------ the trace

    def note(self, what: str) -> None:
        """Add a line to the trace."""
        thread = self.current
        if self._exclusive is not None or thread is None or thread.process.is_dead:
            return
        line = f"{self.now_ns // 1_000_000 - START_NS // 1_000_000} {thread.process.name}/{thread.name} {what}\n"
        self.recent.append(line)
        self._hash.update(line.encode())

    @property
    def trace_hash(self) -> str:
        return self._hash.hexdigest()

    def crashed(self, thread: SimulatedThread, error: BaseException) -> None:
        """Keep the first error that a thread did not handle."""
        if self.failure is None:
            self.failure = (f"{thread.process.name}/{thread.name}", error)

    # ------------------------------------------------------------ threads

    def start(self, process: Process, name: str, work: Callable[[], object]) -> SimulatedThread:
        if process.is_dead:
            raise ProcessDied
        thread = SimulatedThread(self, process, name, work)
        process.threads.append(thread)
        frozen = self._frozen.get(process)
        (self.ready if frozen is None else frozen).append(thread)
        return thread

    def note_of(self, process: Process, what: str) -> None:
        """Add a line about a process to the trace. For the hub."""
        line = f"{(self.now_ns - START_NS) // 1_000_000} {process.name} {what}\n"
        self.recent.append(line)
        self._hash.update(line.encode())

    def kill_others(self, process: Process) -> None:
        """End the process, whose main thread ends: its daemon threads end with it."""
        process.is_dead = True
        self.ready = [thread for thread in self.ready if thread.process is not process]
        before = self.current
        for thread in list(process.threads):
            if thread is not before:
                self.current = thread
                self._throw(thread)
        self.current = before
        for watcher in process.watchers:
            watcher(process)

    def kill(self, process: Process) -> None:
        """End the process where it stands. Called by the hub, or by a thread of another process."""
        process.is_dead = True
        self._frozen.pop(process, None)
        self.ready = [thread for thread in self.ready if thread.process is not process]
        before = self.current
        for thread in list(process.threads):
            self.current = thread
            self._throw(thread)
        self.current = before
        for watcher in process.watchers:
            watcher(process)

    def _throw(self, thread: SimulatedThread) -> None:
        if thread.is_done:
            return
        if thread.greenlet:
            thread.greenlet.parent = greenlet.getcurrent()
            thread.greenlet.throw(ProcessDied)
        else:  # it had not begun
            thread.process.threads.remove(thread)
            thread.is_done = True

    @property
    def process(self) -> Process:
        """The process whose code runs."""
        assert self.current is not None
        return self.current.process

    # ------------------------------------------------------------ waiting

    def park(self, wait_ns: int | None = None) -> bool:
        """Wait until `unpark`, or for this time. Returns whether it was unparked."""
        thread = self.current
        assert thread is not None, "only a simulated thread can wait"
        if thread.process.is_dead:
            raise ProcessDied
        thread.waits += 1
        thread.timed_out = False
        thread.is_parked = True
        if wait_ns is not None:
            heapq.heappush(self._timers, (self.now_ns + max(0, wait_ns), next(self._numbers), thread, thread.waits))
        self._leave(thread)
        return not thread.timed_out

    def unpark(self, thread: SimulatedThread) -> None:
        if thread.is_parked:
            thread.is_parked = False
            thread.waits += 1
            if thread.process.is_dead:
                return
            frozen = self._frozen.get(thread.process)
            (self.ready if frozen is None else frozen).append(thread)

    def freeze(self, process: Process) -> None:
        """Let no thread of the process run, as SIGSTOP does, or a machine that swaps. Time goes on for it."""
        if process not in self._frozen and not process.is_dead:
            self._frozen[process] = [thread for thread in self.ready if thread.process is process]
            self.ready = [thread for thread in self.ready if thread.process is not process]

    def thaw(self, process: Process) -> None:
        self.ready += self._frozen.pop(process, [])

    def step(self) -> None:
        """Let others run, if the seed wants it."""
        thread = self.current
        if thread is None:
            return
        if thread.process.is_dead:
            raise ProcessDied
        if self._exclusive is None and self.random.random() < self.switch_rate:
            self.ready.append(thread)
            self._leave(thread)

    def yield_now(self) -> None:
        """Let others run, or the hub at least."""
        thread = self.current
        if thread is not None and self._exclusive is None:
            self.ready.append(thread)
            self._leave(thread)

    def sleep(self, wait_ns: int) -> None:
        if self.current is None or self._exclusive is not None:
            return
        end_ns = self.now_ns + wait_ns
        self.yield_now() if wait_ns <= 0 else self.park(wait_ns)
        while self.now_ns < end_ns:  # something that it waited for before came only now
            self.park(end_ns - self.now_ns)

    def _leave(self, thread: SimulatedThread) -> None:
        loop = _get_running_loop()
        if loop is not None:
            _set_running_loop(None)
        try:
            self.hub.switch()
        finally:
            self.current = thread
            if loop is not None:
                _set_running_loop(loop)
        if thread.process.is_dead:
            raise ProcessDied

    # ------------------------------------------------------------ the hub

    def run(self, until: Callable[[], bool], until_ns: int | None = None) -> bool:
        """Run threads until the condition holds, a thread failed, or the virtual time is over. Returns whether the
        condition holds. Raises Deadlock.
        """
        while self.failure is None:
            if self.between is not None:
                self.between()
                if self.failure is not None:
                    break
            if until():
                return True
            while not self.ready:  # a timer may wake a frozen process
                if not self._advance(until_ns):
                    return False
            chosen = self.random.randrange(len(self.ready)) if len(self.ready) > 1 else 0
            self.ready[chosen], self.ready[-1] = self.ready[-1], self.ready[chosen]
            self._enter(self.ready.pop())
        return False

    def _enter(self, thread: SimulatedThread) -> None:
        self.steps += 1
        self.current = thread
        thread.greenlet.switch()
        self.current = None

    def _advance(self, until_ns: int | None) -> bool:
        """Move the clock to the next timer that still counts."""
        while self._timers:
            due_ns, _, thread, waits = self._timers[0]
            if thread.waits != waits or thread.is_done or thread.process.is_dead:
                heapq.heappop(self._timers)
                continue
            if until_ns is not None and due_ns > until_ns:
                return False
            heapq.heappop(self._timers)
            self.now_ns = max(self.now_ns, due_ns)
            thread.timed_out = True
            self.unpark(thread)
            if not self._timers or self._timers[0][0] > self.now_ns:
                return True
        if self.ready:
            return True
        raise Deadlock("every thread waits, and no time will wake one")

    @contextmanager
    def _only(self, process: Process) -> Iterator[None]:
        others, self.ready, self._exclusive = self.ready, [], process
        before = self.current
        try:
            yield
        finally:
            self.ready, self._exclusive, self.current = others, None, before

    def run_exclusively(self, process: Process, work: Callable[[], object]) -> None:
        """Run the work, and the threads that it starts, while time stands still and nothing else runs. For the hub.

        Takes no random number, and leaves no line in the trace: an audit changes nothing of what it looks at.
        """
        errors: list[BaseException] = []

        def guarded() -> None:
            try:
                work()
            except BaseException as error:
                errors.append(error)

        state = self.ids.getstate()
        with self._only(process):
            main = self.start(process, "main", guarded)
            while not main.is_done:
                if not self.ready:
                    raise Deadlock(f"{process.name} waits for something that no thread of it does")
                self.current = thread = self.ready.pop(0)
                thread.greenlet.switch()
                self.current = None
            while self.ready:
                self.current = thread = self.ready.pop(0)
                thread.greenlet.switch()
                self.current = None
        self.ids.setstate(state)
        if errors:
            raise errors[0]
