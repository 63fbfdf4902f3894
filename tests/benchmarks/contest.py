"""Runs several contenders alternately. Each of our runs has its own process.

A machine that is shared slows down and speeds up; contenders that take turns meet the same weather. So what counts is
the median over pairs of neighbours, and never a single run.
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

REPOSITORY: Final = Path(__file__).parent.parent.parent
TIDELAKE: Final = "Tidelake"
_PATIENCE_S: Final = 1_200  # the longest job takes two minutes on an idle machine


class JobFailed(Exception):
    """The job's process ended badly; says what it printed."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One run of a job. rows: of the input, or messages."""

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
    """A job in a separate process.

    program: a Python and what it runs; it gets the arguments as JSON and answers through `clock.tell`.
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
    """A job of this package, in this Python."""
    return Job((sys.executable, "-m", f"tests.benchmarks.{module}"), arguments)


PIPELINE_PYTHON: Final = (sys.executable, "-m", "tests.benchmarks.pipeline_job")
"""Runs a module as the process of a pipeline."""


def our_pipeline(module: str, arguments: Mapping[str, Any]) -> Job:
    """A job of this package that is a pipeline's process."""
    return Job((*PIPELINE_PYTHON, f"tests.benchmarks.{module}"), arguments)


Samples = Mapping[str, Sequence[Sample]]
"""By contender, in the order of the runs."""


def contest(contenders: Mapping[str, Contender], pairs: int) -> Samples:
    """Everybody in turns, so many times; who begins changes from time to time."""
    samples: dict[str, list[Sample]] = {name: [] for name in contenders}
    for turn in range(pairs):
        for name in list(contenders)[:: 1 if turn % 2 == 0 else -1]:
            samples[name].append(contenders[name].run())
    return samples


def median_ratio(samples: Samples, one: str, other: str) -> float:
    """How many times the rows per CPU-second of the other one: median over neighbours."""
    pairs = zip(samples[one], samples[other], strict=True)
    return statistics.median(a.rows_per_cpu_s / b.rows_per_cpu_s for a, b in pairs)
