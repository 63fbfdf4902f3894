"""`tidelake-kafka` with a real broker: Spark's calls of its readers, made here, and then by Spark itself."""

from __future__ import annotations

import asyncio
import json
import logging
import pickle
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.structs import TopicPartition as KafkaPartition
from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.types import StructType

from tests.support.kafka_broker import KafkaBroker
from tidelake.checkpoint.offsets import TopicPartition
from tidelake.errors import BadInput, PositionRefused
from tidelake.ingest.sources.kafka.range_reader import RangeReader
from tidelake.spark import register
from tidelake.spark.kafka import record_reading
from tidelake.spark.kafka.kafka_data_source import KafkaBatchReader, KafkaDataSource, KafkaStreamReader, RangesPartition
from tidelake.spark.kafka.ranges import RecordRange
from tidelake.spark.spark_types import arrow_form
from tidelake.storage.base.logs import FIELDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Rows = list[dict[str, Any]]
Offsets = dict[str, Any]
pytestmark = pytest.mark.interop


@pytest.fixture(autouse=True)
def no_consumer_is_left() -> Iterator[None]:
    yield
    record_reading.KeptConsumer.close_kept()


def send(broker: KafkaBroker, topic: str, count: int, *, partition: int = 0, first: int = 0) -> None:
    broker.send(
        [
            {
                "partition": partition,
                "timestamp_ms": 1_000 + n,
                "key": f"k{n}",
                "value": None if n % 5 == 4 else f"v{n}",
                "headers": [["a", f"h{n}"], ["a", None]] if n % 2 else [],
            }
            for n in range(first, first + count)
        ],
        topic,
    )


def topic_with(broker: KafkaBroker, *counts: int) -> str:
    topic = broker.create_topic(partitions=len(counts))
    for partition, count in enumerate(counts):
        send(broker, topic, count, partition=partition)
    return topic


def delete_records(broker: KafkaBroker, topic: str, before: int) -> None:
    async def delete() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.address)
        await admin.start()
        try:
            await admin.delete_records({KafkaPartition(topic, 0): RecordsToDelete(before_offset=before)})
        finally:
            await admin.close()

    asyncio.run(delete())


def source(broker: KafkaBroker, topic: str, **options: str) -> KafkaDataSource:
    return KafkaDataSource({"kafka.bootstrap.servers": broker.address, "subscribe": topic, **options})


def rows_of(reader: KafkaBatchReader | KafkaStreamReader, partitions: Any, schema: StructType) -> Rows:
    """As tasks read them."""
    in_task = pickle.loads(pickle.dumps(reader))
    batches = [batch for part in pickle.loads(pickle.dumps(partitions)) for batch in in_task.read(part)]
    assert all(batch.schema == arrow_form(schema) for batch in batches)
    return sorted(
        pa.Table.from_batches(batches, arrow_form(schema)).to_pylist(),
        key=lambda row: (row["partition"], row["offset"]),
    )


def batch(broker: KafkaBroker, topic: str, **options: str) -> Rows:
    of = source(broker, topic, **options)
    reader = of.reader(of.schema())
    return rows_of(reader, reader.partitions(), of.schema())


def offsets(rows: Rows) -> list[tuple[int, int]]:
    return [(row["partition"], row["offset"]) for row in rows]


class Stream:
    """A query as Spark runs one. offset: of its log, where it is started again."""

    def __init__(self, broker: KafkaBroker, topic: str, offset: Offsets | None = None, **options: str) -> None:
        of = source(broker, topic, **{"startingOffsets": "earliest", **options})
        self.schema = of.schema()
        self.reader = of.streamReader(self.schema)
        self.offset = self.reader.initialOffset() if offset is None else offset

    def step(self) -> Rows | None:
        """One trigger: None without anything new."""
        end = self.reader.latestOffset(self.offset, self.reader.getDefaultReadLimit())
        if end == self.offset:
            return None
        rows = rows_of(self.reader, self.reader.partitions(self.offset, end), self.schema)
        self.offset = end
        return rows

    def drain(self) -> list[Rows]:
        """Until nothing new comes; batches with rows."""
        found: list[Rows] = []
        for _ in range(50):
            if (rows := self.step()) is None:
                return [batch for batch in found if batch]
            found.append(rows)
        raise AssertionError("the stream does not come to rest")


