"""The order of compactions, and what cancelling leaves behind."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import Final

import pytest

from tidelake.compaction.cancellation import IsCancelled
from tidelake.compaction.scheduler import LONG_BYTES, CompactionScheduler, InlineScheduler

WAIT_S: Final = 30  # for something that will happen


def gated(gate: threading.Event, then: Callable[[], None] = lambda: None) -> Callable[[IsCancelled], None]:
    def work(_: IsCancelled) -> None:
        assert gate.wait(WAIT_S)
        then()

    return work


def test_a_busy_table_gives_other_tables_their_turn() -> None:
    scheduler, gate, order = CompactionScheduler(1), threading.Event(), list[str]()
    first = scheduler.submit("first", gated(gate))
    tasks = [
        scheduler.submit(table, gated(gate, lambda name=f"{table}{n}": order.append(name)))  # type: ignore[misc]
        for table, n in [("a", 1), ("a", 2), ("a", 3), ("b", 1), ("c", 1), ("b", 2)]
    ]
    gate.set()
    for task in (first, *tasks):
        task.result()
    assert order == ["a1", "b1", "c1", "a2", "b2", "a3"]


def test_no_more_tasks_run_at_once_than_there_are_threads() -> None:
    scheduler, gate = CompactionScheduler(2), threading.Event()
    running, most, lock = 0, 0, threading.Lock()

    def work(_: IsCancelled) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        assert gate.wait(WAIT_S)
        with lock:
            running -= 1

    tasks = [scheduler.submit(str(n), work) for n in range(6)]
    gate.set()
    for task in tasks:
        task.result()
    assert most <= 2


LONG: Final = LONG_BYTES + 1


def test_a_short_compaction_runs_beside_long_ones_on_all_threads() -> None:
    scheduler, gate = CompactionScheduler(2), threading.Event()
    long = [scheduler.submit("debtor", gated(gate), LONG) for _ in range(5)]
    assert [scheduler.submit(table, lambda _: "compacted").result() for table in "abc"] == ["compacted"] * 3
    assert not any(task.is_done for task in long)
    gate.set()
    for task in long:
        task.result()


def test_a_short_compaction_that_came_first_does_not_wait_for_a_long_one() -> None:
    """The thread is started for both, and takes the long one."""
    scheduler, gate, done = CompactionScheduler(1), threading.Event(), threading.Event()
    scheduler.pause(at_most_s=3600)
    long = scheduler.submit("debtor", gated(gate), LONG)
    scheduler.submit("t", lambda _: done.set())
    scheduler.resume()
    assert done.wait(WAIT_S)
    gate.set()
    long.result()


def test_no_more_long_compactions_run_at_once_than_there_are_threads() -> None:
    scheduler, gate, began = CompactionScheduler(1), threading.Event(), list[str]()

    def work(name: str) -> Callable[[IsCancelled], None]:
        def run(_: IsCancelled) -> None:
            began.append(name)
            assert gate.wait(WAIT_S)

        return run

    long = [scheduler.submit(name, work(name), LONG) for name in ("first", "second")]
    for _ in range(3):
        scheduler.submit("t", lambda _: None).result()
    assert began == ["first"]
    gate.set()
    for task in long:
        task.result()
    assert began == ["first", "second"]


def test_threads_end_when_idle_and_start_with_new_work() -> None:
    scheduler = CompactionScheduler(1)
    for _ in range(3):
        assert scheduler.submit("t", lambda _: threading.current_thread()).result().name.startswith("compaction")
    for thread in threading.enumerate():
        if thread.name.startswith("compaction"):
            thread.join(WAIT_S)
            assert not thread.is_alive()


@pytest.mark.parametrize("until", ["resumed", "awaited"])
def test_no_task_starts_during_a_pause(until: str) -> None:
    scheduler, begun = CompactionScheduler(1), threading.Event()
    scheduler.pause(at_most_s=3600)
    task = scheduler.submit("t", lambda _: begun.set())
    assert not begun.wait(0.05)
    if until == "resumed":
        scheduler.resume()
    else:
        task.result()
    assert begun.wait(WAIT_S)


def test_a_pause_ends_after_its_time_limit() -> None:
    scheduler, begun = CompactionScheduler(1), threading.Event()
    scheduler.pause(at_most_s=0.05)
    scheduler.submit("t", lambda _: begun.set())
    assert begun.wait(WAIT_S)


def test_running_work_continues_during_a_pause() -> None:
    scheduler, gate, running = CompactionScheduler(1), threading.Event(), threading.Event()

    def work(_: IsCancelled) -> None:
        running.set()
        assert gate.wait(WAIT_S)

    task = scheduler.submit("t", work)
    assert running.wait(WAIT_S)
    scheduler.pause(at_most_s=3600)
    gate.set()
    while not task.is_done:
        time.sleep(0.001)
    task.result()


def test_an_error_of_the_work_is_raised_by_result() -> None:
    def work(_: IsCancelled) -> None:
        raise OSError("disk full")

    task = CompactionScheduler(1).submit("t", work)
    with pytest.raises(OSError, match="disk full"):
        task.result()
    assert task.is_done


def test_a_waiting_task_is_cancelled_without_running() -> None:
    scheduler, gate, ran = CompactionScheduler(1), threading.Event(), threading.Event()
    scheduler.submit("t", gated(gate))
    waiting = scheduler.submit("t", gated(gate, ran.set))
    assert isinstance(waiting.cancel_and_wait(), CancelledError)
    gate.set()
    scheduler.submit("t", gated(gate)).result()
    assert not ran.is_set()


def test_a_running_task_is_cancelled_and_awaited() -> None:
    begun = threading.Event()

    class Stopped(Exception):
        pass

    def work(is_cancelled: IsCancelled) -> None:
        begun.set()
        while not is_cancelled():
            pass
        raise Stopped

    task = CompactionScheduler(1).submit("t", work)
    assert begun.wait(WAIT_S)
    assert isinstance(task.cancel_and_wait(), Stopped)


def test_cancelling_a_finished_task_keeps_its_result() -> None:
    task = CompactionScheduler(1).submit("t", lambda _: 7)
    assert task.result() == 7
    assert task.cancel_and_wait() is None
    assert task.result() == 7


def test_work_that_got_no_thread_is_dropped_and_later_work_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler, forgotten, later = CompactionScheduler(1), threading.Event(), threading.Event()

    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as without_threads, pytest.raises(RuntimeError, match="can't start"):
        without_threads.setattr(threading.Thread, "start", start)
        scheduler.submit("t", lambda _: forgotten.set())
    scheduler.submit("t", lambda _: later.set())
    assert later.wait(WAIT_S)
    assert not forgotten.is_set()


def test_no_two_live_threads_share_a_name() -> None:
    scheduler, meeting = CompactionScheduler(2), threading.Barrier(2)

    def meet(times: int) -> Callable[[IsCancelled], threading.Thread]:
        def work(_: IsCancelled) -> threading.Thread:
            for _time in range(times):
                meeting.wait(WAIT_S)
            return threading.current_thread()

        return work

    first, second = scheduler.submit("t", meet(1)), scheduler.submit("t", meet(2))
    first.result().join(WAIT_S)
    third = scheduler.submit("t", meet(1))
    assert second.result().name != third.result().name


def test_a_process_that_ends_does_not_wait_for_its_compactions() -> None:
    program = """
