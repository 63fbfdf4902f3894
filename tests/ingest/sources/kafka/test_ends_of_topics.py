"""`--until latest` with a real broker: the run ends with all existing records, for any layout of offsets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.structs import TopicPartition as KafkaPartition

import tidelake
from tests.support.kafka_broker import KafkaBroker
from tidelake.checkpoint.offsets import POSITION_PROPERTY, TopicPartition, position_from_text
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.pipeline.run_metrics import RunMetrics
from tidelake.ingest.pipeline.service import run

KEYS = 10
ROUNDS = 12
COMPACTED, IDLE, OPEN = range(3)  # partitions


@pytest.fixture
def quick_cleaner(tmp_path: Path) -> Iterator[KafkaBroker]:
    broker = KafkaBroker(tmp_path / "kafka", {"log.cleaner.backoff.ms": "100"})
    broker.start()
    yield broker
    broker.purge()


async def send_compacted(broker: KafkaBroker, topic: str) -> None:
    """Every key again and again, until the broker has thrown away what later records replace."""
    async with AIOKafkaProducer(bootstrap_servers=broker.address) as producer:
        for version in range(ROUNDS):
            for key in range(KEYS):
                await producer.send(topic, value_of(key, version), str(key).encode(), partition=COMPACTED)
            await producer.flush()
            await asyncio.sleep(0.1)  # past `segment.ms`: the broker compacts closed segments only
    for _ in range(600):
        if len(await offsets_held(broker, topic)) <= 3 * KEYS:
            return
        await asyncio.sleep(0.1)
    raise AssertionError("the broker compacts nothing")


def value_of(key: int, version: int) -> bytes:
    return json.dumps({"id": key, "version": version}).encode()


async def offsets_held(broker: KafkaBroker, topic: str) -> list[int]:
    consumer = AIOKafkaConsumer(bootstrap_servers=broker.address)
    await consumer.start()
    try:
        partition = KafkaPartition(topic, COMPACTED)
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        end = (await consumer.end_offsets([partition]))[partition]
        found: list[int] = []
        while await consumer.position(partition) < end:
            polled = await consumer.getmany(timeout_ms=100)
            found += [record.offset for records in polled.values() for record in records]
        return found
    finally:
        await consumer.stop()


async def run_to_latest(broker: KafkaBroker, topic: str, warehouse: Path) -> RunMetrics:
    text = (
        f"{{warehouse: '{warehouse}', format: json, "
        f"source: {{type: kafka, bootstrap_servers: '{broker.address}', topics: [{topic}], until: end}}, "
        "tables: [{name: shop.versions, match: '*', primary_key: [id], columns: {id: INT, version: INT}}]}"
    )
    async with asyncio.timeout(120):  # instead of for ever
        return await run(parse_config(text, "test.yaml", pipeline="ends"))


@pytest.mark.long
async def test_a_run_until_latest_ends_after_gaps_and_markers_and_before_an_open_transaction(
    quick_cleaner: KafkaBroker, tmp_path: Path
) -> None:
    topic = await asyncio.to_thread(
        quick_cleaner.create_topic,
        None,
        3,
        **{"cleanup.policy": "compact", "segment.ms": "50", "min.cleanable.dirty.ratio": "0.001"},
    )
    await send_compacted(quick_cleaner, topic)
    held = await offsets_held(quick_cleaner, topic)
    assert held[0] > 0  # the first offsets are compacted away, and the log still begins at 0
    common = {"bootstrap_servers": quick_cleaner.address}
    async with AIOKafkaProducer(**common, transactional_id="ends") as producer:
        async with producer.transaction():
            await producer.send(topic, value_of(0, 100), b"0", partition=COMPACTED)
            await producer.send(topic, value_of(50, 100), b"50", partition=OPEN)
        await producer.begin_transaction()
        await producer.send_and_wait(topic, value_of(1, 666), b"1", partition=COMPACTED)
        await producer.abort_transaction()  # the last thing in its partition is a marker
    async with AIOKafkaProducer(**common, transactional_id="open") as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(topic, value_of(51, 1), b"51", partition=OPEN)

        metrics = await run_to_latest(quick_cleaner, topic, tmp_path / "lake")
        assert metrics.ended == "end of source"
        table = await asyncio.to_thread(tidelake.open_catalog(str(tmp_path / "lake")).table, "shop.versions")
        rows = (await asyncio.to_thread(lambda: table.scan().to_arrow())).to_pylist()
        expected = dict.fromkeys(range(KEYS), ROUNDS - 1) | {0: 100, 50: 100}
        assert {row["id"]: row["version"] for row in rows} == expected
        assert KEYS + 1 <= metrics.records <= len(held) + 2  # it continues to compact

        again = await run_to_latest(quick_cleaner, topic, tmp_path / "lake")
        assert (again.ended, again.records) == ("end of source", 0)
        await producer.commit_transaction()
    assert (await run_to_latest(quick_cleaner, topic, tmp_path / "lake")).records == 1
    newest = (await asyncio.to_thread(table.context.snapshots.all))[-1]
    position = position_from_text(newest.properties[POSITION_PROPERTY], "here")
    assert position.ends[TopicPartition(topic, IDLE)] == 0
    assert position.ends[TopicPartition(topic, COMPACTED)] == KEYS * ROUNDS + 4  # with two markers
    assert position.ends[TopicPartition(topic, OPEN)] == 4
