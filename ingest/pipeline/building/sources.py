"""Builds the source of a configuration, and the position of its first read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from tidelake.checkpoint.offsets import TopicPartition
from tidelake.ingest.formats.base import Decoder, OpenedFormat
from tidelake.ingest.formats.registry import transaction_of_format
from tidelake.ingest.monitoring.observations import RunObservations
from tidelake.ingest.pipeline.building.parts import SourceParts
from tidelake.ingest.pipeline.building.whole_transactions import WholeTransactions
from tidelake.ingest.settings import Config
from tidelake.ingest.source_settings import FolderSettings, FolderStartSettings, KafkaSettings
from tidelake.ingest.sources.base import AtGroupOffsets, AtOffsets, AtTimestamp, Earliest, Latest, Source, Start
from tidelake.ingest.sources.change_log_folder import ChangeLogFolder
from tidelake.storage.base.threads import RunCpuBound, ShortTaskRunner, run_cpu_bound


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
                from tidelake.ingest.sources.kafka.source import KafkaSource  # noqa: PLC0415 - aiokafka takes a while to import
            except ImportError as error:
                from tidelake.ingest.sources.kafka.client_check import unsupported_client  # noqa: PLC0415 - reads the release

                raise unsupported_client(str(error)) from error
            return KafkaSource(settings, kept_headers)


def build_source_parts(
    config: Config,
    format_: OpenedFormat,
    decoder: Decoder,
    observed: RunObservations,
    open_source: Callable[[], Source] | None = None,
) -> SourceParts:
    """Build the parts that read and decode records.

    open_source: replaces the source of the configuration.
    """
    open_source = open_source or partial(build_source, config, format_.KEPT_HEADERS)
    source, checkpoint = open_source(), config.checkpoint
    if checkpoint.whole_transactions:
        limits = checkpoint.transaction_ms_max, checkpoint.transaction_bytes_max
        of_record = transaction_of_format(config.format)
        source = WholeTransactions(source, of_record, *limits, observed.clock, observed.transactions)
    # Data from Kafka is received in the event loop's thread, so short work may run there, too.
    short_work: RunCpuBound = ShortTaskRunner() if isinstance(config.source, KafkaSettings) else run_cpu_bound
    return SourceParts(
        source,
        open_source,
        decoder,
        format_.CAPABILITIES.order_of,
        build_start(config),
        config.write.queue_bytes,
        run_decode=run_cpu_bound if format_.DECODING_BLOCKS else short_work,
        run_write=short_work,
    )


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
