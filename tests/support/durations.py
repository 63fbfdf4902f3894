"""The durations of test modules: the longest are shown at the end of a run, and all are stored in pytest's cache
(`.pytest_cache/v/tidelake/seconds`).

A run takes as long as the worker that ends last, and one worker runs a whole module: the summary says when each ended.
"""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Final

import pytest

SHOWN: Final = 10


class Durations:
    """seconds: of setup, call and teardown, by module.
    ended_s: when a worker's last test ended, after the run began.
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
        if (cache := getattr(config, "cache", None)) is not None:  # `-p no:cacheprovider` leaves it out
            cache.set("tidelake/seconds", {name: round(seconds, 1) for name, seconds in longest})
        terminalreporter.section("longest modules")
        for name, seconds in longest[:SHOWN]:
            terminalreporter.write_line(f"{seconds:7.0f} s  {name}")
        ended = ", ".join(f"{worker} after {seconds:.0f} s" for worker, seconds in sorted(self.ended_s.items()))
        terminalreporter.write_line(f"last tests ended: {ended}")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # the process that hands tests out sees all reports
        config.pluginmanager.register(Durations(), "tidelake-durations")
