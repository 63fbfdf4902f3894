"""What a commit costs whose changelog is looked up in tables of one, four and sixteen million rows; and what a lookup
takes of memory.

Run as a program it is the job.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Final

import tidelake
from tests.benchmarks.changelog import write_base
from tests.benchmarks.clock import Clock, tell
from tests.benchmarks.contest import TIDELAKE, ours
from tests.benchmarks.rows import commits_over, load, written
from tests.benchmarks.runs import TABLE
from tests.benchmarks.sections import Goal, PageSection, Plan

_MILLIONS: Final = (1, 4, 10, 16)
_ROWS: Final = 10_000
_COMMITS: Final = 12
_PEAK_MIB: Final = 600
_PEAK_MILLIONS: Final = 10


def sections(plan: Plan) -> Iterator[PageSection]:
    lines: list[list[str]] = []
    goals: list[Goal] = []
    samples = {}
    later_ms: dict[int, float] = {}
    for millions in _MILLIONS:
        warehouse = plan.scratch / f"changelog-growth-{millions}"
        write_base(str(warehouse), millions * plan.scale)
        rows = max(100, int(_ROWS * plan.scale))
        commits = commits_over(int(millions * 1e6 * plan.scale), rows, _COMMITS)
        files = [written(of_commit, warehouse / f"{number}.arrow") for number, of_commit in enumerate(commits)]
        sample = ours("changelog_growth", {"warehouse": str(warehouse), "files": files}).run()
        shutil.rmtree(warehouse)
        first, *later = sample.details["cpu_ms"]
        later_ms[millions] = median(later)
        lines.append(
            [f"{millions} M", f"{first:.0f}", f"{median(later):.0f}", f"{max(later):.0f}", f"{sample.peak_mib:.0f} MiB"]
        )
        samples[f"{millions} M, {TIDELAKE}"] = [sample]
        if millions == _PEAK_MILLIONS:
            asked = f"a table of {millions} M rows: peak memory ≤ {_PEAK_MIB} MiB"
            goals.append(Goal(asked, f"{sample.peak_mib:.0f} MiB", sample.peak_mib <= _PEAK_MIB))
    ratio = later_ms[_MILLIONS[-1]] / later_ms[1]
    goals.append(Goal(f"a commit into {_MILLIONS[-1]} M rows ≤ 2 × one into 1 M", f"{ratio:.2f} ×", ratio <= 2))
    about = (
        f"{_COMMITS} commits of {_ROWS:,} rows, half of them updates of keys from all over the table, by one writer "
        "that looks up each row's previous version (`changelog-producer` = `lookup`) and waits for it. The first "
        "commit decodes the table's large files onto local disk; a writer does so once for each file."
    )
    header = ["rows in the table", "first commit: CPU ms", "later ones: median", "most", "peak memory"]
    yield PageSection("Lookups in growing tables", about, header, lines, goals, samples)


# ---------------------------------------------------------------- the job


def grow(warehouse: str, files: Sequence[str]) -> None:
    catalog = tidelake.open_catalog(warehouse)
    changed = {"write-only": "false", "changelog-producer": "lookup"}
    table = catalog.alter_table(f"bench.{TABLE}", [tidelake.SetOption(*item) for item in changed.items()])
    clock, cpu_ms, total = Clock(), [], 0
    with table.writer(commit_user="bench") as writer:
        for identifier, path in enumerate(files, 1):
            rows = load(path, ["id"])
            total += rows.num_rows
            began_s = time.process_time()
            with clock:
                writer.write(rows)
                writer.commit(identifier)
            cpu_ms.append(1000 * (time.process_time() - began_s))
    tell(total, clock, cpu_ms=cpu_ms)


if __name__ == "__main__":
    grow(**json.loads(sys.argv[1]))
