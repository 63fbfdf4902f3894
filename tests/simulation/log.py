"""A Kafka log in memory, and a database whose changes come into it as Debezium's records."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from tests.simulation.scheduler import Scheduler
from tidelake.checkpoint.offsets import OffsetRange, SourceIdentity, TopicPartition
from tidelake.errors import PositionRefused, SourceUnavailable
from tidelake.ingest.raw_batch import Headers, RawBatch
from tidelake.ingest.sources.source import Earliest, Start

Row: TypeAlias = dict[str, Any]
Change: TypeAlias = tuple[int, Row | None]
"""A key, and the row after it. None: it was deleted."""
Record: TypeAlias = tuple[bytes | None, bytes | None, Headers]
UNAVAILABLE: Final = "__debezium_unavailable_value"
_SECOND_TABLES_FIRST_KEY: Final = 500
ORDERS: Final = "shop.orders"
CUSTOMERS: Final = "shop.customers"
TRUNCATES: Final[Mapping[str, Change]] = {ORDERS: (-1, None), CUSTOMERS: (-2, None)}
TOPIC: Final = "shop.public.orders"
WIDTHS: Final = ("SMALLINT", "INT", "BIGINT")
_LARGE: Final = (40_000, 3_000_000_000)  # too large for the first of them, and for the second
_SOURCE: Final = {"connector": "postgresql", "name": "shop", "db": "shop", "schema": "public"}
_POLL_S: Final = 0.5


@dataclass
class Partition:
    """The records of a partition: (key, value, headers). None is an offset without a record: a transaction's marker, an
    aborted record, one that compaction removed.

    changes: what the record of each offset does; None if it does nothing.
    poisoned: the offsets whose record is no Debezium record.
    too_large: the offsets whose record has a number that a table's narrow column can't hold, with the record's change
        and the first of WIDTHS that can.
    first: records below were deleted by retention.
    """

    records: list[Record | None] = field(default_factory=list)
    changes: list[Change | None] = field(default_factory=list)
    poisoned: set[int] = field(default_factory=set)
    too_large: dict[int, tuple[Change, str]] = field(default_factory=dict)
    first: int = 0


@dataclass
class Log:
    """The topic of the database's table.

    topic_id: of the topic as it is now. `topics` has its partitions, and those of the topics that it replaced.
    unavailable: how often a fetch finds no broker, 0 to 1.
    has_lost: unread records were deleted, or the topic was created again: a pipeline is right to refuse its position.
    is_to_be_compacted: when nobody reads.
    """

    topics: dict[str, dict[TopicPartition, Partition]]
    topic_id: str
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    records: int = 0
    unavailable: float = 0.0
    has_lost: bool = False
    is_to_be_compacted: bool = False
    _routes: dict[int, TopicPartition] = field(default_factory=dict)

    @classmethod
    def with_partitions(cls, count: int) -> Log:
        return cls({_topic_id(1): _empty(count)}, _topic_id(1))

    @property
    def partitions(self) -> dict[TopicPartition, Partition]:
        return self.topics[self.topic_id]

    def append(
        self, key: int, value: bytes | None, change: Change | None, headers: Headers = (), width: str = WIDTHS[0]
    ) -> None:
        """Add a record to the partition of its key. Partitions that came later get no keys of older ones.

        width: the narrowest type of a column that can hold its number.
        """
        keys = _key_text(key)
        if key not in self._routes:
            self._routes[key] = list(self.partitions)[zlib.crc32(keys) % len(self.partitions)]
        partition = self.partitions[self._routes[key]]
        if change is None and value is not None:
            partition.poisoned.add(len(partition.records))
        if change is not None and width != WIDTHS[0]:
            partition.too_large[len(partition.records)] = (change, width)
        self._add(partition, (keys, value, headers), change)

    def append_truncate(self, value: bytes, change: Change) -> None:
        """Add a record without a key. There must be one partition: others would have no order with it."""
        (partition,) = self.partitions.values()
        self._add(partition, (None, value, ()), change)

    def _add(self, partition: Partition, record: Record, change: Change | None) -> None:
        partition.records.append(record)
        partition.changes.append(change)
        self.records += 1

    def mark(self, number: int, count: int) -> None:
        """Add offsets without a record."""
        partition = list(self.partitions.values())[number % len(self.partitions)]
        partition.records += [None] * count
        partition.changes += [None] * count

    def add_partition(self) -> None:
        self.partitions[TopicPartition(TOPIC, len(self.partitions))] = Partition()

    def compact(self) -> None:
        """Remove each record whose key has a newer one. Call it only if nobody has read records that he may commit.

        Deletes stay: a reader who finds only the tombstone of one does not see it (docs/debezium.md).
        """
        for partition in self.partitions.values():
            newest = {record[0]: offset for offset, record in enumerate(partition.records) if record is not None}
            for offset, (record, change) in enumerate(zip(partition.records, partition.changes, strict=True)):
                is_delete = change is not None and change[1] is None
                if record is not None and record[0] is not None and newest[record[0]] != offset and not is_delete:
                    partition.records[offset] = partition.changes[offset] = None
                    partition.poisoned.discard(offset)

    def retain(self, name: TopicPartition, first: int) -> None:
        """Delete the records below an offset."""
        self.partitions[name].first = max(first, self.partitions[name].first)

    def create_again(self, partitions: int) -> None:
        """Replace the topic by an empty one with the same name."""
        self.topic_id = _topic_id(len(self.topics) + 1)
        self.topics[self.topic_id] = _empty(partitions)
        self._routes = {}
        self.has_lost = True

    def is_read(self, table: str, topic_id: str, ends: Mapping[TopicPartition, int]) -> bool:
        """Return whether the table has no row after these offsets. Markers and dead letters move no position."""
        for name, one in self.partitions.items():
            start = max(ends.get(name, 0) if topic_id == self.topic_id else 0, one.first)
            for offset in range(start, len(one.records)):
                change = None if one.records[offset] is None or offset in one.too_large else one.changes[offset]
                if change is not None and table_of(change) == table:
                    return False
        return True

    @property
    def ends(self) -> dict[TopicPartition, int]:
        return {name: len(partition.records) for name, partition in self.partitions.items()}


def table_of(change: Change) -> str:
    """Return the table whose row it is, or which it truncates."""
    return CUSTOMERS if change[0] >= _SECOND_TABLES_FIRST_KEY or change is TRUNCATES[CUSTOMERS] else ORDERS


def with_length(text: str, random: Random) -> str:
    """Return the text, or now and then a long one that begins with it, and can't be compressed well."""
    return f"{text} {random.randbytes(8_000).hex()}" if random.random() < 0.1 else text


