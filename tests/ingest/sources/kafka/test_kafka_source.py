"""The Kafka source against a real broker."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.consumer import fetcher
from aiokafka.structs import TopicPartition as KafkaPartition

from tests.support.kafka_broker import KafkaBroker
from tests.support.manual_clock import ManualClock
from tidelake.checkpoint.offsets import TopicPartition
from tidelake.errors import BadInput, PositionRefused, SourceUnavailable
from tidelake.ingest.clock import Clock
from tidelake.ingest.formats.debezium.debezium_json import DebeziumJson
from tidelake.ingest.raw_batch import RawBatch
from tidelake.ingest.secrets import Secret
from tidelake.ingest.source_settings import KafkaSettings
from tidelake.ingest.sources.kafka.kafka_source import KafkaSource
from tidelake.ingest.sources.source import AtGroupOffsets, AtOffsets, AtTimestamp, Earliest, Latest, Start

LIMIT_S = 60  # nothing here takes a second; a test that would hang fails


def records(count: int, *, partition: int = 0, first_ms: int = 1_000) -> list[dict[str, object]]:
    return [
        {"partition": partition, "timestamp_ms": first_ms + n, "key": f"k{n}", "value": f"v{n}", "headers": []}
        for n in range(count)
    ]


async def topic_with(broker: KafkaBroker, *counts: int) -> str:
    """A topic with so many records in each partition."""
    topic = await asyncio.to_thread(broker.create_topic, None, len(counts))
    for partition, count in enumerate(counts):
        await asyncio.to_thread(broker.send, records(count, partition=partition), topic)
    return topic


@asynccontextmanager
async def opened(
    broker: KafkaBroker, topics: str | list[str], *, clock: Clock | None = None, **settings: Any
) -> AsyncIterator[KafkaSource]:
    given: dict[str, Any] = {"bootstrap_servers": broker.address, "topics": topics, **settings}
    source = KafkaSource(KafkaSettings(**given), DebeziumJson.KEPT_HEADERS, clock)
    try:
        async with asyncio.timeout(LIMIT_S):
            await source.open()
            yield source
    finally:
        await source.close()


@asynccontextmanager
async def admin_of(broker: KafkaBroker) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.address)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


async def read_to_end(broker: KafkaBroker, topic: str, start: Start | None = None, **settings: Any) -> list[RawBatch]:
    async with opened(broker, topic, until="end", **settings) as source:
        positions = await source.offsets(source._partitions, start or Earliest())
        async with aclosing(source.read(positions)) as batches:
            return [batch async for batch in batches]


def values_of(batches: Iterable[RawBatch]) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for batch in batches:
        found.setdefault(batch.partition, []).extend(value.decode() for value in batch.values.to_pylist())
    return {partition: values for partition, values in found.items() if values}


def next_offsets(batches: Iterable[RawBatch]) -> dict[int, int]:
    return {batch.partition: batch.next_offset for batch in batches}


# ---------------------------------------------------------------- records


async def test_every_record_of_every_partition_is_read_once(kafka_broker: KafkaBroker) -> None:
    topic = await topic_with(kafka_broker, 1_500, 0, 3)
    batches = await read_to_end(kafka_broker, topic)
    assert values_of(batches) == {0: [f"v{n}" for n in range(1_500)], 2: ["v0", "v1", "v2"]}
    assert next_offsets(batches) == {0: 1_500, 2: 3}


async def test_reading_ends_before_the_first_record_at_the_end_time(kafka_broker: KafkaBroker) -> None:
    topic = await asyncio.to_thread(kafka_broker.create_topic, None, 2)
    async with AIOKafkaProducer(bootstrap_servers=kafka_broker.address) as producer:
        for time_ms in (1_000, 2_000, 3_000, 4_000):
            await producer.send_and_wait(topic, b"at %d" % time_ms, partition=0, timestamp_ms=time_ms)
        await producer.send_and_wait(topic, b"at 10", partition=1, timestamp_ms=10)
    batches = await read_to_end(kafka_broker, topic, until_timestamp_ms=3_000)
    assert values_of(batches) == {0: ["at 1000", "at 2000"], 1: ["at 10"]}
    assert next_offsets(batches) == {0: 2, 1: 1}


async def test_a_batch_that_decompresses_beyond_max_record_bytes_is_refused_with_its_offset(
    kafka_broker: KafkaBroker,
) -> None:
    topic = await topic_with(kafka_broker, 3)
    async with AIOKafkaProducer(bootstrap_servers=kafka_broker.address, compression_type="gzip") as producer:
        await producer.send_and_wait(topic, value=bytes(200_000))
    message = rf"{topic}-0 at offset 3: .* larger than 100000 bytes .* the limit of `source\.max_record_bytes`"
    with pytest.raises(BadInput, match=message):
        await read_to_end(kafka_broker, topic, max_record_bytes=100_000)
    batches = await read_to_end(kafka_broker, topic, max_record_bytes=300_000)
    assert [len(value) for value in values_of(batches)[0]] == [2, 2, 2, 200_000]


async def test_a_record_is_read_as_it_was_sent(kafka_broker: KafkaBroker) -> None:
    topic = await asyncio.to_thread(kafka_broker.create_topic)
    async with AIOKafkaProducer(bootstrap_servers=kafka_broker.address) as producer:
        headers = [("connector", b"pg"), ("__debezium.oldkey", b'{"id":1}'), ("__debezium.newkey", None)]
        await producer.send_and_wait(topic, key=None, value=b"\xff\x00", timestamp_ms=7, headers=headers)
        await producer.send_and_wait(topic, key=b"", value=None, timestamp_ms=8, headers=[("connector", b"pg")])
    (batch,) = await read_to_end(kafka_broker, topic)
    assert (batch.keys.to_pylist(), batch.values.to_pylist()) == ([None, b""], [b"\xff\x00", None])
    assert (batch.timestamps_ms.tolist(), batch.offsets.tolist()) == ([7, 8], [0, 1])
    assert batch.headers == {0: (("__debezium.oldkey", b'{"id":1}'), ("__debezium.newkey", None))}


@pytest.mark.parametrize("given", ["CreateTime", "LogAppendTime"])
async def test_a_record_has_its_timestamp_type(kafka_broker: KafkaBroker, given: str) -> None:
    topic = await asyncio.to_thread(partial(kafka_broker.create_topic, None, 1, **{"message.timestamp.type": given}))
    await asyncio.to_thread(kafka_broker.send, records(3), topic)
    (batch,) = [one for one in await read_to_end(kafka_broker, topic) if len(one)]
    assert [batch.timestamp_type(row) for row in range(3)] == [given] * 3


async def test_a_lagging_reader_gets_full_batches_without_one_object_per_record(
    kafka_broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await asyncio.to_thread(kafka_broker.create_topic)
    sent = [record | {"value": "v" * 9_990 + f"{n:010}"} for n, record in enumerate(records(600))]
    await asyncio.to_thread(kafka_broker.send, sent, topic)
    monkeypatch.setattr(fetcher, "ConsumerRecord", None)  # not to be called
    batches = await read_to_end(kafka_broker, topic)
    assert values_of(batches) == {0: [record["value"] for record in sent]}
    assert len([batch for batch in batches if len(batch)]) <= 4, "one for each answer of a MiB would be six"


async def test_cluster_and_topic_are_identified_by_id(kafka_broker: KafkaBroker) -> None:
    topic, other = await topic_with(kafka_broker, 0), await topic_with(kafka_broker, 0)
    async with opened(kafka_broker, [topic, other]) as source, opened(kafka_broker, topic) as again:
        assert source.identity.cluster_id
        assert set(source.identity.topic_ids) == {topic, other}
        assert again.identity.topic_ids[topic] == source.identity.topic_ids[topic] != source.identity.topic_ids[other]


# ---------------------------------------------------------------- where reading starts


async def test_latest_starts_after_the_current_end(kafka_broker: KafkaBroker) -> None:
    topic = await topic_with(kafka_broker, 5)
    async with opened(kafka_broker, topic) as source:
        assert await source.offsets([TopicPartition(topic, 0)], Latest()) == {TopicPartition(topic, 0): 5}


@pytest.mark.parametrize(
    ("timestamp_ms", "offset"),
    [
        pytest.param(0, 0, id="before all"),
        pytest.param(1_003, 3, id="at a record"),
        pytest.param(9_999, 5, id="after all: at the end"),
    ],
)
async def test_a_timestamp_starts_at_the_first_record_not_older(
    kafka_broker: KafkaBroker, timestamp_ms: int, offset: int
) -> None:
    topic = await topic_with(kafka_broker, 5)
    async with opened(kafka_broker, topic) as source:
        found = await source.offsets([TopicPartition(topic, 0)], AtTimestamp(timestamp_ms))
        assert found == {TopicPartition(topic, 0): offset}


async def test_given_offsets_must_name_every_partition(kafka_broker: KafkaBroker) -> None:
    topic = await topic_with(kafka_broker, 5, 5)
    partitions = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    async with opened(kafka_broker, topic) as source:
        given = dict(zip(partitions, (3, 4), strict=True))
        assert await source.offsets(partitions, AtOffsets(given)) == given
        with pytest.raises(BadInput, match=f"`source.start.offsets` has no offset for {topic}-1"):
            await source.offsets(partitions, AtOffsets({partitions[0]: 3}))


@pytest.mark.parametrize("offset", [1, 6, 2**63 - 1], ids=["deleted", "past the end", "the largest there is"])
async def test_a_start_offset_outside_the_topic_is_refused(kafka_broker: KafkaBroker, offset: int) -> None:
    """Past the end, a run until the end would end at once, and its position would skip the records that come."""
    topic = await topic_with(kafka_broker, 5)
    await delete_records(kafka_broker, topic, 2)
    given = AtOffsets({TopicPartition(topic, 0): offset})
    message = rf"start.offsets` begins {topic}-0 at {offset}, but it has the offsets 2 up to 5 now"
    with pytest.raises(BadInput, match=message):
        await read_to_end(kafka_broker, topic, given)


@pytest.mark.parametrize("offset", [2, 5])
async def test_the_first_offset_and_the_end_are_valid_starts(kafka_broker: KafkaBroker, offset: int) -> None:
    topic = await topic_with(kafka_broker, 5)
    await delete_records(kafka_broker, topic, 2)
    batches = await read_to_end(kafka_broker, topic, AtOffsets({TopicPartition(topic, 0): offset}))
    assert sum(map(len, batches)) == 5 - offset


async def test_confirmed_offsets_are_group_offsets_and_group_offsets_are_a_start(kafka_broker: KafkaBroker) -> None:
    topic = await topic_with(kafka_broker, 5, 5)
    both = {TopicPartition(topic, 0): 2, TopicPartition(topic, 1): 4}
    async with opened(kafka_broker, topic, group_id=f"g-{topic}") as source, reading(source) as subject:
        await subject.until(sees(p0=5, p1=5))
        await source.commit_offsets(both)
    async with opened(kafka_broker, topic) as source:
        assert await source.offsets(list(both), AtGroupOffsets(f"g-{topic}")) == both
        with pytest.raises(BadInput, match="consumer group nobody has no offset"):
            await source.offsets(list(both), AtGroupOffsets("nobody"))


async def test_reading_continues_at_a_position(kafka_broker: KafkaBroker) -> None:
    topic = await topic_with(kafka_broker, 5, 5)
    given = AtOffsets({TopicPartition(topic, 0): 3, TopicPartition(topic, 1): 5})
    assert values_of(await read_to_end(kafka_broker, topic, given)) == {0: ["v3", "v4"]}


# ---------------------------------------------------------------- transactions


async def send_transaction(broker: KafkaBroker, topic: str, values: Iterable[str], *, commit: bool) -> None:
    async with AIOKafkaProducer(bootstrap_servers=broker.address, transactional_id=f"tx-{topic}") as producer:
        await producer.begin_transaction()
        for value in values:
            await producer.send_and_wait(topic, value=value.encode(), partition=0)
        await (producer.commit_transaction() if commit else producer.abort_transaction())


async def test_aborted_records_are_skipped_and_markers_leave_gaps(kafka_broker: KafkaBroker) -> None:
    topic = await topic_with(kafka_broker, 1)
    await send_transaction(kafka_broker, topic, ["kept"], commit=True)  # offsets 1, marker 2
    await send_transaction(kafka_broker, topic, ["lost", "lost"], commit=False)  # 3, 4, marker 5
    await send_transaction(kafka_broker, topic, ["last"], commit=True)  # 6, marker 7
    batches = await read_to_end(kafka_broker, topic)
    assert values_of(batches) == {0: ["v0", "kept", "last"]}
    assert [offset for batch in batches for offset in batch.offsets.tolist()] == [0, 1, 6]
    assert next_offsets(batches) == {0: 8}


async def test_the_position_passes_offsets_without_records(kafka_broker: KafkaBroker) -> None:
    topic = await topic_with(kafka_broker, 1)
    await send_transaction(kafka_broker, topic, ["lost"], commit=False)  # offset 1, marker 2
    batches = await read_to_end(kafka_broker, topic, AtOffsets({TopicPartition(topic, 0): 1}))
    assert [(len(batch), batch.next_offset) for batch in batches] == [(0, 3)]


async def test_uncommitted_records_can_be_requested(kafka_broker: KafkaBroker) -> None:
    topic = await topic_with(kafka_broker, 1)
    await send_transaction(kafka_broker, topic, ["lost"], commit=False)
    batches = await read_to_end(kafka_broker, topic, isolation_level="read_uncommitted")
    assert values_of(batches) == {0: ["v0", "lost"]}


# ---------------------------------------------------------------- while reading


class Reading:
    """A source that is being read; the test waits for what it wants to see."""

    def __init__(self, batches: AsyncGenerator[RawBatch, None]) -> None:
        self.batches: list[RawBatch] = []
        self._source = batches
        self._came = asyncio.Condition()
        self.task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async with aclosing(self._source) as batches:
            async for batch in batches:
                self.batches.append(batch)
                async with self._came:
                    self._came.notify_all()

    async def until(self, seen: Callable[[list[RawBatch]], bool]) -> None:
        async def wait() -> None:
            async with self._came:
                await self._came.wait_for(lambda: seen(self.batches))

        waiting = asyncio.create_task(wait())
        await asyncio.wait({waiting, self.task}, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            waiting.cancel()
            self.task.result()


@asynccontextmanager
async def reading(source: KafkaSource) -> AsyncIterator[Reading]:
    subject = Reading(source.read(await source.offsets(source._partitions, Earliest())))
    try:
        yield subject
    finally:
        subject.task.cancel()
        await asyncio.gather(subject.task, return_exceptions=True)


def sees(**values: int) -> Callable[[list[RawBatch]], bool]:
    """p0=5: five records of partition 0."""
    wanted = {int(name[1:]): count for name, count in values.items()}
    return lambda batches: {p: len(found) for p, found in values_of(batches).items()} == wanted


async def test_new_partitions_are_picked_up_and_announced(kafka_broker: KafkaBroker) -> None:
    topic = await topic_with(kafka_broker, 2)
    async with opened(kafka_broker, topic, discovery_interval_ms=100) as source, reading(source) as subject:
        await subject.until(sees(p0=2))
        await asyncio.to_thread(kafka_broker.add_partitions, topic, 2)
        await asyncio.to_thread(kafka_broker.send, records(3, partition=1), topic)
        await subject.until(sees(p0=2, p1=3))
    announcement = next(batch for batch in subject.batches if batch.partition == 1)
    assert (len(announcement), announcement.next_offset) == (0, 0)


async def test_new_topics_of_a_pattern_are_picked_up(kafka_broker: KafkaBroker) -> None:
    topic = await topic_with(kafka_broker, 1)
    pattern: dict[str, Any] = {"topic_pattern": f"{topic}.*", "discovery_interval_ms": 100}
    async with opened(kafka_broker, [], **pattern) as source, reading(source) as subject:
        await subject.until(sees(p0=1))
        await asyncio.to_thread(kafka_broker.create_topic, f"{topic}-more")
        await asyncio.to_thread(kafka_broker.send, records(2), f"{topic}-more")
        await subject.until(sees(p0=3))
        assert set(source.identity.topic_ids) == {topic, f"{topic}-more"}


async def test_a_pattern_without_a_topic_waits_for_one(kafka_broker: KafkaBroker) -> None:
    topic = await topic_with(kafka_broker, 0)
    pattern: dict[str, Any] = {"topic_pattern": f"{topic}-later", "discovery_interval_ms": 100}
    async with opened(kafka_broker, [], **pattern) as source, reading(source) as subject:
        await asyncio.to_thread(kafka_broker.create_topic, f"{topic}-later")
        await asyncio.to_thread(kafka_broker.send, records(2), f"{topic}-later")
        await subject.until(sees(p0=2))


async def test_a_topic_that_is_created_again_is_refused(kafka_broker: KafkaBroker) -> None:
    topic = await topic_with(kafka_broker, 2)
    async with opened(kafka_broker, topic, discovery_interval_ms=100) as source, reading(source) as subject:
        await subject.until(sees(p0=2))
        await recreate_topic(kafka_broker, topic)
        with pytest.raises(PositionRefused, match="it was created again"):
            await subject.task


async def recreate_topic(broker: KafkaBroker, topic: str) -> None:
    async with admin_of(broker) as admin:
        await admin.delete_topics([topic])
    await asyncio.to_thread(broker.create_topic, topic)


async def test_records_of_a_recreated_topic_are_refused(kafka_broker: KafkaBroker) -> None:
    topic = await topic_with(kafka_broker, 2)
    async with opened(kafka_broker, topic) as source:
        await recreate_topic(kafka_broker, topic)
        await asyncio.to_thread(kafka_broker.send, records(5), topic)
        async with aclosing(source.read({TopicPartition(topic, 0): 2})) as batches:
            batch = await anext(batches)
            assert batch.offsets.tolist() == [2, 3, 4]  # the fetch does not detect it
            with pytest.raises(PositionRefused, match=rf"topic {topic} has id .* it was created again"):
                await source.check_identity()


async def test_records_of_a_deleted_topic_may_be_published(kafka_broker: KafkaBroker) -> None:
    topic = await topic_with(kafka_broker, 2)
    async with opened(kafka_broker, topic) as source, reading(source) as subject:
        await subject.until(sees(p0=2))
        async with admin_of(kafka_broker) as admin:
            await admin.delete_topics([topic])
        await source.check_identity()


async def test_a_deleted_topic_is_named_and_not_recreated(kafka_broker: KafkaBroker) -> None:
    clock = ManualClock()
    topic, other = await topic_with(kafka_broker, 2), await topic_with(kafka_broker, 0)
    settings: dict[str, Any] = {"discovery_interval_ms": 100, "unreachable_after_ms": 6_000}
    async with (
        opened(kafka_broker, [topic, other], clock=clock, **settings) as source,
        reading(source) as subject,
        admin_of(kafka_broker) as admin,
    ):
        await subject.until(sees(p0=2))
        await admin.delete_topics([topic])
        while not subject.task.done():
            clock.advance(500)
            await asyncio.wait({subject.task}, timeout=0.2)
        with pytest.raises(BadInput, match=rf"topics were deleted while they were read: {topic}\."):
            await subject.task
        assert topic not in await admin.list_topics()


# ---------------------------------------------------------------- positions that no longer exist


async def delete_records(broker: KafkaBroker, topic: str, before: int) -> None:
    async with admin_of(broker) as admin:
        await admin.delete_records({KafkaPartition(topic, 0): RecordsToDelete(before_offset=before)})


async def test_records_deleted_by_retention_are_not_skipped(kafka_broker: KafkaBroker) -> None:
    topic = await topic_with(kafka_broker, 5)
    await delete_records(kafka_broker, topic, 3)
    assert values_of(await read_to_end(kafka_broker, topic)) == {0: ["v3", "v4"]}
    async with opened(kafka_broker, topic) as source:
        with pytest.raises(PositionRefused) as raised:
            await anext(source.read({TopicPartition(topic, 0): 2}))
    assert f"{topic}-0 at 2" in raised.value.found
    assert "start the pipeline again" in raised.value.ways_out[0]


async def test_a_position_at_the_new_beginning_is_accepted(kafka_broker: KafkaBroker) -> None:
    topic = await topic_with(kafka_broker, 5)
    await delete_records(kafka_broker, topic, 5)
    assert await read_to_end(kafka_broker, topic, AtOffsets({TopicPartition(topic, 0): 5})) == []


async def test_a_position_past_the_end_is_refused(kafka_broker: KafkaBroker) -> None:
    topic = await topic_with(kafka_broker, 5)
    async with opened(kafka_broker, topic) as source:
        with pytest.raises(PositionRefused, match=f"{topic}-0 at 99"):
            await anext(source.read({TopicPartition(topic, 0): 99}))


# ---------------------------------------------------------------- brokers that are away


@pytest.mark.interop
async def test_reading_continues_after_a_broker_returns(private_kafka_broker: KafkaBroker) -> None:
    broker = private_kafka_broker
    topic = await topic_with(broker, 3)
    async with opened(broker, topic) as source, reading(source) as subject:
        await subject.until(sees(p0=3))
        await asyncio.to_thread(broker.kill)
        await asyncio.to_thread(broker.start)
        await asyncio.to_thread(broker.send, records(2), topic)
        await subject.until(sees(p0=5))
    offsets = [offset for batch in subject.batches for offset in batch.offsets.tolist()]
    assert offsets == list(range(5))


@pytest.mark.interop  # it starts a broker twice
async def test_a_broker_with_a_new_address_is_found_through_the_bootstrap_servers(
    private_kafka_broker: KafkaBroker,
) -> None:
    broker = private_kafka_broker
    topic = await topic_with(broker, 3)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    servers = [broker.address, f"127.0.0.1:{port}"]
    async with opened(broker, topic, bootstrap_servers=servers) as source, reading(source) as subject:
        await subject.until(sees(p0=3))
        await asyncio.to_thread(broker.kill)
        await asyncio.to_thread(broker.start, port)
        assert broker.address == servers[1]
        await asyncio.to_thread(broker.send, records(2), topic)
        await subject.until(sees(p0=5))
        await source.check_identity()
    offsets = [offset for batch in subject.batches for offset in batch.offsets.tolist()]
    assert offsets == list(range(5))


@pytest.mark.interop
async def test_topics_are_checked_once_the_broker_is_back(private_kafka_broker: KafkaBroker) -> None:
    broker = private_kafka_broker
    topic = await topic_with(broker, 3)
    async with opened(broker, topic) as source, reading(source) as subject:
        await subject.until(sees(p0=3))
        await asyncio.to_thread(broker.kill)
        checking = asyncio.create_task(source.check_identity())
        await asyncio.to_thread(broker.start)
        await checking


@pytest.mark.interop
async def test_a_stop_waits_only_briefly_for_the_check_of_topics(private_kafka_broker: KafkaBroker) -> None:
    broker = private_kafka_broker
    clock = ManualClock()
    topic = await topic_with(broker, 3)
    async with opened(broker, topic, clock=clock, unreachable_after_ms=3_600_000) as source:
        async with reading(source) as subject:
            await subject.until(sees(p0=3))
            await asyncio.to_thread(broker.kill)
            checking = asyncio.create_task(source.check_identity())
        while not checking.done():
            await asyncio.wait({checking}, timeout=0.05)
            clock.advance(1_000)
        with pytest.raises(SourceUnavailable, match="could not confirm the ids of its topics"):
            await checking


@pytest.mark.interop
async def test_an_unavailable_broker_is_logged_once_a_minute(
    private_kafka_broker: KafkaBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker = private_kafka_broker
    topic = await topic_with(broker, 3)
    async with opened(broker, topic) as source, reading(source) as subject:
        await subject.until(sees(p0=3))
        caplog.clear()
        await asyncio.to_thread(broker.kill)
        while sum(source._error_log._suppressed.values()) < 20:  # of aiokafka's: ten a second
            await asyncio.wait({subject.task}, timeout=0.05)
            assert not subject.task.done()
        assert len([record for record in caplog.records if record.name.startswith(("aiokafka", "ingest"))]) == 1


@pytest.mark.interop
async def test_an_unavailable_broker_raises_after_the_time_limit(private_kafka_broker: KafkaBroker) -> None:
    broker = private_kafka_broker
    clock = ManualClock()
    topic = await topic_with(broker, 3)
    async with opened(broker, topic, clock=clock, unreachable_after_ms=6_000) as source, reading(source) as subject:
        await subject.until(sees(p0=3))
        await asyncio.to_thread(broker.kill)
        while not subject.task.done():
            clock.advance(2_000)
            await asyncio.wait({subject.task}, timeout=0.05)
        with pytest.raises(SourceUnavailable, match=f"no answer for {topic}-0 within 6000 ms"):
            await subject.task


async def test_an_unreachable_cluster_raises_after_the_time_limit() -> None:
    clock = ManualClock()
    source = KafkaSource(
        KafkaSettings(bootstrap_servers="127.0.0.1:1", topics="t", unreachable_after_ms=500),
        DebeziumJson.KEPT_HEADERS,
        clock,
    )
    opening = asyncio.create_task(source.open())
    while not opening.done():
        sleeper = asyncio.create_task(clock.sleeper())
        await asyncio.wait({opening, sleeper}, return_when=asyncio.FIRST_COMPLETED)
        sleeper.cancel()
        clock.advance(200)
    with pytest.raises(SourceUnavailable, match=r"Kafka at 127\.0\.0\.1:1: could not connect"):
        await opening
    await source.close()


class Broken:
    """A consumer that can't be stopped."""

    def __init__(self) -> None:
        self._client = Connections()

    async def stop(self) -> None:
        raise OSError("the broker went away")


