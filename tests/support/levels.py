"""Three levels of tests: what `make test`, `make test-interop` and `make test-long` run.

`@pytest.mark.interop` is for a test that takes a foreign part long; `@pytest.mark.long` for one that takes minutes.
`@pytest.mark.exhaustive` is for a test of many cases, each of them slow: its first case runs in `make test` (or with
`kept=5` five of them, spread over all), so that what it promises is always tried, and the others are marked `interop`.
A test beside a foreign part (external_services.py) needs no mark: of many cases `make test` runs two. Of a folder that
TIDELAKE_VECTORS, TIDELAKE_GOLDEN or TIDELAKE_RECORDED names, all cases run.

A test that draws its cases at random (with Hypothesis) takes a fifth of them in `make test`. It runs again in
`make test-interop`, which loads the Hypothesis profile "thorough", and draws half; and in `make test-long`, profile
"long", which draws all. Their number goes through `examples`. A test that goes through many cases in a loop (marked
`sampled`) has the same ones in each run: a fifth in `make test`, all in `make test-interop`. Their number goes through
`rounds`, a list of them through `sample`.

Of cases that take long and resemble each other `make test-interop` takes those of the day, and `make test-long` all:
`is_of_the_day`. TIDELAKE_TEST_DAY names another day than today.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from datetime import date
from random import randrange
from typing import Final, TypeVar

import pytest
from hypothesis import settings

from tests.support.external_services import parts_of

Case = TypeVar("Case")

HOOKS: Final = ("TIDELAKE_VECTORS", "TIDELAKE_GOLDEN", "TIDELAKE_RECORDED")
PERCENT_IN_QUICK_RUNS: Final = 20
PERCENT_IN_THOROUGH_RUNS: Final = 50
DAY: Final = "TIDELAKE_TEST_DAY"
CASES_WITH_A_PART: Final = 2

# Time never decides a test: no deadline.
settings.register_profile("quick", deadline=None, max_examples=PERCENT_IN_QUICK_RUNS)
settings.register_profile("thorough", deadline=None, max_examples=PERCENT_IN_THOROUGH_RUNS)
settings.register_profile("long", deadline=None, max_examples=100)
settings.load_profile("quick")


# Of the run, not of its workers: they must collect the same tests, also around midnight.
os.environ.setdefault(DAY, str(date.today().toordinal()))


def pytest_report_header() -> str:
    return f"cases of the day: {DAY}={os.environ[DAY]}"


def examples(count: int) -> int:
    """How many of `count` random cases this run draws: all in a long run, else a half or a fifth, but not less than
    three.
    """
    return _share(count, settings().max_examples)


def rounds(count: int) -> int:
    """How many of `count` cases, the same in each run, this one goes through: all, or of a quick run a fifth, but not
    less than three.
    """
    percent = settings().max_examples
    return _share(count, percent if percent == PERCENT_IN_QUICK_RUNS else 100)


def _share(count: int, percent: int) -> int:
    return min(count, max(3, count * percent // 100))


def sample(cases: Sequence[Case]) -> list[Case]:
    """The cases that this run takes, at even distances."""
    return [cases[number] for number in _spread(rounds(len(cases)), len(cases))]


def is_of_the_day(number: int, days: int) -> bool:
    """Whether case `number` is one of today. Within so many days each is. Of a folder that a hook names, all are."""
    return any(os.environ.get(hook) for hook in HOOKS) or (int(os.environ[DAY]) + number) % days == 0


def random_half(cases: Sequence[Case]) -> list[Case]:
    """Every second one, beginning with the first or the second, as drawn: for loops of minutes that a long test goes
    through in full.
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


def left_to_interop(cases: Sequence[Case], kept: int) -> list[Case]:
    """All but `kept` of them, the first one and others at even distances."""
    chosen = set(_spread(kept, len(cases)))
    return [item for number, item in enumerate(cases) if number not in chosen]


def _spread(count: int, length: int) -> list[int]:
    """The first, and others at even distances."""
    return [number * length // count for number in range(count)]


def _is_marked(item: pytest.Item, name: str) -> bool:
    return item.get_closest_marker(name) is not None
