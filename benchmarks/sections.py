"""The results of a benchmark, as a section of the page."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.contest import TIDELAKE, Sample, Samples, median_ratio

RUST: Final = "pypaimon-rust"


@dataclass(frozen=True, slots=True)
class Plan:
    """The amount of work, and the peers to compare with.

    scale: share of the published sizes.
    pairs: number of runs of each contender in a close race.
    data: folder of generated rows, which are kept.
    scratch: folder of tables, emptied at the end.
    pypaimon: the Python interpreter with the peers pypaimon and pypaimon-rust; None without them.
    peers: of `java`, `flink` and `rust`.
    """

    scale: float
    pairs: int
    data: Path
    scratch: Path
    pypaimon: str | None
    peers: frozenset[str]

    @property
    def fewer_pairs(self) -> int:
        """The number of runs without a close race, or if a run takes long."""
        return (self.pairs + 1) // 2

    @property
    def has_java(self) -> bool:
        return "java" in self.peers

    @property
    def has_flink(self) -> bool:
        return "flink" in self.peers

    @property
    def has_rust(self) -> bool:
        return "rust" in self.peers


@dataclass(frozen=True, slots=True)
class Goal:
    """A target and the measured value. It only informs: no test depends on it."""

    text: str
    found: str
    is_met: bool


@dataclass(frozen=True, slots=True)
class PageSection:
    """A section with a text, a table and targets.

    lines: the cells of the table.
    samples: the measurements behind it, by contender.
    is_failure: the suite failed, and the section contains only the error.
    """

    title: str
    about: str
    header: Sequence[str]
    lines: Sequence[Sequence[str]]
    targets: Sequence[Goal] = ()
    samples: Mapping[str, Sequence[Sample]] = field(default_factory=dict)
    is_failure: bool = False

    def markdown(self) -> str:
        parts = [f"## {self.title}", self.about]
        if self.lines:
            parts.append(_grid(self.header, self.lines))
        if self.targets:
            cells = [[t.text, t.found, "yes" if t.is_met else "**no**"] for t in self.targets]
            parts.append(_grid(["target", "found", "reached"], cells))
        return "\n\n".join(parts)


def failure(title: str, traceback: str) -> PageSection:
    return PageSection(title, f"```text\n{traceback.strip()}\n```", (), (), is_failure=True)


def _grid(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    aligned = ["---", *("---:" for _ in header[1:])]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (header, aligned, *lines))


# ---------------------------------------------------------------- rows per CPU-second


RACE_HEADER: Final = ["", "runs", "rows per CPU-second: min", "median", "max", "wall s", "peak memory", "file bytes"]


def race_lines(label: str, samples: Samples) -> list[list[str]]:
    """Return one line per contender."""
    return [[f"{label}, {name}", *_race_cells(of_one)] for name, of_one in samples.items()]


def _race_cells(samples: Sequence[Sample]) -> list[str]:
    rates = sorted(sample.rows_per_cpu_s for sample in samples)
    sizes = [sample.details["data_bytes"] for sample in samples if "data_bytes" in sample.details]
    return [
        str(len(samples)),
        thousands(rates[0]),
        f"**{thousands(statistics.median(rates))}**",
        thousands(rates[-1]),
        f"{statistics.median(sample.wall_s for sample in samples):.2f}",
        f"{max(sample.peak_mib for sample in samples):.0f} MiB",
        f"{statistics.median(sizes) / 1e6:.1f} MB" if sizes else "",
    ]


def at_least(label: str, samples: Samples, factor: float, peer: str = RUST) -> list[Goal]:
    """Return the target "at least `factor` times as fast as the peer"; nothing without the peer."""
    if peer not in samples:
        return []
    ratio = median_ratio(samples, TIDELAKE, peer)
    return [Goal(f"{label}: ≥ {factor:g} × {peer}", f"{ratio:.2f} ×", ratio >= factor)]


def peak_at_most(label: str, samples: Sequence[Sample], limit_mib: float) -> Goal:
    peak = max(sample.peak_mib for sample in samples)
    return Goal(f"{label}: peak memory ≤ {limit_mib:g} MiB", f"{peak:.0f} MiB", peak <= limit_mib)


def rate_at_least(label: str, samples: Sequence[Sample], rate: float) -> Goal:
    found = statistics.median(sample.rows_per_cpu_s for sample in samples)
    return Goal(f"{label} per CPU-second: ≥ {thousands(rate)}", thousands(found), found >= rate)


def thousands(value: float) -> str:
    return f"{value / 1000:,.0f} K"


Suite = Callable[[Plan], "Sequence[PageSection]"]
