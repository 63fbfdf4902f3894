"""A source whose batches end at the ends of database transactions, so that no checkpoint splits a transaction.

The last transaction of a partition is held back until it is complete: either a record of another transaction follows,
or the topic of transactions reports its number of changes. Waiting is limited in time and bytes. After that, the
records are passed on, and the transaction is counted as split. Each partition is handled separately.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa

from tidelake.checkpoint.offsets import OffsetRange, SourceIdentity, TopicPartition
from tidelake.ingest.clock import Clock
from tidelake.ingest.formats.format_capabilities import TransactionEnd, TransactionOf, TransactionRow
from tidelake.ingest.raw_batch import BinaryColumn, RawBatch, joined_types
from tidelake.ingest.sources.source import Source, Start
from tidelake.storage.base.logs import get_logger

_ENDS_KEPT = 10_000  # transactions whose end arrived before their rows

_log = get_logger(__name__)


@dataclass(slots=True)
class TransactionCounts:
    """Counts of source transactions.

    waiting: number of partitions with an incomplete transaction.
    split: number of transactions that were passed on in parts.
    """

    waiting: int = 0
    split: int = 0


@dataclass(slots=True)
class _OpenTransaction:
    """The records of an incomplete transaction.

    transaction: its id
    parts: its records, in their order
    since_ms: when the first record arrived
    """

    transaction: str
    parts: list[RawBatch]
    since_ms: int

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.parts)


class WholeTransactions:
    """A source that does not split transactions. See the module, and `tidelake.ingest.sources.source.Source`.

    limit_ms: how long records of a transaction may wait.
    limit_bytes: how many bytes may wait, over all partitions.
    counts: gets the numbers of waiting and split transactions.
    """

    def __init__(
        self,
        source: Source,
        transaction_of: TransactionOf,
        limit_ms: int,
        limit_bytes: int,
        clock: Clock,
        counts: TransactionCounts | None = None,
    ) -> None:
        self._source = source
        self._transaction_of = transaction_of
        self._limit_ms = limit_ms
        self._limit_bytes = limit_bytes
        self._clock = clock
        self.counts = counts or TransactionCounts()
        self._held: dict[TopicPartition, _OpenTransaction] = {}
        self._ends: dict[str, TransactionEnd] = {}

    async def open(self, known: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        return await self._source.open(known)

    @property
    def identity(self) -> SourceIdentity:
        return self._source.identity

    async def offsets(self, partitions: Collection[TopicPartition], start: Start) -> dict[TopicPartition, int]:
        return await self._source.offsets(partitions, start)

    async def bounds(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, OffsetRange]:
        return await self._source.bounds(partitions)

    async def check_identity(self) -> None:
        await self._source.check_identity()

    async def deleted_topics(self) -> Collection[str]:
        return await self._source.deleted_topics()

    async def commit_offsets(self, ends: Mapping[TopicPartition, int]) -> None:
        await self._source.commit_offsets(ends)

    async def close(self) -> None:
        await self._source.close()

    async def read(self, positions: Mapping[TopicPartition, int]) -> AsyncGenerator[RawBatch, None]:
        self._held, self._ends = {}, {}
        async with aclosing(self._source.read(positions)) as batches:
            coming: asyncio.Future[RawBatch | None] | None = None
            try:
                while True:
                    coming = coming or asyncio.ensure_future(anext(batches, None))
                    if not await self._arrives_in_time(coming):
                        for given_up in self._give_up_transactions(self._due()):
                            yield given_up
                        continue
                    batch, coming = coming.result(), None
                    if batch is None:
                        break
                    for ready in self._take(batch):
                        yield ready
            finally:
                if coming is not None:
                    coming.cancel()
                    await asyncio.gather(coming, return_exceptions=True)
        for left in self._give_up_transactions(list(self._held), at_the_end=True):
            yield left

    async def _arrives_in_time(self, coming: asyncio.Future[RawBatch | None]) -> bool:
        """Return whether the batch arrives before a transaction exceeds the wait limit."""
        due_ms = min((held.since_ms + self._limit_ms for held in self._held.values()), default=None)
        if due_ms is None:
            await asyncio.wait({coming})
            return True
        timeout = asyncio.ensure_future(self._clock.sleep_ms(max(0, due_ms - self._clock.now_ms())))
        try:
            waits: set[asyncio.Future[Any]] = {coming, timeout}
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timeout.cancel()
            await asyncio.gather(timeout, return_exceptions=True)
        return coming.done()

    def _due(self) -> list[TopicPartition]:
        now_ms = self._clock.now_ms()
        return [p for p, held in self._held.items() if held.since_ms + self._limit_ms <= now_ms]

    def _take(self, batch: RawBatch) -> list[RawBatch]:
        """Add a batch. Returns the batches that can be passed on now."""
        partition = TopicPartition(batch.topic, batch.partition)
        before = self._held.pop(partition, None)
        self._record_transaction_ends(batch)
        start, transaction = self._last_transaction(batch)
        ready = []
        if before is not None and start <= _first_with_value(batch) and transaction in (None, before.transaction):
            before.parts.append(batch)  # the transaction continues
            self._held[partition] = before
        else:
            done = [] if before is None else before.parts
            if start or not len(batch):
                done = [*done, batch.slice(0, start) if transaction is not None else batch]
            if done:
                ready.append(_joined(done))
            if transaction is not None:
                self._held[partition] = _OpenTransaction(
                    transaction, [batch.slice(start, len(batch))], self._clock.now_ms()
                )
        ready += [_joined(self._held.pop(p).parts) for p in [p for p in self._held if self._is_whole(self._held[p])]]
        while sum(held.nbytes for held in self._held.values()) > self._limit_bytes:
            ready += self._give_up_transactions([min(self._held, key=lambda p: self._held[p].since_ms)])
        self.counts.waiting = len(self._held)
        return ready

    def _record_transaction_ends(self, batch: RawBatch) -> None:
        """Record the ends of transactions. Only records of Debezium's topic of transactions contain them."""
        if not len(batch) or not batch.topic.endswith(".transaction"):
            return
        for value in batch.values.to_pylist():
            found = None if value is None else self._transaction_of(value)
            if isinstance(found, TransactionEnd):
                self._ends[found.transaction] = found
        while len(self._ends) > _ENDS_KEPT:
            del self._ends[next(iter(self._ends))]

    def _last_transaction(self, batch: RawBatch) -> tuple[int, str | None]:
        """Return the first row of the batch's last transaction, and its id. None: the last record has no transaction.

        A record without a value belongs to the same transaction as the record before it.
        """
        start, transaction = len(batch), None
        for row in range(len(batch) - 1, -1, -1):
            value = batch.values[row].as_py()
            if value is None:
                continue
            found = self._transaction_of(value)
            if not isinstance(found, TransactionRow) or transaction not in (None, found.transaction):
                break
            start, transaction = row, found.transaction
        return start, transaction

    def _is_whole(self, held: _OpenTransaction) -> bool:
        end = self._ends.get(held.transaction)
        if end is None:
            return False
        came: dict[str, int] = {}
        for part in held.parts:
            for value in part.values.to_pylist():
                found = None if value is None else self._transaction_of(value)
                if isinstance(found, TransactionRow):
                    came[found.collection] = max(came.get(found.collection, 0), found.number)
        return all(number >= end.counts.get(collection, 0) for collection, number in came.items())

    def _give_up_transactions(
        self, partitions: Collection[TopicPartition], *, at_the_end: bool = False
    ) -> list[RawBatch]:
        given_up = [self._held.pop(partition) for partition in partitions]
        for held in given_up:
            if not at_the_end:
                self.counts.split += 1
                first = held.parts[0]
                _log.warning(
                    "a transaction is not known to be whole",
                    transaction=held.transaction,
                    topic=first.topic,
                    partition=first.partition,
                    offset=int(first.offsets[0]),
                    effect="the transaction may be committed in parts",
                )
        self.counts.waiting = len(self._held)
        return [_joined(held.parts) for held in given_up]


def _first_with_value(batch: RawBatch) -> int:
    return next((row for row, value in enumerate(batch.values) if value.is_valid), len(batch))


def _joined(parts: Sequence[RawBatch]) -> RawBatch:
    """Join consecutive parts of one partition."""
    if len(parts) == 1:
        return parts[0]
    starts = accumulate((len(part) for part in parts), initial=0)
    return RawBatch(
        parts[0].topic,
        parts[0].partition,
        np.concatenate([part.offsets for part in parts]),
        np.concatenate([part.timestamps_ms for part in parts]),
        _column([part.keys for part in parts]),
        _column([part.values for part in parts]),
        parts[-1].next_offset,
        {
            row + start: headers
            for part, start in zip(parts, starts, strict=False)
            for row, headers in part.headers.items()
        },
        joined_types([(part.timestamp_types, len(part)) for part in parts]),
    )


def _column(parts: Sequence[BinaryColumn]) -> BinaryColumn:
    type_ = parts[0].type if len({part.type for part in parts}) == 1 else pa.large_binary()
    return pa.concat_arrays([part.cast(type_) for part in parts])
