"""Measures how long the restart of a pipeline takes on a table with many snapshots.

As a program this module runs the job that creates these snapshots: a pipeline with many checkpoints.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

import tidelake
from benchmarks.clock import Clock, tell
from benchmarks.contest import REPOSITORY, ours
from benchmarks.sections import Goal, PageSection, Plan
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.pipeline.service import run

_SNAPSHOTS: Final = 2000
_BUCKETS: Final = 5  # each gets one file per checkpoint
_RESTART_S: Final = 3
_TABLE: Final = "bench.t"
_SCHEMA: Final = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
_LINES: Final = 50  # lines of a file; each file causes a checkpoint
_PATIENCE_S: Final = 120


def sections(plan: Plan) -> Iterator[PageSection]:
    home, checkpoints = plan.scratch / "restart", max(2, round(_SNAPSHOTS * plan.scale))
    ours("restart", {"home": str(home), "checkpoints": checkpoints}).run()
    table = tidelake.open_catalog(str(home / "lake")).table(_TABLE)
    snapshots, files = len(table.snapshots()), sum(1 for _ in Path(table.location).rglob("data-*"))
    wall_s, cpu_s = zip(*(_restart(home, table, checkpoints + number) for number in range(plan.pairs)), strict=True)
    middle = statistics.median(wall_s)
    lines = [
        [label, str(plan.pairs), *(f"{found:.2f}" for found in (min(of_one), statistics.median(of_one), max(of_one)))]
        for label, of_one in (("wall, to the first committed checkpoint", wall_s), ("CPU, to the end", cpu_s))
    ]
    about = (
        f"A table of {snapshots:,} snapshots and {files:,} data files, none compacted, and one new change-log file. "
        "The time is that from the start of `tidelake ingest run` until a snapshot has the records of the file: "
        "starting a process, proving the position, publishing the new epoch, reading, decoding and writing the file. "
        "The wall time includes waits for other processes."
    )
    target = Goal(f"restart < {_RESTART_S} s", f"{middle:.2f} s", middle < _RESTART_S)
    yield PageSection("Restart", about, ["", "runs", "min s", "median", "max"], lines, [target])


def _restart(home: Path, table: tidelake.Table, number: int) -> tuple[float, float]:
    """Return wall seconds and CPU-seconds of a restart.

    Files that were read before are deleted from the folder, like records of a topic after its retention.
    """
    for path in (home / "log").iterdir():
        path.unlink()
    _write_lines(home, number)
    store = table.context.snapshots
    latest = store.latest_id() or 0
    (home / "pipeline.json").write_text(json.dumps(_settings(home)))  # JSON is YAML
    command = [sys.executable, "-m", "tidelake", "ingest", "run", str(home / "pipeline.json")]
    began, before = time.perf_counter(), os.times()
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as service:
        while not store.exists(latest + 2):  # the first snapshot is that of the new epoch
            if service.poll() not in (None, 0) or time.perf_counter() - began > _PATIENCE_S:
                service.kill()
                raise RuntimeError("the restarted pipeline committed nothing")
            time.sleep(0.005)
        wall_s = time.perf_counter() - began
    after = os.times()
    return wall_s, sum(after[2:4]) - sum(before[2:4])  # times of ended children


def _settings(home: Path) -> Mapping[str, Any]:
    return {
        "pipeline": "bench",
        "warehouse": str(home / "lake"),
        "source": {"type": "change-log-folder", "path": str(home / "log"), "until": "end"},
        "tables": [{"name": _TABLE, "match": "t"}],
        "checkpoint": {"bytes_max": 1},
    }


def _write_lines(home: Path, number: int) -> None:
    source = {"db": "bench", "schema": "public", "table": "t", "connector": "postgresql"}
    with (home / "log" / f"{number:06}.jsonl").open("w") as file:
        for offset in range(number * _LINES, (number + 1) * _LINES):
            value = {"before": None, "after": {"id": offset, "name": f"n{offset}"}, "op": "c", "source": source}
            line = {"topic": "t", "partition": 0, "offset": offset, "key": f'{{"id":{offset}}}'}
            file.write(json.dumps({**line, "value": json.dumps(value)}) + "\n")


# ---------------------------------------------------------------- the job


def make_past(home: str, checkpoints: int) -> None:
    os.fsync = lambda fd: None
    folder = Path(home)
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "log").mkdir(parents=True)
    catalog = tidelake.open_catalog(str(folder / "lake"))
    catalog.create_database("bench")
    catalog.create_table(_TABLE, _SCHEMA, primary_key=["id"], options={"bucket": str(_BUCKETS), "write-only": "true"})
    for number in range(checkpoints):
        _write_lines(folder, number)
    clock = Clock()
    with clock:
        progress = asyncio.run(run(parse_config(json.dumps(_settings(folder)), "benchmark")))
    tell(progress.rows, clock)


if __name__ == "__main__":
    make_past(**json.loads(sys.argv[1]))
