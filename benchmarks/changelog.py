"""Measures commits to a large table, whose changelog is made by compaction. Each commit waits for its changelog.

Half of the rows are updates.

As a program this module runs the job of Tidelake: the public API, with the rows in memory before the clock starts.
"""

from __future__ import annotations

import json
import shutil
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import tidelake
from benchmarks.clock import Clock, bytes_below, tell
from benchmarks.compaction import OnCopies
from benchmarks.contest import TIDELAKE, Sample, contest, ours
from benchmarks.java import JAVA, JavaReplay
from benchmarks.rows import generate, load, row_files, rows_per_commit
from benchmarks.runs import TABLE, WARM_UP_TABLE
from benchmarks.sections import RACE_HEADER, Goal, PageSection, Plan, at_least, race_lines

WARM_UP_ROWS: Final = 1_000
_OPTIONS: Final = {"bucket": "1", "write-only": "true"}
_NO_OPTIONS: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True)
class Variant:
    """A table to write.

    least: the target, in changed rows per CPU-second.
    factor: the target, as a multiple of Java's rate; None: Java does not run.
    """

    producer: str
    least: int
    factor: float | None = None

    @property
    def compacts_all(self) -> bool:
        return self.producer == "full-compaction"

    @property
    def options(self) -> Mapping[str, str]:
        every = {"full-compaction.delta-commits": "1"} if self.compacts_all else {}
        return {"write-only": "false", "commit.force-compact": "true", **every}


VARIANTS: Final = (Variant("lookup", 300_000, 5), Variant("full-compaction", 110_000, 5), Variant("none", 0))


def sections(plan: Plan) -> Iterator[PageSection]:
    files = row_files("w5", plan.data, plan.scale)
    lines: list[list[str]] = []
    targets: list[Goal] = []
    all_samples: dict[str, Sequence[Sample]] = {}
    for variant in VARIANTS:  # each over a table of its own: a producer can't change once rows are written
        base = plan.scratch / f"changelog-{variant.producer}"
        write_base(str(base / "base"), plan.scale, {"changelog-producer": variant.producer})
        write_changes(str(base / "base"), files)
        samples = _measure(plan, base, files, variant)
        shutil.rmtree(base)
        lines += race_lines(variant.producer, samples)
        all_samples |= {f"{variant.producer}, {name}": of_one for name, of_one in samples.items()}
        if variant.factor is not None:
            targets += at_least(variant.producer, samples, variant.factor, JAVA)
        if variant.least:
            rate = statistics.median(sample.rows_per_cpu_s for sample in samples[TIDELAKE])
            asked = f"{variant.producer}: ≥ {variant.least:,} rows per CPU-second"
            targets.append(Goal(asked, f"{rate:,.0f}", rate >= variant.least))
    rows = f"{rows_per_commit('w5', plan.scale):,}"
    about = (
        f"Ten commits of {rows} rows (`w5` of `benchmarks/rows.py`) over a table of ten times as many: "
        "half of the rows of a commit update rows of the table. A commit waits for its compaction, which makes its "
        "changelog. `none` makes no changelog, and compacts only when the number of sorted runs requires it. Tidelake "
        "runs in a new process each time. Java runs in one JVM per variant, whose first round is not counted."
    )
    yield PageSection("Changelogs over a large table", about, RACE_HEADER, lines, targets, all_samples)


def _arguments(copy: str, files: Sequence[str], variant: Variant) -> dict[str, object]:
    return {"warehouse": copy, "files": files, "options": variant.options}


def _measure(plan: Plan, base: Path, files: Sequence[str], variant: Variant) -> Mapping[str, Sequence[Sample]]:
    with ExitStack() as stack:
        contenders: dict[str, OnCopies] = {
            TIDELAKE: OnCopies(base, TIDELAKE, lambda copy: ours("changelog", _arguments(copy, files, variant)))
        }
        if not plan.has_java or variant.factor is None:
            return contest(contenders, plan.fewer_pairs)
        java = stack.enter_context(JavaReplay(variant.options, full=variant.compacts_all))
        contenders[JAVA] = OnCopies(base, JAVA, java.of)
        contenders[JAVA].run()  # warms up the JVM: its code was interpreted, or little optimized
        return contest(contenders, min(2, plan.fewer_pairs))


def write_changes(warehouse: str, files: Sequence[str]) -> None:
    """Write the rows of the commits to an append table, for Java."""
    rows = [load(path, ["id"]) for path in files]
    table = tidelake.open_catalog(warehouse).create_table("bench.changes", rows[0].schema, options={"bucket": "-1"})
    with table.writer() as writer:
        for identifier, of_commit in enumerate(rows, 1):
            writer.write(of_commit)
            writer.commit(identifier)


def write_base(warehouse: str, scale: float, options: Mapping[str, str] = _NO_OPTIONS) -> None:
    """Write `bench.rows` as one sorted run, and `bench.warm_up`, the same with a few rows."""
    catalog = tidelake.open_catalog(warehouse)
    catalog.create_database("bench")
    for name, rows_max in ((WARM_UP_TABLE, WARM_UP_ROWS), (TABLE, None)):
        commits = generate("w5-base", scale)
        first = next(commits)
        table = catalog.create_table(f"bench.{name}", first.schema, primary_key=["id"], options={**_OPTIONS, **options})
        with table.writer() as writer:
            for identifier, rows in enumerate((first, *commits), 1):
                writer.write(rows if rows_max is None else rows.slice(0, rows_max))
                writer.commit(identifier)
        table.compact(full=True)


# ---------------------------------------------------------------- the job


def commit_all(warehouse: str, files: Sequence[str], options: Mapping[str, str]) -> None:
    catalog = tidelake.open_catalog(warehouse)
    settings = [tidelake.SetOption(name, value) for name, value in options.items()]
    clock, total = Clock(), 0
    table_directory = str(Path(warehouse) / "bench.db" / TABLE)
    of_base = bytes_below(table_directory, "changelog-")
    for name, rows_max in ((WARM_UP_TABLE, WARM_UP_ROWS), (TABLE, None)):
        table = catalog.alter_table(f"bench.{name}", settings)
        clock, total = Clock(), 0
        with table.writer(commit_user="bench") as writer:
            for identifier, path in enumerate(files, 1):
                rows = load(path, ["id"], rows_max=rows_max)
                with clock:
                    writer.write(rows)
                    writer.commit(identifier)
                total += rows.num_rows
    written = bytes_below(table_directory, "changelog-") - of_base
    tell(total, clock, changelog_bytes=written)


if __name__ == "__main__":
    commit_all(**json.loads(sys.argv[1]))
