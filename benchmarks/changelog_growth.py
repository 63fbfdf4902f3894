"""Measures commits whose changelog is made by lookups in tables of different sizes, and the memory of lookups.

As a program this module runs the job.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

import tidelake
from benchmarks.changelog import write_base
from benchmarks.clock import Clock, tell
from benchmarks.contest import Sample, ours
from benchmarks.rows import commits_over, load, written
from benchmarks.runs import TABLE
from benchmarks.sections import Goal, PageSection, Plan

MILLIONS: Final = (1, 4, 10, 16)
_COMMITS: Final = 12
_PEAK_MIB: Final = 600
PEAK_MILLIONS: Final = 10
_GROWTH_MAX: Final = 2


@dataclass(frozen=True, slots=True)
class Change:
    """The changes of one commit.

    rows: number of rows.
    of_range: the keys are neighbours.
    first_is_flat: the cost of the first commit must not grow with the table.
    """

    about: str
    rows: int
    of_range: bool = False
    first_is_flat: bool = False


CHANGES: Final = (
    Change("100 rows, keys from all over", 100),
    Change("10,000 rows, keys of a range", 10_000, of_range=True, first_is_flat=True),
    Change("10,000 rows, keys from all over", 10_000),
)


def sections(plan: Plan) -> Iterator[PageSection]:
    measured: dict[tuple[Change, int], Sample] = {}
    for millions in MILLIONS:
        warehouse = plan.scratch / f"changelog-growth-{millions}"
        write_base(str(warehouse), millions * plan.scale, {"changelog-producer": "lookup"})
        for number, change in enumerate(CHANGES):
            rows = max(100, int(change.rows * plan.scale))
            base_rows = int(millions * 1e6 * plan.scale)
            commits = commits_over(base_rows, rows, _COMMITS, of_range=change.of_range)
            files = [written(of_commit, warehouse / f"{at}.arrow") for at, of_commit in enumerate(commits)]
            measured[change, millions] = ours(
                "changelog_growth", {"warehouse": str(warehouse), "files": files, "commit_user": f"bench-{number}"}
            ).run()
        shutil.rmtree(warehouse)
    about = (
        f"{_COMMITS} commits by one writer. Half of their rows update rows of the table. The writer looks up each "
        "row's previous version (`changelog-producer` = `lookup`) and waits for it. It decodes each row group that "
        "contains one of its keys once, to local disk. Keys from all over the table are in all row groups, so the "
        "first commit decodes all of them."
    )
    header = ["changed", "rows in the table", "first commit: CPU ms", "later ones: median", "most", "peak memory"]
    lines = [_line(change, millions, measured[change, millions]) for change in CHANGES for millions in MILLIONS]
    samples = {f"{change.about}, {millions} M": [sample] for (change, millions), sample in measured.items()}
    yield PageSection("Lookups in growing tables", about, header, lines, list(_goals(measured)), samples)


def _line(change: Change, millions: int, sample: Sample) -> list[str]:
    first, *later = sample.details["cpu_ms"]
    times = [f"{first:.0f}", f"{median(later):.0f}", f"{max(later):.0f}"]
    return [change.about, f"{millions} M", *times, f"{sample.peak_mib:.0f} MiB"]


def _goals(measured: Mapping[tuple[Change, int], Sample]) -> Iterator[Goal]:
    least, most = MILLIONS[0], MILLIONS[-1]
    for change in CHANGES:
        small, large = (measured[change, millions].details["cpu_ms"] for millions in (least, most))
        if change.first_is_flat:
            ratio = large[0] / small[0]
            asked = f"{change.about}: the first commit into {most} M ≤ {_GROWTH_MAX} × that into {least} M"
            yield Goal(asked, f"{ratio:.2f} ×", ratio <= _GROWTH_MAX)
        ratio = median(large[1:]) / median(small[1:])
        asked = f"{change.about}: a later commit into {most} M ≤ {_GROWTH_MAX} × one into {least} M"
        yield Goal(asked, f"{ratio:.2f} ×", ratio <= _GROWTH_MAX)
    peak_mib = max(measured[change, PEAK_MILLIONS].peak_mib for change in CHANGES)
    asked = f"a table of {PEAK_MILLIONS} M rows: peak memory ≤ {_PEAK_MIB} MiB"
    yield Goal(asked, f"{peak_mib:.0f} MiB", peak_mib <= _PEAK_MIB)


# ---------------------------------------------------------------- the job


def grow(warehouse: str, files: Sequence[str], commit_user: str) -> None:
    catalog = tidelake.open_catalog(warehouse)
    table = catalog.alter_table(f"bench.{TABLE}", [tidelake.SetOption("write-only", "false")])
    clock, cpu_ms, total = Clock(), [], 0
    with table.writer(commit_user=commit_user) as writer:
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