@pytest.fixture
def streams() -> Iterator[Any]:
    made: list[Stream] = []

    def make(*arguments: Any, **options: Any) -> Stream:
        made.append(Stream(*arguments, **options))
        return made[-1]

    yield make
    for stream in made:
        stream.reader.stop()


# ---------------------------------------------------------------- batches


def test_columns_equal_those_of_sparks_connector(kafka_broker: KafkaBroker) -> None:
    topic = topic_with(kafka_broker, 6)
    row = batch(kafka_broker, topic, includeHeaders="true")[3]
    assert row.pop("timestamp").timestamp() == pytest.approx(1.003)
    assert row == {
        "key": b"k3",
        "value": b"v3",
        "topic": topic,
        "partition": 0,
        "offset": 3,
        "timestampType": 0,
        "headers": [{"key": "a", "value": b"h3"}, {"key": "a", "value": None}],
    }
    assert batch(kafka_broker, topic, headers="b, a")[3]["headers"] == row["headers"]
    assert batch(kafka_broker, topic, headers="b")[3]["headers"] is None, "it has none of these"
    rows = batch(kafka_broker, topic, includeHeaders="true")
    assert [row["headers"] for row in rows[:3:2]] == [None, None]
    assert rows[4]["value"] is None


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param({}, [*((0, n) for n in range(5)), (1, 0), (1, 1), (1, 2)], id="all"),
        pytest.param(
            {"startingOffsets": '{"T":{"0":3,"1":-1}}', "endingOffsets": '{"T":{"0":4,"1":-1}}'},
            [(0, 3)],
            id="between offsets",
        ),
        pytest.param({"startingTimestamp": "1002", "endingTimestamp": "1004"}, [(0, 2), (0, 3), (1, 2)], id="times"),
        pytest.param(
            {"startingOffsetsByTimestamp": '{"T":{"0":1003,"1":9999}}', "startingOffsetsByTimestampStrategy": "latest"},
            [(0, 3), (0, 4)],
            id="a time of each partition, one without a record",
        ),
        pytest.param({"minPartitions": "4"}, [*((0, n) for n in range(5)), (1, 0), (1, 1), (1, 2)], id="divided"),
    ],
)
def test_a_batch_reads_from_start_to_end_offsets(
    kafka_broker: KafkaBroker, options: dict[str, str], expected: list[tuple[int, int]]
) -> None:
    topic = topic_with(kafka_broker, 5, 3)
    given = {name: text.replace('"T"', f'"{topic}"') for name, text in options.items()}
    assert offsets(batch(kafka_broker, topic, **given)) == expected


def test_offsets_must_name_every_partition(kafka_broker: KafkaBroker) -> None:
    topic = topic_with(kafka_broker, 1, 1)
    with pytest.raises(BadInput, match=f"doesn't name: {topic}-1"):
        batch(kafka_broker, topic, startingOffsets=f'{{"{topic}":{{"0":0}}}}')


def test_a_time_without_a_record_raises_unless_configured(kafka_broker: KafkaBroker) -> None:
    topic = topic_with(kafka_broker, 3)
    with pytest.raises(BadInput, match=f"no record of {topic}-0 is as new"):
        batch(kafka_broker, topic, startingTimestamp="9999")


