"""Measures the ingestion from Kafka into a compacting table, in comparison with Flink. This is the most common use.

As a program this module runs the job of Tidelake.
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
from benchmarks.clock import Clock, bytes_below, peak_memory_mib, tell
from benchmarks.contest import Contender, Sample, Samples, contest, median_ratio, our_pipeline
from benchmarks.flink import FLINK_SQL, SYNC_TABLE, FlinkJob, flink_classes
from benchmarks.order_messages import COLUMNS, PARTITIONS, differences, send
from benchmarks.sections import (
    RACE_HEADER,
    Goal,
    PageSection,
    Plan,
    peak_at_most,
    race_lines,
    rate_at_least,
    thousands,
)
from tests.support.kafka_broker import KafkaBroker
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.pipeline.service import run

TYPED: Final = "Tidelake, typed columns"
STRINGS: Final = "Tidelake, STRING columns"
LOOKUP: Final = "Tidelake, typed, changelog-producer=lookup"
SQL_LOOKUP: Final = f"{FLINK_SQL}, changelog-producer=lookup"
CHECKPOINT_MS: Final = 10_000
MEMORY_MIB: Final = 256
_BESIDES_MIB: Final = 400
_TOPICS: Final = {"short": 1_000_000, "long": 4_000_000}  # number of messages of each topic
_TABLE: Final = "bench.orders"
_LONG_RUNS: Final = 2


def sections(plan: Plan) -> Iterator[PageSection]:
    broker = KafkaBroker(plan.scratch / "from-kafka")
    broker.start()
    try:
        race = _Race(plan, broker)
        short = contest(race.contenders("short"), plan.fewer_pairs)
        long = contest(race.contenders("long"), min(plan.pairs, _LONG_RUNS)) if plan.has_flink else {}
    finally:
        broker.purge()
    about = (
        f"{round(_TOPICS['short'] * plan.scale):,} messages of schemaless Debezium JSON (561 bytes, ten columns, "
        "200,000 keys, 5 % deletes; `benchmarks/order_messages.py`) from a topic of four partitions are written "
        "to a table of four buckets. The table is compacted while it is written. A checkpoint is made every "
        f"{CHECKPOINT_MS // 1000} seconds. A table that is created from such messages has STRING columns. Flink's time "
        "begins with the first record: the start of its JVM is not included, and neither is the import of our modules. "
        "CPU time is that of the pipeline's process, without the broker. Each table is compared with the sent messages."
    )
    lines = race_lines("1 M", short) + race_lines("4 M", long)
    targets = [
        rate_at_least("typed columns, messages", short[TYPED], 120_000),
        peak_at_most("typed columns", [*short[TYPED], *long.get(TYPED, ())], MEMORY_MIB + _BESIDES_MIB),
        peak_at_most("STRING columns", [*short[STRINGS], *long.get(STRINGS, ())], MEMORY_MIB + _BESIDES_MIB),
        *_ratio(short, "1 M, typed", 3, TYPED, FLINK_SQL),
        *_ratio(short, "1 M, STRING", 4, STRINGS, SYNC_TABLE),
        *_ratio(short, "1 M, lookup", 3, LOOKUP, SQL_LOOKUP),
        *_steady(short, long, "typed", 2, TYPED, FLINK_SQL),
        *_steady(short, long, "STRING", 4, STRINGS, SYNC_TABLE),
    ]
    yield PageSection(
        "From Kafka, compared with Flink", about, RACE_HEADER, lines, targets, {**short, **_named_long(long)}
    )


class _Race:
    """Two topics of a broker, and the contenders that read them."""

    def __init__(self, plan: Plan, broker: KafkaBroker) -> None:
        self._plan = plan
        self._broker = broker
        for name in _TOPICS if plan.has_flink else ("short",):
            broker.create_topic(name, partitions=PARTITIONS)
            send(broker.address, name, round(_TOPICS[name] * plan.scale), self._truth(name))
        self._sql = flink_classes("sql") if plan.has_flink else ""
        self._sync = flink_classes("sync") if plan.has_flink else ""

    def contenders(self, topic: str) -> Mapping[str, Contender]:
        found: dict[str, Contender] = {TYPED: self._ours(topic, {}), STRINGS: self._ours(topic, {}, strings=True)}
        if self._plan.has_flink:
            found |= {FLINK_SQL: self._sql_job(topic, {}), SYNC_TABLE: self._sync_job(topic)}
        if topic == "short":
            found[LOOKUP] = self._ours(topic, {"changelog-producer": "lookup"})
            if self._plan.has_flink:
                found[SQL_LOOKUP] = self._sql_job(topic, {"changelog-producer": "lookup"})
        return found

    def _ours(self, topic: str, options: Mapping[str, str], *, strings: bool = False) -> Contender:
        arguments = {
            "servers": self._broker.address,
            "topic": topic,
            "warehouse": str(self._plan.scratch / "from-kafka-lake"),
            "options": {"bucket": "4", **options},
            "strings": strings,
            "truth": str(self._truth(topic)),
        }
        return our_pipeline("from_kafka", arguments)

    def _sql_job(self, topic: str, options: Mapping[str, str]) -> FlinkJob:
        return self._flink("peer.Sql", self._sql, topic, options)

    def _sync_job(self, topic: str) -> FlinkJob:
        return self._flink("peer.Sync", self._sync, topic, {})

    def _flink(self, main: Any, classes: str, topic: str, options: Mapping[str, str]) -> FlinkJob:
        options = {"bucket": "4", "file.format": "parquet", "file.compression": "zstd", **options}
        warehouse = self._plan.scratch / "from-kafka-flink"
        broker = self._broker.address
        return FlinkJob(main, classes, broker, topic, warehouse, options, CHECKPOINT_MS, self._truth(topic))

    def _truth(self, topic: str) -> Path:
        return self._plan.scratch / f"{topic}.parquet"


def _ratio(samples: Samples, label: str, factor: float, one: str, peer: str) -> list[Goal]:
    if peer not in samples:
        return []
    found = median_ratio(samples, one, peer)
    return [Goal(f"{label}: ≥ {factor:g} × {peer}", f"{found:.2f} ×", found >= factor)]


def _steady(short: Samples, long: Samples, label: str, factor: float, one: str, peer: str) -> list[Goal]:
    """Return the target for the rate after the first million messages, because a JVM compiles its code before."""
    if peer not in long:
        return []
    rates = {name: _margin(short[name], long[name]) for name in (one, peer)}
    text = f"{label}, steady state (from 1 M on): ≥ {factor:g} × {peer} ({thousands(rates[peer])} per CPU-second)"
    found = rates[one] / rates[peer]
    return [Goal(text, f"{found:.2f} × ({thousands(rates[one])})", found >= factor)]


def _margin(short: Sequence[Sample], long: Sequence[Sample]) -> float:
    cpu_s = statistics.median(s.cpu_s for s in long) - statistics.median(s.cpu_s for s in short)
    return (long[0].rows - short[0].rows) / cpu_s


def _named_long(long: Samples) -> dict[str, Sequence[Sample]]:
    return {f"{name}, 4 M": samples for name, samples in long.items()}


def job(servers: str, topic: str, warehouse: str, options: Mapping[str, str], *, strings: bool, truth: str) -> None:
    shutil.rmtree(warehouse, ignore_errors=True)
    members = {
        "pipeline": "bench",
        "warehouse": warehouse,
        "source": {"type": "kafka", "bootstrap_servers": servers, "topics": [topic], "until": "end"},
        "tables": [{"name": _TABLE, "match": "shop.orders", "primary_key": ["id"], "options": dict(options)}],
        "write": {"memory_bytes": MEMORY_MIB << 20},
        "checkpoint": {"interval_ms": CHECKPOINT_MS},
    }
    catalog = tidelake.open_catalog(warehouse)
    catalog.create_database("bench")
    if not strings:
        catalog.create_table(_TABLE, COLUMNS, primary_key=["id"], options=options)
    clock = Clock()
    with clock:
        progress = asyncio.run(run(parse_config(json.dumps(members), "benchmark")))
    peak_mib = peak_memory_mib()
    table = catalog.table(_TABLE)
    if wrong := differences(table.scan().to_arrow(), Path(truth)):
        raise AssertionError(f"the table differs from what was sent: {wrong}")
    data_bytes = bytes_below(table.location, "data-")
    tell(progress.records, clock, peak_mib=peak_mib, data_bytes=data_bytes, checkpoints=progress.checkpoints)


if __name__ == "__main__":
    pa.array([None])  # Arrow imports pandas for its first list: half a second, not to be measured
    job(**json.loads(sys.argv[1]))
