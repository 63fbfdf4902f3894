"""Measures the ingestion from Kafka with one process, and with further ones that decode (`source.decode_processes`).

As a program this module runs one pipeline.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

import tidelake
from benchmarks.clock import Clock, peak_memory_mib, tell
from benchmarks.contest import Contender, Sample, Samples, contest, our_pipeline
from benchmarks.order_messages import COLUMNS, PARTITIONS, differences, send
from benchmarks.process_tree import TreeClock
from benchmarks.sections import RACE_HEADER, Goal, PageSection, Plan, race_lines
from tests.support.kafka_broker import KafkaBroker
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.decoding.process_count import process_count, usable_cores
from tidelake.ingest.pipeline.service import run

_TOPIC: Final = "orders"
_MESSAGES: Final = 4_000_000  # so that the start of the processes, half a CPU-second each, counts as in a service
_TABLE: Final = "bench.orders"
_ALONE: Final = "the pipeline's process alone"
_SPEED: Final = 1.7
_COSTS: Final = 1.15


def sections(plan: Plan) -> Iterator[PageSection]:
    broker = KafkaBroker(plan.scratch / "all-cores")
    broker.start()
    auto = process_count("auto")
    try:
        broker.create_topic(_TOPIC, partitions=PARTITIONS)
        truth = plan.scratch / "all-cores.parquet"
        send(broker.address, _TOPIC, round(_MESSAGES * plan.scale), truth)

        def pipeline(processes: int, *, strings: bool = False) -> Contender:
            arguments = {
                "servers": broker.address,
                "warehouse": str(plan.scratch / "all-cores-lake"),
                "processes": processes,
                "strings": strings,
                "truth": str(truth),
            }
            return our_pipeline("all_cores", arguments)

        numbers = sorted({0, 1, max(1, auto), 2})
        typed = contest({_name(number, auto): pipeline(number) for number in numbers}, plan.pairs)
        strings = contest(
            {_name(number, auto): pipeline(number, strings=True) for number in (0, max(1, auto))}, plan.fewer_pairs
        )
    finally:
        broker.purge()
    about = (
        f"{round(_MESSAGES * plan.scale):,} messages of the section above, from a topic of {PARTITIONS} partitions to "
        f"a table of four buckets, on {usable_cores()} cores. CPU time is that of all processes of the pipeline, with "
        "the start of those that decode, and without the broker, which shares the cores. Memory is that of the first "
        "process. Each table is compared with the sent messages."
    )
    lines = race_lines("typed", typed) + race_lines("STRING", strings)
    targets = [
        *_goals("typed columns", typed, _name(max(1, auto), auto)),
        *_goals("STRING columns", strings, _name(max(1, auto), auto)),
    ]
    samples = {**typed, **{f"STRING, {name}": of_one for name, of_one in strings.items()}}
    yield PageSection("From Kafka, on all cores", about, RACE_HEADER, lines, targets, samples)


def _name(processes: int, auto: int) -> str:
    if not processes:
        return _ALONE
    return f"{processes} that decode{', as `auto` chooses here' if processes == auto else ''}"


def _goals(label: str, samples: Samples, name: str) -> list[Goal]:
    alone, found = samples[_ALONE], samples[name]
    speed, costs = _ratio(alone, found, "wall_s"), 1 / _ratio(alone, found, "cpu_s")
    return [
        Goal(f"{label}, {name}: ≥ {_SPEED:g} × the messages a second", f"{speed:.2f} ×", speed >= _SPEED),
        Goal(f"{label}, {name}: ≤ {_COSTS:g} × the CPU time", f"{costs:.2f} ×", costs <= _COSTS),
    ]


def _ratio(one: Sequence[Sample], other: Sequence[Sample], what: str) -> float:
    """Return the median ratio of a time of neighbouring runs."""
    ratios = [getattr(a, what) / getattr(b, what) for a, b in zip(one, other, strict=True)]
    return float(statistics.median(ratios))


def job(servers: str, warehouse: str, processes: int, *, strings: bool, truth: str) -> None:
    shutil.rmtree(warehouse, ignore_errors=True)
    options: Mapping[str, str] = {"bucket": "4"}
    members: Mapping[str, Any] = {
        "pipeline": "bench",
        "warehouse": warehouse,
        "source": {
            "type": "kafka",
            "bootstrap_servers": servers,
            "topics": [_TOPIC],
            "until": "end",
            "decode_processes": processes,
        },
        "tables": [{"name": _TABLE, "match": "shop.orders", "primary_key": ["id"], "options": dict(options)}],
        "checkpoint": {"interval_ms": 10_000},
    }
    catalog = tidelake.open_catalog(warehouse)
    catalog.create_database("bench")
    if not strings:
        catalog.create_table(_TABLE, COLUMNS, primary_key=["id"], options=options)
    clock = Clock()
    with TreeClock() as tree, clock:
        progress = asyncio.run(run(parse_config(json.dumps(members), "benchmark")))
    clock.cpu_s, peak_mib = tree.cpu_s, peak_memory_mib()
    if wrong := differences(catalog.table(_TABLE).scan().to_arrow(), Path(truth)):
        raise AssertionError(f"the table differs from what was sent: {wrong}")
    tell(progress.records, clock, peak_mib=peak_mib, batches_of_processes=progress.observed.decoding.batches)


if __name__ == "__main__":
    pa.array([None])  # Arrow imports pandas for its first list: half a second, not to be measured
    job(**json.loads(sys.argv[1]))
