"""Fills the tables of docs/lsm.md: what compaction costs, by flushing into one bucket with the picker of the product.

No file is written. Sizes are counted in flushes: each one adds a sorted run of size 1.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final

from tidelake.compaction.merge_tree.universal_compaction import UniversalCompaction, UniversalCompactionOptions

_FLUSHES: Final = 4_000
_SIZES: Final = (50, 100, 1000)
_TRIGGERS: Final = (3, 5, 10)
_AMPLIFICATION_PERCENTS: Final = (200, 50)


@dataclass(frozen=True)
class Costs:
    """What many flushes into one bucket cost.

    write_amplification: bytes of flushes and compactions for each byte of a flush
    runs_mean: sorted runs that a read merges
    space: bytes on disk, divided by those of the merged rows, at its maximum
    """

    write_amplification: float
    runs_mean: float
    space: float


def costs(trigger: int, amplification_percent: int, size: int) -> Costs:
    """Flush updates of random rows into a table that is as large as `size` flushes."""
    picker = UniversalCompaction(
        UniversalCompactionOptions(trigger=trigger, max_size_amplification_percent=amplification_percent)
    )
    top = trigger  # num-levels is one more than the trigger
    runs: list[Any] = [_run(top, size)]
    written, counts, spaces = 0.0, [], []
    for _ in range(_FLUSHES):
        runs.insert(0, _run(0, 1))
        unit = picker.pick(runs, top, now_ms=0, local_hour=0)
        if unit is not None:
            sizes: Sequence[Any] = unit.files  # each run is one file, represented by its size
            merged = float(sum(sizes)) if len(sizes) < len(runs) else size  # updates of old rows vanish at the end
            runs[: len(sizes)] = [_run(unit.output_level, merged)]
            written += merged
        counts.append(len(runs))
        spaces.append(sum(run.size_bytes for run in runs) / size)
    return Costs(1 + written / _FLUSHES, statistics.mean(counts), max(spaces))


def _run(level: int, size: float) -> Any:
    return SimpleNamespace(level=level, size_bytes=size, files=(size,))


def table() -> str:
    """Return the costs of some triggers and sizes as a table."""
    lines = [
        "| Table, in flushes | `num-sorted-run.compaction-trigger` | `compaction.max-size-amplification-percent` "
        "| Write amplification | Runs per read | Space at most |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    for size in _SIZES:
        for trigger in _TRIGGERS:
            for percent in _AMPLIFICATION_PERCENTS:
                found = costs(trigger, percent, size)
                lines.append(
                    f"| {size:,} | {trigger} | {percent} | {found.write_amplification:.1f} | {found.runs_mean:.1f} "
                    f"| {found.space:.1f} × |"
                )
    return "\n".join(lines)
