"""The cost of a job, measured inside its process. Uses the standard library only, because peers import it.

CPU is user and system time of the whole process, all its threads included; it is what can be compared on a machine that
others use, too.
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
    """The most memory this process ever held at a time.

    From /proc where there is one: `ru_maxrss` of a new process begins with what its parent held.
    """
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except FileNotFoundError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


def tell(rows: int, clock: Clock, **details: Any) -> None:
    """Hand the outcome to the process that asked for the job: the last line of standard output."""
    outcome = {"rows": rows, "wall_s": clock.wall_s, "cpu_s": clock.cpu_s, "peak_mib": peak_memory_mib(), **details}
    print(json.dumps(outcome), flush=True)  # noqa: T201 - it is what the process is for


def bytes_below(directory: str, prefix: str) -> int:
    """Of all files whose names begin so."""
    return sum(path.stat().st_size for path in Path(directory).rglob(f"{prefix}*") if path.is_file())
