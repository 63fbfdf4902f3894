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
from contextlib import ExitStack, contextmanager
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
_READS: Final = 9
_READ_FILES: Final = 10
_READ_ROWS: Final = 2_000
_FIRST_BATCH, _COLD, _WARM = "the first batch, cold", "a point lookup, cold", "a point lookup, warm"
_READ_GOALS: Final = {_FIRST_BATCH: 350, _COLD: 400, _WARM: 100}
_RUNS: Final = 6
_COMPACTED_ROWS: Final = 500_000  # of each run
_COMPACTION_SHARE: Final = 0.8
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
    yield _reads(places, plan)
    yield _compaction(places, plan)
    yield from tables_on_a_store.sections(plan)


def _reads(places: Mapping[str, Mapping[str, Any]], plan: Plan) -> PageSection:
    repetitions = max(3, int(_READS * plan.scale))
    samples = {name: [ours("stores", {"reads": repetitions, **place}).run()] for name, place in places.items()}
    lines = [
        [
            f"{name}, {kind}",
            str(len(each)),
            f"**{_wall_ms(each, 0.5):.0f}**",
            f"{_wall_ms(each, 0.95):.0f}",
            f"{1000 * statistics.median(one['cpu_s'] for one in each):.0f}",
            f"{statistics.median(one['requests'] for one in each):.0f}" if name == _STORE else "",
            f"{statistics.median_low(one['in_sequence'] for one in each)}" if name == _STORE else "",
        ]
        for name, (sample,) in samples.items()
        for kind, each in sample.details["each"].items()
    ]
    about = (
        f"Reads of ten files of {_READ_ROWS:,} rows. A cold one opens catalog and table, with nothing in memory and no "
        "connection; a warm one looks up another key in the same table. Lookups find one row with a Bloom filter in "
        "a file next to each data file."
    )
    header = ["", "reads", "p50 ms", "p95 ms", "CPU ms", "requests", "in sequence"]
    targets = []
    for kind, goal_ms in _READ_GOALS.items():
        p50 = _wall_ms(samples[_STORE][0].details["each"][kind], 0.5)
        targets.append(Goal(f"p50 of {kind} ≤ {goal_ms} ms", f"{p50:.0f} ms", p50 <= goal_ms))
    return PageSection("Reads from stores", about, header, lines, targets, samples)


def _compaction(places: Mapping[str, Mapping[str, Any]], plan: Plan) -> PageSection:
    rows = max(10_000, int(_COMPACTED_ROWS * plan.scale))
    samples: dict[str, list[Sample]] = {name: [] for name in places}
    for _ in range(plan.fewer_pairs):  # in turns
        for name, place in places.items():
            samples[name].append(ours("stores", {"compacted": rows, **place}).run())
    walls = {name: statistics.median(sample.wall_s for sample in of_one) for name, of_one in samples.items()}
    lines = [
        [
            name,
            str(len(of_one)),
            f"**{rows * _RUNS / walls[name] / 1000:,.0f}**",
            f"{statistics.median(sample.cpu_s for sample in of_one):.2f}",
        ]
        for name, of_one in samples.items()
    ]
    ratio = walls[_DISK] / walls[_STORE]
    about = f"A full compaction of {_RUNS} overlapping runs of {rows:,} rows, from the call to its commit."
    target = Goal("store ≥ 0.8 of the local disk", f"{ratio:.2f}", ratio >= _COMPACTION_SHARE)
    header = ["", "runs", "thousand rows a second", "CPU s"]
    return PageSection("Compaction in stores", about, header, lines, [target], samples)


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


def run_job(total: int = 0, reads: int = 0, compacted: int = 0, latency_ms: float = 0, warehouse: str = "") -> None:
    """Commit, read or compact in a store with this latency, or in a warehouse on a disk."""
    with ExitStack() as running:
        store = None if warehouse else running.enter_context(SlowStore(latency_ms))
        if reads:
            _read(warehouse, reads, store)
        elif compacted:
            _compact(_opened(warehouse, store), compacted)
        else:
            _commit(_opened(warehouse, store), total, store)


