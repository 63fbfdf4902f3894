"""Two hundred tables in one process, one of them poisoned: the other 199 are committed as often as without it.

The test counts commits. How long rounds took is printed, with and without: time decides nothing.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from asyncio import to_thread
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Any, Final

import pyarrow as pa
import pytest

import tidelake
from tests.support.kafka_broker import KafkaBroker
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.pipeline.builder import build_pipeline
from tidelake.storage.base.clock import epoch_ms

pytestmark = [pytest.mark.long, pytest.mark.timeout(1_800)]

TABLES: Final = 200
POISONED: Final = "t7"
ROUNDS: Final = 6
INTERVAL_MS: Final = 2_000
OPTIONS: Final = {"bucket": "1"}


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        await to_thread(time.sleep, 0.01)


def record(topic: str, table: str, id_: int, quantity: str) -> dict[str, Any]:
    source = {"db": "shop", "table": table, "connector": "mysql"}
    value = {"before": None, "after": {"id": id_, "quantity": quantity}, "op": "c", "source": source}
    keyed = {"key": json.dumps({"id": id_}), "value": json.dumps(value), "headers": []}
    return {"topic": topic, "partition": 0, "timestamp_ms": epoch_ms(), **keyed}


async def rounds_of(path: Path, broker: KafkaBroker, *, is_poisoned: bool) -> list[float]:
    """Seconds of each round, from its records to the last table's commit."""
    topic = await to_thread(broker.create_topic)
    text = f"""
        warehouse: {path}/lake
        source: {{type: kafka, bootstrap_servers: "{broker.address}", topics: {topic}}}
        tables: [{{name: "shop.{{table}}", options: {{bucket: 1}}}}]
        checkpoint: {{interval_ms: {INTERVAL_MS}}}
        quarantine: {{retry_ms_min: 200, retry_ms_max: 1000}}
        metrics: {{port: 0}}
    """
    names = [f"t{number}" for number in range(TABLES)]
    catalog = await to_thread(tidelake.open_catalog, str(path / "lake"))
    await to_thread(catalog.create_database, "shop")
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("quantity", pa.int32())])
    for name in names:
        await to_thread(catalog.create_table, f"shop.{name}", columns, primary_key=["id"], options=OPTIONS)
    pipeline = await to_thread(build_pipeline, parse_config(text, "shop.yaml", (), {}, pipeline="shop"))
    run = asyncio.create_task(pipeline.run())
    observed, seconds = pipeline.observed, []
    first = [record(topic, name, 0, "1") for name in names]
    await to_thread(broker.send, first)
    await until(lambda: run.done() or sum(table.rows for table in list(observed.tables.values())) >= TABLES)
    if is_poisoned:
        await to_thread(broker.send, [record(topic, POISONED, 0, "many")])
        await until(lambda: run.done() or f"shop.{POISONED}" in observed.problems())
    well = [f"shop.{name}" for name in names if not (is_poisoned and name == POISONED)]
    for number in range(1, ROUNDS + 1):
        before = {name: observed.table(name).commits for name in well}
        began = monotonic()
        await to_thread(broker.send, [record(topic, name, number, "1") for name in names])

        def are_committed(before: dict[str, int] = before) -> bool:
            return run.done() or all(observed.table(name).commits > commits for name, commits in before.items())

        await until(are_committed)
        seconds.append(monotonic() - began)
        assert not run.done(), run.exception()
        assert (f"shop.{POISONED}" in observed.problems()) == is_poisoned
    pipeline.stop()
    await run

    def ids(name: str) -> list[int]:
        return sorted(catalog.table(name).scan(columns=["id"]).to_arrow()["id"].to_pylist())

    assert {name: await to_thread(ids, name) for name in well} == {name: list(range(ROUNDS + 1)) for name in well}
    assert await to_thread(ids, f"shop.{POISONED}") == ([0] if is_poisoned else list(range(ROUNDS + 1)))
    return seconds


async def test_one_poisoned_table_of_two_hundred_delays_no_other(tmp_path: Path, kafka_broker: KafkaBroker) -> None:
    took = {}
    for is_poisoned in (False, True):
        home = tmp_path / str(is_poisoned)
        took[is_poisoned] = await rounds_of(home, kafka_broker, is_poisoned=is_poisoned)
    for is_poisoned, seconds in took.items():
        what = "one table poisoned" if is_poisoned else "all well"
        sys.stdout.write(
            f"{what}: median {median(seconds):.2f} s a round, longest {max(seconds):.2f} s, at {INTERVAL_MS} ms\n"
        )
