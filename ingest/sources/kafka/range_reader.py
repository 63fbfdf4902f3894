"""Reads offset ranges, one after the other, with a consumer that stays connected in between.

It is for callers that plan the ranges themselves. The reader keeps no position, joins no group, and discovers no
partitions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa
from aiokafka import TopicPartition as KafkaPartition
from aiokafka.errors import KafkaError, OffsetOutOfRangeError, RecordTooLargeError

from tidelake.checkpoint.offsets import OffsetRange, TopicPartition
from tidelake.errors import BadInput, SourceUnavailable
from tidelake.ingest.clock import SystemClock
from tidelake.ingest.raw_batch import Headers, binary_column
from tidelake.ingest.source_settings import KafkaSettings
from tidelake.ingest.sources.kafka.broker_error_log import BrokerErrorLog
from tidelake.ingest.sources.kafka.client_internals import (
    BATCHES_A_POLL,
    check_aiokafka,
    connection_error,
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
from tidelake.ingest.sources.kafka.fetched_records import FetchedRecords
from tidelake.ingest.sources.kafka.record_columns import RecordColumns
from tidelake.ingest.sources.kafka.retries import BrokerRetries
from tidelake.storage.base.logs import get_logger

_log = get_logger(__name__)

HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

_BATCH_BYTES: Final = 4 << 20
_POLL_WAIT_MS: Final = 500
_ANSWER_LIMIT_MS: Final = 5_000


class OffsetsUnavailable(Exception):
    """The broker doesn't have the records of a range.

    partition: the partition of the range.
    position: the offset where reading was.
    held: the offsets of the partition that the broker has.
    """

    def __init__(self, partition: TopicPartition, position: int, held: OffsetRange) -> None:
        super().__init__(f"{partition} at {position}, held {held}")
        self.partition = partition
        self.position = position
        self.held = held


class RangeReader:
    """A reader of offset ranges. Call `open`, then `poll` until the end of each range, then `close`."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._consumer: Any = None
        self._at: tuple[TopicPartition, int] | None = None  # next offset to read; None if unknown
        self._left = FetchedRecords(settings.max_record_bytes)  # fetched records from this offset on
        clock = SystemClock()
        self._retries = BrokerRetries(
            str(self),
            settings.unreachable_after_ms,
            clock,
            BrokerErrorLog(_log, clock.now_ms),
            remedy="Start again when the broker is reachable",
        )

    async def open(self) -> None:
        """Connect. Raises SourceUnavailable if no broker answers in time, BadInput if a broker refuses."""
        check_aiokafka()
        install_limited_decoders()
        arguments = await asyncio.to_thread(client_arguments, self._settings)

        async def start() -> None:
            self._consumer = consumer_of(self._settings, arguments)
            try:
                await self._consumer.start()
            except BaseException:
                await stop(self._consumer)
                raise

        await self._retries.run("connect", start)
        return_record_batches(self._consumer)

    async def close(self) -> None:
        await stop(self._consumer)

    async def poll(self, partition: TopicPartition, position: int, end: int) -> tuple[RecordColumns, int]:
        """Return some records from `position` on, all below `end`, and the next offset to read.

        Waits until the position moves. Raises OffsetsUnavailable if the broker doesn't have the records,
        SourceUnavailable if it doesn't answer in time.
        """
        if self._at != (partition, position):
            self._consumer.assign([KafkaPartition(*partition)])
            self._consumer.seek(KafkaPartition(*partition), position)
            self._left = FetchedRecords(self._settings.max_record_bytes)
        self._at = None  # unknown until this poll is complete
        started_s = _now_s()
        while not self._left and await self._fetch(partition, position, end) == position:
            await self._check_available(partition, position, end)
            self._check_liveness(partition, started_s)
        try:
            columns, next_offset = self._left.take(_BATCH_BYTES, end)
        except DecompressionLimitExceeded as error:
            raise self._too_large([f"{partition} at offset {error.offset}"]) from error
        except KafkaError as error:
            raise self._retries.error_of(f"read {partition}", error) from error
        if next_offset is None:
            next_offset = await self._consumer.position(KafkaPartition(*partition))
        self._at = partition, next_offset
        return columns, min(next_offset, end)

    async def _fetch(self, partition: TopicPartition, position: int, end: int) -> int:
        """Wait for some records, and add the next ones that are available. Returns the position of the consumer."""
        wait_ms, nbytes = _POLL_WAIT_MS, 0
        while position < end and nbytes < _BATCH_BYTES:
            nbytes += self._left.add(await self._polled(partition, position, wait_ms))
            before, position = position, await self._consumer.position(KafkaPartition(*partition))
            if position == before:
                break
            wait_ms = 0
        return position

    async def _polled(self, partition: TopicPartition, position: int, wait_ms: int) -> Sequence[Any]:
        try:
            with decompression_limit(self._settings.max_record_bytes):
                polled: Mapping[Any, Sequence[Any]] = await self._consumer.getmany(
                    timeout_ms=wait_ms, max_records=BATCHES_A_POLL
                )
        except OffsetOutOfRangeError as error:
            raise OffsetsUnavailable(partition, position, await self._available_range(partition)) from error
        except DecompressionLimitExceeded as error:
            raise self._too_large(parser_errors(self._consumer)) from error
        except RecordTooLargeError as error:
            raise BadInput(f"{self}: {error}. Raise max.partition.fetch.bytes") from error
        except KafkaError as error:
            raise self._retries.error_of("read", error) from error
        return polled.get(KafkaPartition(*partition), ())

    def _too_large(self, where: Sequence[str]) -> BadInput:
        return BadInput(
            f"{self}: {', '.join(where)}: the batch with this record is larger than {self._settings.max_record_bytes} "
            "bytes after decompression. Raise the limit if the batch is correct"
        )

    async def _check_available(self, partition: TopicPartition, position: int, end: int) -> None:
        """Raise OffsetsUnavailable if the broker doesn't have the range. Called after a poll without records."""
        try:
            async with asyncio.timeout(_ANSWER_LIMIT_MS / 1000):
                held = await self._available_range(partition)
        except (TimeoutError, SourceUnavailable):
            return
        if position < held.start or held.end < end:
            raise OffsetsUnavailable(partition, position, held)

    async def _available_range(self, partition: TopicPartition) -> OffsetRange:
        wanted = KafkaPartition(*partition)

        async def fetch_bounds() -> OffsetRange:
            start = (await self._consumer.beginning_offsets([wanted]))[wanted]
            return OffsetRange(start, max(start, (await self._consumer.end_offsets([wanted]))[wanted]))

        return await self._retries.run("look up offsets", fetch_bounds)

    def _check_liveness(self, partition: TopicPartition, started_s: float) -> None:
        if (_now_s() - started_s) * 1000 >= self._settings.unreachable_after_ms:
            reason = connection_error(self._consumer)
            because = "" if reason is None else f": {reason!r}"
            raise SourceUnavailable(
                f"{self}: no answer for {partition} within {self._settings.unreachable_after_ms} ms{because}. Start "
                "again when the broker is reachable"
            )

    def __str__(self) -> str:
        return f"Kafka at {self._settings.server_text}"


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def header_column(of_records: Sequence[Headers]) -> pa.ListArray:
    """Return a column of headers. A record without headers has null, as in Spark's connector."""
    counts = np.fromiter(map(len, of_records), np.int32, len(of_records))
    ends = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    flat = list(chain.from_iterable(of_records))
    names = pa.array([name for name, _ in flat], pa.string())
    values = binary_column([value for _, value in flat])
    pairs = pa.StructArray.from_arrays([names, values], fields=list(HEADERS.value_type))
    return pa.ListArray.from_arrays(pa.array(ends), pairs, type=HEADERS, mask=pa.array(counts == 0))