def _width(*rows: Row | None) -> str:
    """Return the narrowest type that holds the numbers of the rows."""
    n = max((row or {}).get("n") or 0 for row in rows)
    return WIDTHS[sum(n >= least for least in _LARGE)]


def _key_text(key: int) -> bytes:
    return json.dumps({"id": key}).encode()


def _topic_id(number: int) -> str:
    return f"topic-{number}"


def _empty(partitions: int) -> dict[TopicPartition, Partition]:
    return {TopicPartition(TOPIC, number): Partition() for number in range(partitions)}


@dataclass
class Database:
    """A table with the columns id, note and n, or two, and the connector that sends each change to the log at once."""

    log: Log
    scheduler: Scheduler
    tables: Sequence[str] = (ORDERS,)
    keys: int = 24
    rows: dict[int, Row] = field(default_factory=dict)
    keys_move: bool = False
    leaves_out_values: bool = False
    has_large_numbers: bool = False
    has_long_notes: bool = False
    have_input_changelog: frozenset[str] = frozenset()  # tables that take the row before an update, too
    sent: list[tuple[int, bytes | None, Change | None, Headers, str]] = field(default_factory=list)
    changes: int = 0
    columns: list[str] = field(default_factory=list)  # that were added

    def change(self) -> None:
        random = self.scheduler.random
        key = self._some_key()
        self.changes += 1
        before = self.rows.get(key)
        new: Row = {"id": key, "note": f"n{self.changes}", "n": random.choice([None, self.changes])}
        if self.has_long_notes:
            new["note"] = with_length(f"n{self.changes}", random)
        if self.has_large_numbers and random.random() < 0.3:
            new["n"] = random.choice(_LARGE) + self.changes
        after: Row | None = new | {column: random.choice([None, self.changes]) for column in self.columns}
        if before is not None and self.keys_move and random.random() < 0.2:
            self._move(key, before)
            return
        if before is not None and random.random() < 0.3:
            after = None
        if before is not None and after is not None and self.leaves_out_values and random.random() < 0.5:
            after["note"] = before["note"]
        op = "c" if before is None else "d" if after is None else "u"
        if before is None and random.random() < 0.1:
            op = "r"
        if after is None:
            del self.rows[key]
        else:
            self.rows[key] = after
        change: Change = (key, after)
        is_decoded = after is None or table_of(change) in self.have_input_changelog
        width = _width(after, before if is_decoded else None)
        self._send(key, self._record(op, before, after, change), change, width=width)
        if op == "d" and random.random() < 0.5:
            self._send(key, None, None)  # a tombstone for Kafka's compaction

    def _move(self, key: int, before: Row) -> None:
        """Change the key of a row, if there is a free one: one event, and two records."""
        random = self.scheduler.random
        new_key = self._some_key()
        if new_key in self.rows or table_of((new_key, None)) != table_of((key, None)):
            return
        after = {**before, "id": new_key, "n": random.choice([before["n"], self.changes])}
        del self.rows[key]
        self.rows[new_key] = after
        gone, come = (key, None), (new_key, after)
        to = (("__debezium.newkey", _key_text(new_key)),)
        self._send(key, self._record("d", before, None, gone), gone, to, _width(before))
        self._send(key, None, None)
        old = (("__debezium.oldkey", _key_text(key)),)
        self._send(new_key, self._record("c", None, after, come, before), come, old, _width(after))

    def _send(
        self, key: int, value: bytes | None, change: Change | None, headers: Headers = (), width: str = WIDTHS[0]
    ) -> None:
        if change is not None and change in TRUNCATES.values():
            assert value is not None
            self.log.append_truncate(value, change)
        else:
            self.log.append(key, value, change, headers, width)
        self.sent.append((key, value, change, headers, width))

    def truncate(self) -> None:
        change = TRUNCATES[self.scheduler.random.choice(self.tables)]
        for key in [key for key in self.rows if table_of((key, None)) == table_of(change)]:
            del self.rows[key]
        self._send(-1, self._record("t", None, None, change), change)

    def add_column(self) -> None:
        self.columns.append(f"c{len(self.columns)}")

    def restart_connector(self) -> None:
        """Send the last changes again: the connector had not stored how far it was."""
        again = self.sent[-self.scheduler.random.randrange(1, 12) :]
        for one in again:
            self._send(*one)

    def read_again(self) -> None:
        """Send each row as a snapshot's record."""
        for key, row in sorted(self.rows.items()):
            self._send(key, self._record("r", None, row, (key, row)), (key, row), width=_width(row))

    def send_snapshot_row(self) -> None:
        """Send a row that was there before the connector, or one again that it has sent."""
        key = self._some_key()
        row = self.rows.setdefault(key, {"id": key, "note": f"s{key}", "n": key})
        self._send(key, self._record("r", None, row, (key, row)), (key, row), width=_width(row))

    def send_nonsense(self) -> None:
        """Send a record that nobody can decode."""
        self.log.append(self._some_key(), b'{"op": ', None)

    def create_topic_again(self) -> None:
        self.log.create_again(len(self.log.partitions))
        self.sent.clear()
        self.read_again()

    def _some_key(self) -> int:
        random = self.scheduler.random
        table = random.choice(self.tables) if len(self.tables) > 1 else ORDERS
        return random.randrange(self.keys) + (_SECOND_TABLES_FIRST_KEY if table == CUSTOMERS else 0)

    def _record(
        self, op: str, before: Row | None, after: Row | None, change: Change, moved: Row | None = None
    ) -> bytes:
        """moved: the row under its old key."""
        source = _SOURCE | {"table": table_of(change).rpartition(".")[2], "lsn": self.changes}
        known = before or moved
        if self.leaves_out_values and op in "uc" and known and after and known["note"] == after["note"]:
            before, after = None, {**after, "note": UNAVAILABLE}  # PostgreSQL's default
        return json.dumps({"before": before, "after": after, "op": op, "ts_ms": 1, "source": source}).encode()


class LogSource:
    """See `tidelake.ingest.sources.source.Source`."""

    def __init__(self, log: Log, scheduler: Scheduler, batch_records: int) -> None:
        self._log = log
        self._scheduler = scheduler
        self._batch_records = batch_records
        self._topic_id = ""

    @property
    def identity(self) -> SourceIdentity:
        return SourceIdentity("simulated", {TOPIC: self._topic_id})

    async def open(self, known: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        await self._ask()
        self._topic_id = self._log.topic_id
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
                if not partition.first <= at[name] <= len(partition.records):
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
            pa.array([key for _, key, _, _ in records], pa.binary()),
            pa.array([value for _, _, value, _ in records], pa.binary()),
            end,
            {row: headers for row, (*_, headers) in enumerate(records) if headers},
        )

    async def check_identity(self) -> None:
        await self._ask()
        if self._log.topic_id != self._topic_id:
            raise PositionRefused(f"{TOPIC} was created again (simulated)", [])

    async def deleted_topics(self) -> Collection[str]:
        return ()

    async def commit_offsets(self, ends: Mapping[TopicPartition, int]) -> None:
        self._log.committed.update(ends)

    async def close(self) -> None:
        """Nothing is held."""
