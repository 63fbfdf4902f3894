"""Measures the CPU time of this process and its descendants: Spark is a JVM with Python workers."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from pathlib import Path
from typing import Final, Self

_TICKS: Final = os.sysconf("SC_CLK_TCK")


def tree_cpu_s() -> float:
    """Return the CPU time of the running processes, and of ended children that they have waited for. Needs /proc."""
    children: dict[int, list[int]] = defaultdict(list)
    ticks: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # the process has ended
            continue
        number = int(path.parent.name)
        children[int(fields[1])].append(number)
        ticks[number] = sum(map(int, fields[11:15]))  # user and system time, of the process and its children
    total, left = 0, [os.getpid()]
    while left:
        number = left.pop()
        total += ticks.get(number, 0)
        left += children[number]
    return total / _TICKS


class TreeClock:
    """Measures its last `with` block."""

    wall_s = 0.0
    cpu_s = 0.0

    def __enter__(self) -> Self:
        self._began = time.perf_counter(), tree_cpu_s()
        return self

    def __exit__(self, *_: object) -> None:
        self.wall_s, self.cpu_s = time.perf_counter() - self._began[0], tree_cpu_s() - self._began[1]
