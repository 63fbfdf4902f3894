"""Work in threads is awaited even if its caller is cancelled. CPU-bound work runs one piece at a time."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from functools import partial
from typing import Any, TypeAlias

import pytest

from tests.ingest.pipeline.fakes import Gate
from tidelake.storage.base.threads import (
    IO_THREADS_MAX,
    ReadAhead,
    ShortTaskRunner,
    map_on_cores,
    map_parallel,
    map_to_end,
    map_uncancellable,
    run_cpu_bound,
    run_side_by_side,
    run_uncancellable,
    run_with_cancel,
)

Runner: TypeAlias = Callable[..., Any]
either_way = pytest.mark.parametrize("run", [run_uncancellable, run_cpu_bound])

_ASKED_BY: ContextVar[str] = ContextVar("asked_by")


@either_way
async def test_the_result_or_error_is_passed_on(run: Runner) -> None:
    assert await run(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await run(divmod, 7, 0)


@either_way
async def test_work_runs_in_another_thread_with_the_context_of_the_caller(run: Runner) -> None:
    _ASKED_BY.set("the test")
    assert await run(lambda: (_ASKED_BY.get(), threading.current_thread() is threading.main_thread())) == (
        "the test",
        False,
    )


@pytest.mark.parametrize("items", [[], [2], [2, 3], list(range(5_003))], ids=["nothing", "one item", "several", "many"])
def test_results_come_from_other_threads_in_the_order_of_the_items(items: list[int]) -> None:
    seen = set[threading.Thread]()

    def work(item: int) -> int:
        seen.add(threading.current_thread())
        return item * item

    assert map_on_cores(work, items) == [item * item for item in items]
    assert threading.current_thread() not in seen


def test_single_items_run_in_the_same_thread_in_each_call() -> None:
    """Nearly every flush is of one bucket with few rows."""
    threads = {map_on_cores(lambda _: threading.current_thread(), [number])[0] for number in range(20)}
    assert len(threads) == 1


def test_single_items_of_several_callers_do_not_wait_for_each_other_and_leave_one_thread() -> None:
    """A flush may wait for a compaction of its table while other tables flush."""
    before, gate = threading.active_count(), Gate()

    def wait_at_gate(item: int) -> int:
        gate()
        return item

    map_on_cores(abs, [0])
    with ThreadPoolExecutor(2) as callers:
        waiting = callers.submit(map_on_cores, wait_at_gate, [1])
        assert callers.submit(map_on_cores, lambda item: -item, [2]).result() == [-2]
        gate.open()
        assert waiting.result() == [1]
    assert threading.active_count() <= before + 1


@pytest.mark.parametrize(("count", "at_once"), [(0, 3), (1, 3), (3, 3), (1_000, 3), (5, 1)])
def test_items_are_processed_by_the_requested_number_of_threads(count: int, at_once: int) -> None:
    running, most, lock = 0, 0, threading.Lock()

    def work(item: int) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0)
        with lock:
            running -= 1
        return item * item

    assert map_to_end(work, range(count), at_once) == [item * item for item in range(count)]
    assert most <= at_once


def test_after_an_error_no_other_item_starts() -> None:
    begun = list[int]()

    def work(item: int) -> None:
        begun.append(item)
        raise IndexError("of the work, not of the queue")

    with pytest.raises(IndexError, match="of the work"):
        map_to_end(work, range(10), 1)
    assert begun == [0]


@pytest.mark.parametrize("run_all", [map_on_cores, map_to_end])
def test_the_error_of_one_item_is_raised_when_all_running_items_ended(
    run_all: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    begun, failing, ended = Gate(), Gate(), list[str]()

    def work(item: str) -> None:
        if item == "bad":
            begun()
            failing.open()
            raise OSError("disk full")
        begun.open()
        failing()
        ended.append(item)

    with pytest.raises(OSError, match="disk full"):
        run_all(work, ["bad", "good"])
    assert ended == ["good"]


async def test_results_are_in_the_order_of_the_items() -> None:
    gate = Gate()

    def work(item: int) -> int:
        (gate if item == 0 else gate.open)()
        return item * item

    assert await map_uncancellable(work, range(5), at_once=2) == [0, 1, 4, 9, 16]
    assert await map_uncancellable(work, [], at_once=2) == []


async def test_after_an_error_nothing_starts_and_nothing_keeps_running() -> None:
    gate, begun, ended = Gate(), list[str](), list[str]()

    def work(item: str) -> None:
        begun.append(item)
        if item == "bad":
            raise OSError("disk full")
        gate()
        ended.append(item)

    running = asyncio.create_task(map_uncancellable(work, ["slow", "bad", "never"], at_once=2))
    await gate.reached()
    await asyncio.wait({running}, timeout=0.05)
    assert not running.done()
    gate.open()
    with pytest.raises(OSError, match="disk full"):
        await running
    assert (sorted(begun), ended) == (["bad", "slow"], ["slow"])


@pytest.mark.parametrize(
    ("bad", "is_cancelled", "raised"),
    [
        pytest.param(["a"], False, OSError, id="an error"),
        pytest.param(["a", "c"], False, ExceptionGroup, id="several errors"),
        pytest.param([], True, asyncio.CancelledError, id="a cancellation"),
    ],
)
async def test_pending_items_run_despite_an_error_if_requested(
    bad: list[str], is_cancelled: bool, raised: type[BaseException]
) -> None:
    gate, reported = Gate(), list[tuple[str, str]]()

    def work(item: str) -> str:
        if item == "b":
            gate()
        if item in bad:
            raise OSError("disk full")
        return item.upper()

    def report(item: str, outcome: str) -> None:
        reported.append((item, outcome))

    running = asyncio.create_task(map_uncancellable(work, "abcd", 1, report, keep_going=True))
    await gate.reached()
    if is_cancelled:
        running.cancel()
    gate.open()
    with pytest.raises(raised):
        await running
    assert reported == [(item, item.upper()) for item in "abcd" if item not in bad]


async def test_cpu_bound_work_runs_in_one_thread_in_request_order() -> None:
    gate, done = Gate(), list[str]()
    first = asyncio.create_task(run_cpu_bound(gate))
    await gate.reached()
    others = [asyncio.create_task(run_cpu_bound(done.append, name)) for name in "abc"]
    await asyncio.gather(
        *(run_uncancellable(lambda: None) for _ in range(8))
    )  # callers that wait elsewhere are not delayed
    assert done == []
    gate.open()
    await asyncio.gather(first, *others)
    assert done == ["a", "b", "c"]


_FORKS = """
import asyncio, os
from tidelake.storage.base.threads import run_cpu_bound

