"""Ranges of offsets, one after the other, through one consumer that stays connected in between.

For who plans elsewhere what is read: no position is kept, no group is joined, no partition is looked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
from aiokafka import TopicPartition as KafkaPartition
from aiokafka.errors import KafkaError, OffsetOutOfRangeError, RecordTooLargeError
from numpy.typing import NDArray

from checkpoint.offsets import OffsetRange, TopicPartition
from ingest.raw_batch import BinaryColumn, binary_column
from ingest.settings import KafkaSettings
from ingest.sources.base import SourceUnavailable
from ingest.sources.kafka.backoff import BrokerBackoff
from ingest.sources.kafka.client_internals import (
    check_aiokafka,
    check_started,
    has_fetched,
    parser_errors,
    stop,
    unwrap_fetched,
)
from ingest.sources.kafka.connection import client_arguments, consumer_of
from ingest.sources.kafka.decompression import DecompressionLimitExceeded, decompression_limit, install_limited_decoders
from storage.errors import BadInput

T = TypeVar("T")

HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

_BATCH_BYTES: Final = 4 << 20
_POLL_WAIT_MS: Final = 500
_ANSWER_LIMIT_MS: Final = 5_000


class OffsetsGone(Exception):
    """The broker doesn't hold what a range names.

    partition: of the range. position: where reading stood. held: what the broker holds of the partition.
    """

    def __init__(self, partition: TopicPartition, position: int, held: OffsetRange) -> None:
        super().__init__(f"{partition} at {position}, held {held}")
        self.partition = partition
        self.position = position
        self.held = held


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """n records of one partition, in offset order.

    timestamps_ms (n,): epoch milliseconds, -1 where a record has none. timestamp_types (n,): Kafka's, 0 create time,
    1 log append time, -1 none. headers (n,): None where they were not asked for.
    """

    offsets: NDArray[np.int64]
    timestamps_ms: NDArray[np.int64]
    timestamp_types: NDArray[np.int32]
    keys: BinaryColumn
    values: BinaryColumn
    headers: pa.ListArray | None

    def __len__(self) -> int:
        return len(self.offsets)


class RangeReader:
    """`open` it, `poll` until the end of a range, then of another; `close` it."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._consumer: Any = None
        self._at: tuple[TopicPartition, int] | None = None  # where the consumer stands, None when that is unknown

    async def open(self) -> None:
        """Raises SourceUnavailable when no broker answers in time, BadInput when one refuses."""
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

        await self._retry("connect", start)
        check_started(self._consumer)

    async def close(self) -> None:
        await stop(self._consumer)

    async def poll(
        self, partition: TopicPartition, position: int, end: int, *, with_headers: bool
    ) -> tuple[RecordColumns, int]:
        """Some records from `position` on, all below `end`, and where to go on. Waits until the position moves.

        Raises OffsetsGone when the broker doesn't hold them, SourceUnavailable when it doesn't answer in time.
        """
        if self._at != (partition, position):
            self._consumer.assign([KafkaPartition(*partition)])
            self._consumer.seek(KafkaPartition(*partition), position)
        self._at = None  # unknown, until a poll has come to its end
        columns = _Columns(with_headers)
        started_s, reached = _now_s(), position
        while reached < end and columns.nbytes < _BATCH_BYTES:
            columns.add(await self._records(partition, reached, end, 0 if columns.offsets else _POLL_WAIT_MS), end)
            before, reached = reached, await self._consumer.position(KafkaPartition(*partition))
            if reached == before and columns.offsets:
                break
            if reached == before:
                await self._check_held(partition, reached, end)
                self._check_silence(partition, started_s)
        self._at = partition, reached
        return columns.taken(), min(reached, end)

    async def _records(self, partition: TopicPartition, position: int, end: int, wait_ms: int) -> Sequence[Any]:
        # One record, where the poll has to wait: what it waits for comes wrapped (`unwrap_fetched`).
        records_max = self._settings.records_max if has_fetched(self._consumer) else 1
        unwrap_fetched(self._consumer)
        try:
            with decompression_limit(self._settings.max_record_bytes):
                polled: Mapping[Any, Sequence[Any]] = await self._consumer.getmany(
                    timeout_ms=wait_ms, max_records=min(records_max, end - position)
                )
        except OffsetOutOfRangeError as error:
            raise OffsetsGone(partition, position, await self._held(partition)) from error
        except DecompressionLimitExceeded as error:
            raise BadInput(
                f"{self}: {', '.join(parser_errors(self._consumer))}: the batch with the record there is larger than "
                f"{self._settings.max_record_bytes} bytes when it is uncompressed. Raise the limit if the batch is as "
                "it should be"
            ) from error
        except RecordTooLargeError as error:
            raise BadInput(f"{self}: {error}. Raise max.partition.fetch.bytes") from error
        except KafkaError as error:
            raise self._refused("read", error) from error
        return polled.get(KafkaPartition(*partition), ())

    async def _check_held(self, partition: TopicPartition, position: int, end: int) -> None:
        """After a poll without news: whether there is anything to wait for."""
        try:
            async with asyncio.timeout(_ANSWER_LIMIT_MS / 1000):
                held = await self._held(partition)
        except (TimeoutError, SourceUnavailable):
            return
        if position < held.start or held.end < end:
            raise OffsetsGone(partition, position, held)

    async def _held(self, partition: TopicPartition) -> OffsetRange:
        wanted = KafkaPartition(*partition)

        async def look_up() -> OffsetRange:
            start = (await self._consumer.beginning_offsets([wanted]))[wanted]
            return OffsetRange(start, max(start, (await self._consumer.end_offsets([wanted]))[wanted]))

        return await self._retry("look up offsets", look_up)

    def _check_silence(self, partition: TopicPartition, started_s: float) -> None:
        if (_now_s() - started_s) * 1000 >= self._settings.unreachable_after_ms:
            raise SourceUnavailable(
                f"{self}: no answer for {partition} within {self._settings.unreachable_after_ms} ms. Start again when "
                "it is back"
            )

    async def _retry(self, what: str, attempt: Callable[[], Awaitable[T]]) -> T:
        """Until it works or the time is up; what a broker refuses is not tried again."""
        deadline_s = _now_s() + self._settings.unreachable_after_ms / 1000
        backoff = BrokerBackoff()
        while True:
            try:
                async with asyncio.timeout_at(deadline_s):
                    return await attempt()
            except (KafkaError, TimeoutError, OSError) as error:
                refused = isinstance(error, KafkaError) and not error.retriable
                if refused or _now_s() >= deadline_s:
                    raise self._refused(what, error) from error
            await asyncio.sleep(min(backoff.next_ms() / 1000, max(0.0, deadline_s - _now_s())))

    def _refused(self, what: str, error: Exception) -> BadInput | SourceUnavailable:
        if isinstance(error, KafkaError) and not error.retriable:
            return BadInput(f"{self} refused to {what}: {error!r}. Check topics, security settings and access rights")
        return SourceUnavailable(f"{self}: could not {what}: {error!r}. Start again when it is back")

    def __str__(self) -> str:
        return f"Kafka at {self._settings.bootstrap_servers}"


