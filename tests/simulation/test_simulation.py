"""A lake of every seed is sound, the same seed makes the same lake, and a planted bug is seen."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest

from tests.simulation.environment import installed
from tests.simulation.failing_seeds import FAILED_ONCE
from tests.simulation.lake import simulate
from tests.simulation.planted_bugs import NOT_YET_SEEN, PLANTED, planted
from tests.simulation.scheduler import Scheduler
from tests.simulation.shrinker import shrunk
from tidelake.storage.base import env

OPERATIONS = 600
PLANTED_OPERATIONS = 1_000


@pytest.mark.parametrize("seed", range(1, 21))
def test_the_lake_of_a_seed_is_sound(seed: int) -> None:
    outcome = simulate(seed, OPERATIONS)
    assert outcome.finding is None, f"python -m tests.simulation --seed {seed} --operations {OPERATIONS} --trace"


@pytest.mark.exhaustive(kept=3)
@pytest.mark.parametrize(("seed", "operations"), [pytest.param(s, n, id=found) for s, n, found in FAILED_ONCE])
def test_a_seed_that_failed_once_is_sound(seed: int, operations: int) -> None:
    assert simulate(seed, operations).finding is None


def test_an_audit_sees_a_wrong_position_at_once() -> None:
    with planted("a position one behind"):
        finding = simulate(2, OPERATIONS).finding
    assert finding is not None
    assert finding.startswith("shop.orders, snapshot ")
    assert "its rows differ" in finding


@pytest.mark.parametrize(
    ("seeds", "operations"),
    [
        pytest.param(2, 200, id="two seeds"),
        pytest.param(20, OPERATIONS, marks=[pytest.mark.long, pytest.mark.timeout(1800)], id="twenty seeds"),
    ],
)
def test_a_seed_makes_the_same_trace_in_another_process(seeds: int, operations: int) -> None:
    assert _traces("1", range(1, seeds + 1), operations) == _traces("2", range(1, seeds + 1), operations)


@pytest.mark.interop
def test_a_seed_makes_the_same_trace_alone_and_after_another() -> None:
    """What the product has once in a process must not know of an earlier lake. Both spill rows."""
    assert _traces("1", range(15, 16), 1_000) == _traces("1", range(14, 16), 1_000)[1:]


def test_a_thread_of_the_product_that_an_earlier_test_left_keeps_the_real_clock() -> None:
    """As the heartbeat of a spill folder does: it would take part in a simulation that it does not belong to."""
    begin, times_s, failures = threading.Event(), list[float](), list[BaseException]()

    def left_behind() -> None:
        begin.wait()
        try:
            env.sleep(0.001)
            times_s.append(env.wall_s())
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=left_behind)
    thread.start()
    before_s = time.time()
    scheduler = Scheduler(seed=1)
    with installed(scheduler):
        begin.set()
        thread.join()
    assert not failures
    assert before_s <= times_s[0] <= time.time()


def _traces(hash_seed: str, seeds: range, operations: int) -> list[str]:
    """Return the lines of the seeds, from a process of its own."""
    command = [sys.executable, "-m", "tests.simulation", "--seeds", f"{seeds[0]}-{seeds[-1]}"]
    run = subprocess.run(
        [*command, "--operations", str(operations)],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in run.stdout.splitlines() if line.startswith("seed ")]
    assert len(lines) == len(seeds), run.stderr
    return lines


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("first", range(21, 521, 50))
def test_fifty_more_lakes_are_sound(first: int) -> None:
    findings = {seed: simulate(seed, 4 * OPERATIONS).finding for seed in range(first, first + 50)}
    assert not {seed: found for seed, found in findings.items() if found}


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("bug", sorted(PLANTED.keys() - NOT_YET_SEEN))
def test_a_planted_bug_is_found_within_200_seeds(bug: str) -> None:
    """Found means: the seed is sound without the bug."""
    assert any(_is_found(bug, seed) for seed in range(1, 201))


def _is_found(bug: str, seed: int) -> bool:
    with planted(bug):
        finding = simulate(seed, PLANTED_OPERATIONS).finding
    return finding is not None and simulate(seed, PLANTED_OPERATIONS).finding is None


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_failure_shrinks_to_fewer_operations_and_actors() -> None:
    with planted("a position one behind"):
        whole = simulate(2, 2 * OPERATIONS)
        smaller = shrunk(2, 2 * OPERATIONS)
    assert smaller.outcome.finding is not None
    assert smaller.operations < whole.operations or smaller.off
    assert smaller.command("a position one behind").startswith("python -m tests.simulation --seed 2 --operations ")