def test_only_assigned_partitions_are_read(kafka_broker: KafkaBroker) -> None:
    topic = topic_with(kafka_broker, 2, 2)
    of = KafkaDataSource({"kafka.bootstrap.servers": kafka_broker.address, "assign": f'{{"{topic}":[1]}}'})
    reader = of.reader(of.schema())
    assert offsets(rows_of(reader, reader.partitions(), of.schema())) == [(1, 0), (1, 1)]
    missing = KafkaDataSource({"kafka.bootstrap.servers": kafka_broker.address, "assign": f'{{"{topic}":[7]}}'})
    with pytest.raises(BadInput, match=f"partitions that don't exist: {topic}-7"):
        missing.reader(of.schema()).partitions()


@pytest.mark.parametrize(("level", "expected"), [("read_committed", 2), ("read_uncommitted", 5)])
def test_aborted_records_are_returned_only_on_request(kafka_broker: KafkaBroker, level: str, expected: int) -> None:
    topic = kafka_broker.create_topic()

    async def produce() -> None:
        async with AIOKafkaProducer(bootstrap_servers=kafka_broker.address, transactional_id=topic) as producer:
            for count, is_kept in ((3, False), (2, True)):
                await producer.begin_transaction()
                for _ in range(count):
                    await producer.send_and_wait(topic, b"v")
                await (producer.commit_transaction() if is_kept else producer.abort_transaction())

    asyncio.run(produce())
    assert len(batch(kafka_broker, topic, **{"kafka.isolation.level": level})) == expected


# ---------------------------------------------------------------- streams


def test_a_stream_continues_after_the_previous_batch_and_a_restart(kafka_broker: KafkaBroker, streams: Any) -> None:
    topic = topic_with(kafka_broker, 3)
    stream = streams(kafka_broker, topic)
    assert [offsets(rows) for rows in stream.drain()] == [[(0, 0), (0, 1), (0, 2)]]
    send(kafka_broker, topic, 2, first=3)
    again = streams(kafka_broker, topic, offset={topic: {"0": 3}})
    assert [offsets(rows) for rows in again.drain()] == [[(0, 3), (0, 4)]]
    assert again.offset == {topic: {"0": 5}}


def test_the_start_of_a_stream_is_in_sparks_offset_log_before_its_first_record(
    kafka_broker: KafkaBroker, streams: Any
) -> None:
    topic = topic_with(kafka_broker, 3)
    stream = streams(kafka_broker, topic, startingOffsets="latest")
    assert stream.step() == []
    logged = stream.offset
    send(kafka_broker, topic, 2, first=3)
    assert logged == {topic: {"0": 3}}
    assert stream.reader.partitions({}, logged) == []  # as Spark plans a first batch again
    assert [offsets(rows) for rows in stream.drain()] == [[(0, 3), (0, 4)]]


def test_a_batch_reads_at_most_the_configured_offsets(kafka_broker: KafkaBroker, streams: Any) -> None:
    topic = topic_with(kafka_broker, 9, 3)
    stream = streams(kafka_broker, topic, maxOffsetsPerTrigger="4")
    assert isinstance(stream.reader.getDefaultReadLimit(), ReadMaxRows)
    batches = stream.drain()
    assert [len(rows) for rows in batches[:3]] == [4, 4, 4]
    assert sorted(chain.from_iterable(map(offsets, batches))) == [
        *((0, n) for n in range(9)),
        *((1, n) for n in range(3)),
    ]


def test_a_batch_waits_for_a_minimum_of_offsets_up_to_a_time_limit(kafka_broker: KafkaBroker, streams: Any) -> None:
    topic = topic_with(kafka_broker, 3)
    stream = streams(kafka_broker, topic, minOffsetsPerTrigger="5", maxTriggerDelay="1m")
    now_ms = 0
    stream.reader._now_ms = lambda: now_ms
    stream.reader._last_batch_ms = 0
    assert stream.step() == []
    assert stream.step() is None
    now_ms = 60_000
    assert stream.step() is not None


def test_available_now_ends_while_producers_continue(kafka_broker: KafkaBroker, streams: Any) -> None:
    topic = topic_with(kafka_broker, 4)
    stream = streams(kafka_broker, topic, maxOffsetsPerTrigger="3")
    stream.reader.prepareForTriggerAvailableNow()
    assert stream.step() == []
    send(kafka_broker, topic, 5, first=4)
    kafka_broker.add_partitions(topic, 2)
    assert [len(rows) for rows in stream.drain()] == [3, 1]


