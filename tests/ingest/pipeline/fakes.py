"""Scripted parts of a pipeline that record their calls."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, cast
from uuid import uuid4

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tests.support.manual_clock import ManualClock
from tidelake.checkpoint.committable import TableCommittable
from tidelake.checkpoint.coordinator import CheckpointPolicy
from tidelake.checkpoint.offsets import (
    POSITION_PROPERTY,
    OffsetRange,
    SourceIdentity,
    SourcePosition,
    TopicPartition,
    position_from_text,
)
from tidelake.checkpoint.table_state import SnapshotSummary, TableState
from tidelake.ingest.dead_letters import DeadLetters
from tidelake.ingest.evolution.schema_barrier import SchemaBarrier
from tidelake.ingest.formats.base import (
    DecodedBatch,
    DecodeFailure,
    FailureKind,
    KeyChange,
    KeyChanges,
    Skipped,
    TableRows,
    Target,
    TargetOf,
    UnavailableValues,
)
from tidelake.ingest.formats.source_table import SourceTable
from tidelake.ingest.monitoring.observations import RunObservations
from tidelake.ingest.pipeline.builder import PipelineBuilder
from tidelake.ingest.pipeline.error_policy import ErrorPolicy
from tidelake.ingest.pipeline.freshness import FreshnessKeeper
from tidelake.ingest.pipeline.pending_batches import WaitLimits
from tidelake.ingest.pipeline.progress_tracker import ProgressFile
from tidelake.ingest.raw_batch import RawBatch
from tidelake.ingest.sources.source import Earliest, Start
from tidelake.ingest.tables.moved_row_files import MovedRowFiles
from tidelake.ingest.tables.moved_rows import MovedRowsBudget, MovedRowsByTable
from tidelake.ingest.tables.table_lineage import TableLineage
from tidelake.ingest.tables.table_router import Route, TableRouter
from tidelake.ingest.tables.table_sink import TableSink
from tidelake.storage.commit.commit_message import CommitMessage
from tidelake.storage.ddl.schema_changes import SchemaChange
from tidelake.storage.fileio.memory import MemoryFileIO
from tidelake.storage.maintenance.maintenance_worker import MaintenanceWorker
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.format import KIND_COLUMN, RowKind
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import BIGINT, STRING, DataField
from tidelake.storage.write.bucket_router import RoutedRows
from tidelake.storage.write.compactor import LongCompaction

pa.array([b""])  # Arrow's first array from Python objects imports pandas, which would block the event loop

SCHEMA = TableSchema(0, (DataField(0, "id", BIGINT), DataField(1, "v", STRING)), 1, primary_keys=("id",))
GONE = "gone"  # what a fake table shows of a deleted row
ROWS = SCHEMA.arrow.append(pa.field(KIND_COLUMN, pa.int8(), False))


def raw_batch(
    offsets: Sequence[int],
    values: Sequence[bytes | None] | None = None,
    *,
    topic: str = "log",
    partition: int = 0,
    next_offset: int | None = None,
) -> RawBatch:
    """Records whose value is b"v<offset>" unless given."""
    values = [b"v%d" % offset for offset in offsets] if values is None else values
    return RawBatch(
        topic,
        partition,
        np.array(offsets, np.int64),
        np.array(offsets, np.int64),
        pa.array([b"k%d" % offset for offset in offsets], pa.binary()),
        pa.array(values, pa.binary()),
        (offsets[-1] + 1 if offsets else 0) if next_offset is None else next_offset,
    )


def rows(*cells: tuple[int, str | None], kinds: Sequence[int] | None = None) -> pa.RecordBatch:
    ids, values = zip(*cells, strict=True) if cells else ((), ())
    columns = [pa.array(ids, pa.int64()), pa.array(values, pa.string()), pa.array(kinds or [0] * len(cells), pa.int8())]
    return pa.RecordBatch.from_arrays(columns, schema=ROWS)


class FakeSource:
    """Hands out batches as long as there are any below `held`, and then waits or ends.

    batches: in the order of reading. Batches below the position are left out, as a real source does.
    """

    def __init__(self, batches: Sequence[RawBatch | Exception], *, ends: bool = True) -> None:
        self.batches = list(batches)
        self.ends = ends
        self.identity = SourceIdentity("fake")
        self.read_from: dict[TopicPartition, int] = {}
        self.handed_out = 0
        self.confirmed: dict[TopicPartition, int] = {}
        self.was_opened = asyncio.Event()
        self.was_closed = False
        self.is_unreachable = False
        self.first_offset = 0
        self.held: dict[TopicPartition, OffsetRange] = {}  # the result of `bounds`
        self.at_check: Callable[[], None] = lambda: None  # called before what was read is published; it may raise

    async def open(self, known: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        self.was_opened.set()
        if self.is_unreachable:
            await asyncio.Event().wait()
        first: dict[TopicPartition, RawBatch] = {}
        for batch in self.batches:
            if isinstance(batch, RawBatch):
                first.setdefault(TopicPartition(batch.topic, batch.partition), batch)
        return frozenset(known) | {partition for partition, batch in first.items() if len(batch)}

    async def offsets(self, partitions: Collection[TopicPartition], start: Start) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, self.first_offset if start != Earliest() else 0)

    async def bounds(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, OffsetRange]:
        return {p: self.held[p] for p in partitions if p in self.held}

    async def read(self, positions: Mapping[TopicPartition, int]) -> AsyncGenerator[RawBatch, None]:
        self.read_from = dict(positions)
        for batch in self.batches:
            if isinstance(batch, Exception):
                raise batch
            position = positions.get(TopicPartition(batch.topic, batch.partition), 0)
            if not len(batch) or batch.next_offset > position:
                self.handed_out += 1
                yield batch.slice(int(np.searchsorted(batch.offsets, position)), len(batch)) if len(batch) else batch
        if not self.ends:
            await asyncio.Event().wait()

    async def check_identity(self) -> None:
        self.at_check()

    async def deleted_topics(self) -> Collection[str]:
        return ()

    async def commit_offsets(self, ends: Mapping[TopicPartition, int]) -> None:
        self.confirmed = dict(ends)

    async def close(self) -> None:
        self.was_closed = True


class FakeDecoder:
    """A row (offset, value) for each record, for table `t`, or for `orders` when the record says `orders/…`.

    bad: a bad record
    new column: has an unknown column
    same:<id>: has an unavailable value, which is in the row of that id
    gone:<id>: deletes that row, which moves to another key
    moved:<id>: inserts the moved row, with an unavailable value
    """

    FAILURES: ClassVar = {"bad": FailureKind.BAD_RECORD, "new column": FailureKind.UNKNOWN_COLUMN}

    def __init__(self, target_of: TargetOf) -> None:
        self._target_of = target_of

    def decode(self, batch: RawBatch) -> DecodedBatch:
        failures: list[DecodeFailure] = []
        skipped: Counter[Skipped] = Counter()
        unrouted: dict[SourceTable, int] = {}
        cells: dict[str, list[tuple[int, str]]] = {}
        targets: dict[str, Target] = {}
        for row, (offset, data) in enumerate(zip(batch.offsets.tolist(), batch.values.to_pylist(), strict=True)):
            if data is None:
                skipped[Skipped.TOMBSTONE] += 1
                continue
            table, _, value = data.decode().rpartition("/")
            source = SourceTable(batch.topic, table=table or "t")
            target = self._target_of(source)
            if value in self.FAILURES:
                failures.append(DecodeFailure(row, offset, self.FAILURES[value], f"{value} is no good"))
            elif target is None:
                skipped[Skipped.UNROUTED] += 1
                unrouted.setdefault(source, row)
            else:
                targets[target.name] = target
                cells.setdefault(target.name, []).append((offset, value))
        tables = tuple(self._table_rows(targets[name], found) for name, found in cells.items())
        return DecodedBatch(tables, tuple(failures), skipped, unrouted)

    def _table_rows(self, target: Target, cells: list[tuple[int, str]]) -> TableRows:
        events = [value.partition(":") for _, value in cells]
        left_out = [(at, int(id_)) for at, (word, _, id_) in enumerate(events) if word in ("same", "moved")]
        unavailable = key_changes = None
        if left_out:
            keys = pa.record_batch({"id": pa.array([id_ for _, id_ in left_out], pa.int64())})
            flags = {"v": np.ones(len(left_out), np.bool_)}
            unavailable = UnavailableValues(np.array([at for at, _ in left_out]), flags, keys)
        halves = [(at, int(id_)) for at, (word, _, id_) in enumerate(events) if word in ("gone", "moved")]
        if halves:
            changes = [KeyChange(b"%016d" % id_, True, str(id_), "new") for _, id_ in halves]
            key_changes = KeyChanges(np.array([at for at, _ in halves]), changes, "record with header `left`")
        filled = [
            (int(id_), GONE) if word == "gone" else (offset, None if word in ("same", "moved") else word)
            for (offset, _), (word, _, id_) in zip(cells, events, strict=True)
        ]
        kinds = [RowKind.DELETE if word == "gone" else RowKind.INSERT for word, _, _ in events]
        offsets = np.array([offset for offset, _ in cells])
        return TableRows(target, rows(*filled, kinds=kinds), offsets, unavailable, key_changes)


@dataclass
class Published:
    """One snapshot of a fake table."""

    identifier: int
    rows: list[tuple[int, str]]
    properties: Mapping[str, str]

    @property
    def position(self) -> SourcePosition:
        return position_from_text(self.properties[POSITION_PROPERTY], "here")


@dataclass
class FakeTable:
    """What outlives a pipeline: the snapshots. An append table, so that rows written twice are seen.

    log: what happened, in order, shared by all parts of a pipeline.
    """

    name: str
    log: list[str] = field(default_factory=list)
    snapshots: list[Published] = field(default_factory=list)
    registered_id: int | None = None
    io: MemoryFileIO = field(default_factory=MemoryFileIO)

    @property
    def checkpoints(self) -> list[Published]:
        """Without those that only say that a process took over."""
        return [snapshot for snapshot in self.snapshots if snapshot.rows]

    @property
    def rows(self) -> list[tuple[int, str]]:
        return [row for snapshot in self.snapshots for row in snapshot.rows]

    def sink(self) -> FakeSink:
        return FakeSink(self)


class UnchangingSchemas:
    """The schemas of tables that no record changes."""

    def current(self, table: str) -> Target | None:
        return None

    def newest(self, table: str) -> TableContext:
        raise AssertionError("these tables stay as they are")

    def alter(self, table: str, changes: Sequence[SchemaChange]) -> TableContext:
        raise AssertionError("these tables stay as they are")

    def adopt(self, table: TableContext) -> None:
        raise AssertionError("these tables stay as they are")

    def leave_unchanged(
        self, table: str, *, ignored_columns: Sequence[str] = (), columns_with_fixed_type: Sequence[str] = ()
    ) -> None:
        raise AssertionError("these tables stay as they are")


class FakeSink:
    """A `TableSink` of a FakeTable, and its writer.

    `at_*` are called in the worker thread before the step; they may wait or raise.
    """

    def __init__(self, table: FakeTable) -> None:
        self._table = table
        self._written: list[tuple[int, str]] = []
        self._prepared: list[tuple[int, str]] = []
        self._newest_id = 0
        self.at_read_state: Callable[[], None] = lambda: None
        self.at_route: Callable[[], None] = lambda: None
        self.at_lookup: Callable[[], None] = lambda: None
        self.at_write: Callable[[], None] = lambda: None
        self.at_abort: Callable[[], None] = lambda: None
        self.must_open_buckets = False
        self.is_restored = True
        self.at_restore: Callable[[], None] = lambda: None
        self.at_prepare: Callable[[], None] = lambda: None
        self.at_commit: Callable[[], None] = lambda: None
        self.after_commit: Callable[[], None] = lambda: None
        self.at_room: Callable[[], None] = lambda: None
        self.needs_room = False
        self.is_truncated = False
        self.may_bootstrap = self.is_bootstrapping = self.is_held_back = False
        self.was_aborted = False
        self.was_cancelled = False
        self.long_compactions: Sequence[LongCompaction] = ()

    @property
    def name(self) -> str:
        return self._table.name

    def adopt_schema(self, context: TableContext) -> None:
        raise AssertionError("this table stays as it is")

    def holds_rows(self) -> bool:
        raise AssertionError("nobody empties this table")

    def truncate(self) -> None:
        raise AssertionError("nobody empties this table")

    @property
    def writer(self) -> FakeSink:
        return self

    @property
    def history(self) -> FakeSink:
        return self

    @property
    def created_ms(self) -> int:
        return 1

    def finish_rewrite(self) -> None:
        pass

    def read_state(self) -> TableState:
        self.at_read_state()
        count = len(self._table.snapshots)
        own = [snapshot for n in range(count, 0, -1) if (snapshot := self.snapshot(n)) is not None]
        self._newest_id = count
        return TableState(self.created_ms, own, (), 1 if count else None, count or None, self._table.registered_id)

    def latest_of_user(self) -> SnapshotSummary | None:
        return self.snapshot(self._newest_id)

    def snapshot(self, snapshot_id: int) -> SnapshotSummary | None:
        if not 0 < snapshot_id <= len(self._table.snapshots):
            return None
        found = self._table.snapshots[snapshot_id - 1]
        path = f"{self.name}/snapshot-{snapshot_id}"
        return SnapshotSummary(snapshot_id, path, "fake", found.identifier, f"list-{snapshot_id}", found.properties)

    def register(self, snapshot_id: int) -> None:
        self._table.registered_id = snapshot_id

    @property
    def moved_row_files(self) -> MovedRowFiles:
        return MovedRowFiles(self._table.io, f"memory://{self.name}/moved-rows", "fake", SCHEMA)

    def route(self, rows: pa.RecordBatch) -> RoutedRows:
        self.at_route()
        return RoutedRows([(BucketId(b"", 0), rows)])

    reads_files = False

    def restore(self) -> None:
        self.at_restore()
        self.is_restored = True

    def opens_buckets(self, routed: RoutedRows) -> bool:
        return self.must_open_buckets

    def add(self, routed: RoutedRows) -> None:
        self.at_write()
        for _, rows in routed.parts:
            self._written += list(zip(rows["id"].to_pylist(), rows["v"].to_pylist(), strict=True))

    def make_room(self) -> None:
        self.at_room()
        self._table.log.append(f"make room {self.name}")
        self.needs_room = False

    def begin_compactions(self, identifier: int) -> Sequence[LongCompaction]:
        return self.long_compactions

    def prepare_commit(self, identifier: int) -> list[CommitMessage]:
        self.at_prepare()
        self._table.log.append(f"prepare {self.name}")
        self._prepared, self._written = self._written, []
        return [CommitMessage(BucketId(b"", 0))] if self._prepared else []

    commit_attempts = 0

    def commit(self, committable: TableCommittable) -> int | None:
        if committable.messages:  # not when it only takes over
            self.at_commit()
            self._table.log.append(f"commit {self.name} {committable.identifier}")
        properties = committable.to_storage().properties
        self._table.snapshots.append(Published(committable.identifier, self._prepared, properties))
        self._newest_id = len(self._table.snapshots)
        self._prepared = []
        if committable.messages:
            self.after_commit()
        return len(self._table.snapshots)

    def cancel_compactions(self) -> None:
        self.was_cancelled = True

    def abort(self) -> None:
        self.at_abort()
        self.was_aborted = True

    def close(self) -> None:
        self.abort()

    def newest(self, keys: pa.RecordBatch) -> tuple[NDArray[np.bool_], pa.RecordBatch]:
        self.at_lookup()
        known = dict(self._table.rows + self._prepared + self._written)
        ids = keys["id"].to_pylist()
        known = {id_: value for id_, value in known.items() if value != GONE}
        found = np.array([id_ in known for id_ in ids], np.bool_)
        old = [(id_ if id_ in known else None, known.get(id_)) for id_ in ids]
        return found, pa.RecordBatch.from_pylist([{"id": i, "v": v} for i, v in old], SCHEMA.arrow)


class Gate:
    """A step in a worker thread waits here until the test opens the gate."""

    def __init__(self) -> None:
        self._reached = threading.Event()
        self._open = threading.Event()

    def __call__(self) -> None:
        self._reached.set()
        assert self._open.wait(30), "nobody opened the gate"

    async def reached(self) -> None:
        assert await asyncio.to_thread(self._reached.wait, 30), "nobody came to the gate"

    def open(self) -> None:
        self._open.set()


async def until(is_so: Callable[[], bool]) -> None:
    """Waits for a condition that a pipeline signals by no event."""
    async with asyncio.timeout(30):
        while not is_so():
            await asyncio.to_thread(time.sleep, 0.001)


@dataclass
class Rig:
    """A pipeline of fakes on a manual clock. `restart` makes the next one over the same tables and dead letters."""

    source: FakeSource
    tables: Sequence[FakeTable]
    tolerance: object = "none"
    skip: Collection[tuple[TopicPartition, int]] = ()
    topics: Mapping[str, Sequence[str]] = field(default_factory=dict)  # table to its topics; all of them otherwise
    interval_ms: int = 10_000
    bytes_max: int = 1 << 30
    queue_bytes: int = 1 << 20
    waiting_ms_max: int = 60_000
    waiting_bytes_max: int = 1 << 20
    start: Start = field(default_factory=Earliest)
    dead_letters_at: str = field(default_factory=lambda: f"memory://letters/{uuid4().hex}")
    progress: ProgressFile | None = None
    freshness: FreshnessKeeper | None = None

    def __post_init__(self) -> None:
        self.clock = ManualClock()
        self.sinks = {table.name: table.sink() for table in self.tables}
        router = TableRouter(
            [Route(table.name, [table.name], self.topics.get(table.name, ["*"])) for table in self.tables]
        )
        for table in self.tables:
            router.add_target(Target(table.name, SCHEMA))
        self.io = MemoryFileIO()
        self.dead_letters = DeadLetters(self.io, self.dead_letters_at, self.clock)
        self.pipeline = PipelineBuilder(
            source=self.source,
            new_decoder=FakeDecoder,
            router=router,
            sinks=cast("dict[str, TableSink]", self.sinks),
            create=lambda batch, unrouted, ahead: False,
            schemas=SchemaBarrier(UnchangingSchemas(), {}, {}, TableLineage(router.sources_of)),
            moved=MovedRowsByTable(MovedRowsBudget()),
            dead_letters=self.dead_letters,
            errors=ErrorPolicy(self.tolerance, self.skip),  # type: ignore[arg-type]
            wait_limits=WaitLimits(self.waiting_ms_max, self.waiting_bytes_max),
            checkpoint=CheckpointPolicy(self.interval_ms, self.bytes_max),
            observed=RunObservations(self.interval_ms, self.clock),
            maintenance=MaintenanceWorker(),
            routings={},
            start=self.start,
            progress=self.progress,
            freshness=self.freshness,
            queue_bytes=self.queue_bytes,
        ).build()
