"""Lag and readiness of a pipeline that reads from a real broker, and dead letters replayed from its log."""

from __future__ import annotations

import asyncio
import json
from asyncio import to_thread
from pathlib import Path
from typing import Any

import aiohttp
import pyarrow as pa
import pytest

import tidelake
from tests.ingest.monitoring.test_endpoint import labelled, scraped
from tests.ingest.pipeline.fakes import until
from tests.support.kafka_broker import KafkaBroker
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.monitoring.readiness import not_ready
from tidelake.ingest.pipeline.builder import build_pipeline
from tidelake.ingest.replay.replay import DeadLetterReplay
from tidelake.ingest.settings import Config
from tidelake.storage.base.clock import epoch_ms

pytestmark = pytest.mark.interop


def record(topic: str, id_: int, quantity: str, partition: int = 0) -> dict[str, Any]:
    source = {"db": "shop", "table": "orders", "connector": "postgresql"}
    value = {"before": None, "after": {"id": id_, "quantity": quantity}, "op": "c", "source": source}
    return {
        "topic": topic,
        "partition": partition,
        "timestamp_ms": epoch_ms(),
        "key": json.dumps({"id": id_}),
        "value": json.dumps(value),
        "headers": [],
    }


def config(path: Path, broker: KafkaBroker, topic: str, *flags: str) -> Config:
    text = f"""
        warehouse: {path}/lake
        source: {{type: kafka, bootstrap_servers: "{broker.address}", topics: {topic}}}
        tables: [{{name: shop.orders}}]
        errors: {{tolerance: all, dead_letters: {{table: ops.letters}}}}
        checkpoint: {{interval_ms: 300}}
        metrics: {{port: 0}}
    """
    return parse_config(text, "shop.yaml", flags, {}, pipeline="shop")


def make_table(path: Path) -> tidelake.Table:
    catalog = tidelake.open_catalog(str(path / "lake"))
    catalog.create_database("shop")
    columns = pa.schema([("id", pa.int64()), ("quantity", pa.int32())])
    return catalog.create_table("shop.orders", columns, primary_key=["id"], options={"bucket": "1"})


async def test_the_lag_is_the_distance_from_commits_to_the_end_of_the_log(
    tmp_path: Path, kafka_broker: KafkaBroker
) -> None:
    topic = await to_thread(kafka_broker.create_topic, partitions=2)
    await to_thread(kafka_broker.send, [record(topic, n, "5", n % 2) for n in range(10)])
    await to_thread(make_table, tmp_path)
    planned = await to_thread(build_pipeline, config(tmp_path, kafka_broker, topic))
    await planned.plan()
    assert (planned.observed.lag, [p.end for p in planned.observed.partitions.values()]) == (10, [5, 5])
    pipeline = await to_thread(build_pipeline, config(tmp_path, kafka_broker, topic))
    run = asyncio.create_task(pipeline.run())
    observed, monitor = pipeline.observed, pipeline.monitor
    assert monitor is not None
    await until(lambda: run.done() or sum(t.rows for t in observed.tables.values()) == 10)
    await until(lambda: observed.lag == 0 and len(observed.partitions) == 2)
    await monitor.poll_once(pipeline.source)
    assert {p.partition: (at.committed, at.end, at.lag) for p, at in observed.partitions.items()} == {
        0: (5, 5, 0),
        1: (5, 5, 0),
    }
    async with aiohttp.ClientSession(f"http://127.0.0.1:{monitor.server.port}/") as client:
        samples = await scraped(client)
        for name, expected in (("source_end_offset", 5), ("source_committed_offset", 5), ("source_lag_records", 0)):
            assert labelled(samples, f"tidelake_{name}") == {("0", topic): expected, ("1", topic): expected}, name
    assert not_ready(observed) == []
    await to_thread(kafka_broker.send, [record(topic, n, "6", 0) for n in range(3)])
    await until(lambda: sum(t.rows for t in observed.tables.values()) == 13 and observed.lag == 0)
    await monitor.poll_once(pipeline.source)
    assert sum(at.end or 0 for at in observed.partitions.values()) == 13
    newest_ms = observed.table("shop.orders").newest_committed_ms
    assert newest_ms is not None
    assert abs(epoch_ms() - newest_ms) < 60_000
    pipeline.stop()
    await run


async def test_a_dead_letter_is_replayed_from_the_log(tmp_path: Path, kafka_broker: KafkaBroker) -> None:
    topic = await to_thread(kafka_broker.create_topic, partitions=2)
    await to_thread(make_table, tmp_path)
    sent = [record(topic, 1, "many"), record(topic, 2, "many"), record(topic, 3, "3", 1), record(topic, 2, "7")]
    await to_thread(kafka_broker.send, sent)
    settings = await to_thread(config, tmp_path, kafka_broker, topic, "source.until=end")
    await (await to_thread(build_pipeline, settings)).run()
    catalog = await to_thread(tidelake.open_catalog, str(tmp_path / "lake"))
    await to_thread(catalog.alter_table, "shop.orders", [tidelake.UpdateColumnType("quantity", "STRING")])
    (report,) = await (await to_thread(DeadLetterReplay, settings)).run()
    assert report.outcomes == {"replayed": 1, "superseded": 1}
    table = await to_thread(catalog.table, "shop.orders")
    rows = await to_thread(lambda: table.scan().to_arrow().sort_by("id").to_pylist())
    assert rows == [{"id": 1, "quantity": "many"}, {"id": 2, "quantity": "7"}, {"id": 3, "quantity": "3"}]


async def test_an_unavailable_broker_is_the_reported_reason(tmp_path: Path, private_kafka_broker: KafkaBroker) -> None:
    topic = await to_thread(private_kafka_broker.create_topic)
    await to_thread(make_table, tmp_path)
    await to_thread(private_kafka_broker.send, [record(topic, 1, "5")])
    pipeline = await to_thread(build_pipeline, config(tmp_path, private_kafka_broker, topic))
    run = asyncio.create_task(pipeline.run())
    observed, monitor = pipeline.observed, pipeline.monitor
    assert monitor is not None
    await until(lambda: run.done() or (observed.checkpoints == 1 and observed.lag == 0))
    await to_thread(private_kafka_broker.kill)
    await monitor.poll_once(pipeline.source)
    assert observed.source_problem == "no answer within 5 s"
    await until(lambda: [reason.code for reason in not_ready(observed)] == ["source_unreachable"])
    pipeline.stop()
    pipeline.stop()
    await asyncio.wait_for(run, 30)


async def test_a_deleted_topic_is_the_reported_reason(tmp_path: Path, kafka_broker: KafkaBroker) -> None:
    topic, other = [await to_thread(kafka_broker.create_topic) for _ in range(2)]
    await to_thread(make_table, tmp_path)
    await to_thread(kafka_broker.send, [record(topic, 1, "5")])
    pipeline = await to_thread(build_pipeline, config(tmp_path, kafka_broker, f"[{topic}, {other}]"))
    run = asyncio.create_task(pipeline.run())
    observed, monitor = pipeline.observed, pipeline.monitor
    assert monitor is not None
    await until(lambda: run.done() or (observed.checkpoints == 1 and observed.lag == 0))
    await to_thread(kafka_broker.delete_topic, other)
    await until(lambda: observed.source_problem == f"no answer within 5 s: {other} was deleted")
    await until(lambda: [reason.code for reason in not_ready(observed)] == ["source_unreachable"])
    assert f"{other} was deleted" in not_ready(observed)[0].reason
    pipeline.stop()
    pipeline.stop()
    await asyncio.wait_for(run, 30)