asyncio.run(run_cpu_bound(int))
child = os.fork()
if child:
    os.waitpid(child, 0)
print("done in the", "parent" if child else "child", asyncio.run(run_cpu_bound(int)))
"""


def test_a_forked_process_has_its_own_thread() -> None:
    command = [sys.executable, "-c", _FORKS]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert result.splitlines() == ["done in the child 0", "done in the parent 0"]


@either_way
@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("outcome", ["a result", "an error"])
async def test_a_cancelled_wait_ends_with_the_work(run: Runner, times: int, outcome: str) -> None:
    gate = Gate()

    def work() -> None:
        gate()
        if outcome == "an error":
            raise OSError("disk full")

    waiting = asyncio.create_task(run(work))
    await gate.reached()
    for _ in range(times):
        waiting.cancel()
        for _ in range(10):
            await asyncio.sleep(0)
    assert not waiting.done()
    gate.open()
    with pytest.raises(asyncio.CancelledError):
        await waiting


@either_way
def test_a_closing_event_loop_waits_for_work_before_cleanup(run: Runner) -> None:
    gate, events = Gate(), list[str]()

    def work() -> None:
        gate()
        events.append("work has ended")

    async def concurrent() -> None:
        try:
            await run(work)
        finally:
            events.append("cleans up")

    async def main() -> None:
        tasks.append(asyncio.create_task(concurrent()))
        await gate.reached()
        asyncio.get_running_loop().call_later(0.05, gate.open)

    tasks: list[asyncio.Task[None]] = []
    asyncio.run(main())
    assert events == ["work has ended", "cleans up"]


async def test_a_cancelled_waiter_hurries_work_that_supports_it() -> None:
    gate, events = Gate(), list[str]()

    def work() -> None:
        gate()
        events.append("work has ended")

    waiting = asyncio.create_task(run_with_cancel(gate.open, work))
    await gate.reached()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert events == ["work has ended"]


def _busy(milliseconds: float) -> bool:
    """Whether it ran where the event loop runs."""
    end = time.thread_time() + milliseconds / 1000
    while time.thread_time() < end:
        pass
    return threading.current_thread() is threading.main_thread()


async def test_short_work_runs_in_the_event_loop_while_it_stays_short() -> None:
    """The duration of the first call is unknown. Later calls are long or short by the duration of the last one."""
    short_work = ShortTaskRunner(short_ms=500)
    assert [await short_work(_busy, ms) for ms in (0, 0, 600, 0, 0)] == [False, True, True, False, True]


async def test_durations_are_measured_per_function_across_objects() -> None:
    class Batch:
        def where(self) -> bool:
            return _busy(0)

    short_work = ShortTaskRunner(short_ms=500)
    assert [await short_work(Batch().where) for _ in range(2)] == [False, True]
    assert [await short_work(_busy, 600) for _ in range(2)] == [False, False]
    assert await short_work(Batch().where)


async def test_short_work_yields_to_the_loop_and_raises_its_errors() -> None:
    short_work, turns = ShortTaskRunner(short_ms=500), list[str]()
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            await short_work(divmod, 7, 0)
        assert await short_work(divmod, 7, 2) == (3, 1)
    asyncio.get_running_loop().call_soon(turns.append, "another")
    await short_work(divmod, 7, 2)
    assert turns == ["another"]


# ---------------------------------------------------------------- side by side


def test_tasks_side_by_side_wait_at_the_same_time_and_return_results_in_order() -> None:
    meeting = threading.Barrier(3, timeout=10)
    tasks = [partial(lambda number: (meeting.wait(), number)[1], number) for number in range(3)]
    assert run_side_by_side(*tasks) == [0, 1, 2]
    assert run_side_by_side() == []


def test_tasks_that_start_tasks_never_wait_for_a_free_thread() -> None:
    def nested(depth: int) -> int:
        return 1 if depth == 0 else sum(run_side_by_side(*[partial(nested, depth - 1)] * 5))

    assert run_side_by_side(*[partial(nested, 3)] * (2 * IO_THREADS_MAX)) == [125] * (2 * IO_THREADS_MAX)


def test_the_first_error_is_raised_when_no_task_is_running_any_more() -> None:
    ended: list[int] = []

    def fail(number: int) -> None:
        time.sleep(0.01 * (3 - number))
        ended.append(number)
        raise OSError(f"task {number}")

    with pytest.raises(OSError, match="task 0"):
        run_side_by_side(*[partial(fail, number) for number in range(3)])
    assert sorted(ended) == [0, 1, 2]


# ---------------------------------------------------------------- reading ahead


def test_items_read_ahead_are_the_same_and_the_next_one_is_computed_meanwhile() -> None:
    computed: list[int] = []
    reached = [threading.Event() for _ in range(4)]

    def items() -> Iterator[int]:
        for number in range(4):
            computed.append(number)
            reached[number].set()
            yield number

    with ReadAhead(items()) as ahead:
        for number in range(4):
            assert next(ahead) == number
            assert reached[min(number + 1, 3)].wait(10)
        assert list(ahead) == []
    assert computed == list(range(4))


def test_several_readers_begin_side_by_side() -> None:
    meeting = threading.Barrier(3, timeout=10)

    def items() -> Iterator[int]:
        meeting.wait()
        yield 7

    with ReadAhead(items()) as one, ReadAhead(items()) as two, ReadAhead(items()) as three:
        assert [next(one), next(two), next(three)] == [7, 7, 7]


def test_an_error_of_an_item_read_ahead_comes_in_its_place() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise OSError("torn")

    with ReadAhead(items()) as ahead:
        assert next(ahead) == 1
        with pytest.raises(OSError, match="torn"):
            next(ahead)


def test_after_reading_ahead_ends_early_nothing_runs_and_the_items_are_closed() -> None:
    running, ended = threading.Event(), threading.Event()

    def items() -> Iterator[int]:
        try:
            yield 1
            running.set()
            time.sleep(0.05)
            yield 2
        finally:
            ended.set()

    with ReadAhead(items()) as ahead:
        assert next(ahead) == 1
        assert running.wait(10)
    assert ended.is_set()


@pytest.mark.parametrize("run_all", [map_parallel, map_to_end], ids=["map_parallel", "map_to_end"])
def test_items_that_map_items_never_wait_for_a_free_thread(run_all: Callable[..., Iterable[int]]) -> None:
    """As many as there are threads each wait for items of their own."""

    def nested(depth: int) -> int:
        return 1 if depth == 0 else sum(run_all(nested, [depth - 1] * 3))

    assert list(run_all(nested, [2] * (2 * IO_THREADS_MAX))) == [9] * (2 * IO_THREADS_MAX)


def test_an_error_of_parallel_items_is_raised_in_its_place() -> None:
    def work(item: int) -> int:
        if item == 2:
            raise OSError(f"item {item}")
        return item

    results = map_parallel(work, range(100))
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(OSError, match="item 2"):
        next(results)
