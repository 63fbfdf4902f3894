"""Measures what commits and reads ask of an object store that answers late, with a local disk beside it.

As a program this module runs the job of Tidelake: the public API.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

import tidelake
from benchmarks import tables_on_a_store
from benchmarks.clock import Clock, tell
from benchmarks.contest import Sample, ours
from benchmarks.sections import Goal, PageSection, Plan
from benchmarks.slow_store import Request, SlowStore, counted, round_trips

LATENCY_MS: Final = 30
_COMMITS: Final = 120
_COMMITS_MIN: Final = 16
_FIRST: Final = 6  # commits before the steady state
_ROWS: Final = 2_000
_KEYS: Final = 20_000
_PAUSE_S: Final = 0.2  # between commits: a stream commits now and then, and compactions run meanwhile
_WITHOUT, _WITH = "rows only", "with a compaction"
_GOALS: Final = {_WITHOUT: 150, _WITH: 200}
_REQUESTS_MAX: Final = 15
_HEADER: Final = ["", "commits", "p50 ms", "p95 ms", "CPU ms", "requests", "in sequence", "requests by kind"]
_STORE: Final = f"store, {LATENCY_MS} ms"
_DISK: Final = "local disk"


def sections(plan: Plan) -> Iterator[PageSection]:
    total = max(_COMMITS_MIN, int(_COMMITS * plan.scale))
    places: dict[str, dict[str, Any]] = {
        _STORE: {"latency_ms": LATENCY_MS},
        _DISK: {"warehouse": str(plan.scratch / "stores")},
    }
    samples = {name: [ours("stores", {"total": total, **place}).run()] for name, place in places.items()}
    lines = [line for name, (sample,) in samples.items() for line in _lines(name, sample)]
    about = (
        f"Commits of {_ROWS:,} rows to four buckets, compacted while they are written, {1000 * _PAUSE_S:.0f} ms apart. "
        f"The store holds its objects in memory, and answers each request after {LATENCY_MS} ms. Requests, and those "
        "that followed one another, are without data files; the flush of all buckets is one more in sequence. CPU time "
        "is that of the whole process."
    )
    yield PageSection("Stores", about, _HEADER, lines, _targets(samples[_STORE][0]), samples)
    yield from tables_on_a_store.sections(plan)


def _commits(sample: Sample, kind: str) -> list[Mapping[str, Any]]:
    wanted = 2 if kind == _WITH else 1
    return [commit for commit in sample.details["each"][_FIRST:] if commit["snapshots"] == wanted]


def _lines(name: str, sample: Sample) -> Iterator[list[str]]:
    for kind in (_WITHOUT, _WITH):
        if commits := _commits(sample, kind):
            each = statistics.fmean(commit["requests"] for commit in commits)
            kinds = sum((Counter(commit["kinds"]) for commit in commits), Counter[str]())
            yield [
                f"{name}, {kind}",
                str(len(commits)),
                f"**{_wall_ms(commits, 0.5):.0f}**",
                f"{_wall_ms(commits, 0.95):.0f}",
                f"{1000 * statistics.median(commit['cpu_s'] for commit in commits):.0f}",
                f"{each:.1f}" if each else "",
                str(statistics.median_low(commit["in_sequence"] for commit in commits)) if each else "",
                ", ".join(f"{text} {count / len(commits):.1f}" for text, count in sorted(kinds.items())),
            ]


def _wall_ms(commits: Sequence[Mapping[str, Any]], share: float) -> float:
    walls = sorted(commit["wall_s"] for commit in commits)
    return 1000 * float(walls[min(len(walls) - 1, int(share * len(walls)))])


def _targets(sample: Sample) -> list[Goal]:
    found = []
    for kind, goal_ms in _GOALS.items():
        if commits := _commits(sample, kind):
            p50 = _wall_ms(commits, 0.5)
            found.append(Goal(f"p50 of a commit, {kind} ≤ {goal_ms} ms", f"{p50:.0f} ms", p50 <= goal_ms))
    requests = statistics.fmean(commit["requests"] for commit in sample.details["each"][_FIRST:])
    text = f"requests of a commit beside data files ≤ {_REQUESTS_MAX}"
    return [*found, Goal(text, f"{requests:.1f}", requests <= _REQUESTS_MAX)]


# ---------------------------------------------------------------- the job


def commit_often(total: int, latency_ms: float = 0, warehouse: str = "") -> None:
    """Commit into a store with this latency, or into a warehouse on a disk."""
    if warehouse:
        _commit(tidelake.open_catalog(warehouse), total, None)
        return
    with SlowStore(latency_ms) as store:
        _commit(tidelake.open_catalog("s3://bench/lake", **store.options), total, store)


def _commit(catalog: tidelake.Catalog, total: int, store: SlowStore | None) -> None:
    catalog.create_database("bench", if_not_exists=True)
    catalog.drop_table("bench.stores", if_exists=True)
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.string())])
    table = catalog.create_table("bench.stores", schema, primary_key=["id"], options={"bucket": "4"})
    random, all_commits, each, newest = np.random.default_rng(1), Clock(), list[dict[str, Any]](), 0
    with table.writer(commit_user="bench") as writer:
        for identifier in range(1, total + 1):
            ids = random.choice(_KEYS, _ROWS, replace=False)
            writer.write(pa.table({"id": ids, "v": [f"v{identifier}"] * _ROWS}))
            time.sleep(_PAUSE_S)
            _requests(store)
            begin = time.monotonic()
            with (clock := Clock()), all_commits:
                published = writer.commit(identifier) or 0
            end, requests = time.monotonic(), _requests(store)
            waited_for = [request for request in requests if begin <= request.begin and request.end <= end]
            kinds = counted([request for request in requests if request.kind != "data"])
            each.append(
                {
                    "snapshots": published - newest,
                    "wall_s": clock.wall_s,
                    "cpu_s": clock.cpu_s,
                    "requests": kinds.total(),
                    "in_sequence": round_trips([request for request in waited_for if request.kind != "data"]),
                    "kinds": kinds,
                }
            )
            newest = published
    tell(total * _ROWS, all_commits, each=each)


def _requests(store: SlowStore | None) -> list[Request]:
    return [] if store is None else store.requests()


if __name__ == "__main__":
    commit_often(**json.loads(sys.argv[1]))
