"""Measures how long a pipeline of many tables takes for its plan and its start."""

from __future__ import annotations

import asyncio
import shutil
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa

import tidelake
from benchmarks.sections import Goal, PageSection, Plan
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.pipeline.builder import build_pipeline
from tidelake.ingest.settings import Config

_TABLES: Final = 200
_START_S: Final = 2
_COLUMNS: Final = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])


def sections(plan: Plan) -> Iterator[PageSection]:
    tables = max(2, round(_TABLES * plan.scale))
    config = _pipeline(plan.scratch / "many-tables", tables)
    asyncio.run(build_pipeline(config).run())  # afterwards each table has a snapshot of the pipeline
    found = [(_planned(config), _started(config)) for _ in range(max(3, plan.pairs))]
    planned, started = zip(*found, strict=True)
    lines = [
        [label, str(len(of_one)), *(f"{part:.2f}" for part in (min(of_one), statistics.median(of_one), max(of_one)))]
        for label, of_one in (("plan", planned), ("start, and an end with nothing to read", started))
    ]
    about = (
        f"{tables} tables on a local disk that the pipeline has written to before; its source is an empty folder. "
        "Wall time in one process: opening the tables, proving the positions, publishing the new epoch in every table, "
        "and registering the positions."
    )
    middle = statistics.median(started)
    target = Goal(f"start of {tables} tables < {_START_S} s", f"{middle:.2f} s", middle < _START_S)
    yield PageSection("Many tables", about, ["", "runs", "min s", "median", "max"], lines, [target])


def _pipeline(home: Path, tables: int) -> Config:
    shutil.rmtree(home, ignore_errors=True)
    (home / "changes").mkdir(parents=True)
    catalog = tidelake.open_catalog(str(home / "lake"))
    catalog.create_database("bench")
    for number in range(tables):
        catalog.create_table(f"bench.t{number}", _COLUMNS, primary_key=["id"], options={"bucket": "1"})
    entries = ", ".join(f"{{name: bench.t{number}}}" for number in range(tables))
    source = f"{{type: change-log-folder, path: {home}/changes, until: end}}"
    return parse_config(
        f"warehouse: {home}/lake\nsource: {source}\ntables: [{entries}]", "bench.yaml", pipeline="bench"
    )


def _planned(config: Config) -> float:
    began = time.perf_counter()
    asyncio.run(build_pipeline(config).plan())
    return time.perf_counter() - began


def _started(config: Config) -> float:
    began = time.perf_counter()
    asyncio.run(build_pipeline(config).run())
    return time.perf_counter() - began
