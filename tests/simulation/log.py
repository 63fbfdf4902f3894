"""A Kafka log in memory, and a database whose changes come into it as Debezium's records."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import AsyncGenerator, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from tests.simulation.scheduler import Scheduler
from tidelake.checkpoint.offsets import OffsetRange, SourceIdentity, TopicPartition
from tidelake.errors import PositionRefused, SourceUnavailable
from tidelake.ingest.raw_batch import RawBatch
from tidelake.ingest.sources.source import Earliest, Start

Row: TypeAlias = dict[str, Any]
TOPIC: Final = "shop.public.orders"
_SOURCE: Final = {"connector": "postgresql", "name": "shop", "db": "shop", "schema": "public", "table": "orders"}
_POLL_S: Final = 0.5


@dataclass
class Partition:
    """The records of a partition: (key, value), or None for an offset without a record (a transaction's marker, an
    aborted record, one that compaction removed).

    changes: (id, the row after it) of each offset. first: records below were deleted by retention.
    """

    records: list[tuple[bytes, bytes | None] | None] = field(default_factory=list)
    changes: list[tuple[int, Row | None] | None] = field(default_factory=list)
    first: int = 0


@dataclass
class Log:
    """The topic of the database's table. unavailable: how often a fetch finds no broker, 0 to 1."""

    partitions: dict[TopicPartition, Partition] = field(default_factory=dict)
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    records: int = 0
    unavailable: float = 0.0

    def append(self, key: int, value: bytes | None, change: tuple[int, Row | None]) -> None:
        """Add a record to the partition of its key. Partitions that came later get no keys of older ones."""
        keys = json.dumps({"id": key}).encode()
        partition = list(self.partitions.values())[zlib.crc32(keys) % len(self.partitions)]
        partition.records.append((keys, value))
        partition.changes.append(change)
        self.records += 1

    def mark(self, number: int) -> None:
        """Add an offset without a record."""
        partition = list(self.partitions.values())[number % len(self.partitions)]
        partition.records.append(None)
        partition.changes.append(None)

    def is_read(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Return whether no row comes after these offsets: a tombstone or a marker need not move a table's position."""
        return all(
            record is None or record[1] is None
            for name, partition in self.partitions.items()
            for record in partition.records[ends.get(name, 0) :]
        )

    @property
    def ends(self) -> dict[TopicPartition, int]:
        return {name: len(partition.records) for name, partition in self.partitions.items()}


@dataclass
class Database:
    """A table with the columns id, note and n, and the records that its connector sends.

    moves a step at a time: each change goes into the log at once. repeats: after a restart the connector sends the last
    changes again.
    """

    log: Log
    scheduler: Scheduler
    keys: int = 24
    rows: dict[int, Row] = field(default_factory=dict)
    sent: list[tuple[int, bytes | None, tuple[int, Row | None]]] = field(default_factory=list)
    changes: int = 0

    def change(self) -> None:
        random = self.scheduler.random
        key = random.randrange(self.keys)
        self.changes += 1
        before = self.rows.get(key)
        after: Row | None = {"id": key, "note": f"n{self.changes}", "n": random.choice([None, self.changes])}
        if before is not None and random.random() < 0.3:
            after = None
        op = "c" if before is None else "d" if after is None else "u"
        if before is None and random.random() < 0.1:
            op = "r"
        if after is None:
            del self.rows[key]
        else:
            self.rows[key] = after
        payload = {"before": before, "after": after, "op": op, "ts_ms": 1, "source": _SOURCE}
        self._send(key, json.dumps(payload).encode(), (key, after))
        if op == "d" and random.random() < 0.5:
            self._send(key, None, (key, None))  # a tombstone for Kafka's compaction

    def _send(self, key: int, value: bytes | None, change: tuple[int, Row | None]) -> None:
        self.log.append(key, value, change)
        self.sent.append((key, value, change))


class LogSource:
    """See `tidelake.ingest.sources.source.Source`."""

    def __init__(self, log: Log, scheduler: Scheduler, batch_records: int) -> None:
        self._log = log
        self._scheduler = scheduler
        self._batch_records = batch_records

    @property
    def identity(self) -> SourceIdentity:
        return SourceIdentity("simulated", {TOPIC: "one"})

    async def open(self, known: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        await self._ask()
        return frozenset(self._log.partitions)

    async def _ask(self) -> None:
        random = self._scheduler.random
        await asyncio.sleep(random.random() * 0.05)
        if random.random() < self._log.unavailable:
            raise SourceUnavailable("no broker answers (simulated)")

    async def offsets(self, partitions: Collection[TopicPartition], start: Start) -> dict[TopicPartition, int]:
        await self._ask()
        bounds = await self.bounds(partitions)
        return {name: at.start if start == Earliest() else at.end for name, at in bounds.items()}

    async def bounds(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, OffsetRange]:
        found = {name: self._log.partitions[name] for name in partitions if name in self._log.partitions}
        return {name: OffsetRange(one.first, len(one.records)) for name, one in found.items()}

    async def read(self, positions: Mapping[TopicPartition, int]) -> AsyncGenerator[RawBatch, None]:
        at = dict(positions)
        random = self._scheduler.random
        while True:
            is_idle = True
            for name, partition in list(self._log.partitions.items()):
                if name not in at:
                    at[name] = partition.first
                    yield self._batch(name, partition, partition.first, 0)
                if at[name] < partition.first:
                    raise PositionRefused(f"{name}: offset {at[name]} was deleted (simulated)", [])
                if at[name] < len(partition.records):
                    await self._ask()
                    batch = self._batch(name, partition, at[name], random.randrange(1, self._batch_records + 1))
                    at[name] = batch.next_offset
                    is_idle = False
                    yield batch
            if is_idle:
                await asyncio.sleep(_POLL_S)

    def _batch(self, name: TopicPartition, partition: Partition, start: int, count: int) -> RawBatch:
        end = min(start + count, len(partition.records))
        found = [(offset, partition.records[offset]) for offset in range(start, end)]
        records = [(offset, *record) for offset, record in found if record is not None]
        offsets = np.array([offset for offset, *_ in records], np.int64)
        return RawBatch(
            name.topic,
            name.partition,
            offsets,
            offsets,
            pa.array([key for _, key, _ in records], pa.binary()),
            pa.array([value for *_, value in records], pa.binary()),
            end,
        )

    async def check_identity(self) -> None:
        await self._ask()

    async def deleted_topics(self) -> Collection[str]:
        return ()

    async def commit_offsets(self, ends: Mapping[TopicPartition, int]) -> None:
        self._log.committed.update(ends)

    async def close(self) -> None:
        """Nothing is held."""
