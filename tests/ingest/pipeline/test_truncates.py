"""A truncate of a source table empties its table if its order among the rows is known. Otherwise the pipeline stops."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

from tests.ingest.formats.debezium.changes import change
from tests.support.faulty_file_io import Call, Fault, FaultyFileIO
from tests.support.levels import sample
from tests.support.memory_log import MemoryLog, MemoryLogSource
from tidelake.checkpoint.offsets import POSITION_PROPERTY, TopicPartition, chain_breaks, position_from_text
from tidelake.errors import RecordRefused
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.pipeline.builder import build_pipeline
from tidelake.ingest.pipeline.recovery_flags import RecoveryFlags
from tidelake.ingest.tables.table_lineage import LINEAGE_PROPERTY
from tidelake.storage.catalog.filesystem import FileSystemCatalog
from tidelake.storage.fileio.base import FileIO
from tidelake.storage.fileio.memory import MemoryFileIO
from tidelake.table import Table

CONFIG = """
warehouse: {warehouse}
pipeline: shop
source: {{type: change-log-folder, path: /unused}}
checkpoint: {{bytes_max: {bytes_max}, interval_ms: 3600000}}
quarantine: {{retry_ms_min: 20, retry_ms_max: 50}}
tables: [{tables}]
{settings}
"""
ALONE = "{name: shop.a, match: a, options: {bucket: -1}}"
TABLES = "{name: shop.a, match: a, options: {bucket: -1}}, {name: shop.b, match: b, primary_key: [id]}"


@dataclass
class TruncatingWorld:
    """An append table and one with a key; a topic holds the records of both, in one partition unless said otherwise."""

    tables: str = TABLES
    settings: str = ""
    bytes_max: int = 500
    log: MemoryLog = field(default_factory=MemoryLog)
    warehouse: str = field(default_factory=lambda: f"memory://{uuid4()}/lake")
    store: FileIO = field(default_factory=MemoryFileIO)
    truth: dict[str, list[int]] = field(default_factory=lambda: {"a": [], "b": []})
    first: list[int] = field(default_factory=list)

    def add(self, table: str, number: int, *, topic: str = "all", partition: int = 0, **source: Any) -> None:
        named = {"db": "s", "table": table, **source}
        record = change("c", after={"id": number}, key={"id": number} if table == "b" else None, source=named)
        self.log.append(topic, record.value, record.key, partition)
        self.truth[table].append(number)

    def truncate(self, table: str, *, topic: str = "all", partition: int = 0, **source: Any) -> int:
        """Returns the record's offset."""
        record = change("t", key=None, source={"db": "s", "table": table, **source})
        self.truth[table] = []
        return self.log.append(topic, record.value, None, partition)

    async def run(self, io: FileIO | None = None, skip: tuple[TopicPartition, int] | None = None) -> Any:
        """One process, from its start to the end of the log."""
        text = CONFIG.format(
            warehouse=self.warehouse, bytes_max=self.bytes_max, tables=self.tables, settings=self.settings
        )
        config = parse_config(text, "shop.yaml", (), {}, "shop")
        flags = RecoveryFlags(skip=frozenset() if skip is None else frozenset([skip]))
        source = partial(MemoryLogSource, self.log, batch_records=4, first=self.first)
        build = partial(build_pipeline, config, flags, io=io or self.store, open_source=source)
        pipeline = await asyncio.to_thread(build)
        return await pipeline.run()

    def rows(self) -> dict[str, list[int]]:
        catalog = FileSystemCatalog(self.store, self.warehouse)
        found = {}
        for name in self.truth:
            there = catalog.table_exists(f"shop.{name}")
            ids = Table(catalog.load(f"shop.{name}")).scan().to_arrow()["id"].to_pylist() if there else []
            found[name] = sorted(map(int, ids))
        return found

    @property
    def expected(self) -> dict[str, list[int]]:
        return {name: sorted(ids) for name, ids in self.truth.items()}

    def breaks(self) -> list[Any]:
        return self.breaks_of(self.truth)

    def breaks_of(self, tables: Iterable[str]) -> list[Any]:
        catalog = FileSystemCatalog(self.store, self.warehouse)
        found: list[Any] = []
        for name in tables:
            own = [s for s in catalog.load(f"shop.{name}").snapshots.all() if s.commit_user == "shop"]
            chain = [(s.commit_identifier, position_from_text(s.properties[POSITION_PROPERTY], name)) for s in own]
            found += chain_breaks(chain)
        return found


