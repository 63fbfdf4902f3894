"""Runs several contenders in turns; ours runs in a new process each time.

The speed of a shared machine changes over time. Contenders that take turns run under similar conditions. So results are
medians over pairs of neighbouring runs, never a single run.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

REPOSITORY: Final = Path(__file__).parent.parent
TIDELAKE: Final = "Tidelake"
_PATIENCE_S: Final = 1_200  # the longest job takes two minutes on an idle machine


class JobFailed(Exception):
    """The job's process failed. The message contains its output."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One run of a job.

    rows: number of input rows, or of messages.
    """

    rows: int
    wall_s: float
    cpu_s: float
    peak_mib: float
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def rows_per_cpu_s(self) -> float:
        return self.rows / self.cpu_s


class Contender(Protocol):
    def run(self) -> Sample: ...


@dataclass(frozen=True, slots=True)
class Job:
    """A job that runs in a separate process.

    program: a Python interpreter and its program. The program gets the arguments as JSON, and reports with
        `clock.tell`.
    """

    program: Sequence[str]
    arguments: Mapping[str, Any]

    def run(self) -> Sample:
        command = [*self.program, json.dumps(self.arguments)]
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            env=environment,
            cwd=REPOSITORY,
            timeout=_PATIENCE_S,
            check=False,
        )
        if done.returncode:
            raise JobFailed(f"{' '.join(self.program)} failed:\n{done.stdout}{done.stderr}")
        outcome = json.loads(done.stdout.splitlines()[-1])
        measured = {name: outcome.pop(name) for name in ("rows", "wall_s", "cpu_s", "peak_mib")}
        return Sample(**measured, details=outcome)


def ours(module: str, arguments: Mapping[str, Any]) -> Job:
    """Return a job that runs a module of this package in this Python interpreter."""
    return Job((sys.executable, "-m", f"benchmarks.{module}"), arguments)


PIPELINE_PYTHON: Final = (sys.executable, "-m", "benchmarks.pipeline_job")
"""The command that runs a module in a process with the settings of a pipeline."""


def our_pipeline(module: str, arguments: Mapping[str, Any]) -> Job:
    """Return a job that runs a module of this package in a process with the settings of a pipeline."""
    return Job((*PIPELINE_PYTHON, f"benchmarks.{module}"), arguments)


Samples = Mapping[str, Sequence[Sample]]
"""The runs of each contender, in their order."""


def contest(contenders: Mapping[str, Contender], pairs: int) -> Samples:
    """Run all contenders in turns, `pairs` times. The order is reversed in every second turn."""
    samples: dict[str, list[Sample]] = {name: [] for name in contenders}
    for turn in range(pairs):
        for name in list(contenders)[:: 1 if turn % 2 == 0 else -1]:
            samples[name].append(contenders[name].run())
    return samples


def median_ratio(samples: Samples, one: str, other: str) -> float:
    """Return the median ratio of `one`'s rows per CPU-second to those of `other`, over neighbouring runs."""
    pairs = zip(samples[one], samples[other], strict=True)
    return statistics.median(a.rows_per_cpu_s / b.rows_per_cpu_s for a, b in pairs)
