"""Checks of the source: broker, topics, clock, position, retention, schema registry."""

from __future__ import annotations

import asyncio
from typing import Final

from tidelake.doctor.checks import Finding, Findings, counted, failed, ok, warning
from tidelake.ingest.formats.base import RegistryUser
from tidelake.ingest.pipeline import builder
from tidelake.ingest.settings import Config
from tidelake.ingest.source_settings import KafkaSettings
from tidelake.storage.base.clock import epoch_ms

CLOCK_DIFFERENCE_MAX_MS: Final = 5_000
_RETENTION_SHARE_MAX: Final = 0.5  # of the retention that the oldest unread record may have used up
_REGISTRY_LIMIT_S: Final = 4.0
# Formats whose delete is a record of its own before a tombstone of the same key, and whose tombstones delete nothing.
_DELETES_BEFORE_TOMBSTONES: Final = frozenset(
    {"debezium-json", "debezium-avro", "debezium-bson", "debezium-cloudevents"}
)


def check_broker(settings: KafkaSettings) -> Findings:
    from tidelake.ingest.sources.kafka.topic_inspection import reach_broker

    return [ok(f"{settings.server_text}: {counted(asyncio.run(reach_broker(settings)), 'broker')}")]


def check_topics(settings: KafkaSettings, format_: str) -> Findings:
    """Read the newest record of each partition. Also compares its time with ours, and finds topics whose compaction
    removes deletes.
    """
    from tidelake.ingest.sources.kafka.topic_inspection import InspectedTopic, inspect_topics

    def remedy(topic: InspectedTopic) -> str:
        if topic.problem is not None and topic.problem.startswith("this user"):
            return "Grant the operations Read and Describe on it to the user of this pipeline (kafka-acls)"
        return "Correct `source.topics`, or create the topic"

    topics, now_ms = asyncio.run(inspect_topics(settings)), epoch_ms()
    if not topics:
        return [warning(f"no topic matches {settings.topic_pattern}", "Correct `source.topic_pattern`")]
    findings = [
        failed(f"{name}: {topic.problem}", remedy(topic)) for name, topic in topics.items() if topic.problem is not None
    ]
    ahead = [
        (time.epoch_ms - now_ms, name, time.is_of_broker)
        for name, topic in topics.items()
        for time in topic.newest.values()
        if time.epoch_ms - now_ms > CLOCK_DIFFERENCE_MAX_MS
    ]
    if ahead:
        ahead_ms, name, is_of_broker = max(ahead)
        whose = "broker's" if is_of_broker else "producer's"
        findings.append(
            warning(
                f"{name}: its newest record is {ahead_ms / 1000:,.0f} s in the future, so this machine's clock or the "
                f"{whose} is wrong",
                "Correct the clock (NTP). Until then freshness and lag are wrong by that much",
            )
        )
    compacted = [name for name, topic in topics.items() if topic.is_compacted]
    if compacted and format_ in _DELETES_BEFORE_TOMBSTONES:
        others = f" and {len(compacted) - 1:,} more" if len(compacted) > 1 else ""
        findings.append(
            warning(
                f"{compacted[0]}{others}: the topic is compacted (cleanup.policy), which removes the delete before a "
                "tombstone. A pipeline that is behind then keeps the deleted row",
                "Set cleanup.policy=delete; or min.compaction.lag.ms above the longest time that the pipeline may be "
                "behind; or let the connector flatten its records (ExtractNewRecordState, `format: "
                "debezium-flattened-json`): there a tombstone deletes",
            )
        )
    return findings or [ok(f"{counted(len(topics), 'topic')} can be read, and no record is from the future")]


def check_position(config: Config, command: str) -> Findings:
    """Find where a run would start, as `tidelake ingest plan` does, and how long the source still has its records.

    command: runs this pipeline, for remedies
    """
    pipeline = builder.build_pipeline(config, command=command)
    recovered = asyncio.run(pipeline.plan())
    findings: list[Finding] = [
        failed(f"{name} can't be read: {error}", f"tidelake table verify {name} -w {config.warehouse}")
        for name, error in recovered.unreadable.items()
    ]
    lags = {p: at.lag for p, at in pipeline.observed.partitions.items() if at.end is not None}
    behind = {p: recovered.starts[p] for p, lag in lags.items() if lag and p in recovered.starts}
    if isinstance(config.source, KafkaSettings) and behind:
        from tidelake.ingest.sources.kafka.topic_inspection import inspect_topics, unread_record_times

        async def look() -> Findings:
            assert isinstance(config.source, KafkaSettings)
            topics, times = await asyncio.gather(
                inspect_topics(config.source), unread_record_times(config.source, behind)
            )
            now_ms, found = epoch_ms(), []
            for partition, time in sorted(times.items()):
                retention_ms, age_ms = topics[partition.topic].retention_ms, now_ms - time.epoch_ms
                if retention_ms is not None and age_ms > _RETENTION_SHARE_MAX * retention_ms:
                    found.append(
                        warning(
                            f"{partition}: the next record to read is {age_ms / 3_600_000:,.1f} h old, and the topic "
                            f"keeps records for {retention_ms / 3_600_000:,.1f} h ({lags[partition]:,} to read)",
                            f"Run the pipeline soon, or raise retention.ms of {partition.topic}",
                        )
                    )
            return found

        findings += asyncio.run(look())
    return findings or [ok(f"the position is proven; {counted(sum(lags.values()), 'record')} to read at most")]


def check_registry(format_: RegistryUser) -> Findings:
    """Ask the schema registry for a schema."""
    format_.check_registry(_REGISTRY_LIMIT_S)
    return [ok(f"{', '.join(format_.registry_urls)} answers")]