def test_a_new_partition_is_read_from_its_first_record(kafka_broker: KafkaBroker, streams: Any) -> None:
    topic = topic_with(kafka_broker, 2)
    stream = streams(kafka_broker, topic, startingOffsets="latest")
    stream.drain()
    kafka_broker.add_partitions(topic, 2)
    send(kafka_broker, topic, 3, partition=1)
    assert [offsets(rows) for rows in stream.drain()] == [[(1, 0), (1, 1), (1, 2)]]


def test_the_topics_of_a_pattern_are_found(kafka_broker: KafkaBroker) -> None:
    topic = topic_with(kafka_broker, 1)
    pattern = {"kafka.bootstrap.servers": kafka_broker.address, "subscribePattern": f"{topic}.*"}
    stream = Stream.__new__(Stream)
    of = KafkaDataSource({**pattern, "startingOffsets": "earliest"})
    stream.schema, stream.reader = of.schema(), of.streamReader(of.schema())
    stream.offset = stream.reader.initialOffset()
    assert [len(rows) for rows in stream.drain()] == [1]
    kafka_broker.create_topic(f"{topic}-b")
    send(kafka_broker, f"{topic}-b", 2)
    assert [[row["topic"] for row in rows] for rows in stream.drain()] == [[f"{topic}-b"] * 2]
    stream.reader.stop()


# ---------------------------------------------------------------- losses


def test_lost_records_end_a_stream_and_are_named(kafka_broker: KafkaBroker, streams: Any) -> None:
    topic = topic_with(kafka_broker, 5)
    delete_records(kafka_broker, topic, 3)
    stream = streams(kafka_broker, topic, offset={topic: {"0": 1}})
    with pytest.raises(PositionRefused, match=rf"{topic}-0 \[1, 3\)"):
        stream.step()


