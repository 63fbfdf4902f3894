"""A lake of every seed is sound, the same seed makes the same lake, and a planted bug is seen."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.simulation.failing_seeds import FAILED_ONCE
from tests.simulation.lake import simulate
from tests.simulation.planted_bugs import PLANTED, planted

OPERATIONS = 600
REPLAYED = 20


@pytest.mark.parametrize("seed", range(1, 21))
def test_the_lake_of_a_seed_is_sound(seed: int) -> None:
    outcome = simulate(seed, OPERATIONS)
    assert outcome.finding is None, f"python -m tests.simulation --seed {seed} --operations {OPERATIONS} --trace"


@pytest.mark.parametrize(
    ("seed", "operations"), [pytest.param(s, n, id=f"{s}: {found}") for s, n, found in FAILED_ONCE]
)
def test_a_seed_that_failed_once_is_sound(seed: int, operations: int) -> None:
    assert simulate(seed, operations).finding is None


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("first", range(21, 521, 50))
def test_fifty_more_lakes_are_sound(first: int) -> None:
    findings = {seed: simulate(seed, 4 * OPERATIONS).finding for seed in range(first, first + 50)}
    assert not {seed: found for seed, found in findings.items() if found}


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_seed_makes_the_same_trace_in_another_process() -> None:
    assert _traces("1") == _traces("2")


def _traces(hash_seed: str) -> list[str]:
    """Return the last line of each seed, from a process of its own."""
    run = subprocess.run(
        [sys.executable, "-m", "tests.simulation", "--seeds", f"1-{REPLAYED}", "--operations", str(OPERATIONS)],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in run.stdout.splitlines() if line.startswith("seed ")]
    assert len(lines) == REPLAYED, run.stderr
    return lines


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found_within_200_seeds(bug: str) -> None:
    with planted(bug):
        assert any(simulate(seed, OPERATIONS).finding is not None for seed in range(1, 201))
