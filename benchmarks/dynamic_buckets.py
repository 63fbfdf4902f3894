"""Measures writes to tables whose buckets an index chooses: dynamic buckets, and keys that move between partitions.

As a program this module runs one of the jobs of Tidelake: the public API, with the rows in memory before the clock
starts.
"""

from __future__ import annotations

import json
import shutil
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import tidelake
from benchmarks.changelog import write_changes
from benchmarks.clock import Clock, bytes_below, tell
from benchmarks.compaction import OnCopies
from benchmarks.contest import TIDELAKE, Sample, contest, ours
from benchmarks.java import JAVA, JavaReplay
from benchmarks.rows import COMMITS, keys_of, load, row_files, with_keys
from benchmarks.runs import TABLE, WARM_UP_TABLE
from benchmarks.sections import (
    RACE_HEADER,
    Goal,
    PageSection,
    Plan,
    at_least,
    peak_at_most,
    race_lines,
    rate_at_least,
)

WARM_UP_ROWS: Final = 1_000
_KEYS: Final = 10_000_000
_COMMIT_ROWS: Final = 100_000
_DAYS: Final = 8
_OPTIONS: Final = {"bucket": "-1", "write-only": "true", "file.compression": "zstd"}
_MB: Final = 1e6 / (1 << 20)  # in MiB
_JOB: Final = "dynamic_buckets"

_W1: Final = "dynamic buckets, w1"
_MANY: Final = "dynamic buckets, 10 M keys"
_MOVING: Final = "keys that move, over 10 M"


def sections(plan: Plan) -> Iterator[PageSection]:
    keys = int(_KEYS * plan.scale)
    rows = int(_COMMIT_ROWS * plan.scale)
    w1 = _compared_with_java(plan)
    many = contest({TIDELAKE: ours(_JOB, _arguments(plan, "many_keys", keys=keys, rows=rows))}, 1)
    moving = _moving(plan, keys, rows)
    starts = [sample.details["start_s"] for sample in moving[TIDELAKE]]
    targets = [
        rate_at_least("dynamic buckets, rows", w1[TIDELAKE], 600_000),
        *at_least("dynamic buckets", w1, 3, JAVA),
        peak_at_most("dynamic buckets of 10 M keys (600 MB)", many[TIDELAKE], 600 * _MB),
        rate_at_least("keys that move, rows", moving[TIDELAKE], 250_000),
        peak_at_most("keys that move, over 10 M (700 MB)", moving[TIDELAKE], 700 * _MB),
        Goal("a writer begins over 10 M keys ≤ 20 s", f"{statistics.median(starts):.1f} s", max(starts) <= 20),
    ]
    of_all = {_W1: w1, _MANY: many, _MOVING: moving}
    lines = [line for label, samples in of_all.items() for line in race_lines(label, samples)]
    about = (
        "Tables with `bucket = -1`, write-only, zstd. Three jobs: `w1` of `benchmarks/rows.py` into an empty "
        "table; commits of 100,000 new keys by one writer, until the table has 10 million keys; ten commits of 100,000 "
        f"rows into a table of 10 million keys in {_DAYS} partitions. In the last job half of the keys are new, and "
        "every second one of the others moves to another partition. Its writer first reads all keys, which is not "
        "included in the rate. Java runs in one JVM, whose first round is not counted."
    )
    samples = {f"{label}, {name}": one for label, found in of_all.items() for name, one in found.items()}
    yield PageSection("Buckets that an index chooses", about, RACE_HEADER, lines, targets, samples)


def _arguments(plan: Plan, what: str, **more: Any) -> dict[str, Any]:
    return {"what": what, "warehouse": str(plan.scratch / "buckets" / what), **more}


def _compared_with_java(plan: Plan) -> Mapping[str, Sequence[Sample]]:
    folder = plan.scratch / "buckets"
    files = row_files("w1", plan.data, plan.scale)
    base = str(folder / "base")
    catalog = tidelake.open_catalog(base)
    catalog.create_database("bench")
    schema = load(files[0], ["id"]).schema
    for name in (TABLE, WARM_UP_TABLE):
        catalog.create_table(f"bench.{name}", schema, primary_key=["id"], options=_OPTIONS)
    with ExitStack() as stack:
        contenders = {
            TIDELAKE: OnCopies(
                folder, TIDELAKE, lambda copy: ours(_JOB, {"what": "w1", "warehouse": copy, "files": files})
            )
        }
        if plan.has_java:
            write_changes(base, files)
            contenders[JAVA] = OnCopies(folder, JAVA, stack.enter_context(JavaReplay({}, full=False)).of)
            contenders[JAVA].run()
        return contest(contenders, plan.fewer_pairs)


