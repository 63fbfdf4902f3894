"""Reads the newest records of topics. Nothing is committed, and no consumer group is used."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

import msgspec

from tidelake.checkpoint.offsets import OffsetRange
from tidelake.ingest.formats.recognition import KEPT_HEADERS
from tidelake.ingest.raw_batch import RawBatch
from tidelake.ingest.source_settings import KafkaSettings
from tidelake.ingest.sources.ranges import read_ranges

UNREACHABLE_AFTER_MS: Final = 5_000  # somebody waits for the answer
_INTERNAL: Final = re.compile(r"_.*|(.*[-_.])?connect[-_.](configs?|offsets?|status(es)?)")


@dataclass(slots=True)
class TopicSample:
    """The newest records of a topic, by partition in the order of offsets.

    has_records: whether the topic has offsets, even if no record remains in those that were read.
    """

    topic: str
    partitions: int = 0
    has_records: bool = False
    batches: list[RawBatch] = field(default_factory=list)

    @property
    def records(self) -> int:
        return sum(map(len, self.batches))


def is_internal(topic: str) -> bool:
    """Return whether the name is that of a topic of Kafka, Kafka Connect or a schema registry, not of data.

    Kafka marks only its own two topics. Others begin with an underscore (`_schemas`, `__debezium-heartbeat.shop`), or
    are the three topics of a Connect cluster (`connect-offsets`, `my_connect_configs`).
    """
    return _INTERNAL.fullmatch(topic) is not None


async def sample_topics(settings: KafkaSettings, topics: Sequence[str], records: int) -> dict[str, TopicSample]:
    """Return the samples by topic, in the order of `topics`.

    settings: brokers and login.
    topics: names of existing topics.
    records: number of the newest records of each topic, divided among its partitions.

    Raises SourceUnavailable if a broker doesn't answer, and BadInput if it refuses.
    """
    from tidelake.ingest.sources.kafka.kafka_source import KafkaSource  # noqa: PLC0415 - aiokafka takes a while to import

    found = {topic: TopicSample(topic) for topic in topics}
    if not found:
        return found
    chosen = msgspec.structs.replace(
        settings,
        topics=list(topics),
        topic_pattern=None,
        until="end",
        group_id=None,
        unreachable_after_ms=min(settings.unreachable_after_ms, UNREACHABLE_AFTER_MS),
    )
    source = KafkaSource(chosen, KEPT_HEADERS)
    try:
        partitions = await source.open()
        for partition in partitions:
            found[partition.topic].partitions += 1
        bounds = await source.bounds(list(partitions))
        ranges = {}
        for partition, held in bounds.items():
            sample = found[partition.topic]
            sample.has_records |= held.start < held.end
            share = max(1, records // sample.partitions)
            ranges[partition] = OffsetRange(max(held.start, held.end - share), held.end)
        async with aclosing(read_ranges(source, bounds, ranges)) as batches:
            async for raw in batches:
                found[raw.topic].batches.append(raw)
    finally:
        await source.close()
    for sample in found.values():
        sample.batches.sort(key=lambda raw: raw.partition)  # stable: in the order of offsets within a partition
    return found
