"""Reading ten runs that overlap everywhere: the newest row of every key, as Arrow.

Run as a program it is the job of Tidelake: the public API.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from unittest.mock import patch

import tidelake
from storage.files.formats import parquet
from tests.benchmarks.clock import Clock, tell
from tests.benchmarks.contest import TIDELAKE, Job, Sample, Samples, contest, ours
from tests.benchmarks.flush import PEER_PROGRAM, WARM_UP_ROWS
from tests.benchmarks.rows import generate
from tests.benchmarks.sections import (
    RACE_HEADER,
    RUST,
    Plan,
    Section,
    Target,
    at_least,
    peak_at_most,
    race_lines,
)

PEAK_MIB: Final = 600
_OPTIONS: Final = {"bucket": "1", "write-only": "true", "file.compression": "zstd"}


@dataclass(frozen=True, slots=True)
class Variant:
    """one_row_group: each file has a single one, of 128 MiB, as Java would write it. batches: rows are passed on as
    they come, instead of gathered in one table.
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


def sections(plan: Plan) -> Iterator[Section]:
    lines: list[list[str]] = []
    targets: list[Target] = []
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
        f"Ten runs of {rows} rows on level 0 (`w3` and `wide` of `tests/benchmarks/rows.py`, written by Tidelake), "
        "whose keys overlap everywhere. Rows per CPU-second are those of the input. Planning, reading, merging and "
        "making Arrow are in. Every run is a new process that read a small table before the clock started."
    )
    yield Section("Merge read of ten runs", about, RACE_HEADER, lines, targets, all_samples)


def _jobs(plan: Plan, variant: Variant) -> Mapping[str, Job]:
    arguments = {**_prepared(plan, variant), "batches": variant.batches}
    jobs = {TIDELAKE: ours("merge_read", arguments)}
    if plan.pypaimon is not None and plan.has_rust:
        program = (plan.pypaimon, str(PEER_PROGRAM), "merge_read")
        jobs[RUST] = Job(program, {**arguments, "native": True})
    return jobs


def _prepared(plan: Plan, variant: Variant) -> dict[str, str | int]:
    """Arguments that name the table; it is written at the first call."""
    warehouse = plan.scratch / "merge"
    catalog = tidelake.open_catalog(str(warehouse))
    catalog.create_database("bench", if_not_exists=True)
    names = {"table": f"bench.{variant.workload}", "warm_up": "bench.warm_up"}
    for name, rows_max in ((names["warm_up"], WARM_UP_ROWS), (names["table"], None)):
        if name.removeprefix("bench.") not in catalog.list_tables("bench"):
            write_runs(catalog, name, variant, plan.scale, rows_max)
    input_rows = 10 * int(500_000 * plan.scale)
    return {"warehouse": str(warehouse), **names, "input_rows": input_rows}


def write_runs(catalog: tidelake.Catalog, name: str, variant: Variant, scale: float, rows_max: int | None) -> None:
    """Ten commits of one file each."""
    writer: tidelake.Writer | None = None
    held_bytes = 1 << 40 if variant.one_row_group else parquet._ROW_GROUP_HELD_BYTES
    with patch.object(parquet, "_ROW_GROUP_HELD_BYTES", held_bytes):
        for identifier, rows in enumerate(generate(variant.workload, scale), 1):
            if writer is None:
                writer = catalog.create_table(name, rows.schema, primary_key=["id"], options=_OPTIONS).writer()
            writer.write(rows if rows_max is None else rows.slice(0, rows_max))
            writer.commit(identifier)
    assert writer is not None
    writer.close()


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
