"""Measures full compactions of ten runs with overlapping keys, by merge engine, in comparison with Java.

As a program this module runs the job of Tidelake: the public API.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import tidelake
from benchmarks.clock import Clock, bytes_below, tell
from benchmarks.contest import TIDELAKE, Contender, Sample, contest, ours
from benchmarks.java import JAVA, JavaCompaction
from benchmarks.rows import rows_per_commit
from benchmarks.runs import TABLE, WARM_UP_TABLE, write_runs
from benchmarks.sections import RACE_HEADER, Goal, PageSection, Plan, at_least, peak_at_most, race_lines

PEAK_MIB: Final = 600
_AGGREGATION: Final = {
    "merge-engine": "aggregation",
    "fields.amount.aggregate-function": "sum",
    "fields.qty.aggregate-function": "max",
    "fields.ts.aggregate-function": "max",
    "fields.default-aggregate-function": "last_non_null_value",
}


@dataclass(frozen=True, slots=True)
class Variant:
    """A table to compact.

    factor: the target, as a multiple of Java's rate; None: Java does not run.
    one_row_group: see `write_runs`.
    """

    workload: str
    label: str
    factor: float | None
    options: Mapping[str, str] = field(default_factory=dict)
    one_row_group: bool = False


VARIANTS: Final = (
    Variant("w3", "deduplicate", 2.5),
    Variant("w6", "partial-update", 2.0, {"merge-engine": "partial-update"}),
    Variant("w6", "aggregation", 3.0, _AGGREGATION),
    Variant("wide", "deduplicate, row groups of 128 MiB", None, one_row_group=True),
)


def sections(plan: Plan) -> Iterator[PageSection]:
    lines: list[list[str]] = []
    targets: list[Goal] = []
    all_samples: dict[str, Sequence[Sample]] = {}
    for number, variant in enumerate(VARIANTS):
        folder = plan.scratch / f"compaction-{number}"
        write_runs(
            str(folder / "base"), variant.workload, plan.scale, variant.options, one_row_group=variant.one_row_group
        )
        label = f"{variant.workload}, {variant.label}"
        samples = _measure(plan, variant, folder)
        lines += race_lines(label, samples)
        if variant.factor is not None:
            targets += at_least(label, samples, variant.factor, JAVA)
        targets.append(peak_at_most(label, samples[TIDELAKE], PEAK_MIB))
        all_samples |= {f"{label}, {name}": of_one for name, of_one in samples.items()}
        shutil.rmtree(folder)
    w3, w6 = (f"{rows_per_commit(workload, plan.scale):,}" for workload in ("w3", "w6"))
    about = (
        f"Ten runs on level 0 (`benchmarks/rows.py`, written by Tidelake), each of {w3} rows (`w3`, `wide`) or "
        f"{w6} (`w6`, half of the values null), become one run; the commit is included. Aggregation is sum, max, max "
        "and twice last_non_null_value. Rows per CPU-second are those of the input. Each contender compacts a copy. "
        "Tidelake runs in a new process each time, which compacted a small table before the clock started. Java runs "
        "in one JVM per variant; its first compaction is not counted, and its peak memory is that of all its runs. The "
        "resulting tables are equal."
    )
    yield PageSection("Full compaction of ten runs", about, RACE_HEADER, lines, targets, all_samples)


def _measure(plan: Plan, variant: Variant, folder: Path) -> Mapping[str, Sequence[Sample]]:
    input_rows = 10 * rows_per_commit(variant.workload, plan.scale)
    with ExitStack() as stack:
        contenders: dict[str, OnCopies] = {
            TIDELAKE: OnCopies(
                folder, TIDELAKE, lambda copy: ours("compaction", {"warehouse": copy, "input_rows": input_rows})
            )
        }
        if plan.has_java and variant.factor is not None:
            java = stack.enter_context(JavaCompaction(input_rows))
            contenders[JAVA] = OnCopies(folder, JAVA, java.of)
            contenders[JAVA].run()  # warms up the JVM: its code was interpreted, or little optimized
        samples = contest(contenders, plan.fewer_pairs if variant.factor is not None else 1)
    if len(contenders) > 1:
        _check_same([contender.compacted() for contender in contenders.values()])
    return samples


class OnCopies:
    """A contender that changes its input. It gets a new copy of `folder`/base for each run.

    Each copy has a new path, because Java caches manifests by path. The last copy is kept.
    """

    def __init__(self, folder: Path, name: str, contender_of: Callable[[str], Contender]) -> None:
        self._base = folder / "base"
        self._copies = folder / name
        self._contender_of = contender_of
        self._count = 0

    def run(self) -> Sample:
        shutil.rmtree(self._copies, ignore_errors=True)
        self._count += 1
        copy = self._copies / str(self._count)
        shutil.copytree(self._base, copy)
        sample = self._contender_of(str(copy)).run()
        table = f"bench.db/{TABLE}"
        written = bytes_below(f"{copy}/{table}", "data-") - bytes_below(f"{self._base}/{table}", "data-")
        return replace(sample, details={**sample.details, "data_bytes": written})

    def compacted(self) -> tidelake.Table:
        return tidelake.open_catalog(str(self._copies / str(self._count))).table(f"bench.{TABLE}")


def _check_same(tables: Sequence[tidelake.Table]) -> None:
    first, *others = (table.scan().to_arrow() for table in tables)
    if not all(other.equals(first) for other in others):
        raise AssertionError("contenders compacted the same runs into different tables")
    for table in tables:
        if {file.level for split in table.scan().splits() for file in split.files} != {5}:
            raise AssertionError(f"{table} was not compacted into one run")


# ---------------------------------------------------------------- the job


def compact(warehouse: str, input_rows: int) -> None:
    catalog = tidelake.open_catalog(warehouse)
    catalog.table(f"bench.{WARM_UP_TABLE}").compact(full=True)
    clock = Clock()
    with clock:
        catalog.table(f"bench.{TABLE}").compact(full=True)
    tell(input_rows, clock)


if __name__ == "__main__":
    compact(**json.loads(sys.argv[1]))
