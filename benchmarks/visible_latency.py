"""Measures the time from sending a message until readers see its row, at half of the machine's maximum load.

As a program this module is the producer, or the pipeline, which runs until a SIGTERM.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
from aiokafka import AIOKafkaProducer
from numpy.typing import NDArray

import tidelake
from benchmarks.contest import PIPELINE_PYTHON, REPOSITORY, JobFailed
from benchmarks.from_kafka import MEMORY_MIB
from benchmarks.order_messages import COLUMNS, KEYS, PARTITIONS, row
from benchmarks.sections import Goal, PageSection, Plan
from tests.support.kafka_broker import KafkaBroker
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.pipeline.service import run

INTERVALS_MS: Final = (500, 1_000, 10_000)
_FACTOR: Final = 1.2
_FULL_LOAD_S: Final = 10.0  # long enough to measure the maximum load
_ALL_IT_CAN: Final = 0  # the rate "as fast as possible"
_CHECKPOINTS: Final = 12  # evaluated checkpoints for each interval
_WARM_UP_S: Final = 6.0
_TICK_S: Final = 0.02  # interval of the producer
_TICK_MESSAGES_MAX: Final = 4_000  # they fit into one batch per partition
_MADE: Final = 200_000  # different messages, which are sent repeatedly
_TIME: Final = 1_234_567_890_123  # is replaced with the time of sending
_TABLE: Final = "bench.orders"

_Message: TypeAlias = tuple[bytes, bytes, bytes]


def sections(plan: Plan) -> Iterator[PageSection]:
    # Its log is in memory: if it were on the table's disk, a commit's fsync would also wait for the broker's writes.
    memory = Path("/dev/shm")
    broker = KafkaBroker(Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else plan.scratch)))
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
        text = f"checkpoints every {interval_ms:,} ms: 95 % of rows visible within {_FACTOR:g} × the interval"
        goals.append(Goal(text, f"{p95 / interval_ms:.2f} ×", p95 <= _FACTOR * interval_ms))
    about = (
        f"{rate:,} messages per second into a table like that of the first section. This is half of the rate that the "
        f"pipeline reaches on this machine while a producer sends as fast as it can. Broker (its log in memory) and "
        f"producer run on this machine. A row is visible when the file of the first snapshot with this row exists. The "
        f"section Following shows how long a follower takes to detect it. The first {_WARM_UP_S:g} s are left out."
    )
    header = ["ms between checkpoints", "rows", "ms until visible: median", "95 %", "slowest"]
    yield PageSection("Visible latency", about, header, lines, goals)


@dataclass(frozen=True, slots=True)
class _Followed:
    """The commits of a pipeline while messages are sent. All times are epoch milliseconds.

    began_ms, ended_ms: the times when sending began and ended.
    commits: for each snapshot, the time of its creation, and the times when its rows were sent.
    """

    began_ms: float
    ended_ms: float
    commits: Sequence[tuple[float, NDArray[np.float64]]]


def _half_load(plan: Plan, broker: KafkaBroker) -> int:
    """Return half of the maximum rate, in messages per second."""
    full = _follow(plan, broker, 1_000, _ALL_IT_CAN, _WARM_UP_S + _FULL_LOAD_S * min(1.0, 4 * plan.scale))
    warm_ms = full.began_ms + 1000 * _WARM_UP_S
    first, *later = [(there, len(sent)) for there, sent in full.commits if warm_ms <= there <= full.ended_ms]
    return round(1000 * sum(rows for _, rows in later) / (later[-1][0] - first[0]) / 2)


def _latencies_ms(plan: Plan, broker: KafkaBroker, interval_ms: int, rate: int) -> list[float]:
    """Return the latency of each row of each commit after the warm-up."""
    seconds = _WARM_UP_S + _CHECKPOINTS * interval_ms / 1000 * min(1.0, 4 * plan.scale)
    followed = _follow(plan, broker, interval_ms, rate, seconds)
    warm_ms = followed.began_ms + 1000 * _WARM_UP_S
    return [ms for there, sent in followed.commits for ms in (there - sent[sent >= warm_ms]).tolist()]


def _follow(plan: Plan, broker: KafkaBroker, interval_ms: int, rate: int, seconds: float) -> _Followed:
    topic = broker.create_topic(partitions=PARTITIONS)
    warehouse = plan.scratch / "visible-lake"
    shutil.rmtree(warehouse, ignore_errors=True)
    catalog = tidelake.open_catalog(str(warehouse))
    catalog.create_database("bench")
    table = catalog.create_table(_TABLE, COLUMNS, primary_key=["id"], options={"bucket": "4"})
    where = {"servers": broker.address, "topic": topic}
    os.sync()  # otherwise commits would wait until the disk has written earlier data of the broker
    pipeline = _start({"role": "run", **where, "warehouse": str(warehouse), "interval_ms": interval_ms})
    try:
        snapshots = Path(table.location) / "snapshot"
        while not list(snapshots.glob("snapshot-*")):  # until the pipeline owns the table
            if pipeline.poll() is not None:
                raise JobFailed("the pipeline ended before anything was sent")
            time.sleep(0.05)
        began_ms = time.time() * 1000
        if _start({"role": "send", **where, "rate": rate, "seconds": seconds}).wait() != 0:
            raise JobFailed("the producer failed")
        ended_ms = time.time() * 1000
        time.sleep(2 * interval_ms / 1000)
    finally:
        pipeline.send_signal(signal.SIGTERM)
        pipeline.wait()
    commits = []
    for change in table.changes(start=1):
        there_ms = (snapshots / f"snapshot-{change.snapshot_id}").stat().st_mtime_ns / 1e6
        commits.append((there_ms, change.rows["score"].to_numpy()))
    return _Followed(began_ms, ended_ms, commits)


def _start(arguments: Mapping[str, Any]) -> subprocess.Popen[bytes]:
    program = [*PIPELINE_PYTHON, "benchmarks.visible_latency", json.dumps(arguments)]
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
    """Send upserts of random keys. `score` is the time of sending, in epoch milliseconds."""
    made = _messages()
    sent, began_s = 0, time.perf_counter()
    async with AIOKafkaProducer(bootstrap_servers=servers, max_batch_size=1 << 20) as producer:
        while (passed_s := time.perf_counter() - began_s) < seconds:
            due = _TICK_MESSAGES_MAX if rate == _ALL_IT_CAN else min(_TICK_MESSAGES_MAX, int(passed_s * rate) - sent)
            on_its_way = []
            for partition, messages in enumerate(made):
                batch, now = producer.create_batch(), str(int(time.time() * 1000)).encode()
                for key, before, behind in islice(messages, due // PARTITIONS):
                    batch.append(key=key, value=b"%b%b%b" % (before, now, behind), timestamp=None)
                if batch.record_count():  # sent before the next one is built, whose time is no latency of the pipeline
                    on_its_way.append(await producer.send_batch(batch, topic, partition=partition))
                    await asyncio.sleep(0)
            sent += due // PARTITIONS * PARTITIONS
            # Wait for the broker's answers: a queue here would add latency of the producer.
            await asyncio.gather(*on_its_way)
            if rate != _ALL_IT_CAN:
                await asyncio.sleep(_TICK_S)


def _messages() -> list[Iterator[_Message]]:
    """Return an endless iterator for each partition: key, text before the time of sending, text after it.

    The messages are built in advance. Otherwise the producer would use a core that the pipeline needs.
    """
    random, encode = np.random.default_rng(9), msgspec.json.Encoder().encode
    source = {"version": "2.5.0.Final", "connector": "mysql", "name": "s", "db": "shop", "table": "orders"}
    made: list[list[_Message]] = [[] for _ in range(PARTITIONS)]
    for number, key in enumerate(random.integers(0, KEYS, _MADE).tolist()):
        image = row(key, number) | {"score": _TIME}
        message = encode({"before": None, "after": image, "source": source, "op": "c", "ts_ms": 0})
        before, behind = message.split(str(_TIME).encode())
        made[key % PARTITIONS].append((b'{"id":%d}' % key, before, behind))
    return [cycle(messages) for messages in made]


if __name__ == "__main__":
    pa.array([None])  # see from_kafka
    asked = json.loads(sys.argv[1])
    if asked.pop("role") == "run":
        run_pipeline(**asked)
    else:
        asyncio.run(send_steadily(**asked))
