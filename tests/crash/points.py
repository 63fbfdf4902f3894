"""Counts at how many points something was made to go wrong; the end of a test run tells."""

from __future__ import annotations

from collections import Counter

import pytest


class Points:
    """tried("pipeline: error, before"): one more of this kind, or so many."""

    def __init__(self) -> None:
        self._tried: Counter[str] = Counter()

    def tried(self, kind: str, count: int = 1) -> None:
        self._tried[kind] += count

    def summary(self) -> list[str]:
        """A line for each kind of point, and the sum; nothing when none was tried."""
        lines = [f"{count:>6} {kind}" for kind, count in sorted(self._tried.items())]
        return [*lines, f"{self._tried.total():>6} in all"] if lines else []


ALL = Points()


@pytest.fixture
def points() -> Points:
    return ALL


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if lines := ALL.summary():
        terminalreporter.section("points at which something was made to go wrong")
        for line in lines:
            terminalreporter.line(line)
