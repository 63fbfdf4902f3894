"""Measures a pipeline of many tables on an object store that answers late.

As a program this module runs the pipeline: tables are created, then every table gets rows in every checkpoint, then
only every second table does.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.clock import Clock, tell
from benchmarks.contest import our_pipeline
from benchmarks.sections import Goal, PageSection, Plan
from benchmarks.slow_store import Request, SlowStore, counted
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.monitoring.observations import CheckpointObservation
from tidelake.ingest.pipeline.builder import build_pipeline
from tidelake.ingest.settings import Config

_TABLES: Final = 200
_LATENCY_MS: Final = 30
_INTERVAL_MS: Final = 2_000
_ROUNDS: Final = 12  # of busy tables, one for each interval
_IDLE_ROUNDS: Final = 3  # of those in which every second table is idle
_FIRST: Final = 2  # checkpoints before the steady state
_ROWS: Final = 10  # of a table in a round
_LAST_S: Final = 120  # for what the last round left
_CREATING_S, _START_S, _PLAN_S = 5, 3, 5
_CORE: Final = 0.6


def sections(plan: Plan) -> Iterator[PageSection]:
    tables = max(4, round(_TABLES * plan.scale))
    sample = our_pipeline("tables_on_a_store", {"tables": tables, "latency_ms": _LATENCY_MS}).run()
    found = sample.details
    steady = found["checkpoints"][_FIRST:]
    took_s = statistics.median(one["took_ms"] for one in steady) / 1000
    least = min(one["tables"] for one in steady)
    share = found["busy_cpu_s"] / found["busy_wall_s"]
    kinds = ", ".join(f"{kind} {count / found['commits']:.1f}" for kind, count in sorted(found["kinds"].items()))
    lines = [
        [f"{tables // 2} tables are created", f"{found['creation_s']:.2f} s"],
        [f"start of {tables} tables, and an end with nothing to read", f"{found['start_s']:.2f} s"],
        [f"plan of {tables} tables", f"{found['plan_s']:.2f} s"],
        ["checkpoints in the steady state", str(len(steady))],
        ["tables in a checkpoint, at least", str(least)],
        ["a checkpoint, p50", f"{took_s:.2f} s"],
        ["CPU time of a table's commit", f"{1000 * found['busy_cpu_s'] / found['commits']:.1f} ms"],
        ["requests of a table's commit", kinds],
        ["requests of an idle table in a checkpoint", f"{found['idle_requests']:g}"],
    ]
    about = (
        f"{tables} tables, each with {_ROWS} new rows every {_INTERVAL_MS / 1000:g} s, in a store that answers each "
        f"request after {_LATENCY_MS} ms. Tables are created at their first record, and compacted while they are "
        "written. CPU time is that of the whole pipeline."
    )
    goals = [
        Goal(f"every table in every checkpoint of {_INTERVAL_MS / 1000:g} s", f"{least} of {tables}", least == tables),
        Goal(f"a checkpoint ≤ {_INTERVAL_MS / 1000:g} s", f"{took_s:.2f} s", took_s * 1000 <= _INTERVAL_MS),
        Goal(f"≤ {_CORE:.0%} of a core", f"{share:.0%}", share <= _CORE),
        Goal("an idle table costs no request", f"{found['idle_requests']:g}", found["idle_requests"] == 0),
        _within(f"{tables // 2} tables are created in", _CREATING_S, found["creation_s"]),
        _within(f"start of {tables} tables", _START_S, found["start_s"]),
        _within(f"plan of {tables} tables", _PLAN_S, found["plan_s"]),
    ]
    title = "Many tables on a store"
    yield PageSection(title, about, ["", ""], lines, goals, {"store": [sample]})


def _within(what: str, limit_s: float, found_s: float) -> Goal:
    return Goal(f"{what} ≤ {limit_s:g} s", f"{found_s:.2f} s", found_s <= limit_s)


# ---------------------------------------------------------------- the job


def write_many_tables(tables: int, latency_ms: float) -> None:
    with tempfile.TemporaryDirectory() as home, SlowStore(latency_ms) as store:
        changes = _Changes(Path(home))
        ending, running = (_config(store, changes.folder, until=until) for until in ("end", "forever"))
        seconds = dict[str, float]()
        half = range(tables // 2)
        changes.add(half)
        seconds["creation_s"] = _seconds_of_run(ending)
        changes.add(range(tables // 2, tables))
        _seconds_of_run(ending)
        seconds["start_s"] = _seconds_of_run(ending)
        began = time.perf_counter()
        asyncio.run(build_pipeline(ending).plan())
        seconds["plan_s"] = time.perf_counter() - began
        store.requests()
        with (busy := Clock()):
            checkpoints = asyncio.run(_busy(running, changes, range(tables), _ROUNDS))
        commits = sum(one.tables for one in checkpoints)
        kinds = counted(store.requests())
        asyncio.run(_busy(running, changes, half, _IDLE_ROUNDS, store))
        idle = [request for request in store.requests() if _table_of(request) not in (None, *half)]
        tell(
            tables * _ROUNDS * _ROWS,
            busy,
            **seconds,
            busy_cpu_s=busy.cpu_s,
            busy_wall_s=busy.wall_s,
            commits=commits,
            kinds=kinds,
            idle_requests=len(idle) / (tables - len(half)) / _IDLE_ROUNDS,
            checkpoints=[{"tables": one.tables, "took_ms": one.took_ms} for one in checkpoints],
        )


def _seconds_of_run(config: Config) -> float:
    began = time.perf_counter()
    asyncio.run(build_pipeline(config).run())
    return time.perf_counter() - began


async def _busy(
    config: Config, changes: _Changes, tables: Sequence[int], rounds: int, store: SlowStore | None = None
) -> list[CheckpointObservation]:
    """Run the pipeline while changes arrive, and return its checkpoints.

    store: forgets the requests of the start
    """
    pipeline = await asyncio.to_thread(build_pipeline, config)
    run = asyncio.create_task(pipeline.run())
    observed = pipeline.observed
    await asyncio.to_thread(_wait, lambda: observed.state == "RUNNING" or run.done())
    if store is not None:
        await asyncio.to_thread(store.requests)
    for _ in range(rounds):
        await asyncio.to_thread(changes.add, tables)
        await asyncio.sleep(_INTERVAL_MS / 1000)
    wanted = rounds * len(tables) * _ROWS
    await asyncio.to_thread(_wait, lambda: sum(one.records for one in list(observed.recent_checkpoints)) >= wanted)
    checkpoints = list(observed.recent_checkpoints)
    if store is not None:
        run.cancel()  # an end registers the position of all tables
    else:
        pipeline.stop()
    await asyncio.gather(run, return_exceptions=store is not None)
    return checkpoints


def _wait(is_true: Callable[[], bool]) -> None:
    until = time.monotonic() + _LAST_S
    while not is_true() and time.monotonic() < until:
        time.sleep(0.05)


class _Changes:
    """A folder of change logs. Each table has a topic of its own, as Debezium writes them."""

    def __init__(self, home: Path) -> None:
        self.folder = home / "changes"
        self.folder.mkdir()
        self._hidden = home / "next"
        self._files = 0
        self._offsets: dict[int, int] = {}
        self._lock = threading.Lock()

    def add(self, tables: Sequence[int]) -> None:
        with self._lock:
            lines = [self._line(table) for table in tables for _ in range(_ROWS)]
            self._hidden.write_text("".join(lines))
            self._hidden.rename(self.folder / f"{self._files:05}.jsonl")
            self._files += 1

    def _line(self, table: int) -> str:
        offset = self._offsets[table] = self._offsets.get(table, -1) + 1
        source = {"db": "bench", "schema": "public", "table": f"t{table}", "connector": "postgresql"}
        value = {"before": None, "after": {"id": offset % 100, "name": f"n{offset}"}, "op": "c", "source": source}
        line = {"topic": f"bench.t{table}", "partition": 0, "offset": offset, "key": f'{{"id":{offset % 100}}}'}
        return json.dumps({**line, "value": json.dumps(value)}) + "\n"


def _config(store: SlowStore, folder: Path, until: str) -> Config:
    settings: dict[str, Any] = {
        "pipeline": "bench",
        "warehouse": "s3://bench/lake",
        "warehouse_options": store.options,
        "source": {"type": "change-log-folder", "path": str(folder), "until": until, "poll_interval_ms": 100},
        "tables": [{"name": "bench.{table}", "options": {"bucket": 1}}],
        "checkpoint": {"interval_ms": _INTERVAL_MS},
    }
    return parse_config(json.dumps(settings), "benchmark")  # JSON is YAML


def _table_of(request: Request) -> int | None:
    """Return the number of the table whose file was asked for."""
    _, found, rest = request.key.partition("bench.db/t")
    return int(rest.partition("/")[0]) if found else None


if __name__ == "__main__":
    write_many_tables(**json.loads(sys.argv[1]))