def _moving(plan: Plan, keys: int, rows: int) -> Mapping[str, Sequence[Sample]]:
    folder = plan.scratch / "buckets-moving"
    ours(_JOB, {"what": "moving_base", "warehouse": str(folder / "base"), "keys": keys, "rows": rows}).run()

    def job(copy: str) -> Any:
        return ours(_JOB, {"what": "moving", "warehouse": copy, "keys": keys, "rows": rows})

    samples = contest({TIDELAKE: OnCopies(folder, TIDELAKE, job)}, min(3, plan.fewer_pairs))
    shutil.rmtree(folder)
    return samples


# ---------------------------------------------------------------- the jobs


def w1(warehouse: str, files: Sequence[str]) -> None:
    catalog = tidelake.open_catalog(warehouse)
    clock, total = Clock(), 0
    for name, rows_max in ((WARM_UP_TABLE, WARM_UP_ROWS), (TABLE, None)):
        clock, total = Clock(), 0
        with catalog.table(f"bench.{name}").writer(commit_user="bench") as writer:
            for identifier, path in enumerate(files, 1):
                rows = load(path, ["id"], rows_max=rows_max)
                with clock:
                    writer.write(rows)
                    writer.commit(identifier)
                total += rows.num_rows
    tell(total, clock)


def many_keys(warehouse: str, keys: int, rows: int) -> None:
    rng = np.random.default_rng(10)
    catalog = tidelake.open_catalog(warehouse)
    catalog.create_database("bench")
    schema = with_keys(rng, keys_of(np.arange(1))).schema
    table = catalog.create_table(f"bench.{TABLE}", schema, primary_key=["id"], options=_OPTIONS)
    clock = Clock()
    with table.writer(commit_user="bench") as writer:
        for start in range(0, keys, rows):
            of_commit = with_keys(rng, keys_of(np.arange(start, min(start + rows, keys))))
            with clock:
                writer.write(of_commit)
                writer.commit(start)
    tell(keys, clock, data_bytes=bytes_below(f"{warehouse}/bench.db/{TABLE}", "data-"))


def moving_base(warehouse: str, keys: int, rows: int) -> None:
    catalog = tidelake.open_catalog(warehouse)
    catalog.create_database("bench")
    rng = np.random.default_rng(11)
    for name, count in ((WARM_UP_TABLE, WARM_UP_ROWS), (TABLE, keys)):
        schema = _in_days(rng, np.arange(1), np.arange(1)).schema
        table = catalog.create_table(
            f"bench.{name}", schema, primary_key=["id"], partition_by=["day"], options=_OPTIONS
        )
        with table.writer(commit_user="base") as writer:
            for identifier, start in enumerate(range(0, count, rows * COMMITS)):
                numbers = np.arange(start, min(start + rows * COMMITS, count))
                writer.write(_in_days(rng, numbers, numbers % _DAYS))
                writer.commit(identifier)
    tell(keys, Clock())


def moving(warehouse: str, keys: int, rows: int) -> None:
    catalog = tidelake.open_catalog(warehouse)
    starting, clock, total = Clock(), Clock(), 0
    for name, known, count in ((WARM_UP_TABLE, WARM_UP_ROWS, 100), (TABLE, keys, rows)):
        rng = np.random.default_rng(12)
        starting, clock, total = Clock(), Clock(), 0
        with catalog.table(f"bench.{name}").writer(commit_user="bench") as writer:
            first = _in_days(rng, np.arange(1), np.arange(1))
            with starting:
                writer.write(first)
            for identifier in range(1, COMMITS + 1):
                numbers = np.unique(rng.integers(0, known, count // 2))
                days = (numbers + np.arange(len(numbers)) % 2) % _DAYS
                new = np.arange(known + (identifier - 1) * (count // 2), known + identifier * (count // 2))
                of_commit = _in_days(rng, np.append(numbers, new), np.append(days, new % _DAYS))
                of_commit = of_commit.take(rng.permutation(of_commit.num_rows)).combine_chunks()
                with clock:
                    writer.write(of_commit)
                    writer.commit(identifier)
                total += of_commit.num_rows
    tell(total, clock, start_s=starting.wall_s, start_cpu_s=starting.cpu_s)


def _in_days(rng: np.random.Generator, numbers: NDArray[np.int64], days: NDArray[np.int64]) -> pa.Table:
    rows = with_keys(rng, keys_of(numbers))
    return rows.append_column(pa.field("day", pa.int32(), nullable=False), pa.array(days.astype(np.int32)))


if __name__ == "__main__":
    arguments = json.loads(sys.argv[1])
    {one.__name__: one for one in (w1, many_keys, moving_base, moving)}[arguments.pop("what")](**arguments)