def _opened(warehouse: str, store: SlowStore | None, visit: int = 0) -> tidelake.Catalog:
    """Open the catalog. Each visit is another user's: nothing of the others is in memory."""
    if store is None:
        return tidelake.open_catalog(warehouse)
    return tidelake.open_catalog("s3://bench/lake", **store.options, **{"s3.session.token": f"visit {visit}"})


def _read(warehouse: str, repetitions: int, store: SlowStore | None) -> None:
    catalog = _opened(warehouse, store)
    catalog.create_database("bench", if_not_exists=True)
    catalog.drop_table("bench.reads", if_exists=True)
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("v", pa.string()), pa.field("x", pa.float64())])
    options = {
        "bucket": "-1",
        "file-index.bloom-filter.columns": "id",
        "file-index.bloom-filter.id.items": str(_READ_ROWS),
        "file-index.in-manifest-threshold": "1 b",
    }
    table = catalog.create_table("bench.reads", schema, options=options)
    random = np.random.default_rng(1)
    ids = random.permutation(_READ_FILES * _READ_ROWS)
    for number, part in enumerate(np.split(ids, _READ_FILES)):
        with table.writer(commit_user="bench") as writer:
            writer.write(pa.table({"id": part, "v": [f"v{i}" for i in part], "x": random.random(_READ_ROWS)}, schema))
            writer.commit(number + 1)
    each: dict[str, list[dict[str, Any]]] = {kind: [] for kind in _READ_GOALS}
    all_reads = Clock()
    for visit in range(1, repetitions + 1):
        wanted = [int(one) for one in random.choice(ids, 3, replace=False)]
        cold = _opened(warehouse, store, 2 * visit)
        with _measured(each[_FIRST_BATCH], all_reads, store):
            assert next(iter(cold.table("bench.reads").scan().to_batches())).num_rows
        cold = _opened(warehouse, store, 2 * visit + 1)
        with _measured(each[_COLD], all_reads, store):
            found = cold.table("bench.reads")
            assert _look_up(found, wanted[0]) == 1
        _look_up(found, wanted[1])
        with _measured(each[_WARM], all_reads, store):
            assert _look_up(found, wanted[2]) == 1
    tell(repetitions * len(each), all_reads, each=each)


def _look_up(table: tidelake.Table, key: int) -> int:
    rows: int = table.scan(filter=tidelake.col("id") == key).to_arrow().num_rows
    return rows


@contextmanager
def _measured(into: list[dict[str, Any]], all_clocks: Clock, store: SlowStore | None) -> Iterator[None]:
    _requests(store)
    with (clock := Clock()), all_clocks:
        yield
    requests = _requests(store)
    into.append(
        {
            "wall_s": clock.wall_s,
            "cpu_s": clock.cpu_s,
            "requests": len(requests),
            "in_sequence": round_trips(requests),
        }
    )


def _compact(catalog: tidelake.Catalog, rows: int) -> None:
    catalog.create_database("bench", if_not_exists=True)
    catalog.drop_table("bench.compacted", if_exists=True)
    values = {f"c{n}": pa.float64() if n % 2 else pa.string() for n in range(8)}
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), *(pa.field(*one) for one in values.items())])
    options = {"bucket": "1", "write-only": "true"}
    table = catalog.create_table("bench.compacted", schema, primary_key=["id"], options=options)
    random = np.random.default_rng(1)
    for number in range(_RUNS):
        columns = {"id": random.choice(_RUNS * rows, rows, replace=False)}
        for name, kind in values.items():
            numbers = random.integers(0, 1 << 40, rows)
            columns[name] = pa.array(numbers).cast(kind)
        with table.writer(commit_user="bench") as writer:
            writer.write(pa.table(columns, schema))
            writer.commit(number + 1)
    compacting = catalog.table("bench.compacted", {"write-only": "false"})
    with (clock := Clock()):
        compacting.compact(full=True)
    tell(_RUNS * rows, clock)


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
    run_job(**json.loads(sys.argv[1]))
