"""Asks brokers which topics there are, whether they can be read, and how old records are. For `tidelake doctor` and
`tidelake init`.

Nothing is committed, and no consumer group is used. Kafka has no request for a broker's time; but a topic with
`message.timestamp.type=LogAppendTime` has it in its records.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from aiokafka import TopicPartition as KafkaPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, TopicAuthorizationFailedError

from tidelake.checkpoint.offsets import TopicPartition
from tidelake.errors import SourceUnavailable
from tidelake.ingest.source_settings import KafkaSettings
from tidelake.ingest.sources.kafka.client_internals import KafkaClient
from tidelake.ingest.sources.kafka.connection import client_arguments, consumer_of
from tidelake.ingest.sources.kafka.metadata import fetch_metadata
from tidelake.storage.base import env

_READ_LIMIT_MS: Final = 3_000
_REACH: Final = (
    "Check `source.bootstrap_servers`, whether the broker runs, and the login (`source.security_protocol`, "
    "`source.sasl_…`)"
)
_LOG_APPEND_TIME: Final = 1  # KIP-32


@dataclass(frozen=True, slots=True)
class RecordTime:
    """The time of a record. is_of_broker: the broker gave it, not the producer."""

    epoch_ms: int
    is_of_broker: bool


@dataclass(slots=True)
class InspectedTopic:
    """A topic.

    problem: why it can't be read; None if it can
    retention_ms: `retention.ms`; None if it is unlimited, or this user may not know it
    is_compacted: whether older records of a key are removed; False if this user may not know it
    newest: the times of the newest records, by partition
    """

    problem: str | None = None
    retention_ms: int | None = None
    is_compacted: bool = False
    newest: dict[TopicPartition, RecordTime] = field(default_factory=dict)


async def reach_broker(settings: KafkaSettings) -> int:
    """Return the number of brokers. Raises SourceUnavailable, and BadInput for a refused login."""
    async with _client(settings) as client:
        return len(client.cluster.brokers())


async def list_topics(settings: KafkaSettings, limit_s: float) -> list[str]:
    """Return the names of all topics that this user may see, sorted. Kafka's internal ones are left out.

    Raises SourceUnavailable without an answer within `limit_s` seconds, and BadInput for a refused login.
    """
    try:
        async with asyncio.timeout(limit_s), _client(settings) as client:
            with _unavailable(settings):
                return sorted((await fetch_metadata(client, None)).topics)
    except TimeoutError:
        raise SourceUnavailable(
            f"Kafka at {settings.server_text} can't be reached: no answer within {limit_s:g} s. {_REACH}"
        ) from None


async def inspect_topics(settings: KafkaSettings) -> dict[str, InspectedTopic]:
    """Return the configured topics, or those that the pattern matches. Reads the newest record of each partition.

    Raises SourceUnavailable if no broker can be reached.
    """
    found: dict[str, InspectedTopic] = {}
    partitions: list[TopicPartition] = []
    async with _client(settings) as client:
        for name in settings.topic_names or await _matching(client, settings.topic_pattern or ""):
            topic = found[name] = InspectedTopic()
            try:
                metadata = (await fetch_metadata(client, [name])).topics.get(name)
            except KafkaError as error:
                topic.problem = _problem(error, "DESCRIBE")
                continue
            if metadata is None:
                topic.problem = "there is no such topic"
                continue
            partitions += [TopicPartition(name, number) for number in range(metadata.partitions)]
    async with _consumer(settings) as consumer:
        ends = await consumer.end_offsets(partitions) if partitions else {}
        times, refused = await _read_times(consumer, {p: max(0, end - 1) for p, end in ends.items()})
    for name in refused:
        found[name].problem = "this user may not READ it"
    for partition, time in times.items():
        found[partition.topic].newest[partition] = time
    for name, values in (await _configurations(settings, [n for n in found if found[n].problem is None])).items():
        retention_ms = int(values.get("retention.ms") or -1)
        found[name].retention_ms = retention_ms if retention_ms >= 0 else None
        found[name].is_compacted = "compact" in (values.get("cleanup.policy") or "")
    return found


async def unread_record_times(
    settings: KafkaSettings, starts: Mapping[TopicPartition, int]
) -> dict[TopicPartition, RecordTime]:
    """Return the time of the first record from each of these offsets on. A partition without one is left out."""
    async with _consumer(settings) as consumer:
        ends = await consumer.end_offsets(list(starts)) if starts else {}
        times, _ = await _read_times(consumer, {p: at for p, at in starts.items() if at < ends[KafkaPartition(*p)]})
    return times


async def _matching(client: KafkaClient, pattern: str) -> list[str]:
    return [name for name in (await fetch_metadata(client, None)).topics if re.fullmatch(pattern, name)]


async def _read_times(consumer: Any, starts: Mapping[Any, int]) -> tuple[dict[TopicPartition, RecordTime], set[str]]:
    """Return the time of a record of each partition that has one in time, and the topics that may not be read."""
    wanted = {KafkaPartition(*p): at for p, at in starts.items()}
    found: dict[TopicPartition, RecordTime] = {}
    refused: set[str] = set()
    give_up_ms = env.monotonic_ns() // 1_000_000 + _READ_LIMIT_MS
    while wanted and (left_ms := give_up_ms - env.monotonic_ns() // 1_000_000) > 0:
        consumer.assign(list(wanted))
        for partition, offset in wanted.items():
            consumer.seek(partition, offset)
        try:
            polled = await consumer.getmany(timeout_ms=min(500, left_ms), max_records=max(500, len(wanted)))
        except TopicAuthorizationFailedError as error:
            topics = {str(topic) for topic in (error.args[0] if error.args else ()) if isinstance(topic, str)}
            refused |= topics or {partition.topic for partition in wanted}
            wanted = {p: at for p, at in wanted.items() if p.topic not in refused}
            continue
        for partition, records in polled.items():
            if records and partition in wanted:
                first = records[0]
                found[TopicPartition(*partition)] = RecordTime(
                    first.timestamp, first.timestamp_type == _LOG_APPEND_TIME
                )
                del wanted[partition]
    return found, refused


async def _configurations(settings: KafkaSettings, topics: list[str]) -> dict[str, dict[str, str | None]]:
    """Return retention and cleanup of the topics whose configuration this user may read."""
    if not topics:
        return {}
    admin = AIOKafkaAdminClient(**await asyncio.to_thread(client_arguments, settings))
    found: dict[str, dict[str, str | None]] = {}
    with suppress(KafkaError):
        try:
            await admin.start()
            answers = await admin.describe_configs(
                [
                    ConfigResource(ConfigResourceType.TOPIC, name, {"retention.ms": None, "cleanup.policy": None})
                    for name in topics
                ]
            )
            for answer in answers:
                for _, _, _, name, entries in (resource[:5] for resource in answer.resources):
                    found[name] = {entry[0]: entry[1] for entry in entries}
        finally:
            await admin.close()
    return found


def _problem(error: KafkaError, operation: str) -> str:
    if isinstance(error, TopicAuthorizationFailedError):
        return f"this user may not {operation} it"
    return f"{type(error).__name__}: {error}"


@asynccontextmanager
async def _client(settings: KafkaSettings) -> AsyncGenerator[KafkaClient]:
    client = KafkaClient(**await asyncio.to_thread(client_arguments, settings))
    try:
        with _unavailable(settings):
            await client.bootstrap()
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def _consumer(settings: KafkaSettings) -> AsyncGenerator[Any]:
    """Open a consumer without a group: it commits nothing."""
    alone = msgspec.structs.replace(settings, group_id=None)
    consumer = consumer_of(alone, await asyncio.to_thread(client_arguments, alone))
    try:
        with _unavailable(settings):
            await consumer.start()
        yield consumer
    finally:
        await consumer.stop()


@contextmanager
def _unavailable(settings: KafkaSettings) -> Generator[None]:
    try:
        yield
    except (KafkaError, OSError) as error:
        raise SourceUnavailable(f"Kafka at {settings.server_text} can't be reached: {error}. {_REACH}") from error
