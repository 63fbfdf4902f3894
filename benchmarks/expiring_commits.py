"""Measures commits to a table that keeps two thousand snapshots, while older ones expire concurrently.

fsync is left out, because it would measure the disk. As a program this module runs the job.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

import tidelake
from benchmarks.clock import Clock, tell
from benchmarks.contest import TIDELAKE, ours
from benchmarks.rows import load, row_files
from benchmarks.sections import Goal, PageSection, Plan

MARKS: Final = (100, 1000, 2000, 3000, 4000, 5000)
_SNAPSHOTS: Final = 2000
_WINDOW: Final = 200
_ROWS: Final = 10
_LATENCY_MS: Final = 25
_FLAT: Final = 1.5


def sections(plan: Plan) -> Iterator[PageSection]:
    marks = [max(2, round(mark * plan.scale)) for mark in MARKS]
    kept = max(2, round(_SNAPSHOTS * plan.scale))
    arguments = {
        "warehouse": str(plan.scratch / "expiring-commits"),
        "rows_file": row_files("w1", plan.data, plan.scale)[0],
        "total": marks[-1],
        "kept": kept,
    }
    sample = ours("expiring_commits", arguments).run()
    snapshots = sample.details["snapshots"]
    wall_ms, cpu_ms = (_windows(sample.details[kind], marks) for kind in ("each_wall_s", "each_cpu_s"))
    lines = [
        [
            f"commit {mark}",
            str(snapshots[mark - 1]),
            *(f"{_within(wall_ms[mark], share):.1f}" for share in (0.5, 0.9, 0.99)),
            f"{_within(cpu_ms[mark], 0.5):.1f}",
        ]
        for mark in marks
    ]
    full_mark, last_mark = marks[2], marks[-1]
    full_ms = _within(wall_ms[full_mark], 0.5)
    growth = _within(cpu_ms[last_mark], 0.5) / _within(cpu_ms[full_mark], 0.5)
    targets = [
        Goal(f"median with {kept:,} snapshots < {_LATENCY_MS} ms", f"{full_ms:.1f} ms", full_ms < _LATENCY_MS),
        Goal(
            f"median CPU time at commit {last_mark:,} ≤ {_FLAT:g} × that at commit {full_mark:,}",
            f"{growth:.2f} ×",
            growth <= _FLAT,
        ),
    ]
    about = (
        f"Commits of {_ROWS} rows to one bucket with compaction by default, `snapshot.num-retained.max` = {kept:,}, "
        f"without fsync. The figures are the wall time of `writer.commit` with its data file, over {_WINDOW} commits "
        "up to the given one. The wall time includes waits for other processes. CPU time is that of the committing "
        "thread."
    )
    header = ["", "snapshots", "median ms", "90 of 100 within", "99 of 100 within", "median CPU ms"]
    yield PageSection("Commits while snapshots expire", about, header, lines, targets, {TIDELAKE: [sample]})


def _windows(each_s: Sequence[float], marks: Sequence[int]) -> dict[int, list[float]]:
    """Return the milliseconds of the commits that belong to each mark."""
    return {
        mark: [1000 * seconds for seconds in each_s[max(before, mark - _WINDOW) : mark]]
        for before, mark in pairwise([0, *marks])
    }


def _within(window_ms: Sequence[float], share: float) -> float:
    return statistics.quantiles(window_ms, n=100, method="inclusive")[round(100 * share) - 1]


# ---------------------------------------------------------------- the job


def commits(warehouse: str, rows_file: str, total: int, kept: int) -> None:
    os.fsync = lambda fd: None
    catalog = tidelake.open_catalog(warehouse)
    catalog.create_database("bench", if_not_exists=True)
    rows = load(rows_file, ["id"], rows_max=_ROWS)
    catalog.drop_table("bench.commits", if_exists=True)
    options = {"bucket": "1", "snapshot.num-retained.min": str(min(10, kept)), "snapshot.num-retained.max": str(kept)}
    table = catalog.create_table("bench.commits", rows.schema, primary_key=["id"], options=options)
    wall_s, cpu_s, snapshots, clock = [], [], [], Clock()
    with table.writer(commit_user="bench") as writer:
        for identifier in range(1, total + 1):
            writer.write(rows)
            began_wall, began_cpu = time.perf_counter(), time.thread_time()
            with clock:
                writer.commit(identifier)
            wall_s.append(time.perf_counter() - began_wall)
            cpu_s.append(time.thread_time() - began_cpu)
            snapshots.append(sum(name.startswith("snapshot-") for name in os.listdir(f"{table.location}/snapshot")))
    tell(total, clock, each_wall_s=wall_s, each_cpu_s=cpu_s, snapshots=snapshots)


if __name__ == "__main__":
    commits(**json.loads(sys.argv[1]))
