"""Measures the ingestion of a folder of Debezium JSON into a table: all steps together, and each step alone.

As a program this module runs one of these jobs.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

import tidelake
from benchmarks.change_log import CHANGES, ORDERS, RECORDS, orders_schema, write_change_log
from benchmarks.clock import Clock, bytes_below, tell
from benchmarks.contest import TIDELAKE, Sample, contest, our_pipeline
from benchmarks.ingest_run import run_apart
from benchmarks.sections import RACE_HEADER, PageSection, Plan, peak_at_most, race_lines, rate_at_least
from tests.support.recorded_truth import differences
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.formats.base import Target
from tidelake.ingest.formats.debezium.debezium_json import DebeziumJson
from tidelake.ingest.formats.debezium.debezium_json_decoder import DebeziumJsonDecoder
from tidelake.ingest.raw_batch import RawBatch
from tidelake.ingest.settings import Config
from tidelake.ingest.sources.change_log_folder import ChangeLogFolder
from tidelake.storage.write.memory_budget import MemoryBudget

MEMORY_MIB: Final = 256
RATE: Final = 120_000
COMPACTING_RATE: Final = 100_000
_BESIDES_MIB: Final = 350
TABLE: Final = "bench.orders"
WRITE_ONLY: Final = {"bucket": "4", "write-only": "true"}
COMPACTING: Final = {"bucket": "4"}
_COMPACTING_INTERVAL_MS: Final = 1_000  # short, so that there are files to compact
_COMMIT_EVERY_PASSES: Final = 5

_LABELS: Final = {
    "whole": "folder to committed table",
    "compacting": "folder to committed table, compacting",
    "lines": "lines to raw records, alone",
    "values": "raw records to rows, alone",
    "write": "rows to committed table, alone",
}


def sections(plan: Plan) -> Iterator[PageSection]:
    passes = max(1, round(10 * plan.scale))
    fewer = plan.fewer_pairs
    samples = {
        _LABELS["whole"]: _run(plan, "whole", passes, plan.pairs),
        _LABELS["compacting"]: _run(plan, "compacting", passes, fewer),
        f"{_LABELS['whole']}, from *.jsonl.zst": _run(plan, "whole", passes, fewer, compressed=True),
        **{_LABELS[step]: _run(plan, step, passes, fewer) for step in ("lines", "values", "write")},
    }
    lines = [line for label, of_one in samples.items() for line in race_lines(label, {TIDELAKE: of_one})]
    of_whole, of_compacting = samples[_LABELS["whole"]], samples[_LABELS["compacting"]]
    peak_mib = MEMORY_MIB + _BESIDES_MIB
    targets = [
        rate_at_least("changes, write-only,", of_whole, RATE),
        peak_at_most("write-only", of_whole, peak_mib),
        rate_at_least("changes, compacting,", of_compacting, COMPACTING_RATE),
        peak_at_most("compacting", of_compacting, peak_mib),
    ]
    about = (
        f"The capture orders-100k, repeated {passes} times: {passes * CHANGES:,} changes (tombstones are not counted) "
        f"in plain lines. They are written to a table of four buckets, with {MEMORY_MIB} MiB for write buffers, by the "
        "code of `tidelake ingest run`: write-only with the default checkpoint interval, and compacting with a "
        "checkpoint each second. The table is compared with the content of the source database. Of the single steps, "
        "the first reads from disk; the others have their input in memory."
    )
    yield PageSection("Ingest: Debezium JSON from a folder", about, RACE_HEADER, lines, targets, samples)


def _run(plan: Plan, step: str, passes: int, pairs: int, *, compressed: bool = False) -> Sequence[Sample]:
    folder = plan.data / f"orders-{passes}{'-zst' if compressed else ''}"
    write_change_log(folder, passes, compressed=compressed)
    arguments = {"step": step, "folder": str(folder), "warehouse": str(plan.scratch / "ingest"), "passes": passes}
    return contest({TIDELAKE: our_pipeline("ingest_folder", arguments)}, pairs)[TIDELAKE]


# ---------------------------------------------------------------- the jobs


def whole(folder: str, warehouse: str, passes: int) -> None:
    _whole(folder, new_orders_table(warehouse), warehouse, passes, {})


def compacting(folder: str, warehouse: str, passes: int) -> None:
    checkpoint = {"interval_ms": _COMPACTING_INTERVAL_MS}
    _whole(folder, new_orders_table(warehouse, COMPACTING), warehouse, passes, checkpoint)


def _whole(folder: str, table: tidelake.Table, warehouse: str, passes: int, checkpoint: Mapping[str, int]) -> None:
    reported = run_apart(_settings(folder, warehouse, checkpoint))
    rows, clock = reported.pop("rows"), Clock(reported.pop("wall_s"), reported.pop("cpu_s"))
    wrong = differences(ORDERS, table.scan().to_arrow())
    if wrong or rows != passes * CHANGES:
        raise AssertionError(f"{rows} rows; the table differs from its source: {wrong[:3]}")
    tell(rows, clock, **reported, data_bytes=_data_bytes(warehouse))


def pipeline_config(folder: str, warehouse: str, checkpoint: Mapping[str, int]) -> Config:
    """Return a configuration that writes the whole folder to `bench.orders`."""
    return parse_config(json.dumps(_settings(folder, warehouse, checkpoint)), "benchmark")


def _settings(folder: str, warehouse: str, checkpoint: Mapping[str, int]) -> dict[str, Any]:
    return {
        "pipeline": "bench",
        "warehouse": warehouse,
        "source": {"type": "change-log-folder", "path": folder, "until": "end"},
        "tables": [{"name": TABLE, "match": "orders"}],
        "write": {"memory_bytes": MEMORY_MIB << 20},
        "checkpoint": dict(checkpoint),
    }


def lines(folder: str, warehouse: str, passes: int) -> None:
    clock = Clock()
    with clock:
        asyncio.run(_read(folder, lambda _: True))
    tell(passes * CHANGES, clock)


def values(folder: str, warehouse: str, passes: int) -> None:
    batches, decoder = _raw_batches(folder), _decoder(new_orders_table(warehouse))
    clock, rows = Clock(), 0
    for _ in range(passes):
        for batch in batches:
            with clock:
                decoded = decoder.decode(batch)
            rows += sum(len(part.rows) for part in decoded.tables)
    tell(rows, clock, row_decoded_records=decoder.row_decoded_records)


def write(folder: str, warehouse: str, passes: int) -> None:
    table = new_orders_table(warehouse)
    decoder = _decoder(table)
    decoded = [part.rows for batch in _raw_batches(folder) for part in decoder.decode(batch).tables]
    clock = Clock()
    with clock, table.writer(commit_user="bench", memory=MemoryBudget(MEMORY_MIB << 20)) as writer:
        for number in range(1, passes + 1):
            for rows in decoded:
                writer.write(rows)
            if number % _COMMIT_EVERY_PASSES == 0 or number == passes:
                writer.commit(number)
    tell(passes * sum(map(len, decoded)), clock, data_bytes=_data_bytes(warehouse))


def new_orders_table(warehouse: str, options: Mapping[str, str] = WRITE_ONLY) -> tidelake.Table:
    catalog = tidelake.open_catalog(warehouse)
    catalog.create_database("bench", if_not_exists=True)
    catalog.drop_table(TABLE, if_exists=True)
    return catalog.create_table(TABLE, orders_schema(), primary_key=ORDERS.primary_key, options=options)


def _decoder(table: tidelake.Table) -> DebeziumJsonDecoder:
    target = Target(TABLE, table.context.schema)
    return DebeziumJsonDecoder(lambda source: target)


def _raw_batches(folder: str) -> list[RawBatch]:
    """Return the batches of the first pass."""
    found: list[RawBatch] = []

    def take(batch: RawBatch) -> bool:
        is_first_pass = sum(map(len, found)) < RECORDS
        if is_first_pass:
            found.append(batch)
        return is_first_pass

    asyncio.run(_read(folder, take))
    return found


async def _read(folder: str, take: Callable[[RawBatch], bool]) -> None:
    """Read until the end, or until `take` returns that it has enough."""
    source = ChangeLogFolder(Path(folder), follow=False, kept_headers=DebeziumJson.KEPT_HEADERS)
    await source.open()
    async with aclosing(source.read({})) as batches:
        async for batch in batches:
            if not take(batch):
                return


def _data_bytes(warehouse: str) -> int:
    return bytes_below(f"{warehouse}/{TABLE.replace('.', '.db/')}", "data-")


_JOBS: Final = {"whole": whole, "compacting": compacting, "lines": lines, "values": values, "write": write}


if __name__ == "__main__":
    pa.array([None])  # Arrow imports pandas for its first list: half a second, not to be measured
    arguments = json.loads(sys.argv[1])
    _JOBS[arguments.pop("step")](**arguments)
