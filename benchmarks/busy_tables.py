"""Measures a hundred tables that change in each checkpoint: the cost of a table's commit, and the checkpoint's time."""

from __future__ import annotations

import asyncio
import json
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

_TABLES: Final = 100
_CHECKPOINTS: Final = 5
_INTERVAL_MS: Final = 2_000
_ROWS: Final = 10  # rows per table and checkpoint
_COMMIT_MS: Final = 8
_COLUMNS: Final = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])


def sections(plan: Plan) -> Iterator[PageSection]:
    tables = max(2, round(_TABLES * plan.scale))
    lines, targets = [], []
    for label, write_only in (("without compaction", True), ("with compaction", False)):
        home = plan.scratch / f"busy-tables-{write_only}"
        found = [_measured(home, tables, write_only=write_only) for _ in range(max(3, plan.fewer_pairs))]
        commit_ms, wall_ms = zip(*found, strict=True)
        middle, best = statistics.median(commit_ms), min(commit_ms)
        lines.append([label, str(len(found)), f"{best:.1f}", f"{middle:.1f}", f"{statistics.median(wall_ms):.0f}"])
        targets.append(Goal(f"{label}: a commit ≤ {_COMMIT_MS} ms of CPU time", f"{best:.1f} ms", best <= _COMMIT_MS))
        took_ms = statistics.median(wall_ms)
        text = f"{label}: a checkpoint of {tables} tables in ≤ {_INTERVAL_MS / 1000:g} s"
        targets.append(Goal(text, f"{took_ms / 1000:.2f} s", took_ms <= _INTERVAL_MS))
    about = (
        f"{tables} tables on a local disk, with {_ROWS} changes of each table in each of {_CHECKPOINTS} checkpoints. "
        "The CPU time of a commit is that of the whole pipeline, including decoding and writing of files, without the "
        "time of a run that reads nothing, divided by the number of commits. Wall time is the interval between "
        "checkpoints that follow each other without a pause."
    )
    header = ["", "runs", "CPU ms per commit: best", "median", "wall ms per checkpoint"]
    yield PageSection("Busy tables", about, header, lines, targets)


def _measured(home: Path, tables: int, *, write_only: bool) -> tuple[float, float]:
    """Return CPU milliseconds per commit, and wall milliseconds per checkpoint."""
    config = _pipeline(home, tables, write_only=write_only)
    asyncio.run(build_pipeline(config).run())  # afterwards each table has a snapshot of the pipeline
    idle = _run(config)
    for number in range(_CHECKPOINTS):
        _write_changes(home, tables, number)
    busy = _run(config)
    cpu_s, wall_s = (after - before for after, before in zip(busy, idle, strict=True))
    return 1000 * cpu_s / (tables * _CHECKPOINTS), 1000 * wall_s / _CHECKPOINTS


def _run(config: Config) -> tuple[float, float]:
    began = time.process_time(), time.perf_counter()
    progress = asyncio.run(build_pipeline(config).run())
    if progress.checkpoints not in (0, _CHECKPOINTS):
        raise RuntimeError(f"{progress.checkpoints} checkpoints, not {_CHECKPOINTS}")
    return time.process_time() - began[0], time.perf_counter() - began[1]


def _pipeline(home: Path, tables: int, *, write_only: bool) -> Config:
    """Return a configuration with one checkpoint per file.

    Checkpoints are due by bytes. Checkpoints that are due by time do the same work, but the run takes longer.
    """
    shutil.rmtree(home, ignore_errors=True)
    (home / "changes").mkdir(parents=True)
    catalog = tidelake.open_catalog(str(home / "lake"))
    catalog.create_database("bench")
    for number in range(tables):
        options = {"bucket": "1", "write-only": str(write_only).lower()}
        catalog.create_table(f"bench.t{number}", _COLUMNS, primary_key=["id"], options=options)
    settings = {
        "pipeline": "bench",
        "warehouse": str(home / "lake"),
        "source": {"type": "change-log-folder", "path": str(home / "changes"), "until": "end"},
        "tables": [{"name": f"bench.t{number}", "match": f"bench.public.t{number}"} for number in range(tables)],
        "checkpoint": {"interval_ms": _INTERVAL_MS, "bytes_max": 1},
    }
    return parse_config(json.dumps(settings), "benchmark")  # JSON is YAML


def _write_changes(home: Path, tables: int, number: int) -> None:
    with (home / "changes" / f"{number:03}.jsonl").open("w") as file:
        for place in range(tables * _ROWS):
            table, id_ = divmod(place, _ROWS)
            source = {"db": "bench", "schema": "public", "table": f"t{table}", "connector": "postgresql"}
            value = {"before": None, "after": {"id": id_, "name": f"n{number}"}, "op": "c", "source": source}
            line = {"topic": "t", "partition": 0, "offset": number * tables * _ROWS + place, "key": f'{{"id":{id_}}}'}
            file.write(json.dumps({**line, "value": json.dumps(value)}) + "\n")
