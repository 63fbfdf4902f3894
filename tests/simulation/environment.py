"""Puts a simulation's clocks, ids and threads in the place of the system's (`tidelake.storage.base.env`)."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from random import Random
from typing import Any, Final

import pyarrow as pa
import pytest

from tests.simulation.scheduler import Scheduler
from tests.simulation.threads import ThreadKit
from tidelake.compaction import compact_manager
from tidelake.compaction import scheduler as compaction_scheduler
from tidelake.compaction.scheduler import CompactionScheduler
from tidelake.ingest.pipeline import builder, checkpointer
from tidelake.storage.base import env, threads
from tidelake.storage.commit import uncommitted_files
from tidelake.storage.fileio import late_hints
from tidelake.storage.merge.spill_folder import SpillFolders
from tidelake.storage.model import option_support

_THREAD_NAMES: Final = ("Lock", "Condition", "Event", "Future", "Thread", "ThreadPoolExecutor", "Queue", "wait")
COMPACTIONS_AT_ONCE: Final = 2


class Environment:
    """The functions of `env` that are not threads."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._outside = Random(0)  # for the auditor, and for what a killed process still does

    def _numbers(self) -> Random:
        thread = self._scheduler.current
        return self._outside if thread is None or thread.process.is_dead else self._scheduler.ids

    def wall_ns(self) -> int:
        thread = self._scheduler.current
        return self._scheduler.now_ns + (0 if thread is None else thread.process.skew_ns)

    def wall_s(self) -> float:
        return self.wall_ns() / 1e9

    def monotonic_ns(self) -> int:
        return self._scheduler.now_ns

    def monotonic_s(self) -> float:
        return self._scheduler.now_ns / 1e9

    def process_cpu_s(self) -> float:
        return self._scheduler.now_ns / 1e9

    def thread_cpu_s(self) -> float:
        return self._scheduler.now_ns / 1e9

    def local_now(self) -> datetime:
        return datetime.fromtimestamp(self.wall_ns() / 1e9, UTC).replace(tzinfo=None)

    def sleep(self, wait_s: float) -> None:
        self._scheduler.sleep(int(wait_s * 1e9))

    def random_fraction(self) -> float:
        return self._numbers().random()

    def random_below(self, *bounds: int) -> int:
        return self._numbers().randrange(*bounds)

    def random_sample(self, population: Any, k: int) -> list[Any]:
        return self._numbers().sample(population, k)

    def random_bytes(self, size: int) -> bytes:
        return self._numbers().randbytes(size)

    def new_uuid(self) -> uuid.UUID:
        return uuid.UUID(int=self._numbers().getrandbits(128), version=4)

    def process_id(self) -> int:
        return 1

    def host_name(self) -> str:
        thread = self._scheduler.current
        return "outside" if thread is None else thread.process.name


class _OfEachProcess:
    """Stands for an object that the product has once in a process: each simulated process has its own."""

    def __init__(self, scheduler: Scheduler, name: str, make: Callable[[], Any]) -> None:
        self._of = (scheduler, name, make)

    def __getattr__(self, attribute: str) -> Any:
        scheduler, name, make = self._of
        singletons = scheduler.process.singletons
        if name not in singletons:
            singletons[name] = make()
        return getattr(singletons[name], attribute)


@contextmanager
def installed(scheduler: Scheduler) -> Iterator[ThreadKit]:
    """Replace the environment of this process by the simulation's."""
    kit, environment = ThreadKit(scheduler), Environment(scheduler)
    cpus = pa.cpu_count()
    with pytest.MonkeyPatch.context() as patches:
        for name in _THREAD_NAMES:
            patches.setattr(env, name, getattr(kit, name))
        for name in [name for name in vars(Environment) if not name.startswith("_")]:
            patches.setattr(env, name, _in_this_thread(getattr(environment, name), getattr(env, name)))
        patches.setattr(threads, "_threads", threads._Threads.__new__(threads._Threads))
        threads._threads._make()
        patches.setattr(
            late_hints, "_hints", _OfEachProcess(scheduler, "hints", _without_fork_hook(late_hints._LateHints))
        )
        compactions = _OfEachProcess(scheduler, "compactions", lambda: CompactionScheduler(COMPACTIONS_AT_ONCE))
        for module in (compact_manager, checkpointer, builder, compaction_scheduler):
            patches.setattr(module, "shared_scheduler", lambda: compactions)
        patches.setattr(option_support, "_logged_lock", kit.Lock())
        # The store is one in memory, but asked as an object store is: each question costs a request.
        patches.setattr(uncommitted_files, "scheme_of", lambda _: "s3")
        # It runs once in a process, in real folders: which lake of the process spills first must not matter.
        patches.setattr(SpillFolders, "_start_heartbeat", lambda self: None)
        pa.set_cpu_count(1)  # Arrow's threads are not the scheduler's
        try:
            yield kit
        finally:
            pa.set_cpu_count(cpus)


def _in_this_thread(simulated: Callable[..., Any], real: Callable[..., Any]) -> Callable[..., Any]:
    """The simulated function for the simulation, and the real one for other threads: an earlier test may have left some
    in this process, such as the heartbeat of its spill folders.
    """
    thread_id = threading.get_ident()

    def called(*args: Any, **named: Any) -> Any:
        return (simulated if threading.get_ident() == thread_id else real)(*args, **named)

    return called


def _without_fork_hook(kind: Any) -> Callable[[], Any]:
    def make() -> Any:
        made = kind.__new__(kind)
        made._forget()
        return made

    return make
