"""Measures reads of ten runs with overlapping keys: the newest row of each key, as Arrow.

As a program this module runs the job of Tidelake: the public API.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import tidelake
from benchmarks.clock import Clock, tell
from benchmarks.contest import TIDELAKE, Job, Sample, Samples, contest, ours
from benchmarks.flush import PEER_PROGRAM
from benchmarks.rows import rows_per_commit
from benchmarks.runs import TABLE, WARM_UP_TABLE, write_runs
from benchmarks.sections import (
    RACE_HEADER,
    RUST,
    Goal,
    PageSection,
    Plan,
    at_least,
    peak_at_most,
    race_lines,
)

PEAK_MIB: Final = 600


@dataclass(frozen=True, slots=True)
class Variant:
    """A read.

    one_row_group: see `write_runs`.
    batches: rows are read batch by batch, not collected into one table.
    """

    workload: str
    label: str
    one_row_group: bool
    batches: bool


VARIANTS: Final = (
    Variant("w3", "6 columns, to one table", one_row_group=False, batches=False),
    Variant("w3", "6 columns, batch by batch", one_row_group=False, batches=True),
    Variant("wide", "7 columns, row groups of 128 MiB, batch by batch", one_row_group=True, batches=True),
)


def sections(plan: Plan) -> Iterator[PageSection]:
    lines: list[list[str]] = []
    targets: list[Goal] = []
    all_samples: dict[str, Sequence[Sample]] = {}
    for variant in VARIANTS:
        samples = contest(_jobs(plan, variant), plan.pairs)
        _check_same_rows(samples)
        lines += race_lines(variant.label, samples)
        targets += at_least(variant.label, samples, 1.0)
        targets.append(peak_at_most(variant.label, samples[TIDELAKE], PEAK_MIB))
        all_samples |= {f"{variant.label}, {name}": of_one for name, of_one in samples.items()}
    rows = f"{int(500_000 * plan.scale):,}"
    about = (
        f"Ten runs of {rows} rows on level 0 (`w3` and `wide` of `benchmarks/rows.py`, written by Tidelake), "
        "with overlapping keys. Rows per CPU-second are those of the input. The figures include planning, reading, "
        "merging and the conversion to Arrow. Each run is a new process, which read a small table before the clock "
        "started."
    )
    yield PageSection("Merge read of ten runs", about, RACE_HEADER, lines, targets, all_samples)


def _jobs(plan: Plan, variant: Variant) -> Mapping[str, Job]:
    arguments = {**_prepared(plan, variant), "batches": variant.batches}
    jobs = {TIDELAKE: ours("merge_read", arguments)}
    if plan.pypaimon is not None and plan.has_rust:
        program = (plan.pypaimon, str(PEER_PROGRAM), "merge_read")
        jobs[RUST] = Job(program, {**arguments, "native": True})
    return jobs


def _prepared(plan: Plan, variant: Variant) -> dict[str, str | int]:
    """Return the arguments with the tables. Writes the tables at the first call."""
    warehouse = plan.scratch / f"merge-{variant.workload}"
    if not warehouse.exists():
        write_runs(str(warehouse), variant.workload, plan.scale, one_row_group=variant.one_row_group)
    names = {"table": f"bench.{TABLE}", "warm_up": f"bench.{WARM_UP_TABLE}"}
    return {"warehouse": str(warehouse), **names, "input_rows": 10 * rows_per_commit(variant.workload, plan.scale)}


def _check_same_rows(samples: Samples) -> None:
    found = {name: {sample.details["out_rows"] for sample in of_one} for name, of_one in samples.items()}
    if len(set.union(*found.values())) != 1:
        raise AssertionError(f"contenders read different numbers of rows: {found}")


# ---------------------------------------------------------------- the job


def merge_read(warehouse: str, table: str, warm_up: str, input_rows: int, batches: bool) -> None:
    catalog = tidelake.open_catalog(warehouse)

    def read(name: str, clock: Clock) -> int:
        with clock:
            scan = catalog.table(name).scan()
            return sum(batch.num_rows for batch in scan.to_batches()) if batches else scan.to_arrow().num_rows

    read(warm_up, Clock())
    clock = Clock()
    out_rows = read(table, clock)
    tell(input_rows, clock, out_rows=out_rows)


if __name__ == "__main__":
    merge_read(**json.loads(sys.argv[1]))