def _now_s() -> float:
    return asyncio.get_running_loop().time()


@dataclass(slots=True)
class _Columns:
    """Records are taken apart at once: thousands of them, alive, would keep the garbage collector busy."""

    with_headers: bool
    nbytes: int = 0
    offsets: list[int] = field(default_factory=list)
    timestamps_ms: list[int] = field(default_factory=list)
    timestamp_types: list[int] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    headers: list[Sequence[tuple[str, bytes | None]]] = field(default_factory=list)

    def add(self, records: Sequence[Any], end: int) -> None:
        """aiokafka's records, wrapped as ConsumerRecords or as its parser made them; those from `end` on are not
        wanted.
        """
        if records and records[-1].offset >= end:
            records = [record for record in records if record.offset < end]
        keys = [record.key for record in records]
        values = [record.value for record in records]
        self.offsets += [record.offset for record in records]
        self.timestamps_ms += [-1 if record.timestamp is None else record.timestamp for record in records]
        self.timestamp_types += [-1 if record.timestamp_type is None else record.timestamp_type for record in records]
        self.keys += keys
        self.values += values
        self.nbytes += sum(map(len, filter(None, chain(keys, values)))) + 24 * len(records)
        if self.with_headers:
            self.headers += [record.headers for record in records]

    def taken(self) -> RecordColumns:
        return RecordColumns(
            np.array(self.offsets, np.int64),
            np.array(self.timestamps_ms, np.int64),
            np.array(self.timestamp_types, np.int32),
            binary_column(self.keys),
            binary_column(self.values),
            _headers(self.headers) if self.with_headers else None,
        )


def _headers(of_records: Sequence[Sequence[tuple[str, bytes | None]]]) -> pa.ListArray:
    """A record without headers has null, as in Spark's connector."""
    counts = np.fromiter(map(len, of_records), np.int32, len(of_records))
    ends = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    flat = list(chain.from_iterable(of_records))
    names = pa.array([name for name, _ in flat], pa.string())
    values = binary_column([value for _, value in flat])
    pairs = pa.StructArray.from_arrays([names, values], fields=list(HEADERS.value_type))
    return pa.ListArray.from_arrays(pa.array(ends), pairs, type=HEADERS, mask=pa.array(counts == 0))
