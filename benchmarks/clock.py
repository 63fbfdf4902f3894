"""Measures the costs of a job, inside the job's process. Uses only the standard library, because peers import it.

CPU time is user and system time of the whole process with all its threads. It is comparable even if other processes use
the machine.
"""

from __future__ import annotations

import json
import resource
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self


@dataclass
class Clock:
    """Adds up the time spent in its `with` blocks."""

    wall_s: float = 0.0
    cpu_s: float = 0.0

    def __enter__(self) -> Self:
        self._began = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.wall_s += time.perf_counter() - self._began[0]
        self.cpu_s += time.process_time() - self._began[1]


def peak_memory_mib() -> float:
    """Return the peak memory of this process.

    Reads /proc if it exists, because `ru_maxrss` of a new process starts with its parent's memory.
    """
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except FileNotFoundError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


def tell(rows: int, clock: Clock, **details: Any) -> None:
    """Report the results to the process that started the job, as the last line of standard output."""
    outcome = {"rows": rows, "wall_s": clock.wall_s, "cpu_s": clock.cpu_s, "peak_mib": peak_memory_mib(), **details}
    print(json.dumps(outcome), flush=True)  # noqa: T201 - the process exists to print this


def bytes_below(directory: str, prefix: str) -> int:
    """Return the size of all files whose names start with `prefix`."""
    return sum(path.stat().st_size for path in Path(directory).rglob(f"{prefix}*") if path.is_file())
