"""The source's initial snapshot goes sorted to the highest level of an empty table, beside the running stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
import pytest

from tests.ingest.formats.debezium.changes import change
from tests.ingest.pipeline.fakes import until
from tests.support.changelog_fold import check_changelog, check_written_rows
from tests.support.memory_log import MemoryLog, MemoryLogSource
from tidelake.checkpoint.offsets import POSITION_PROPERTY, TopicPartition, chain_breaks, position_from_text
from tidelake.errors import BadInput, CommitConflict, WriterFenced
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.pipeline.builder import build_pipeline
from tidelake.ingest.pipeline.pipeline import Pipeline
from tidelake.ingest.raw_batch import RawBatch
from tidelake.ingest.tables.table_sink import TableSink
from tidelake.storage.catalog.filesystem import FileSystemCatalog
from tidelake.storage.commit.manifests.snapshot_files import live_entries
from tidelake.storage.fileio.base import FileIO
from tidelake.storage.fileio.memory import MemoryFileIO
from tidelake.storage.maintenance.verify import verify
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.table import Table

ORDERS: Final = "shop.orders"
EVENTS: Final = "shop.events"
TOPIC: Final = "shop.public.orders"
PRODUCERS: Final = ("none", "input", "lookup", "full-compaction")
HIGHEST: Final = 5  # level, with the default of num-sorted-run.compaction-trigger

CONFIG: Final = """
warehouse: {warehouse}
pipeline: shop
source: {{type: change-log-folder, path: /unused}}
errors: {{tolerance: all}}
checkpoint: {{bytes_max: 200, interval_ms: 3600000}}
tables: [{{name: shop.events}}, {{name: shop.orders{table}}}]
{more}
"""


def row(number: int, note: str | None) -> dict[str, Any]:
    return {"id": number, "note": note}


@dataclass
class World:
    """A log, and a warehouse with two empty tables. settings: more of the configuration."""

    options: Mapping[str, str] = field(default_factory=dict)
    bootstrap: str = "bootstrap: {enabled: true}"
    table: str = ""
    log: MemoryLog = field(default_factory=MemoryLog)
    warehouse: str = field(default_factory=lambda: f"memory://{uuid4()}/lake")
    store: FileIO = field(default_factory=MemoryFileIO)

    def __post_init__(self) -> None:
        catalog = FileSystemCatalog(self.store, self.warehouse)
        catalog.create_database("shop")
        columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("note", pa.string())])
        options = {"num-sorted-run.compaction-trigger": "5", **self.options}
        catalog.create_table(ORDERS, columns, primary_key=["id"], options=options)
        catalog.create_table(EVENTS, columns, primary_key=["id"])

    def send(self, op: str, number: int, note: str | None = "", before: str | None = None, partition: int = 0) -> None:
        old = None if op in "cr" else row(number, before)
        record = change(op, old, None if op == "d" else row(number, note), source=source_of("orders"))
        self.log.append(TOPIC, record.value, record.key, partition)

    def send_events(self, count: int) -> None:
        for number in range(count):
            record = change("c", None, row(number, "e"), source=source_of("events"))
            self.log.append("shop.public.events", record.value, record.key)

    def pipeline(self, source: Any = None, clock: Any = None) -> Pipeline:
        text = CONFIG.format(warehouse=self.warehouse, table=self.table, more=self.bootstrap)
        config = parse_config(text, "shop.yaml", (), {}, "shop")
        opened = source or MemoryLogSource(self.log, batch_records=4)
        return build_pipeline(config, io=self.store, open_source=lambda: opened, clock=clock)

    def run(self, source: Any = None) -> None:
        asyncio.run(self.pipeline(source).run())

    def context(self, name: str = ORDERS) -> TableContext:
        return FileSystemCatalog(self.store, self.warehouse).load(name)

    def snapshots(self, name: str = ORDERS) -> list[Snapshot]:
        return list(self.context(name).snapshots.all())

    def with_rows(self, name: str = ORDERS) -> list[Snapshot]:
        """Snapshots that added files."""
        return [one for one in self.snapshots(name) if one.delta_record_count]

    def rows(self, name: str = ORDERS) -> list[tuple[Any, ...]]:
        return sorted(tuple(one.values()) for one in Table(self.context(name)).scan().to_arrow().to_pylist())

    def check_changes(self) -> None:
        """At every snapshot the changes up to it add up to the table."""
        table = Table(self.context())
        if self.options["changelog-producer"] in ("lookup", "full-compaction"):
            assert check_changelog(table)
            return
        copy = World(self.options)
        assert check_written_rows(table, Table(copy.context()))

    def levels(self, snapshot: Snapshot) -> set[int]:
        return {entry.file.level for entry in live_entries(self.context(), snapshot)}

    def check_sound(self) -> None:
        for name in (ORDERS, EVENTS):
            context = self.context(name)
            chain = [
                (one.commit_identifier, position_from_text(one.properties[POSITION_PROPERTY], name))
                for one in context.snapshots.all()
                if one.commit_user == "shop"
            ]
            assert not chain_breaks(chain)
            assert not verify(context, deep=True)

    def has_spilled_to_top(self) -> bool:
        """Whether the first rows of the table went to the highest level."""
        found = self.with_rows()
        return bool(found) and self.levels(found[0]) == {HIGHEST}


def source_of(table: str) -> dict[str, str]:
    return {"connector": "postgresql", "name": "shop", "db": "shop", "schema": "public", "table": table}


# ---------------------------------------------------------------- the end of a snapshot


def inserts(world: World) -> None:
    world.send("c", 100, "new")


def updates(world: World) -> None:
    world.send("u", 3, "changed", before="r3")


def deletes(world: World) -> None:
    world.send("d", 3, before="r3")


def deletes_with_tombstone(world: World) -> None:
    world.send("d", 3, before="r3")
    world.log.append(TOPIC, None, b'{"id":3}')


def moves(world: World) -> None:
    world.send("d", 3, before="r3")
    world.send("c", 103, "r3")


def leaves_out_a_value(world: World) -> None:
    world.send("u", 3, "__debezium_unavailable_value", before="r3")


def truncates(world: World) -> None:
    record = change("t", source=source_of("orders"))
    world.log.append(TOPIC, record.value)
    world.send("c", 100, "after it")


def adds_a_column(world: World) -> None:
    record = change("c", None, {**row(100, "wide"), "qty": 7}, source=source_of("orders"))
    world.log.append(TOPIC, record.value, record.key)


def adds_a_column_in_the_snapshot(world: World) -> None:
    record = change("r", None, {**row(100, "wide"), "qty": 7}, source=source_of("orders"))
    world.log.append(TOPIC, record.value, record.key)


def sends_a_bad_record(world: World) -> None:
    world.log.append(TOPIC, b"no record")
    world.send("u", 3, "changed", before="r3")


def snapshots_again(world: World) -> None:
    for number in range(10):
        world.send("r", number, f"again{number}")
    world.send("d", 4, before="again4")


def ends(world: World) -> None:
    """Nothing follows."""


ENDS: Final = (
    inserts,
    updates,
    deletes,
    deletes_with_tombstone,
    moves,
    leaves_out_a_value,
    truncates,
    adds_a_column,
    adds_a_column_in_the_snapshot,
    sends_a_bad_record,
    snapshots_again,
    ends,
)


def snapshot_then(end: Callable[[World], None], options: Mapping[str, str], bootstrap: str) -> World:
    world = World(options, bootstrap)
    for number in [*range(0, 30, 2), *range(1, 30, 2)]:
        world.send("r", number, None if number % 7 == 0 else f"r{number}")
    end(world)
    world.send("r", 200, "of an incremental snapshot")
    world.send("u", 5, "ünïcode", before="r5")
    world.send_events(20)
    world.run()
    return world


@pytest.mark.exhaustive(kept=5)
@pytest.mark.parametrize("producer", PRODUCERS)
@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
def test_rows_and_the_sum_of_their_changes_are_those_of_an_ordinary_load(
    end: Callable[[World], None], producer: str
) -> None:
    each_commit = {"full-compaction.delta-commits": "1"} if producer == "full-compaction" else {}
    options = {"changelog-producer": producer, **each_commit}
    sorted_, merged = (snapshot_then(end, options, setting) for setting in ("bootstrap: {enabled: true}", ""))
    assert sorted_.rows() == merged.rows()
    assert sorted_.rows(EVENTS) == merged.rows(EVENTS)
    if end is not truncates and end is not adds_a_column and end is not adds_a_column_in_the_snapshot:
        sorted_.check_changes()
    assert sorted_.has_spilled_to_top()
    sorted_.check_sound()


def test_the_snapshot_is_one_commit_while_other_tables_commit_as_ever() -> None:
    world = snapshot_then(updates, {}, "bootstrap: {enabled: true}")
    first = world.with_rows()[0]
    assert first.delta_record_count == 28  # a whole number of batches: the next one also has a record of the stream
    before = [one for one in world.snapshots(EVENTS) if one.commit_identifier < first.commit_identifier]
    assert len([one for one in before if one.delta_record_count]) > 1
    # The position passes all rows of the snapshot, and nothing else.
    ends_at = position_from_text(first.properties[POSITION_PROPERTY], ORDERS).ends
    assert ends_at[TopicPartition(TOPIC, 0)] == 28


def test_records_of_one_partition_may_be_of_the_stream_while_another_still_has_the_snapshot() -> None:
    world = World()
    for number in range(40):
        world.send("r", number, f"r{number}", partition=number % 2)
    world.send("d", 1, before="r1", partition=1)
    for number in range(40, 60, 2):
        world.send("r", number, f"r{number}", partition=0)
    world.run()
    assert [one[0] for one in world.rows()] == sorted({*range(40), *range(40, 60, 2)} - {1})
    assert world.has_spilled_to_top()
    world.check_sound()


# ---------------------------------------------------------------- bounds


@pytest.mark.parametrize(
    "bound", ["bytes_max: 100", "duration_ms_max: 1", "idle_ms: 1"], ids=lambda bound: bound.partition(":")[0]
)
def test_a_bound_ends_it_and_the_rest_of_the_snapshot_is_merged(bound: str) -> None:
    world = World(bootstrap=f"bootstrap: {{enabled: true, {bound}}}")
    for number in range(200):
        world.send("r", number, f"r{number}")
    world.run()
    assert len(world.rows()) == 200
    assert world.has_spilled_to_top()
    assert world.with_rows()[0].delta_record_count < 200
    world.check_sound()


@dataclass
class Waiting:
    """A source that sends no more once it is read up to its end, until it may end."""

    inner: MemoryLogSource
    end: asyncio.Event = field(default_factory=asyncio.Event)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def read(self, positions: Mapping[TopicPartition, int]) -> AsyncGenerator[RawBatch, None]:
        async for batch in self.inner.read(positions):
            yield batch
        await self.end.wait()


def test_a_snapshot_that_nothing_follows_becomes_visible_after_a_pause() -> None:
    world = World(bootstrap="bootstrap: {enabled: true, idle_ms: 300}")
    for number in range(20):
        world.send("r", number, f"r{number}")

    async def run() -> None:
        source = Waiting(MemoryLogSource(world.log))
        pipeline = world.pipeline(source)
        running = asyncio.create_task(pipeline.run())
        seen = set[int | None]()
        while not await asyncio.to_thread(world.with_rows):
            observed = pipeline.observed.tables.get(ORDERS)
            seen.add(None if observed is None else observed.bootstrap_rows)
            await asyncio.sleep(0.02)
        assert 20 in seen
        assert await asyncio.to_thread(world.rows) == [(number, f"r{number}") for number in range(20)]
        source.end.set()
        await running
        assert pipeline.observed.tables[ORDERS].bootstrap_rows is None

    asyncio.run(asyncio.wait_for(run(), 30))
    assert world.has_spilled_to_top()


# ---------------------------------------------------------------- others


def test_a_table_with_rows_is_merged_as_ever() -> None:
    world = World()
    with Table(world.context()).writer(commit_user="before") as writer:
        writer.write(pa.table({"id": [1, 900], "note": ["old", "kept"]}))
        writer.commit(1)
    for number in range(20):
        world.send("r", number, f"r{number}")
    world.run()
    assert world.rows() == [*((number, f"r{number}") for number in range(20)), (900, "kept")]


@dataclass
class Filling(Waiting):
    """A source after whose snapshot another writer fills the table, before the stream begins."""

    world: World | None = None

    async def read(self, positions: Mapping[TopicPartition, int]) -> AsyncGenerator[RawBatch, None]:
        assert self.world is not None
        async for batch in self.inner.read(positions):
            yield batch
        if not await asyncio.to_thread(self.world.with_rows):
            await asyncio.sleep(0.2)  # until all batches are written
            await asyncio.to_thread(_fill, self.world)
            end = self.world.log.bounds(TopicPartition(TOPIC, 0)).end
            self.world.send("u", 3, "later", before="r3")
            async for batch in self.inner.read({**positions, TopicPartition(TOPIC, 0): end}):
                yield batch
        for _ in range(200):
            if self.end.is_set() or (3, "later") in await asyncio.to_thread(self.world.rows):
                return
            await asyncio.sleep(0.05)


AFTER_THE_RIVAL: Final = [
    *((number, "later" if number == 3 else f"r{number}") for number in range(20)),
    (900, "rival"),
]


def _fill(world: World) -> None:
    with Table(world.context()).writer(commit_user="rival") as writer:
        writer.write(pa.table({"id": [1, 900], "note": ["rival", "rival"]}))
        writer.commit(1)


def test_a_table_that_others_fill_meanwhile_is_refused_and_the_next_start_merges() -> None:
    world = World(bootstrap="bootstrap: {enabled: true}\nquarantine: {enabled: false}")
    for number in range(20):
        world.send("r", number, f"r{number}")
    with pytest.raises(CommitConflict, match="next start, or the next retry"):
        world.run(Filling(MemoryLogSource(world.log), world=world))
    assert world.rows() == [(1, "rival"), (900, "rival")]
    world.run()
    assert world.rows() == AFTER_THE_RIVAL
    assert not verify(world.context(), deep=True)


def test_with_a_quarantine_such_a_table_catches_up_in_the_same_run() -> None:
    world = World(bootstrap="bootstrap: {enabled: true}\nquarantine: {retry_ms_min: 50}")
    for number in range(20):
        world.send("r", number, f"r{number}")
    world.send_events(8)
    world.run(Filling(MemoryLogSource(world.log), world=world))
    assert world.rows() == AFTER_THE_RIVAL
    assert len(world.rows(EVENTS)) == 8
    assert not verify(world.context(), deep=True)


def test_a_process_that_lost_the_pipeline_publishes_nothing_of_its_bootstrap() -> None:
    world = World()
    for number in range(20):
        world.send("r", number, f"r{number}")

    async def run() -> None:
        source = Waiting(MemoryLogSource(world.log))
        zombie = world.pipeline(source)
        running = asyncio.create_task(zombie.run())
        await until(lambda: zombie.observed.table(ORDERS).bootstrap_rows == 20)
        await asyncio.to_thread(world.run)
        source.end.set()
        with pytest.raises(WriterFenced):
            await running

    asyncio.run(asyncio.wait_for(run(), 30))
    assert world.with_rows()[0].delta_record_count == 20
    assert len(world.with_rows()) == 1
    world.check_sound()


def test_a_run_that_is_stopped_commits_what_it_has_read() -> None:
    world = World()
    for number in range(20):
        world.send("r", number, f"r{number}")

    async def run() -> None:
        pipeline = world.pipeline(Waiting(MemoryLogSource(world.log)))
        running = asyncio.create_task(pipeline.run())
        await until(lambda: pipeline.observed.table(ORDERS).bootstrap_rows == 20)
        pipeline.stop()
        await running

    asyncio.run(asyncio.wait_for(run(), 30))
    assert world.has_spilled_to_top()
    world.send("u", 3, "later", before="r3")
    world.run()
    assert world.rows()[3] == (3, "later")
    world.check_sound()


def test_a_table_that_cannot_be_read_at_its_first_rows_is_quarantined_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(bootstrap="bootstrap: {enabled: true}\nquarantine: {retry_ms_min: 50}")
    for number in range(20):
        world.send("r", number, f"r{number}")
    world.send_events(8)
    begin = TableSink.begin_bootstrap

    def failing(sink: TableSink) -> bool:
        if sink.name == ORDERS:
            raise OSError("no answer")
        return begin(sink)

    monkeypatch.setattr(TableSink, "begin_bootstrap", failing)
    world.run()
    assert len(world.rows(EVENTS)) == 8
    assert world.rows() == [(number, f"r{number}") for number in range(20)]
    world.check_sound()


# ---------------------------------------------------------------- settings

REFUSED: Final[Sequence[tuple[str, str]]] = (
    ("mode: append", "a history has no key"),
    ("mode: scd2", "a version is written with the one that it ends"),
    ("deletes: soft", "what is known of its deletion"),
    ("filter: id > 3", "is written as a delete"),
    ("shared_with: other", "others fill the table"),
)


@pytest.mark.parametrize(("setting", "reason"), REFUSED, ids=[setting for setting, _ in REFUSED])
def test_what_a_bootstrap_cannot_do_is_refused_by_name(setting: str, reason: str) -> None:
    world = World(bootstrap="", table=f", bootstrap: {{enabled: true}}, {setting}")
    with pytest.raises(BadInput, match=reason):
        world.pipeline()


@pytest.mark.parametrize(("setting", "reason"), REFUSED[3:], ids=[setting for setting, _ in REFUSED[3:]])
def test_the_setting_of_the_pipeline_leaves_out_tables_that_cannot(setting: str, reason: str) -> None:
    pipeline = World(table=f", {setting}").pipeline()
    assert not pipeline.sinks[ORDERS].may_bootstrap
    assert pipeline.sinks[EVENTS].may_bootstrap


def test_a_format_that_marks_no_snapshot_is_refused() -> None:
    world = World(bootstrap="bootstrap: {enabled: true}\nformat: canal-json")
    with pytest.raises(BadInput, match="canal-json"):
        world.pipeline()
