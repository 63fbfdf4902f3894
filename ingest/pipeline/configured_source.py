"""The source of a configuration, and where its first read begins."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Final

import msgspec

from tidelake.checkpoint.offsets import OffsetRange, TopicPartition
from tidelake.ingest.formats.registry import open_format
from tidelake.ingest.raw_batch import RawBatch
from tidelake.ingest.settings import Config
from tidelake.ingest.source_settings import FolderSettings, FolderStartSettings, KafkaSettings
from tidelake.ingest.sources.change_log_folder import ChangeLogFolder
from tidelake.ingest.sources.ranges import read_ranges
from tidelake.ingest.sources.source import AtGroupOffsets, AtOffsets, AtTimestamp, Earliest, Latest, Source, Start

_UNREACHABLE_AFTER_MS: Final = 5_000  # for somebody who waits; a run waits longer (`source.unreachable_after_ms`)


def build_source(config: Config, kept_headers: frozenset[str]) -> Source:
    """Build the source.

    kept_headers: see `Format`.

    Raises UnsupportedFeature for an aiokafka release that the Kafka source can't use.
    """
    match config.source:
        case FolderSettings() as settings:
            return ChangeLogFolder(
                Path(settings.path),
                follow=settings.until == "forever",
                kept_headers=kept_headers,
                poll_interval_ms=settings.poll_interval_ms,
                max_record_bytes=settings.max_record_bytes,
                known=starting_offsets(settings.start.offsets) if settings.start != "earliest" else (),
            )
        case KafkaSettings() as settings:
            try:
                from tidelake.ingest.sources.kafka.kafka_source import KafkaSource  # noqa: PLC0415 - aiokafka takes a while to import
            except ImportError as error:
                from tidelake.ingest.sources.kafka.client_check import unsupported_client  # noqa: PLC0415 - reads the release

                raise unsupported_client(str(error)) from error
            return KafkaSource(settings, kept_headers)


def build_start(config: Config) -> Start:
    start = config.source.start
    if start == "earliest":
        return Earliest()
    if start == "latest":
        return Latest()
    if isinstance(start, FolderStartSettings):
        return AtOffsets(starting_offsets(start.offsets))
    if start.timestamp_ms is not None:
        return AtTimestamp(start.timestamp_ms)
    if start.group is not None:
        return AtGroupOffsets(start.group)
    return AtOffsets(starting_offsets(start.offsets or {}))


def starting_offsets(topics: Mapping[str, Mapping[int, int]]) -> dict[TopicPartition, int]:
    """Return the offsets by partition.

    topics: topic to partition to offset, as in a configuration.
    """
    return {TopicPartition(t, number): at for t, offsets in topics.items() for number, at in offsets.items()}


def with_short_limit(config: Config) -> Config:
    """Return the configuration for somebody who waits for the answer: brokers must answer within a few seconds."""
    if not isinstance(config.source, KafkaSettings):
        return config
    limit_ms = min(config.source.unreachable_after_ms, _UNREACHABLE_AFTER_MS)
    return msgspec.structs.replace(config, source=msgspec.structs.replace(config.source, unreachable_after_ms=limit_ms))


async def newest_records(config: Config, records: int) -> AsyncGenerator[RawBatch]:
    """Yield the newest records of the source, in order within each partition. Joins no consumer group.

    records: their number, about; of all partitions together. Of a folder the oldest are read, because it doesn't report
        where it ends.

    Raises the source's errors.
    """
    bounded = msgspec.structs.replace(config, source=msgspec.structs.replace(config.source, until="end"))
    source = build_source(bounded, open_format(config.format, config.format_options).KEPT_HEADERS)
    try:
        partitions = await source.open([])
        bounds = await source.bounds(list(partitions))
        share = max(1, records // max(1, len(bounds)))
        ranges = {p: OffsetRange(max(held.start, held.end - share), held.end) for p, held in bounds.items()}
        async with aclosing(read_ranges(source, bounds, ranges) if bounds else source.read({})) as batches:
            async for raw in batches:
                yield raw
                records -= len(raw)
                if records <= 0 and not bounds:
                    break
    finally:
        await source.close()
