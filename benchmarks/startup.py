"""Measures how long the command line and the import take to start."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from benchmarks.sections import Goal, PageSection, Plan

_HELP_MS: Final = 200
_RUNS_PER_PAIR: Final = 3


def sections(plan: Plan) -> Iterator[PageSection]:
    tidelake = str(Path(sys.executable).parent / "tidelake")
    commands: dict[str, Sequence[str]] = {
        "tidelake --help": (tidelake, "--help"),
        "import tidelake": (sys.executable, "-c", "import tidelake"),
        "nothing (Python itself)": (sys.executable, "-c", "pass"),
    }
    times_ms: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(1 + _RUNS_PER_PAIR * plan.pairs):
        for name, command in commands.items():
            began = time.perf_counter()
            subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
            times_ms[name].append(1000 * (time.perf_counter() - began))
    times_ms = {name: of_one[1:] for name, of_one in times_ms.items()}  # the first run compiled the modules
    lines = [
        [name, str(len(of_one)), *(f"{part:.0f}" for part in (min(of_one), statistics.median(of_one), max(of_one)))]
        for name, of_one in times_ms.items()
    ]
    found = statistics.median(times_ms["tidelake --help"])
    target = Goal(f"tidelake --help: < {_HELP_MS} ms", f"{found:.0f} ms", found < _HELP_MS)
    yield PageSection(
        "Start-up", "Wall time of a new process.", ["", "runs", "min ms", "median", "max"], lines, [target]
    )
