"""Measures how soon a follower gets a commit, the costs of waiting, and how fast a changelog is read.

As a program this module runs the job.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa

import tidelake
from benchmarks.clock import Clock, tell
from benchmarks.contest import TIDELAKE, ours
from benchmarks.sections import Goal, PageSection, Plan
from tidelake import aio

_FOLLOWERS: Final = 100
_IDLE_SECONDS: Final = 10
_COMMITS: Final = 50
_ROWS: Final = 2_000_000
_SCHEMA: Final = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.float64()), ("s", pa.string())])
_OPTIONS: Final = {"bucket": "1", "write-only": "true", "changelog-producer": "input"}


def sections(plan: Plan) -> Iterator[PageSection]:
    arguments = {
        "warehouse": str(plan.scratch / "following"),
        "commits": max(5, int(_COMMITS * min(1, plan.scale))),
        "idle_seconds": max(0.2, _IDLE_SECONDS * min(1, plan.scale)),
        "rows": max(1000, int(_ROWS * plan.scale)),
    }
    sample = ours("following", arguments).run()
    latencies_ms, idle, rate = (sample.details[name] for name in ("latencies_ms", "idle_share", "rows_per_cpu_s"))
    median = statistics.median(latencies_ms)
    lines = [
        ["commit to follower, median ms", f"{median:.1f}"],
        ["commit to follower, slowest ms", f"{max(latencies_ms):.1f}"],
        [f"{_FOLLOWERS} idle followers, % of a core", f"{100 * idle:.2f}"],
        ["rows of a changelog per CPU-second", f"{rate:,.0f}"],
    ]
    about = (
        f"On a local disk, while {_FOLLOWERS} followers of other tables wait in the same process. Latency is the "
        "time from the creation of the snapshot's file to the delivery of the batch."
    )
    goals = [
        Goal("commit to follower, median: < 50 ms", f"{median:.1f} ms", median < 50),
        Goal(f"{_FOLLOWERS} idle followers: < 2 % of a core", f"{100 * idle:.2f} %", idle < 0.02),
        Goal("reading a changelog: ≥ 2 M rows per CPU-second", f"{rate / 1e6:.1f} M", rate >= 2e6),
    ]
    yield PageSection("Following", about, ["", "found"], lines, goals, {TIDELAKE: [sample]})


# ---------------------------------------------------------------- the job


def following(warehouse: str, commits: int, idle_seconds: float, rows: int) -> None:
    catalog = tidelake.open_catalog(warehouse)
    catalog.create_database("bench", if_not_exists=True)
    for name in (*(f"idle{number}" for number in range(_FOLLOWERS)), "busy", "log"):
        catalog.create_table(f"bench.{name}", _SCHEMA, primary_key=["id"], options=_OPTIONS)
    clock = Clock()
    with clock:
        idle_share, latencies_ms = asyncio.run(_follow(warehouse, commits, idle_seconds))
    rate = _changelog_rate(catalog.table("bench.log"), rows)
    tell(commits, clock, latencies_ms=latencies_ms, idle_share=idle_share, rows_per_cpu_s=rate)


async def _follow(warehouse: str, commits: int, idle_seconds: float) -> tuple[float, list[float]]:
    catalog = await aio.open_catalog(warehouse)
    idle = [asyncio.create_task(_wait_for_ever(await catalog.table(f"bench.idle{n}"))) for n in range(_FOLLOWERS)]
    await asyncio.sleep(2 * idle_seconds / 10 + 1)  # until each follower has begun, and polls at long intervals
    began = time.process_time(), time.perf_counter()
    await asyncio.sleep(idle_seconds)
    idle_share = (time.process_time() - began[0]) / (time.perf_counter() - began[1])
    table = await catalog.table("bench.busy")
    writing = threading.Thread(target=_write, args=[warehouse, commits])
    latencies_ms: list[float] = []
    changes = table.follow(start="latest")
    first = asyncio.ensure_future(anext(changes))
    await asyncio.sleep(0.2)
    writing.start()
    change = await first
    while True:
        there_ns = (Path(table.location) / "snapshot" / f"snapshot-{change.snapshot_id}").stat().st_mtime_ns
        latencies_ms.append((time.time_ns() - there_ns) / 1e6)
        if change.snapshot_id == commits:
            break
        change = await anext(changes)
    writing.join()
    for task in idle:
        task.cancel()
    await asyncio.gather(*idle, return_exceptions=True)
    return idle_share, latencies_ms


async def _wait_for_ever(table: aio.Table) -> None:
    async for _ in table.follow(start="latest"):
        pass


def _write(warehouse: str, commits: int) -> None:
    with tidelake.open_catalog(warehouse).table("bench.busy").writer() as writer:
        for number in range(1, commits + 1):
            writer.write(_rows(number, 10))
            writer.commit(number)
            time.sleep(0.1)


def _rows(first: int, count: int) -> pa.Table:
    numbers = pa.array(range(first, first + count), pa.int64())
    return pa.table([numbers, numbers.cast(pa.float64()), numbers.cast(pa.string())], schema=_SCHEMA)


def _changelog_rate(table: tidelake.Table, rows: int) -> float:
    """Return rows per CPU-second."""
    with table.writer() as writer:
        writer.write(_rows(0, rows))
        writer.commit(1)
    clock = Clock()
    with clock:
        read = sum(change.rows.num_rows for change in table.changes(start=1))
    assert read == rows
    return float(read / clock.cpu_s)


if __name__ == "__main__":
    following(**json.loads(sys.argv[1]))