async def test_a_truncate_removes_earlier_rows_and_keeps_later_rows_and_other_tables() -> None:
    world = TruncatingWorld()
    for number in range(3):
        world.add("a", number)
        world.add("b", number)
    world.truncate("a")
    world.add("a", 10)
    world.add("b", 11)
    world.truncate("b")
    world.add("b", 1)
    await world.run()
    assert await asyncio.to_thread(world.rows) == {"a": [10], "b": [1]}
    world.truncate("a")
    world.truncate("b")
    await world.run()
    assert await asyncio.to_thread(world.rows) == {"a": [], "b": []}
    world.add("a", 20)
    await world.run()
    assert await asyncio.to_thread(world.rows) == {"a": [20], "b": []}
    assert not await asyncio.to_thread(world.breaks)


@pytest.mark.sampled
@pytest.mark.parametrize("seed", sample(range(40)))
async def test_after_a_crash_or_failing_table_anywhere_tables_equal_their_sources(seed: int) -> None:
    random = Random(seed)
    world = TruncatingWorld(bytes_max=random.choice([1, 500, 10_000]))
    number = 0
    for _ in range(random.randint(2, 4)):
        for _ in range(random.randint(3, 12)):
            number += 1
            table = random.choice("ab")
            if random.random() < 0.25:
                world.truncate(table)
            else:
                world.add(table, number)
        io = FaultyFileIO(world.store)
        if random.random() < 0.7:
            io.crash_call(random.randint(1, 120), random.choice([Fault.BEFORE, Fault.AFTER]))
        else:
            broken, left = random.choice("ab"), random.randint(1, 20)

            def fails(call: Call, broken: str = broken) -> Fault | None:
                nonlocal left
                writes = (
                    call.name in ("open_output", "create_if_absent", "write") and f"/shop.db/{broken}/" in call.path
                )
                left -= writes
                return Fault.BEFORE if writes and left >= 0 else None

            io.fault = fails
        with suppress(BaseException):
            await world.run(io)
    await world.run()
    assert await asyncio.to_thread(world.rows) == world.expected
    assert not await asyncio.to_thread(world.breaks)


@dataclass
class SeveralPartitions(TruncatingWorld):
    """Records contain their position in PostgreSQL's log, and partitions are read in any order."""

    partitions: int = 3
    place: int = 1_000
    last_commit: int = 0

    def next_place(self, *, begins_transaction: bool = True) -> dict[str, Any]:
        self.place += 10
        if begins_transaction:
            self.last_commit = self.place - 5
        sequence = json.dumps([str(self.last_commit), str(self.place)])
        return {"connector": "postgresql", "name": "shop", "sequence": sequence}

    def delete(self, number: int) -> None:
        named = {"db": "s", "table": "b", **self.next_place()}
        record = change("d", {"id": number}, key={"id": number}, source=named)
        self.log.append("all", record.value, record.key, number % self.partitions)
        self.truth["b"].remove(number)


@pytest.mark.sampled
@pytest.mark.parametrize("seed", sample(range(30)))
async def test_with_several_partitions_source_positions_order_rows_and_truncates(seed: int) -> None:
    random = Random(seed)
    world = SeveralPartitions(bytes_max=random.choice([1, 500, 10_000]), partitions=random.randint(2, 4))
    world.first = [random.randrange(world.partitions) for _ in range(random.randint(0, 9))]
    number = 2
    world.add("a", 1, **world.next_place())
    world.add("b", 2, **world.next_place())
    await world.run()  # both tables are there: what a truncate does before is another matter
    for _ in range(random.randint(2, 4)):
        for _ in range(random.randint(3, 25)):
            number += 1
            what, place = random.random(), world.next_place(begins_transaction=random.random() < 0.6)
            if what < 0.12:
                world.truncate(random.choice("ab"), partition=random.randrange(world.partitions), **place)
            elif what < 0.25 and world.truth["b"]:
                world.delete(random.choice(world.truth["b"]))
            elif what < 0.6:
                world.add("a", number, partition=random.randrange(world.partitions), **place)
            else:
                world.add("b", number, partition=number % world.partitions, **place)
        io = FaultyFileIO(world.store)
        io.crash_call(random.randint(1, 160), random.choice([Fault.BEFORE, Fault.AFTER]))
        with suppress(BaseException):
            await world.run(io)
    await world.run()
    assert await asyncio.to_thread(world.rows) == world.expected
    assert not await asyncio.to_thread(world.breaks)