def test_lost_records_are_logged_and_skipped_if_configured(
    kafka_broker: KafkaBroker, streams: Any, caplog: pytest.LogCaptureFixture
) -> None:
    topic = topic_with(kafka_broker, 5)
    delete_records(kafka_broker, topic, 3)
    stream = streams(kafka_broker, topic, offset={topic: {"0": 1}}, failOnDataLoss="false")
    assert offsets(stream.step()) == [(0, 3), (0, 4)]
    (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert f"{topic}-0 [1, 3)" in getattr(record, FIELDS)["what"]


def test_a_topic_that_ends_before_its_read_offset_is_refused(kafka_broker: KafkaBroker, streams: Any) -> None:
    topic = topic_with(kafka_broker, 5)
    with pytest.raises(PositionRefused, match=f"{topic}-0 ends at 5, but was read up to 9"):
        streams(kafka_broker, topic, offset={topic: {"0": 9}}).step()
    with pytest.raises(PositionRefused, match=f"{topic}-3 was deleted; it was read up to 2"):
        streams(kafka_broker, topic, offset={topic: {"0": 5, "3": 2}}).step()


@pytest.mark.parametrize("fails", [True, False])
def test_records_lost_before_a_task_reads_them_are_reported(kafka_broker: KafkaBroker, fails: bool) -> None:
    topic = topic_with(kafka_broker, 5)
    of = source(kafka_broker, topic, failOnDataLoss=str(fails).lower())
    reader = of.reader(of.schema())
    planned = [RangesPartition([RecordRange(TopicPartition(topic, 0), 0, 7)])]  # two more than there are
    delete_records(kafka_broker, topic, 2)
    if fails:
        with pytest.raises(PositionRefused, match=rf"{topic}-0 \[0, 2\)"):
            rows_of(reader, planned, of.schema())
    else:
        assert offsets(rows_of(reader, planned, of.schema())) == [(0, 2), (0, 3), (0, 4)]


# ---------------------------------------------------------------- a worker's consumer


def test_a_worker_keeps_its_consumer_and_its_prefetched_records(
    kafka_broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = topic_with(kafka_broker, 40)
    opened: list[RangeReader] = []
    open_ = RangeReader.open

    async def counted(reader: RangeReader) -> None:
        opened.append(reader)
        await open_(reader)

    monkeypatch.setattr(RangeReader, "open", counted)
    sought: list[int] = []
    seek = AIOKafkaConsumer.seek

    def counted_seek(consumer: Any, partition: Any, offset: int) -> None:
        sought.append(offset)
        seek(consumer, partition, offset)

    monkeypatch.setattr(AIOKafkaConsumer, "seek", counted_seek)
    for start, end in ((0, 10), (10, 20), (30, 40)):
        of = source(kafka_broker, topic)
        reader = of.reader(of.schema())
        part = RangesPartition([RecordRange(TopicPartition(topic, 0), start, end)])
        assert offsets(rows_of(reader, [part], of.schema())) == [(0, n) for n in range(start, end)]
    assert len(opened) == 1
    assert sought == [0, 30]


# ---------------------------------------------------------------- Spark


def test_spark_reads_a_topic_and_its_columns_alone(
    kafka_broker: KafkaBroker, spark: SparkSession, tmp_path: Path
) -> None:
    topic = topic_with(kafka_broker, 5, 3)
    register(spark)
    given = {"kafka.bootstrap.servers": kafka_broker.address, "subscribe": topic, "startingOffsets": "earliest"}
    values = spark.read.format("tidelake-kafka").schema("value binary, partition int").options(**given).load()
    assert values.where("partition = 1").count() == 3
    seen: list[int] = []
    query = (
        spark.readStream.format("tidelake-kafka")
        .options(**given, maxOffsetsPerTrigger="5")
        .load()
        .writeStream.foreachBatch(lambda rows, _: seen.append(rows.count()))
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert seen[0] == 0
    assert sum(seen) == 8


@pytest.mark.parametrize(
    ("start", "end", "error", "message"),
    [
        pytest.param(999, None, PositionRefused, r"-0 ends at 10, but startingOffsets is 999", id="past the end"),
        pytest.param(11, 12, PositionRefused, r"doesn't have these records.*-0 \[11, 12\)", id="both past the end"),
        pytest.param(8, 3, BadInput, r"-0: startingOffsets is 8, after the end of the read at 3", id="after its end"),
    ],
)
def test_a_batch_read_that_starts_out_of_range_is_refused(
    kafka_broker: KafkaBroker, start: int, end: int | None, error: type[Exception], message: str
) -> None:
    topic = topic_with(kafka_broker, 10)
    named = {"startingOffsets": json.dumps({topic: {"0": start}})}
    if end is not None:
        named["endingOffsets"] = json.dumps({topic: {"0": end}})
    with pytest.raises(error, match=message):
        batch(kafka_broker, topic, **named)
    if error is PositionRefused:
        assert batch(kafka_broker, topic, **named, failOnDataLoss="false") == []
    for at in (10, 5):
        found = batch(kafka_broker, topic, startingOffsets=json.dumps({topic: {"0": at}}))
        assert offsets(found) == [(0, n) for n in range(at, 10)]


def test_a_new_query_continues_partitions_where_other_drivers_ended(kafka_broker: KafkaBroker, streams: Any) -> None:
    """A partition that they didn't know begins at its oldest record, whatever the start of the query is."""
    topic = topic_with(kafka_broker, 5, 3)
    continuing = json.dumps({topic: {"0": 2}})
    for start in ("earliest", "latest"):
        (found,) = streams(kafka_broker, topic, startingOffsets=start, continuingOffsets=continuing).drain()
        assert offsets(found) == [(0, 2), (0, 3), (0, 4), (1, 0), (1, 1), (1, 2)]
