"""The points that were tried, told at the end of the run."""

from __future__ import annotations

import pytest

from tests.crash.points import ALL, points

__all__ = ["points"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if lines := ALL.summary():
        terminalreporter.section("points at which something was made to go wrong")
        for line in lines:
            terminalreporter.line(line)
