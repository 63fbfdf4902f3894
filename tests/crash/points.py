"""Counts the calls in which a fault was injected. The end of a test run reports the counts."""

from __future__ import annotations

from collections import Counter
from typing import Final

import pytest

_OF_WORKER: Final = "points of trouble"


class Points:
    """tried("pipeline: error, before"): one more of this kind, or so many."""

    def __init__(self) -> None:
        self._tried: Counter[str] = Counter()

    def tried(self, kind: str, count: int = 1) -> None:
        self._tried[kind] += count

    @property
    def counts(self) -> dict[str, int]:
        return dict(self._tried)

    def summary(self) -> list[str]:
        """A line for each kind of point, and the sum; nothing when none was tried."""
        lines = [f"{count:>6} {kind}" for kind, count in sorted(self._tried.items())]
        return [*lines, f"{self._tried.total():>6} in all"] if lines else []


ALL = Points()


@pytest.fixture
def points() -> Points:
    return ALL


def pytest_sessionfinish(session: pytest.Session) -> None:
    output = getattr(session.config, "workeroutput", None)  # of a worker of pytest-xdist
    if output is not None:
        output[_OF_WORKER] = ALL.counts


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object) -> None:
    for kind, count in getattr(node, "workeroutput", {}).get(_OF_WORKER, {}).items():
        ALL.tried(kind, count)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if lines := ALL.summary():
        terminalreporter.section("points at which something was made to go wrong")
        for line in lines:
            terminalreporter.line(line)