async def test_rows_read_before_a_truncate_but_later_at_the_source_are_rewritten() -> None:
    world = SeveralPartitions(partitions=2)
    world.first = [1, 1, 1]
    for number in (1, 3, 5):
        world.add("b", number, partition=1, **world.next_place())
    world.add("b", 2, **world.next_place())
    world.truncate("b", **world.next_place())
    for number in (7, 9):
        world.add("b", number, partition=1, **world.next_place())
    world.add("b", 4, **world.next_place())
    await world.run()
    assert (await asyncio.to_thread(world.rows))["b"] == [4, 7, 9]


async def test_rows_read_after_a_truncate_but_earlier_at_the_source_are_dropped_in_later_runs_too() -> None:
    world = SeveralPartitions(partitions=2)
    early = [world.next_place() for _ in range(2)]
    world.add("b", 2, **world.next_place())
    world.truncate("b", **world.next_place())
    world.add("b", 1, partition=1, **early[0])
    world.first = [0]
    await world.run()
    assert (await asyncio.to_thread(world.rows))["b"] == []
    world.add("b", 3, partition=1, **early[1])
    world.add("b", 5, partition=1, **world.next_place())
    world.truth["b"] = [5]
    await world.run()
    assert (await asyncio.to_thread(world.rows))["b"] == [5]


async def test_rows_of_another_topic_with_the_same_partition_number_are_not_from_before_a_truncate() -> None:
    world = SeveralPartitions(tables="{name: shop.a, match: [a, c], options: {bucket: -1}}", first=[0, 1])
    world.add("a", 1, **world.next_place())
    world.add("a", 2, partition=1, **world.next_place())
    await world.run()
    before, late = world.next_place(), world.next_place()
    world.truncate("a", **world.next_place())
    world.truth["c"] = []
    await world.run()
    world.add("c", 3, topic="of c", partition=1, **before)  # older than the truncate, but of another source table
    world.add("c", 4, topic="of c", partition=1, **world.next_place())
    await world.run()
    world.add("a", 5, partition=1, **late)  # the other topic did not show that this partition is past the truncate
    world.add("a", 6, partition=1, **world.next_place())
    await world.run()
    assert (await asyncio.to_thread(world.rows))["a"] == [3, 4, 6]


async def test_a_record_without_a_source_position_is_bad_after_a_truncate_of_another_partition() -> None:
    world = SeveralPartitions(partitions=2)
    world.first = [0]
    world.add("b", 2, **world.next_place())
    world.truncate("b", **world.next_place())
    world.add("b", 1, partition=1)
    with pytest.raises(RecordRefused, match=r"partition 1, offset 0: a truncate in another partition emptied shop.b"):
        await world.run()