class Connections:
    are_open = True

    async def close(self) -> None:
        self.are_open = False


async def test_a_consumer_that_fails_to_stop_leaves_no_connection_open() -> None:
    source = KafkaSource(KafkaSettings(bootstrap_servers="127.0.0.1:1", topics="t"), DebeziumJson.KEPT_HEADERS)
    source._consumer, source._client = consumer, client = Broken(), Connections()
    with pytest.raises(OSError, match="the broker went away"):
        await source.close()
    assert (consumer._client.are_open, client.are_open) == (False, False)


class LettingCancellationsOut(Broken):
    """As aiokafka's, whose fetch waits for its retry while it is stopped."""

    async def stop(self) -> None:
        raise asyncio.CancelledError


async def fail() -> None:
    raise SourceUnavailable("the broker went away")


async def test_closing_a_failed_source_hides_no_error() -> None:
    source = KafkaSource(KafkaSettings(bootstrap_servers="127.0.0.1:1", topics="t"), DebeziumJson.KEPT_HEADERS)
    source._consumer, source._client = consumer, client = LettingCancellationsOut(), Connections()
    with pytest.raises(ExceptionGroup) as raised:
        try:
            async with asyncio.TaskGroup() as group:  # after which the task counts as being cancelled, on 3.11 and 3.12
                group.create_task(fail())
                group.create_task(asyncio.Event().wait())
        finally:
            await source.close()
    assert raised.group_contains(SourceUnavailable)
    assert (consumer._client.are_open, client.are_open) == (False, False)


