"""Measures how long the test modules took.

The end of a run shows the longest modules. pytest's cache has all of them (`.pytest_cache/v/tidelake/seconds`). A run
takes as long as its last worker, and one worker runs a whole module. So the summary shows when each worker ended.
"""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Final

import pytest

SHOWN: Final = 10


class Durations:
    """The durations of a run.

    seconds: the time of setup, call and teardown, by module.
    ended_s: by worker, the time from the start of the run to the end of the worker's last test.
    """

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.ended_s: dict[str, float] = {}
        self._began_s = time.time()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid.partition("::")[0]] += report.duration
        node = getattr(report, "node", None)
        self.ended_s["this process" if node is None else node.gateway.id] = report.stop - self._began_s

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
        if len(self.seconds) <= SHOWN:
            return
        longest = sorted(self.seconds.items(), key=lambda item: -item[1])
        if (cache := getattr(config, "cache", None)) is not None:  # `-p no:cacheprovider` switches it off
            cache.set("tidelake/seconds", {name: round(seconds, 1) for name, seconds in longest})
        terminalreporter.section("longest modules")
        for name, seconds in longest[:SHOWN]:
            terminalreporter.write_line(f"{seconds:7.0f} s  {name}")
        ended = ", ".join(f"{worker} after {seconds:.0f} s" for worker, seconds in sorted(self.ended_s.items()))
        terminalreporter.write_line(f"last tests ended: {ended}")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # the controller gets the reports of all workers
        config.pluginmanager.register(Durations(), "tidelake-durations")
