"""Measures how rows become level-0 files and snapshots: ten commits, with all features that a user gets by default.

As a program this module runs the job of Tidelake: the public API, with the rows in memory before the clock starts.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import tidelake
from benchmarks.clock import Clock, bytes_below, tell
from benchmarks.contest import TIDELAKE, Job, Sample, contest, ours
from benchmarks.java_files import java_file_bytes
from benchmarks.rows import load, row_files
from benchmarks.sections import RACE_HEADER, RUST, Goal, PageSection, Plan, at_least, race_lines
from tests.support.tools import TOOLS

PEER_PROGRAM: Final = TOOLS / "pypaimon" / "benchmark.py"
WARM_UP_ROWS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Variant:
    """A table to write.

    factor: the target, as a multiple of pypaimon-rust's rate; None: no target.
    """

    workload: str
    label: str
    key: tuple[str, ...]
    buckets: int
    factor: float | None = None
    key_as_text: bool = False


VARIANTS: Final = {
    "w1": (
        Variant("w1", "6 columns, BIGINT key, 1 bucket", ("id",), 1, factor=1.0),
        Variant("w1", "6 columns, BIGINT key, 4 buckets", ("id",), 4, factor=1.0),
        Variant("w1", "6 columns, STRING key, 4 buckets", ("id",), 4, key_as_text=True),
        Variant("w1", "6 columns, (STRING, BIGINT) key, 4 buckets", ("name", "id"), 4),
    ),
    "w2": (
        Variant("w2", "21 columns, INT key, 1 bucket", ("k",), 1, factor=1.5),
        Variant("w2", "21 columns, INT key, 4 buckets", ("k",), 4, factor=1.5),
    ),
}


def sections(plan: Plan, workload: str) -> Iterator[PageSection]:
    lines: list[list[str]] = []
    targets: list[Goal] = []
    all_samples: dict[str, Sequence[Sample]] = {}
    files = row_files(workload, plan.data, plan.scale)
    for variant in VARIANTS[workload]:
        samples = contest(_jobs(plan, variant, files), plan.pairs if variant.factor is not None else plan.fewer_pairs)
        lines += race_lines(variant.label, samples)
        if variant.factor is not None:
            targets += at_least(variant.label, samples, variant.factor)
        all_samples |= {f"{variant.label}, {name}": of_one for name, of_one in samples.items()}
        if plan.has_java and variant.factor is not None:
            warehouse = plan.scratch / f"java-{workload}-{variant.buckets}"
            written = java_file_bytes(warehouse, files, variant.key, {"bucket": str(variant.buckets)})
            lines.append([f"{variant.label}, Java Paimon (size only)", *[""] * 6, f"{written / 1e6:.1f} MB"])
            share = samples[TIDELAKE][0].details["data_bytes"] / written
            targets.append(Goal(f"{variant.label}: files ≤ 1.05 × Java's", f"{share:.3f} ×", share <= 1.05))
    rows = f"{int(1_000_000 * plan.scale):,}"
    about = (
        f"{rows} rows in ten commits (`{workload}` of `benchmarks/rows.py`), zstd, write-only, into an empty "
        "table. The figures include hashing, sorting, deduplication, statistics, Parquet, manifests and commits, but "
        "not the generation of the rows. Each run is a new process, which wrote a few rows in the same way before the "
        "clock started."
    )
    yield PageSection(
        f"Flush: {'6' if workload == 'w1' else '21'} columns", about, RACE_HEADER, lines, targets, all_samples
    )


def _jobs(plan: Plan, variant: Variant, files: Sequence[str]) -> Mapping[str, Job]:
    arguments = {
        "warehouse": str(plan.scratch / "flush"),
        "files": files,
        "key": variant.key,
        "key_as_text": variant.key_as_text,
        "options": {"bucket": str(variant.buckets), "write-only": "true", "file.compression": "zstd"},
    }
    jobs = {TIDELAKE: ours("flush", arguments)}
    if plan.pypaimon is not None:
        for peer, is_native in ((RUST, True), ("pypaimon", False)):
            if peer.removeprefix("pypaimon-") in plan.peers:
                program = (plan.pypaimon, str(PEER_PROGRAM), "flush")
                jobs[peer] = Job(program, {**arguments, "native": is_native})
    return jobs


# ---------------------------------------------------------------- the job


def flush(
    warehouse: str, files: Sequence[str], key: Sequence[str], key_as_text: bool, options: Mapping[str, str]
) -> None:
    catalog = tidelake.open_catalog(warehouse)
    catalog.create_database("bench", if_not_exists=True)

    def commit_all(name: str, rows_max: int | None) -> tuple[int, Clock]:
        clock, total = Clock(), 0
        schema = load(files[0], key, key_as_text=key_as_text).schema
        catalog.drop_table(f"bench.{name}", if_exists=True)
        table = catalog.create_table(f"bench.{name}", schema, primary_key=key, options=options)
        with table.writer(commit_user="bench") as writer:
            for identifier, path in enumerate(files, 1):
                rows = load(path, key, key_as_text=key_as_text, rows_max=rows_max)
                with clock:
                    writer.write(rows)
                    writer.commit(identifier)
                total += rows.num_rows
        return total, clock

    commit_all("warm_up", WARM_UP_ROWS)
    total, clock = commit_all("rows", None)
    tell(total, clock, data_bytes=bytes_below(f"{warehouse}/bench.db/rows", "data-"))


if __name__ == "__main__":
    flush(**json.loads(sys.argv[1]))