async def test_a_source_may_be_cancelled_while_it_is_closed() -> None:
    source = KafkaSource(KafkaSettings(bootstrap_servers="127.0.0.1:1", topics="t"), DebeziumJson.KEPT_HEADERS)
    source._consumer, source._client = consumer, client = Broken(), Connections()
    stopping = asyncio.Event()

    async def never_stop() -> None:
        stopping.set()
        await asyncio.Event().wait()

    consumer.stop = never_stop  # type: ignore[method-assign]
    closing = asyncio.create_task(source.close())
    await stopping.wait()
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert (consumer._client.are_open, client.are_open) == (False, False)


async def test_a_missing_topic_raises_and_is_not_created(kafka_broker: KafkaBroker) -> None:
    topic = await topic_with(kafka_broker, 0)
    for _ in range(2):
        with pytest.raises(BadInput, match=f"no such topic: {topic}-typo"):
            async with opened(kafka_broker, [topic, f"{topic}-typo"]):
                pass


# ---------------------------------------------------------------- security

SASL_BROKER = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule"
    ' required username="admin" password="s3cret" user_admin="s3cret" user_etl="hunter2";',
}


@pytest.mark.interop
async def test_a_wrong_password_is_refused_at_once_and_never_printed(tmp_path: Path) -> None:
    broker = KafkaBroker(tmp_path / "kafka", SASL_BROKER)
    await asyncio.to_thread(broker.start)
    try:
        user: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_plain_username": "etl"}
        with pytest.raises(BadInput, match="no such topic: t"):  # the broker was asked, so the password was right
            async with opened(broker, "t", **user, sasl_plain_password=Secret("hunter2")):
                pass
        with pytest.raises(BadInput, match=r"refused to connect.*Invalid username or password") as raised:
            async with opened(broker, "t", **user, sasl_plain_password=Secret("hunter3")):
                pass
        assert "hunter3" not in str(raised.value)
    finally:
        await asyncio.to_thread(broker.purge)
