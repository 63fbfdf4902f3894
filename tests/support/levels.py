"""Three levels of tests: what `make test`, `make test-interop` and `make test-long` run.

Marks
    interop       A slow test with an external service.
    long          A test that takes minutes.
    exhaustive    A test of many slow cases. `make test` runs its first case (with `kept=5` five cases, spread over
                  all), so that each run checks the behaviour. The others are marked `interop`.
    sampled       A test with a loop over many cases.
A test with an external service (external_services.py) needs no mark: `make test` runs one of its cases. All cases run
if their folder is named by TIDELAKE_VECTORS, TIDELAKE_GOLDEN or TIDELAKE_RECORDED.

Random cases (Hypothesis): `make test` draws a fifth of them, `make test-interop` half (Hypothesis profile "thorough"),
`make test-long` all (profile "long"). Pass their number to `examples`.

Loops over cases: they have the same cases in each run, a fifth in `make test` and all in `make test-interop`. Pass
their number to `rounds`, or a list of them to `sample`.

`make test-interop DAYS=7` runs a seventh of its cases, others each day: each case runs once within a week. Cases that
take long even so are marked one by one with the help of `is_of_the_day`; the others are `long`. TIDELAKE_TEST_DAY sets
another day than today.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from datetime import date
from random import randrange
from typing import Final, TypeVar
from zlib import crc32

import pytest
from hypothesis import Phase, settings

from tests.support.external_services import parts_of

Case = TypeVar("Case")

HOOKS: Final = ("TIDELAKE_VECTORS", "TIDELAKE_GOLDEN", "TIDELAKE_RECORDED")
PERCENT_IN_QUICK_RUNS: Final = 20
PERCENT_IN_THOROUGH_RUNS: Final = 50
DAY: Final = "TIDELAKE_TEST_DAY"
DAYS: Final = "TIDELAKE_TEST_DAYS"
CASES_WITH_A_PART: Final = 1

# No deadline, because no test result may depend on time.
settings.register_profile("quick", deadline=None, max_examples=PERCENT_IN_QUICK_RUNS)
settings.register_profile("thorough", deadline=None, max_examples=PERCENT_IN_THOROUGH_RUNS)
settings.register_profile("long", deadline=None, max_examples=100)
settings.load_profile("quick")


# The day of the run, not of its workers: they must collect the same tests, also around midnight.
os.environ.setdefault(DAY, str(date.today().toordinal()))


def stop_at_first_failure() -> None:
    """For tests that are run against a mistake made on purpose: one failing example is enough, however large it is, and
    later runs must not repeat it. The examples are the same in each run.
    """
    phases = [Phase.explicit, Phase.generate]
    settings.register_profile("first failure", settings(), phases=phases, database=None, derandomize=True)
    settings.load_profile("first failure")


def pytest_report_header() -> str:
    return f"cases of the day: {DAY}={os.environ[DAY]} {DAYS}={_share_of_days()}"


def examples(count: int) -> int:
    """Returns how many of `count` random cases this run draws.

    These are all in a long run, otherwise a half or a fifth, but at least three.
    """
    return _share(count, settings().max_examples)


def rounds(count: int) -> int:
    """Returns how many of `count` cases a loop of this run includes: all, or a fifth in a quick run, at least three."""
    percent = settings().max_examples
    return _share(count, percent if percent == PERCENT_IN_QUICK_RUNS else 100)


def _share(count: int, percent: int) -> int:
    return min(count, max(3, count * percent // 100))


def sample(cases: Sequence[Case]) -> list[Case]:
    """Returns the cases of this run, at even distances."""
    return [cases[number] for number in _spread(rounds(len(cases)), len(cases))]


def is_of_the_day(number: int, days: int) -> bool:
    """Returns whether case `number` runs today. Each case runs once within `days` days.

    All cases run if their folder is named by a hook. `make test-interop DAYS=…` chooses among all cases, too.
    """
    return _share_of_days() > 1 or _is_today(number, days)


def _is_today(number: int, days: int) -> bool:
    return any(os.environ.get(hook) for hook in HOOKS) or (int(os.environ[DAY]) + number) % days == 0


def _share_of_days() -> int:
    return int(os.environ.get(DAYS) or 1)


def random_half(cases: Sequence[Case]) -> list[Case]:
    """Returns every second case, beginning with the first or the second at random.

    For loops that take minutes. A long test includes all cases.
    """
    return list(cases[randrange(2) :: 2])


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if any(os.environ.get(hook) for hook in HOOKS):
        return
    tests: defaultdict[tuple[object, str, bool], list[pytest.Item]] = defaultdict(list)
    for item in items:
        if not _is_marked(item, "interop") and not _is_marked(item, "long"):
            tests[item.path, item.nodeid.partition("[")[0], bool(parts_of(item))].append(item)
    for cases in tests.values():
        if (mark := cases[0].get_closest_marker("exhaustive")) is not None:
            kept = mark.kwargs.get("kept", 1)
        elif parts_of(cases[0]):
            kept = CASES_WITH_A_PART
        else:
            continue
        for item in left_to_interop(cases, kept):
            item.add_marker(pytest.mark.interop)
    if (days := _share_of_days()) > 1:
        leave_to_other_days(items, days)


def leave_to_other_days(items: list[pytest.Item], days: int) -> None:
    """Mark the cases of other days as long. The name of a test decides on which day its first case runs."""
    numbers: defaultdict[str, int] = defaultdict(int)
    for item in items:
        test = item.nodeid.partition("[")[0]
        if not _is_today(crc32(test.encode()) + numbers[test], days):
            item.add_marker(pytest.mark.long)
        numbers[test] += 1


def left_to_interop(cases: Sequence[Case], kept: int) -> list[Case]:
    """Returns all cases but `kept` of them: the first one and others at even distances."""
    chosen = set(_spread(kept, len(cases)))
    return [item for number, item in enumerate(cases) if number not in chosen]


def _spread(count: int, length: int) -> list[int]:
    """Returns `count` indexes: the first, and others at even distances."""
    return [number * length // count for number in range(count)]


def _is_marked(item: pytest.Item, name: str) -> bool:
    return item.get_closest_marker(name) is not None
