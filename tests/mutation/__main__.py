"""Runs the tests of each module that decides against mutants of it: `python -m tests.mutation [part of a path …]`.

It lists the mutants that survive, and those that `equivalent.txt` explains but that don't exist or don't survive. Each
is a failure.

Why not mutmut or cosmic-ray: mutmut 3 copies the tree to a folder and names a module by its path there; our packages
are imported under `tidelake` through links, so it would mutate a module that no test imports. cosmic-ray changes the
file in place and starts a command for each mutant. Starting pytest with our dependencies costs 5 CPU-seconds, the tests
of a picker a tenth of that. Here one process collects the tests once, and a fork of it runs them with the code of one
function exchanged.

It can't exchange what runs when a module is imported, other than tables of constants: defaults of parameters and
fields, decorators, and enums.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Final

import pytest
from _pytest.runner import runtestprotocol

from tests.mutation.mutants import Mutant, mutants_of

ROOT: Final = Path(__file__).parents[2]
EQUIVALENT: Final = Path(__file__).with_name("equivalent.txt")
WORKERS: Final = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
DECIDERS: Final = {
    "compaction/merge_tree/universal_compaction.py": (
        "tests/compaction/merge_tree/test_universal_compaction.py",
        "tests/compaction/merge_tree/test_rewrite_plan.py",
    ),
    "compaction/append/picker.py": ("tests/compaction/append/test_picker.py",),
    "storage/merge/sections.py": ("tests/storage/merge/test_sections.py",),
    "storage/commit/conflicts.py": ("tests/storage/commit/test_conflicts.py",),
    "storage/commit/conflict_check.py": (
        "tests/storage/commit/test_conflict_check.py",
        "tests/storage/commit/test_table_commit.py",
        "tests/storage/commit/test_index_commits.py",
    ),
    "storage/commit/concurrent_writes.py": ("tests/storage/commit/test_concurrent_writes.py",),
    "storage/commit/compaction_commit.py": (
        "tests/storage/commit/test_compaction_commit.py",
        "tests/storage/commit/test_table_commit.py",
    ),
    "storage/commit/tombstones.py": ("tests/storage/commit/test_compaction_commit.py",),
    "checkpoint/states.py": ("tests/checkpoint/test_states.py",),
    "checkpoint/recovery.py": ("tests/checkpoint/test_recovery.py",),
    "checkpoint/recovery_options.py": ("tests/checkpoint/test_recovery_options.py",),
    "storage/read/skipping/file_index_predicate.py": ("tests/storage/read/test_file_index_predicate.py",),
}
"""For each module the tests that must notice."""

PASSED: Final = 0
FAILED: Final = 1


def main(parts: Sequence[str]) -> int:
    explained = read_explained(EQUIVALENT.read_text(encoding="utf-8"))
    chosen = {path: tests for path, tests in DECIDERS.items() if not parts or any(part in path for part in parts)}
    failed = []
    for path, tests in chosen.items():
        sys.stdout.flush()
        if (process := os.fork()) == 0:  # what one round imports and changes must not reach the next one
            os._exit(_in_child(partial(_round, path, tests, explained.get(path, {}))))
        if os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) != PASSED:
            failed.append(path)
    print(f"{len(chosen)} modules; with mutants to explain or to kill: {', '.join(failed) or 'none'}")
    return 1 if failed else 0


def _round(path: str, tests: Sequence[str], explained: dict[str, str]) -> int:
    this_round = _Round(path, explained)
    code = pytest.main(["-n", "0", "-q", "-s", "-p", "no:cacheprovider", "--tb=no", *tests], plugins=[this_round])
    return FAILED if this_round.failed or code != pytest.ExitCode.OK else PASSED


def read_explained(text: str) -> dict[str, dict[str, str]]:
    """Returns the reason for each mutant of each module. See the head of the file."""
    explained: dict[str, dict[str, str]] = {}
    mutants: dict[str, str] = {}
    mutant = ""
    for line in text.splitlines():
        if line.startswith("#") or not line.strip():
            continue
        if not line.startswith(" "):
            mutants = explained.setdefault(line.strip(), {})
        elif not line.startswith("     "):
            mutant = line.strip()
            mutants[mutant] = ""
        else:
            mutants[mutant] = f"{mutants[mutant]} {line.strip()}".strip()
    return explained


@dataclass
class _Round:
    """A plugin of pytest that runs the collected tests once for each mutant of a module, instead of once.

    failed: whether a survivor is not explained, or an explained mutant is no survivor.
    """

    path: str
    explained: dict[str, str]
    failed: bool = True

    def pytest_configure(self) -> None:
        from tests.support.levels import stop_at_first_failure  # noqa: PLC0415  # pytest must import Hypothesis

        stop_at_first_failure()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        began = time.monotonic()
        module = importlib.import_module("tidelake." + self.path.removesuffix(".py").replace("/", "."))
        (unchanged,) = _outcomes([lambda: _run_tests(session.items)], timeout_s=600)
        if unchanged != PASSED:
            raise RuntimeError(f"the tests of {self.path} fail without a mutant")
        timeout_s = 20 + 5 * (time.monotonic() - began)
        mutants = list(mutants_of((ROOT / self.path).read_text(encoding="utf-8"), str(ROOT / self.path)))
        outcomes = _outcomes([_Run(module, mutant, session.items) for mutant in mutants], timeout_s)
        survivors = [mutant for mutant, outcome in zip(mutants, outcomes, strict=True) if outcome == PASSED]
        self._report(mutants, survivors, time.monotonic() - began)
        return True

    def _report(self, mutants: Sequence[Mutant], survivors: Sequence[Mutant], seconds: float) -> None:
        unknown = [mutant for mutant in survivors if not self.explained.get(str(mutant))]
        stale = self.explained.keys() - {str(mutant) for mutant in survivors}
        known = len(survivors) - len(unknown)
        print(f"\n{self.path}: {len(mutants)} mutants, {len(survivors)} survive, {known} explained, {seconds:.0f} s")
        for mutant in unknown:
            print(f"  line {mutant.line}, survives: {mutant}")
        for text in sorted(stale):
            print(f"  explained, but it does not exist or does not survive: {text}")
        self.failed = bool(unknown or stale)


@dataclass
class _Run:
    """Runs the tests with a mutant, in a process that ends afterwards."""

    module: ModuleType
    mutant: Mutant
    tests: Sequence[pytest.Item]

    def __call__(self) -> int:
        if self.mutant.is_function:
            _function(self.module, self.mutant.place).__code__ = self.mutant.code
        else:
            _exchange(getattr(self.module, self.mutant.place), eval(self.mutant.code, self.module.__dict__))
        return _run_tests(self.tests)


def _function(module: ModuleType, place: str) -> FunctionType:
    *classes, name = place.split(".")
    owner: Any = module
    for one in classes:
        owner = vars(owner)[one]
    found = vars(owner)[name]
    match found:
        case property(fget=function) if function is not None:
            found = function
        case cached_property(func=function):
            found = function
        case staticmethod() | classmethod():
            found = found.__func__
    found = getattr(found, "__wrapped__", found)
    assert isinstance(found, FunctionType), f"{place} is no function"
    return found


def _exchange(old: object, new: object) -> None:
    """Puts a table in the place of another one, wherever a module names it."""
    for module in list(sys.modules.values()):
        for name, value in list(getattr(module, "__dict__", {}).items()):
            if value is old:
                setattr(module, name, new)


# ---------------------------------------------------------------- processes


def _outcomes(runs: Sequence[Callable[[], int]], timeout_s: float) -> list[int]:
    """Calls each in a process of its own, as many at once as there are processors.

    timeout_s: a process that takes longer is killed: a mutant may loop for ever. This is a failure.
    """
    outcomes = [FAILED] * len(runs)
    waiting = list(enumerate(runs))[::-1]
    running: dict[int, tuple[int, float]] = {}
    while waiting or running:
        while waiting and len(running) < WORKERS:
            number, run = waiting.pop()
            sys.stdout.flush()
            if (process := os.fork()) == 0:
                os._exit(_in_child(run))
            running[process] = number, time.monotonic() + timeout_s
        process, status = os.waitpid(-1, os.WNOHANG)
        if process in running:
            outcomes[running.pop(process)[0]] = os.waitstatus_to_exitcode(status)
            continue
        for late in [one for one, (_, deadline) in running.items() if time.monotonic() > deadline]:
            os.kill(late, signal.SIGKILL)
        time.sleep(0.005)
    return outcomes


def _in_child(run: Callable[[], int]) -> int:
    try:
        return run()
    except BaseException:
        traceback.print_exc()
        return 2
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def _run_tests(tests: Sequence[pytest.Item]) -> int:
    """Runs tests up to the first one that fails."""
    for test in tests:
        if any(report.failed for report in runtestprotocol(test, log=False, nextitem=None)):
            return FAILED
    return PASSED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
