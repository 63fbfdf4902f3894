"""Three levels of tests: what `make test`, `make test-interop` and `make test-long` run.

`@pytest.mark.interop` is for a test that takes a foreign part long; `@pytest.mark.long` for one that takes minutes.
`@pytest.mark.exhaustive` is for a test of many cases, each of them slow: its first case runs in `make test`, so that
what it promises is always tried, and the others are marked `interop`. Of a folder that TIDELAKE_VECTORS,
TIDELAKE_GOLDEN or TIDELAKE_RECORDED names, all cases run.

A test that draws its cases at random (with Hypothesis, or marked `drawn`) draws few in `make test`. It is drawn anew
in `make test-interop`, which loads the Hypothesis profile "thorough" and draws all. Numbers go through `examples`.
"""

from __future__ import annotations

import os
from typing import Final

import pytest
from hypothesis import settings

HOOKS: Final = ("TIDELAKE_VECTORS", "TIDELAKE_GOLDEN", "TIDELAKE_RECORDED")
PERCENT_IN_QUICK_RUNS: Final = 20

# Time never decides a test: no deadline.
settings.register_profile("quick", deadline=None, max_examples=PERCENT_IN_QUICK_RUNS)
settings.register_profile("thorough", deadline=None, max_examples=100)
settings.load_profile("quick")


def examples(count: int) -> int:
    """How many of `count` random cases this run draws: all in a thorough run, else a fifth, but not less than three."""
    percent = settings().max_examples
    return min(count, max(3, count * percent // 100))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if any(os.environ.get(hook) for hook in HOOKS):
        return
    tried: set[tuple[object, str]] = set()
    for item in items:
        if item.get_closest_marker("exhaustive") is None or item.get_closest_marker("long") is not None:
            continue
        test = (item.path, getattr(item, "originalname", item.name))
        if test in tried:
            item.add_marker(pytest.mark.interop)
        tried.add(test)
