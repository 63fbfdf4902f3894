"""Topics of a Kafka cluster as a source.

Partitions are assigned from the tables' positions; a consumer group never decides anything. The next offset of a
partition is the consumer's position, not the last record's offset + 1: compaction, aborted transactions and their
markers leave offsets without records.

aiokafka fetches by topic name. So a topic that is deleted and created again is read like the old one, if it has enough
records. `check_identity` distinguishes them at each checkpoint.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping
from contextlib import aclosing
from typing import Any, Final

from aiokafka import TopicPartition as KafkaPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError, OffsetOutOfRangeError, RecordTooLargeError

from tidelake.checkpoint.offsets import OffsetRange, SourceIdentity, TopicPartition, identity_changes
from tidelake.checkpoint.position_problems import first_few
from tidelake.errors import BadInput, PositionRefused, SourceUnavailable
from tidelake.ingest.clock import Clock, SystemClock
from tidelake.ingest.raw_batch import RawBatch
from tidelake.ingest.source_settings import KafkaSettings
from tidelake.ingest.sources.kafka.broker_error_log import BrokerErrorLog
from tidelake.ingest.sources.kafka.client_internals import (
    BATCHES_A_POLL,
    KafkaClient,
    check_aiokafka,
    connection_error,
    fetch_broker,
    parser_errors,
    return_record_batches,
    stop,
)
from tidelake.ingest.sources.kafka.connection import client_arguments, consumer_of
from tidelake.ingest.sources.kafka.decompression import (
    DecompressionLimitExceeded,
    decompression_limit,
    install_limited_decoders,
)
from tidelake.ingest.sources.kafka.fetched_records import FetchedRecords, raw_batch, truncate_at
from tidelake.ingest.sources.kafka.liveness import PartitionLiveness
from tidelake.ingest.sources.kafka.metadata import ClusterMetadata, TopicMetadata, fetch_metadata
from tidelake.ingest.sources.kafka.retries import BrokerRetries
from tidelake.ingest.sources.source import (
    AtGroupOffsets,
    AtOffsets,
    AtTimestamp,
    Earliest,
    Latest,
    Start,
    empty_batch,
)
from tidelake.storage.base.logs import get_logger
from tidelake.storage.base.threads import ShortTaskRunner

BATCH_BYTES: Final = 16 << 20  # bytes of records that are collected from several polls before they are passed on
_POLL_WAIT_MS: Final = 500
_FULL_BATCH_BYTES: Final = 4 << 20  # larger batches don't make later steps faster
_FILL_WAIT_MS: Final = 100
_CONFIRM_LIMIT_MS: Final = 5_000
_RESTART: Final = "start the pipeline again: it checks this first, and lists the options for each table"

_log = get_logger(__name__)


class KafkaSource:
    """Kafka as a source. See the module, and `Source`. An unreachable broker is retried up to `unreachable_after_ms`.

    kept_headers: names of the record headers that the format reads.
    """

    def __init__(self, settings: KafkaSettings, kept_headers: frozenset[str], clock: Clock | None = None) -> None:
        self._settings = settings
        self._kept_headers = kept_headers
        self._pattern = re.compile(settings.topic_pattern) if settings.topic_pattern else None
        self._clock = clock or SystemClock()
        self._client: Any = None  # for metadata requests, which must not wait for fetches
        self._consumer: Any = None
        self._identity = SourceIdentity()
        self._partitions: frozenset[TopicPartition] = frozenset()
        self._reached: dict[TopicPartition, int] = {}  # next offset after the records passed on
        self._ends: Mapping[TopicPartition, int] | None = None  # ends of reading, set at the first read
        self._error_log = BrokerErrorLog(_log, self._clock.now_ms)
        self._retries = BrokerRetries(str(self), settings.unreachable_after_ms, self._clock, self._error_log)
        self._short_work = ShortTaskRunner()  # the event loop receives data in this thread

    async def open(self, known: Collection[TopicPartition] = ()) -> frozenset[TopicPartition]:
        """See `Source.open`. Raises BadInput for a missing topic or refused credentials.

        Raises UnsupportedFeature for an aiokafka release with different internals.
        """
        check_aiokafka()
        install_limited_decoders()
        arguments = await asyncio.to_thread(client_arguments, self._settings)
        self._identity, self._partitions, self._reached = SourceIdentity(), frozenset(), {}
        self._ends = None
        self._retries.begin()
        self._error_log.begin()
        self._client = KafkaClient(**arguments)
        self._consumer = consumer_of(self._settings, arguments)
        await self._retries.run("connect", self._client.bootstrap)
        await self._retries.run("connect", self._consumer.start)
        return_record_batches(self._consumer)
        metadata = await self._retries.run("list topics", self._metadata)
        missing = set(self._settings.topic_names) - metadata.topics.keys()
        if missing:
            raise BadInput(
                f"{self}: no such topic: {', '.join(sorted(missing))}. `source.topics` must name existing topics"
            )
        return self._add_topics(metadata)

    @property
    def identity(self) -> SourceIdentity:
        return self._identity

    def __str__(self) -> str:
        return f"Kafka at {self._settings.server_text}"

    # ------------------------------------------------------------ topics and offsets

    async def _metadata(self) -> ClusterMetadata:
        """Return the current metadata of the cluster and the wanted topics."""
        topics = None if self._pattern else self._settings.topic_names
        metadata = await fetch_metadata(self._client, topics)
        return ClusterMetadata(
            metadata.cluster_id, {n: t for n, t in metadata.topics.items() if self._is_subscribed(n)}
        )

    def _is_subscribed(self, topic: str) -> bool:
        named = topic in self._settings.topic_names
        return named or (self._pattern is not None and self._pattern.fullmatch(topic) is not None)

    def _add_topics(self, metadata: ClusterMetadata) -> frozenset[TopicPartition]:
        """Add topics and partitions, and return new ones. Raises PositionRefused for a topic that was replaced."""
        self._identity = self._checked_identity(metadata)
        found = frozenset(_partitions_of(metadata.topics))
        new = found - self._partitions
        self._partitions |= found
        return new

    def _checked_identity(self, metadata: ClusterMetadata) -> SourceIdentity:
        """Return our identity, extended by new topics. Raises PositionRefused for a topic that was created again."""
        ids = {name: topic.id for name, topic in metadata.topics.items() if topic.id is not None}
        identity = SourceIdentity(metadata.cluster_id, {**self._identity.topic_ids, **ids})
        if changes := identity_changes(self._identity, identity):
            raise PositionRefused(
                f"{self}: {'; '.join(changes)} while it was read. The records since the last checkpoint are dropped: "
                "they may be from either",
                [_RESTART],
            )
        return identity

    async def refresh(self) -> frozenset[TopicPartition]:
        """Return the current partitions, without those of deleted topics."""
        metadata = await self._retries.run("list topics", self._metadata)
        self._add_topics(metadata)
        return frozenset(_partitions_of(metadata.topics))

    async def check_identity(self) -> None:
        """Ask the brokers from which the records were fetched. Raises SourceUnavailable if they don't answer in time.

        Other brokers may learn of a new topic later, but each broker knows its id before it returns its records
        (Kafka's BrokerMetadataPublisher). A deleted topic is not refused, because no other topic has replaced it.
        """
        for metadata in await self._retries.run("confirm the ids of its topics", self._metadata_of_fetch_brokers):
            self._checked_identity(metadata)

    async def _metadata_of_fetch_brokers(self) -> list[ClusterMetadata]:
        topics = sorted({partition.topic for partition in self._reached})
        chosen = {fetch_broker(self._consumer, KafkaPartition(*p)) for p in self._reached}
        servers = chosen - {None, -1} or ({None} if topics else set())
        return await asyncio.gather(*(fetch_metadata(self._client, topics, server) for server in servers))

    async def offsets(self, partitions: Collection[TopicPartition], start: Start) -> dict[TopicPartition, int]:
        match start:
            case Earliest():
                return await self._earliest_offsets(partitions)
            case Latest():
                return await self._end_offsets(partitions)
            case AtTimestamp(timestamp_ms):
                times = dict.fromkeys(partitions, timestamp_ms)
                found = await self._retries.run(
                    "look up offsets by time", lambda: self._consumer.offsets_for_times(times)
                )
                ends = await self._end_offsets(partitions)
                return {p: ends[p] if found[p] is None else found[p].offset for p in partitions}
            case AtOffsets(offsets):
                return await self._checked(partitions, offsets, "`source.start.offsets`")
            case AtGroupOffsets(group_id):
                found_offsets = await self._group_offsets(group_id)
                return await self._checked(partitions, found_offsets, f"consumer group {group_id}")

    async def bounds(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, OffsetRange]:
        """See `Source.bounds`. If retention passes the end between the two requests, the range is empty."""
        if not partitions:
            return {}
        ends = await self._end_offsets(partitions)
        beginnings = await self._earliest_offsets(partitions)
        return {p: OffsetRange(beginnings[p], max(ends[p], beginnings[p])) for p in partitions}

    async def _earliest_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        found = await self._retries.run("look up offsets", lambda: self._consumer.beginning_offsets(list(partitions)))
        return {TopicPartition(*partition): offset for partition, offset in found.items()}

    async def _end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the ends. With read_committed, an end is the first offset of the oldest open transaction, if any."""
        found = await self._retries.run("look up offsets", lambda: self._consumer.end_offsets(list(partitions)))
        return {TopicPartition(*partition): offset for partition, offset in found.items()}

    async def _group_offsets(self, group_id: str) -> dict[TopicPartition, int]:
        async def fetch() -> Mapping[Any, Any]:
            admin = AIOKafkaAdminClient(**await asyncio.to_thread(client_arguments, self._settings))
            try:
                await admin.start()
                found: Mapping[Any, Any] = await admin.list_consumer_group_offsets(group_id)
                return found
            finally:
                await admin.close()

        found = await self._retries.run(f"read offsets of group {group_id}", fetch)
        return {TopicPartition(*p): committed.offset for p, committed in found.items() if committed.offset >= 0}

    async def _checked(
        self, partitions: Collection[TopicPartition], offsets: Mapping[TopicPartition, int], where: str
    ) -> dict[TopicPartition, int]:
        """Return the offsets. Raises BadInput for a start past the end: it would miss new records without an error."""
        if missing := [partition for partition in partitions if partition not in offsets]:
            raise BadInput(
                f"{self}: {where} has no offset for {first_few(map(str, sorted(missing)))}. "
                "Name every partition, or start "
                "elsewhere"
            )
        for partition, held in (await self.bounds(partitions)).items():
            if not held.start <= offsets[partition] <= held.end:
                raise BadInput(
                    f"{self}: {where} begins {partition} at {offsets[partition]}, but it has the offsets "
                    f"{held.start} up to {held.end} now. Begin in this range, or with another start, for example "
                    "`earliest`"
                )
        return {partition: offsets[partition] for partition in partitions}

    # ------------------------------------------------------------ reading

    async def read(self, positions: Mapping[TopicPartition, int]) -> AsyncGenerator[RawBatch, None]:
        """See `Source.read`. A position of a topic that is not configured any more is ignored."""
        self._retries.begin()
        try:
            async with aclosing(self._batches(positions)) as batches:
                async for batch in batches:
                    yield batch
        except BaseException:
            self._retries.shorten_timeout()
            raise

    async def _batches(self, positions: Mapping[TopicPartition, int]) -> AsyncGenerator[RawBatch, None]:
        self._reached = {p: offset for p, offset in positions.items() if p in self._partitions}
        await self._check_retention()
        for batch in await self._assign(self._partitions - self._reached.keys()):
            yield batch
        if self._ends is None:
            self._ends = await self._stop_offsets()
        ends, is_cut = self._ends, self._settings.until_timestamp_ms is not None
        liveness = PartitionLiveness(self._settings.unreachable_after_ms, self._clock.now_ms())
        next_discovery_ms = self._clock.now_ms() + self._settings.discovery_interval_ms
        while ends is None or any(self._reached[p] < end for p, end in ends.items()):
            async with aclosing(self._poll_batches()) as batches:
                async for batch in batches:
                    if not is_cut:
                        yield batch
                    elif (wanted := truncate_at(batch, ends or {})) is not None:
                        yield wanted
            now_ms = self._clock.now_ms()
            if liveness.is_due(now_ms):
                await self._check_liveness(liveness, now_ms)
            if now_ms >= next_discovery_ms:
                next_discovery_ms = now_ms + self._settings.discovery_interval_ms
                if new := await self._discover():
                    for batch in await self._assign(new):
                        yield batch

    async def _stop_offsets(self) -> Mapping[TopicPartition, int] | None:
        """Return the offsets where reading ends; None if it never ends."""
        if self._settings.until_timestamp_ms is not None:
            return await self.offsets(self._reached, AtTimestamp(self._settings.until_timestamp_ms))
        return await self._end_offsets(self._reached) if self._settings.until == "end" else None

    async def _assign(self, new: Collection[TopicPartition]) -> list[RawBatch]:
        """Read these partitions, too, each from its oldest record. Returns the batches that announce them."""
        beginnings = await self._earliest_offsets(new) if new else {}
        self._reached |= beginnings
        # This replaces the whole assignment, and drops fetched data. Nothing is awaited until every partition has its
        # position again, so the fetcher never sees a partition without one.
        self._consumer.assign([KafkaPartition(*partition) for partition in self._reached])
        for partition, offset in self._reached.items():
            self._consumer.seek(KafkaPartition(*partition), offset)
        return [empty_batch(partition, offset) for partition, offset in beginnings.items()]

    async def _poll_batches(self) -> AsyncGenerator[RawBatch, None]:
        """Yield the records of one poll, and of further polls while more are available, up to BATCH_BYTES."""
        fetched: dict[TopicPartition, FetchedRecords] = {}
        nbytes = 0
        while nbytes < BATCH_BYTES and (polled := await self._poll(self._wait_ms(fetched, nbytes))):
            for partition, records in polled.items():
                of_partition = fetched.setdefault(
                    TopicPartition(*partition), FetchedRecords(self._settings.max_record_bytes)
                )
                nbytes += of_partition.add(records)
        moved = {}
        for partition, before in self._reached.items():
            # Also without records: skipped offsets move the position, and may be deleted before the next start.
            position = await self._consumer.position(partition)
            if position != before:
                moved[partition] = position
        self._reached |= moved
        for partition, position in moved.items():
            left = fetched.get(partition) or FetchedRecords(self._settings.max_record_bytes)
            while True:
                yield await self._short_work(self._next_batch, partition, left, position)
                if not left:
                    break

    def _next_batch(self, partition: TopicPartition, left: FetchedRecords, position: int) -> RawBatch:
        """Return the next records as a batch. The size of uncompressed data is bounded, too.

        position: the consumer's position, after all of these records.
        """
        try:
            columns, next_offset = left.take(BATCH_BYTES)
        except DecompressionLimitExceeded as error:
            raise self._too_large([f"{partition} at offset {error.offset}"]) from error
        except KafkaError as error:
            raise self._retries.error_of(f"read {partition}", error) from error
        return raw_batch(partition, columns, position if next_offset is None else next_offset, self._kept_headers)

    def _wait_ms(self, fetched: Mapping[TopicPartition, FetchedRecords], nbytes: int) -> int:
        """Return how long the next poll may wait. If brokers certainly have more records, a short wait gives a larger
        batch: a response has one MiB of a partition (`max_partition_fetch_bytes`), and the next one arrives soon.
        """
        if not fetched:
            return _POLL_WAIT_MS
        ends = {p: self._consumer.highwater(KafkaPartition(*p)) for p in fetched} if nbytes < _FULL_BATCH_BYTES else {}
        return _FILL_WAIT_MS if any(end and fetched[p].next_offset < end for p, end in ends.items()) else 0

    async def _poll(self, wait_ms: int) -> Mapping[Any, Any]:
        """Return batches by partition. An error ends reading, because aiokafka may have skipped records."""
        if not self._reached:
            await self._clock.sleep_ms(wait_ms)
            return {}
        try:
            with decompression_limit(self._settings.max_record_bytes):
                polled: Mapping[Any, Any] = await self._consumer.getmany(timeout_ms=wait_ms, max_records=BATCHES_A_POLL)
        except OffsetOutOfRangeError as error:
            await self._discover()  # raises a more exact error if the topic was created again
            raise self._refusal({TopicPartition(*p): offset for p, offset in error.args[0].items()}) from error
        except DecompressionLimitExceeded as error:
            raise self._too_large(parser_errors(self._consumer)) from error
        except RecordTooLargeError as error:
            raise BadInput(f"{self}: {error}. Raise `source.max_partition_fetch_bytes`") from error
        except KafkaError as error:
            raise self._retries.error_of("read", error) from error
        return polled

    def _too_large(self, where: Collection[str]) -> BadInput:
        return BadInput(
            f"{self}: {', '.join(where)}: the batch with this record is larger than {self._settings.max_record_bytes} "
            "bytes after decompression, the limit of `source.max_record_bytes`. Raise the limit if the batch is "
            "correct"
        )

    async def _check_retention(self) -> None:
        beginnings = await self._earliest_offsets(self._reached) if self._reached else {}
        if expired := {p: offset for p, offset in self._reached.items() if offset < beginnings[p]}:
            raise self._refusal(expired)

    def _refusal(self, lost: Mapping[TopicPartition, int]) -> PositionRefused:
        return PositionRefused(
            f"{self}: the topic does not have these offsets: "
            + ", ".join(f"{partition} at {offset}" for partition, offset in sorted(lost.items()))
            + ". Retention deleted records before they were read, or the topic lost records that had been read",
            [_RESTART],
        )

    async def _check_liveness(self, liveness: PartitionLiveness, now_ms: int) -> None:
        answers = {p: (self._consumer.last_poll_timestamp(p), offset) for p, offset in self._reached.items()}
        if silent := liveness.check(answers, now_ms):
            await self._check_deleted({partition.topic for partition in silent})
            reason = connection_error(self._consumer)
            because = "" if reason is None else f": {reason!r}"
            raise SourceUnavailable(
                f"{self}: no answer for {first_few(map(str, sorted(silent)))} within "
                f"{self._settings.unreachable_after_ms} ms{because}. Committed rows are kept. Start again when the "
                "broker is reachable, or raise `source.unreachable_after_ms`"
            )

    async def deleted_topics(self) -> list[str]:
        """See `Source.deleted_topics`. The request is not retried."""
        topics = sorted({partition.topic for partition in self._reached})
        try:
            async with asyncio.timeout(_CONFIRM_LIMIT_MS / 1000):
                existing = (await fetch_metadata(self._client, topics)).topics
        except (KafkaError, TimeoutError, OSError):
            return []
        return [topic for topic in topics if topic not in existing]

    async def _check_deleted(self, topics: Collection[str]) -> None:
        """Raise BadInput for topics that were deleted."""
        if deleted := [topic for topic in await self.deleted_topics() if topic in topics]:
            raise BadInput(
                f"{self}: topics were deleted while they were read: {first_few(deleted)}. The records that were read "
                "before are committed. Remove the topic from `source.topics`; with `topic_pattern`, start again. A "
                "topic that is created again under this name is refused until you choose an option"
            )

    async def _discover(self) -> frozenset[TopicPartition]:
        try:
            return self._add_topics(await self._metadata())
        except (KafkaError, TimeoutError, OSError) as error:
            self._error_log.warning("looking for new partitions failed", source=str(self), error=repr(error))
            return frozenset()

    # ------------------------------------------------------------ end

    async def commit_offsets(self, ends: Mapping[TopicPartition, int]) -> None:
        if self._settings.group_id is None:
            return
        offsets = {KafkaPartition(*p): end for p, end in ends.items() if p in self._reached}
        try:
            async with asyncio.timeout(_CONFIRM_LIMIT_MS / 1000):
                await self._consumer.commit(offsets)
        except (KafkaError, TimeoutError) as error:
            self._error_log.warning("the group's offsets lag", group=self._settings.group_id, error=repr(error))

    async def close(self) -> None:
        try:
            if self._consumer is not None:
                await stop(self._consumer)
        finally:
            self._error_log.end()
            if self._client is not None:
                await self._client.close()


def _partitions_of(topics: Mapping[str, TopicMetadata]) -> Iterable[TopicPartition]:
    return (TopicPartition(name, number) for name, topic in topics.items() for number in range(topic.partitions))
