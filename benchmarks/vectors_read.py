"""Reads the same rows with deletion vectors (files without a merge), and without them (runs that are merged).

As a program this module runs the job.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Final

import tidelake
from benchmarks.clock import Clock, tell
from benchmarks.contest import contest, ours
from benchmarks.rows import COMMITS, generate, rows_per_commit
from benchmarks.runs import TABLE, WARM_UP_TABLE
from benchmarks.sections import RACE_HEADER, PageSection, Plan, race_lines

_WARM_UP_ROWS: Final = 1_000
# The compacted rows are in runs of different sizes, and are not compacted again.
_OPTIONS: Final = {"bucket": "1", "num-sorted-run.compaction-trigger": "30", "commit.force-compact": "true"}
_LAYOUTS: Final[Mapping[str, Mapping[str, str]]] = {
    "merged when they are read": {},
    "with deletion vectors": {"deletion-vectors.enabled": "true"},
}


def sections(plan: Plan) -> Iterator[PageSection]:
    rows = COMMITS * (rows_per_commit("w5-base", plan.scale) + rows_per_commit("w5", plan.scale))
    jobs = {}
    for number, (label, options) in enumerate(_LAYOUTS.items()):
        warehouse = str(plan.scratch / f"vectors-{number}")
        _write(warehouse, plan.scale, options)
        jobs[label] = ours("vectors_read", {"warehouse": warehouse, "input_rows": rows})
    samples = contest(jobs, plan.fewer_pairs)
    about = (
        f"{rows:,} rows (`w5-base`, then `w5` of `benchmarks/rows.py`). A quarter of them is replaced later. "
        "The table has one large run, and the files of ten commits above it. The figures include planning, reading "
        "and the conversion to Arrow, batch by batch. Rows per CPU-second are the written rows."
    )
    yield PageSection("Reading with deletion vectors", about, RACE_HEADER, race_lines("read", samples), (), samples)


def _write(warehouse: str, scale: float, options: Mapping[str, str]) -> None:
    catalog = tidelake.open_catalog(warehouse)
    catalog.create_database("bench")
    for name, rows_max in ((WARM_UP_TABLE, _WARM_UP_ROWS), (TABLE, None)):
        identifier = 0
        schema = next(generate("w5-base", scale)).schema
        table = catalog.create_table(f"bench.{name}", schema, primary_key=["id"], options={**_OPTIONS, **options})
        with table.writer() as writer:
            for workload in ("w5-base", "w5"):
                for rows in generate(workload, scale):
                    identifier += 1
                    writer.write(rows if rows_max is None else rows.slice(0, rows_max))
                    writer.commit(identifier)


# ---------------------------------------------------------------- the job


def read(warehouse: str, input_rows: int) -> None:
    catalog = tidelake.open_catalog(warehouse)
    clock = Clock()
    for name in (WARM_UP_TABLE, TABLE):
        clock, count = Clock(), 0
        with clock:
            for batch in catalog.table(f"bench.{name}").scan().to_batches():
                count += batch.num_rows
    tell(input_rows, clock)


if __name__ == "__main__":
    read(**json.loads(sys.argv[1]))