import sys
from tidelake.compaction.scheduler import shared_scheduler

def for_ever(is_cancelled):
    while not is_cancelled():
        pass
    print("stopped", flush=True)

shared_scheduler().submit("t", for_ever)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "stopped\n"


def test_a_scheduler_needs_a_thread() -> None:
    with pytest.raises(ValueError, match="threads=0: a compaction needs at least 1 thread"):
        CompactionScheduler(0)


def test_on_one_core_work_runs_when_it_is_submitted() -> None:
    def work(is_cancelled: IsCancelled) -> int:
        return -1 if any(is_cancelled() for _ in range(20)) else threading.get_ident()

    task = InlineScheduler().submit("t", work)
    assert task.is_done
    assert task.result() == threading.get_ident()

    def broken(_: IsCancelled) -> None:
        raise ValueError("no file")

    with pytest.raises(ValueError, match="no file"):
        InlineScheduler().submit("t", broken).result()


def test_the_time_that_callers_wait_for_results_is_counted() -> None:
    scheduler, gate = CompactionScheduler(1), threading.Event()
    done = scheduler.submit("t", lambda _: None)
    done.result()
    before_s = scheduler.waited_s
    done.result()
    assert scheduler.waited_s == before_s
    slow = scheduler.submit("t", gated(gate))
    opener = threading.Timer(0.05, gate.set)
    opener.start()
    slow.result()
    opener.join()
    assert scheduler.waited_s - before_s >= 0.01
