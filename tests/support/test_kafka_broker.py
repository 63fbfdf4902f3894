"""The broker is a real one: records are as recorded, and survive a stop and a kill."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from itertools import islice
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from tests.support.cases import recorded_lines, recorded_topics
from tests.support.kafka_broker import KafkaBroker, record_bytes


async def records_of(broker: KafkaBroker, topic: str, partitions: int) -> list[Any]:
    async with AIOKafkaConsumer(bootstrap_servers=broker.address, auto_offset_reset="earliest") as consumer:
        places = [TopicPartition(topic, number) for number in range(partitions)]
        consumer.assign(places)
        ends = await consumer.end_offsets(places)
        found: list[Any] = []
        while any([await consumer.position(place) < ends[place] for place in places]):
            for batch in (await consumer.getmany(timeout_ms=1000)).values():
                found += batch
        return found


@pytest.fixture(scope="module")
def orders() -> list[Mapping[str, Any]]:
    """The first records of orders-100k, of four partitions."""
    (path,) = recorded_topics("orders-100k").values()
    return list(islice(recorded_lines(path), 500))


async def test_a_replayed_recording_keeps_partition_key_value_headers_and_time(
    kafka_broker: KafkaBroker, orders: list[Mapping[str, Any]]
) -> None:
    topic = await asyncio.to_thread(kafka_broker.create_topic, partitions=4)
    assert await asyncio.to_thread(kafka_broker.send, orders, topic) == len(orders)
    found = await records_of(kafka_broker, topic, 4)

    def of_partition(number: int) -> list[tuple[Any, ...]]:
        return [
            (record_bytes(r, "key"), record_bytes(r, "value"), r["timestamp_ms"], len(r["headers"]))
            for r in orders
            if r["partition"] == number
        ]

    for number in range(4):
        got = [(r.key, r.value, r.timestamp, len(r.headers)) for r in found if r.partition == number]
        assert got == of_partition(number)


@pytest.mark.interop
async def test_records_survive_a_clean_stop_and_a_kill_at_the_same_address(private_kafka_broker: KafkaBroker) -> None:
    record = {"partition": 0, "key": "k", "value": None, "timestamp_ms": 1, "headers": []}
    broker = private_kafka_broker
    topic = await asyncio.to_thread(broker.create_topic)
    for end in (broker.stop, broker.kill):
        address = broker.address
        await asyncio.to_thread(broker.send, [record], topic)
        await asyncio.to_thread(end)
        await asyncio.to_thread(broker.start)
        assert broker.address == address
    assert [r.key for r in await records_of(broker, topic, 1)] == [b"k", b"k"]


async def test_a_topic_grows_to_more_partitions(kafka_broker: KafkaBroker) -> None:
    topic = await asyncio.to_thread(kafka_broker.create_topic, partitions=1)
    await asyncio.to_thread(kafka_broker.add_partitions, topic, 3)
    await asyncio.to_thread(
        kafka_broker.send, [{"partition": 2, "key": None, "value": "v", "timestamp_ms": 1, "headers": []}], topic
    )
    assert [r.partition for r in await records_of(kafka_broker, topic, 3)] == [2]
