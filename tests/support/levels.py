"""Three levels of tests: what `make test`, `make test-interop` and `make test-long` run.

`@pytest.mark.interop` is for a test that takes a foreign part long; `@pytest.mark.long` for one that takes minutes.
`@pytest.mark.exhaustive` is for a test of many cases, each of them slow: its first case runs in `make test`, so that
what it promises is always tried, and the others are marked `interop`. Of a folder that TIDELAKE_VECTORS,
TIDELAKE_GOLDEN or TIDELAKE_RECORDED names, all cases run.
"""

from __future__ import annotations

import os
from typing import Final

import pytest

HOOKS: Final = ("TIDELAKE_VECTORS", "TIDELAKE_GOLDEN", "TIDELAKE_RECORDED")


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