async def test_without_source_positions_a_truncate_of_several_partitions_is_refused_and_can_be_skipped() -> None:
    world = TruncatingWorld(ALONE)
    world.add("a", 1)
    world.add("a", 2, partition=1)
    offset = world.truncate("a")
    world.truth["a"] = [1, 2, 3]
    world.log.append("all", change("c", after={"id": 3}, key=None, source={"db": "s", "table": "a"}).value, None, 0)
    with pytest.raises(
        RecordRefused, match=r"s.a, .*--skip-record.*topic all has 2 partitions, and the order of a truncate"
    ):
        await world.run()
    assert 1 in (await asyncio.to_thread(world.rows))["a"]
    await world.run(skip=(TopicPartition("all", 0), offset))
    assert await asyncio.to_thread(world.rows) == {"a": [1, 2, 3], "b": []}


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("before", [1, 2, 3, 4, 5])
async def test_a_truncate_before_the_first_row_removes_nothing_in_any_batching(before: int, partitions: int) -> None:
    """Of the records before the first row some are read with it, when the table is made, and some earlier."""
    world = TruncatingWorld(ALONE)
    for partition in range(1, partitions):
        world.log.append("all", None, None, partition)
    for _ in range(before):
        world.truncate("a")
    world.add("a", 1)
    world.first = [0, 0]
    await world.run()
    assert await asyncio.to_thread(world.rows) == world.expected
    world.add("a", 2)
    await world.run()
    assert await asyncio.to_thread(world.rows) == world.expected
    assert not await asyncio.to_thread(world.breaks_of, ["a"])


async def test_rows_of_another_writer_are_truncated_too() -> None:
    world = TruncatingWorld(ALONE)
    catalog = FileSystemCatalog(world.store, world.warehouse)

    def write() -> None:
        catalog.create_database("shop")
        catalog.create_table("shop.a", pa.schema([("id", pa.string())]), options={"bucket": "-1"})
        with Table(catalog.load("shop.a")).writer() as writer:
            writer.write(pa.table({"id": ["7"]}))
            writer.commit()

    await asyncio.to_thread(write)
    world.log.append("all", None, None, 1)
    world.truncate("a")
    with pytest.raises(RecordRefused, match="the order of a truncate among them is unknown"):
        await world.run()
    assert (await asyncio.to_thread(world.rows))["a"] == [7]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"db": "s2"}, "shop.a also has rows of s2.a, which would be deleted, too"),
        ({"topic": "elsewhere"}, "rows of shop.a also came from topic elsewhere"),
    ],
    ids=["another source table", "another topic"],
)
async def test_a_truncate_is_refused_if_snapshots_contain_rows_of_another_source_table(
    other: dict[str, Any], message: str
) -> None:
    world = TruncatingWorld()
    world.add("a", 1)
    world.add("a", 2, **other)
    await world.run()
    world.truncate("a")
    with pytest.raises(RecordRefused, match=message):
        await world.run()
    assert await asyncio.to_thread(world.rows) == {"a": [1, 2], "b": []}


async def test_a_truncate_is_refused_if_an_earlier_release_wrote_the_rows() -> None:
    world = TruncatingWorld()
    world.add("a", 1)
    await world.run()

    def forget() -> None:
        snapshots = FileSystemCatalog(world.store, world.warehouse).load("shop.a").snapshots
        for snapshot in snapshots.all():
            properties = {key: value for key, value in snapshot.properties.items() if key != LINEAGE_PROPERTY}
            path = f"{world.warehouse}/shop.db/a/snapshot/snapshot-{snapshot.id}"
            world.store.delete(path)
            world.store.create_if_absent(path, replace(snapshot, properties=properties).to_json().encode())

    await asyncio.to_thread(forget)
    world.truncate("a")
    with pytest.raises(RecordRefused, match="an earlier release wrote to the table"):
        await world.run()


@pytest.mark.parametrize(("word", "rows"), [("skip", [1, 2]), ("fail", [1])])
async def test_the_configuration_may_change_the_handling_of_truncates(word: str, rows: list[int]) -> None:
    world = TruncatingWorld(ALONE, f"format_options: {{truncates: {word}}}")
    world.add("a", 1)
    world.truncate("a")
    world.add("a", 2)
    with suppress(RecordRefused):
        await world.run()
    assert (await asyncio.to_thread(world.rows))["a"] == rows


async def test_a_truncate_before_the_first_row_neither_creates_nor_empties_a_table() -> None:
    world = TruncatingWorld()
    world.truncate("a")
    world.truncate("b")
    world.add("b", 1)
    world.truncate("b")
    world.add("b", 2)
    await world.run()
    assert await asyncio.to_thread(world.rows) == {"a": [], "b": [2]}
