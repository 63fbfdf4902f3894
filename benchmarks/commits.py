"""Measures thousands of small commits to one table: does the 2,000th commit cost as much as the tenth?

As a program this module runs the job of Tidelake: the public API.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

import tidelake
from benchmarks.clock import tell
from benchmarks.commit_costs import CommitCosts
from benchmarks.contest import TIDELAKE, Job, Sample, ours
from benchmarks.flush import PEER_PROGRAM
from benchmarks.rows import load, row_files
from benchmarks.sections import RUST, Goal, PageSection, Plan

MARKS: Final = (10, 100, 500, 1000, 2000)
_PEER_MARK_MAX: Final = 1000  # the time of its commits grows continuously
_WINDOW: Final = 60
_FLAT: Final = 1.5  # costs proportional to the table would grow more than tenfold from the second mark to the last
_ROWS: Final = 10
_HEADER: Final = ["", "median ms", "median CPU ms", "mean CPU ms", "median bytes", "mean bytes", "most", "listings"]


def sections(plan: Plan) -> Iterator[PageSection]:
    marks = [mark for mark in MARKS if mark <= max(MARKS[1], MARKS[-1] * plan.scale)]
    samples = {name: [job.run()] for name, job in _jobs(plan, marks).items()}
    lines = [line for name, (sample,) in samples.items() for line in _lines(name, sample, marks)]
    about = (
        f"Commits of {_ROWS} rows to one bucket, write-only, without expiry. Time and bytes are those of a commit and "
        f"its data file. Medians are over {_WINDOW} commits up to the given one. Means are over all commits since the "
        "line before, so that they include merges of manifests. Listings: how often a directory was listed."
    )
    yield PageSection("Commits", about, _HEADER, lines, _targets(samples[TIDELAKE][0], marks), samples)


def _jobs(plan: Plan, marks: Sequence[int]) -> Mapping[str, Job]:
    rows_file = row_files("w1", plan.data, plan.scale)[0]
    arguments = {"warehouse": str(plan.scratch / "commits"), "rows_file": rows_file, "rows_per_commit": _ROWS}
    jobs = {TIDELAKE: ours("commits", {**arguments, "total": marks[-1]})}
    if plan.pypaimon is not None and plan.has_rust:
        total = min(marks[-1], _PEER_MARK_MAX)
        program = (plan.pypaimon, str(PEER_PROGRAM), "commits")
        jobs[RUST] = Job(program, {**arguments, "total": total, "native": True})
    return jobs


def _lines(name: str, sample: Sample, marks: Sequence[int]) -> Iterator[list[str]]:
    each = sample.details["each"]
    for before, mark in pairwise([0, *marks]):
        if mark > len(each):
            return
        wall, cpu, written, listings = zip(*each[before:mark], strict=True)
        yield [
            f"commit {mark}, {name}",
            f"{1000 * statistics.median(wall[-_WINDOW:]):.1f}",
            f"{1000 * statistics.median(cpu[-_WINDOW:]):.1f}",
            f"{1000 * statistics.fmean(cpu):.1f}",
            f"{statistics.median(written[-_WINDOW:]):,.0f}",
            f"{statistics.fmean(written):,.0f}",
            f"{max(written):,}",
            str(sum(listings)) if name == TIDELAKE else "",  # listings of native code are not visible here
        ]


def _targets(sample: Sample, marks: Sequence[int]) -> list[Goal]:
    """Return the targets: costs are constant from the second mark on. Earlier commits include one-time work."""
    each = sample.details["each"]
    early, late = each[marks[0] : marks[1]], each[marks[-2] : marks[-1]]
    found = []
    for what, number, window in (
        ("median CPU time", 1, _WINDOW),
        ("mean CPU time", 1, None),
        ("median bytes", 2, _WINDOW),
        ("mean bytes", 2, None),
    ):
        middle = statistics.fmean if window is None else statistics.median
        first, last = (middle([commit[number] for commit in part[-(window or 0) :]]) for part in (early, late))
        text = f"{what} at commit {marks[-1]:,} ≤ {_FLAT:g} × that at commit {marks[1]}"
        found.append(Goal(text, f"{last / first:.2f} ×", last <= _FLAT * first))
    listings = sum(commit[3] for commit in each[1:])
    return [*found, Goal("directories listed after the first commit: 0", str(listings), listings == 0)]


# ---------------------------------------------------------------- the job


def commits(warehouse: str, total: int, rows_file: str, rows_per_commit: int) -> None:
    catalog = tidelake.open_catalog(warehouse)
    catalog.create_database("bench", if_not_exists=True)
    rows = load(rows_file, ["id"], rows_max=rows_per_commit)
    catalog.drop_table("bench.commits", if_exists=True)
    options = {"bucket": "1", "write-only": "true"}
    table = catalog.create_table("bench.commits", rows.schema, primary_key=["id"], options=options)
    with table.writer(commit_user="bench") as writer:
        costs = CommitCosts(table.location)
        for identifier in range(1, total + 1):
            with costs:
                writer.write(rows)
                writer.commit(identifier)
    tell(total, costs.total, each=costs.each)


if __name__ == "__main__":
    commits(**json.loads(sys.argv[1]))
