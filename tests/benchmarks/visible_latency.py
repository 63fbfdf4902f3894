"""How long after it was sent a message is visible to who reads the table, at half of the load that the machine takes.

Run as a program it is the producer, or the pipeline until it gets a SIGTERM.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
from aiokafka import AIOKafkaProducer

import tidelake
from ingest.config.config import parse_config
from ingest.pipeline.builder import run
from tests.benchmarks.contest import PIPELINE_PYTHON, REPOSITORY, JobFailed, ours
from tests.benchmarks.from_kafka import MEMORY_MIB
from tests.benchmarks.order_messages import COLUMNS, KEYS, PARTITIONS, row, send
from tests.benchmarks.sections import Goal, PageSection, Plan
from tests.support.kafka_broker import KafkaBroker

INTERVALS_MS: Final = (500, 1_000, 10_000)
_FACTOR: Final = 1.2
_FULL_LOAD: Final = 500_000  # messages that tell how much the machine takes
_CHECKPOINTS: Final = 12  # that are looked at, of each interval
_WARM_UP_S: Final = 6.0
_TICK_S: Final = 0.02  # the producer sends so often
_TICK_MESSAGES_MAX: Final = 4_000  # they fit into one batch a partition
_MADE: Final = 200_000  # messages, sent again and again
_TIME: Final = 1_234_567_890_123  # stands where the time of sending will
_TABLE: Final = "bench.orders"


def sections(plan: Plan) -> Iterator[PageSection]:
    broker = KafkaBroker(plan.scratch / "visible-latency")
    broker.start()
    try:
        rate = _half_load(plan, broker)
        intervals_ms = INTERVALS_MS if plan.scale >= 1 else INTERVALS_MS[:1]
        found = {interval_ms: _latencies_ms(plan, broker, interval_ms, rate) for interval_ms in intervals_ms}
    finally:
        broker.purge()
    lines, goals = [], []
    for interval_ms, latencies_ms in found.items():
        median, p95, most = np.percentile(latencies_ms, [50, 95, 100]).tolist()
        lines.append([f"{interval_ms:,}", f"{len(latencies_ms):,}", *(f"{ms:,.0f}" for ms in (median, p95, most))])
        text = f"checkpoints every {interval_ms:,} ms: 95 % of rows visible within {_FACTOR:g} × that"
        goals.append(Goal(text, f"{p95 / interval_ms:.2f} ×", p95 <= _FACTOR * interval_ms))
    about = (
        f"{rate:,} messages a second, half of what this machine took of a full topic, sent by a process beside the "
        f"broker on the same machine, into the table of the section above. A row is visible when the file of the first "
        f"snapshot that holds it is there; what a follower takes to notice is told under Following. The first "
        f"{_WARM_UP_S:g} s are left out."
    )
    header = ["ms between checkpoints", "rows", "ms until visible: median", "95 %", "slowest"]
    yield PageSection("Visible latency", about, header, lines, goals)


def _half_load(plan: Plan, broker: KafkaBroker) -> int:
    """Messages a second."""
    broker.create_topic("full", partitions=PARTITIONS)
    truth = plan.scratch / "full.parquet"
    send(broker.address, "full", max(10_000, round(_FULL_LOAD * plan.scale)), truth)
    arguments = {"servers": broker.address, "topic": "full", "warehouse": str(plan.scratch / "full-lake")}
    full = ours("from_kafka", {**arguments, "options": {"bucket": "4"}, "strings": False, "truth": str(truth)}).run()
    return max(500, round(full.rows / full.wall_s / 2))


def _latencies_ms(plan: Plan, broker: KafkaBroker, interval_ms: int, rate: int) -> list[float]:
    """Of each row of each commit, behind the warm-up."""
    topic = broker.create_topic(partitions=PARTITIONS)
    warehouse = plan.scratch / "visible-lake"
    shutil.rmtree(warehouse, ignore_errors=True)
    catalog = tidelake.open_catalog(str(warehouse))
    catalog.create_database("bench")
    table = catalog.create_table(_TABLE, COLUMNS, primary_key=["id"], options={"bucket": "4"})
    where = {"servers": broker.address, "topic": topic}
    pipeline = _start({"role": "run", **where, "warehouse": str(warehouse), "interval_ms": interval_ms})
    try:
        snapshots = Path(table.location) / "snapshot"
        while not list(snapshots.glob("snapshot-*")):  # it has taken the table over
            if pipeline.poll() is not None:
                raise JobFailed("the pipeline ended before anything was sent")
            time.sleep(0.05)
        seconds = _WARM_UP_S + _CHECKPOINTS * interval_ms / 1000 * min(1.0, 4 * plan.scale)
        began_ms = time.time() * 1000
        if _start({"role": "send", **where, "rate": rate, "seconds": seconds}).wait() != 0:
            raise JobFailed("the producer failed")
        time.sleep(2 * interval_ms / 1000)
    finally:
        pipeline.send_signal(signal.SIGTERM)
        pipeline.wait()
    found: list[float] = []
    for change in table.changes(start=1):
        sent_ms = change.rows["score"].to_numpy()
        there_ms = (snapshots / f"snapshot-{change.snapshot_id}").stat().st_mtime_ns / 1e6
        found += (there_ms - sent_ms[sent_ms >= began_ms + 1000 * _WARM_UP_S]).tolist()
    return found


def _start(arguments: Mapping[str, Any]) -> subprocess.Popen[bytes]:
    program = [*PIPELINE_PYTHON, "tests.benchmarks.visible_latency", json.dumps(arguments)]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    return subprocess.Popen(program, cwd=REPOSITORY, env=environment, stdout=subprocess.DEVNULL)


# ---------------------------------------------------------------- the processes


def run_pipeline(servers: str, topic: str, warehouse: str, interval_ms: int) -> None:
    members = {
        "pipeline": "bench",
        "warehouse": warehouse,
        "source": {"type": "kafka", "bootstrap_servers": servers, "topics": [topic]},
        "tables": [{"name": _TABLE, "match": "shop.orders", "options": {"bucket": "4"}}],
        "write": {"memory_bytes": MEMORY_MIB << 20},
        "checkpoint": {"interval_ms": interval_ms},
    }
    asyncio.run(run(parse_config(json.dumps(members), "benchmark")))


async def send_steadily(servers: str, topic: str, rate: int, seconds: float) -> None:
    """Upserts of random keys; `score` is when a message was sent, in epoch milliseconds."""
    made = _messages()
    sent, began_s = 0, time.perf_counter()
    async with AIOKafkaProducer(bootstrap_servers=servers, max_batch_size=1 << 20) as producer:
        while (passed_s := time.perf_counter() - began_s) < seconds:
            due = min(_TICK_MESSAGES_MAX, int(passed_s * rate) - sent)
            batches = [producer.create_batch() for _ in range(PARTITIONS)]
            now = str(int(time.time() * 1000)).encode()
            for number in range(sent, sent + due):
                key, before, behind = made[number % _MADE]
                message = b"%b%b%b" % (before, now, behind)
                batches[key % PARTITIONS].append(key=b'{"id":%d}' % key, value=message, timestamp=None)
            sent += due
            filled = [(partition, batch) for partition, batch in enumerate(batches) if batch.record_count()]
            # the broker's answers are waited for: what queued up here would be a latency of the producer's
            await asyncio.gather(*[await producer.send_batch(batch, topic, partition=at) for at, batch in filled])
            await asyncio.sleep(_TICK_S)


def _messages() -> list[tuple[int, bytes, bytes]]:
    """Of each its key, what stands before the time it is sent at, and what behind. Made beforehand: a producer that
    makes them as it goes takes a core from what is measured.
    """
    random, encode = np.random.default_rng(9), msgspec.json.Encoder().encode
    source = {"version": "2.5.0.Final", "connector": "mysql", "name": "s", "db": "shop", "table": "orders"}
    made = []
    for number, key in enumerate(random.integers(0, KEYS, _MADE).tolist()):
        image = row(key, number) | {"score": _TIME}
        message = encode({"before": None, "after": image, "source": source, "op": "c", "ts_ms": 0})
        before, behind = message.split(str(_TIME).encode())
        made.append((key, before, behind))
    return made


if __name__ == "__main__":
    pa.array([None])  # see from_kafka
    asked = json.loads(sys.argv[1])
    if asked.pop("role") == "run":
        run_pipeline(**asked)
    else:
        asyncio.run(send_steadily(**asked))
