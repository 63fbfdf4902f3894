"""Tables that are named by records while a pipeline runs: created by the first record, and found again by the next
process.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from random import Random
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

from tests.ingest.formats.debezium.changes import change
from tests.ingest.quarantine.world import GrowingSource, until
from tests.support.faulty_file_io import Call, Fault, FaultyFileIO, FaultyIOError
from tests.support.levels import sample
from tests.support.memory_log import MemoryLog
from tidelake.checkpoint.offsets import POSITION_PROPERTY, chain_breaks, position_from_text
from tidelake.errors import BadInput, CommitConflict, PositionRefused
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.pipeline.builder import build_pipeline, expanded
from tidelake.ingest.pipeline.recovery_flags import RecoveryFlags, parse_recovery_flags
from tidelake.ingest.settings import Config
from tidelake.storage.base.logs import FIELDS
from tidelake.storage.catalog.filesystem import FileSystemCatalog
from tidelake.storage.fileio.base import FileIO
from tidelake.storage.fileio.memory import MemoryFileIO
from tidelake.table import Table

CONFIG = """
warehouse: {warehouse}
pipeline: shop
source: {{type: change-log-folder, path: /unused}}
checkpoint: {{interval_ms: {interval_ms}}}
quarantine: {{retry_ms_min: 20, retry_ms_max: 50}}
tables: [{tables}]
"""


@dataclass
class NamingWorld:
    """A log whose records name tables, and pipelines that make them. Without keys: a row that comes twice is seen.

    tables: as YAML.
    broken: source tables whose tables can't be written now.
    """

    tables: str = "{name: 'shop.{table}', options: {bucket: -1}}"
    interval_ms: int = 20
    log: MemoryLog = field(default_factory=MemoryLog)
    warehouse: str = field(default_factory=lambda: f"memory://{uuid4()}/lake")
    store: FileIO = field(default_factory=MemoryFileIO)
    truth: dict[str, list[int]] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)

    @property
    def catalog(self) -> FileSystemCatalog:
        return FileSystemCatalog(self.store, self.warehouse)

    @property
    def config(self) -> Config:
        text = CONFIG.format(warehouse=self.warehouse, interval_ms=self.interval_ms, tables=self.tables)
        return parse_config(text, "shop.yaml", (), {}, "shop")

    def add(
        self,
        table: str,
        number: int,
        *,
        to: str | None = None,
        topic: str | None = None,
        partition: int = 0,
        key: Sequence[str] = (),
        source: Mapping[str, Any] | None = None,
        **columns: Any,
    ) -> None:
        """to: name of the table that gets it, "" for none; left out: the source table's. key: columns of it."""
        after = {"id": number, **columns}
        named = {"db": "s", "table": table, **(source or {})}
        record = change("c", after=after, key={name: after[name] for name in key} or None, source=named)
        self.log.append(topic or f"s.{table}", record.value, record.key, partition)
        if to != "":
            self.truth.setdefault(to or table, []).append(number)

    def io(self) -> FaultyFileIO:
        def decide(call: Call) -> Fault | None:
            is_broken = any(f"/shop.db/{name}/" in call.path for name in self.broken)
            writes = call.name in ("open_output", "create_if_absent", "write")
            return Fault.BEFORE if is_broken and writes else None

        return FaultyFileIO(self.store, decide)

    async def run(self, io: FileIO | None = None, flags: RecoveryFlags | None = None) -> None:
        """One process, from its start to the end of the log."""
        source = GrowingSource(self.log)
        source.ends.set()
        pipeline = await asyncio.to_thread(
            partial(build_pipeline, self.config, flags, io=io or self.io(), open_source=lambda: source)
        )
        await pipeline.run()

    def rows(self) -> dict[str, list[int]]:
        """By table."""
        catalog = self.catalog
        tables = catalog.list_tables("shop") if "shop" in catalog.list_databases() else []
        found = {name: Table(catalog.load(f"shop.{name}")).scan(columns=["id"]).to_arrow()["id"] for name in tables}
        return {name: sorted(map(int, ids.to_pylist())) for name, ids in found.items() if len(ids)}

    @property
    def expected(self) -> dict[str, list[int]]:
        return {name: sorted(ids) for name, ids in self.truth.items()}

    def check(self) -> None:
        assert self.rows() == self.expected
        for name in self.truth:
            own = [s for s in self.catalog.load(f"shop.{name}").snapshots.all() if s.commit_user == "shop"]
            chain = [(s.commit_identifier, position_from_text(s.properties[POSITION_PROPERTY], name)) for s in own]
            assert not list(chain_breaks(chain)), name
            assert [i for i, _ in chain] == sorted({i for i, _ in chain}), name


async def test_a_table_named_by_a_record_joins_the_pipeline_at_once() -> None:
    world = NamingWorld()
    world.add("orders", 1)
    source = GrowingSource(world.log)
    pipeline = await asyncio.to_thread(
        partial(build_pipeline, world.config, io=world.store, open_source=lambda: source)
    )
    running = asyncio.create_task(pipeline.run())
    await until(lambda: world.rows() == {"orders": [1]}, running)
    world.add("items", 2)
    world.add("orders", 3)
    await until(lambda: world.rows() == world.expected, running)
    pipeline.stop()
    await running
    world.add("items", 4)
    world.add("late", 5, partition=1)
    await world.run()
    await asyncio.to_thread(world.check)


@pytest.mark.parametrize("tables", [30, pytest.param(200, marks=pytest.mark.interop)])
async def test_many_tables_of_one_topic_are_created_in_one_run(tables: int) -> None:
    world = NamingWorld(interval_ms=3_600_000)
    for number in range(tables):
        world.add(f"t{number}", number, topic="all")
    await world.run()
    await asyncio.to_thread(world.check)
    found = await asyncio.to_thread(expanded, world.config, world.catalog)
    assert len(found.config.named_tables) == tables


@pytest.mark.sampled
@pytest.mark.parametrize("seed", sample(range(16)))
async def test_a_crash_or_a_failing_table_anywhere_loses_and_repeats_no_record(
    seed: int,
) -> None:
    random = Random(seed)
    world, number, topic = NamingWorld(), 0, random.choice([None, "all"])
    for _ in range(random.randint(3, 5)):
        io, source = world.io(), GrowingSource(world.log)
        left = random.randint(1, 250)  # calls of the store

        def dies(call: Call, decide: Any = io.fault, io: FaultyFileIO = io) -> Fault | None:
            nonlocal left
            left -= 1
            if left == 0:
                io.is_dead = True
            return decide(call)  # type: ignore[no-any-return]

        io.fault = dies
        with suppress(BaseException):
            build = partial(build_pipeline, world.config, io=io, open_source=repeat(source).__next__)
            pipeline = await asyncio.to_thread(build)
            running = asyncio.create_task(pipeline.run())
            for _ in range(random.randint(1, 5)):
                names = [f"t{at}" for at in range(1 + number // 4)]
                world.broken = set(random.sample(names, min(len(names), random.choice([0, 0, 0, 1]))))
                for _ in range(random.randint(1, 8)):
                    number += 1
                    world.add(random.choice(names), number, topic=topic, partition=number % 2)
                source.has_grown.set()
                await asyncio.sleep(random.random() * 0.05)
            io.is_dead = True
            running.cancel()  # it may have nothing to do
            await running
    world.broken = set()
    for _ in range(4):
        try:
            await world.run()
            break
        except (FaultyIOError, CommitConflict):
            continue
    await asyncio.to_thread(world.check)


@pytest.mark.parametrize("name", ["shop.x_{table}", "shop.{database}_{table}", "ods.{table}"])
async def test_changed_naming_rules_log_the_tables_that_receive_no_more_records(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    world = NamingWorld()
    world.add("orders", 1)
    await world.run()
    world.tables = f"{{name: '{name}', options: {{bucket: -1}}}}"
    world.add("orders", 2)
    with caplog.at_level(logging.WARNING):
        await world.run()
    events = [getattr(record, FIELDS) for record in caplog.records if hasattr(record, FIELDS)]
    (reported,) = [event for event in events if event["event"] == "tables of the pipeline that no entry names any more"]
    assert reported["tables"] == ["shop.orders"]
    assert (await asyncio.to_thread(world.rows))["orders"] == [1]


@dataclass(frozen=True)
class RetiredCase:
    """before: the configured tables that wrote `old`. after: those of the next run, whose options would contradict it.

    source: where the records come from. is_left: whether the table `old` gets no more records; otherwise the start is
    refused, because the options contradict it.
    """

    name: str
    before: str
    after: str
    source: Mapping[str, Any] = field(default_factory=lambda: {"schema": "public"})
    sources: int = 1
    is_left: bool = True


OLD_ENTRY = "{name: shop.old, match: '*old'}, {name: 'shop.{table}', source_tables: {excluding_tables: '.*old'}}"
RETIRED_CASES = [
    RetiredCase("named before, excluded now", OLD_ENTRY, "{NEW, source_tables: {excluding_tables: old}}"),
    RetiredCase("not included any more", OLD_ENTRY, "{NEW, source_tables: {including_tables: 'n.*'}}"),
    RetiredCase("matched by no pattern any more", OLD_ENTRY, "{NEW, match: 'public.new*'}"),
    RetiredCase("its topic isn't read any more", OLD_ENTRY, "{NEW, topics: 's.new*'}"),
    RetiredCase("its database is excluded", OLD_ENTRY, "{NEW, source_tables: {excluding_dbs: s}}"),
    RetiredCase("without schema", OLD_ENTRY, "{NEW, source_tables: {excluding_tables: old}}", {}),
    RetiredCase(
        "one of many shards, with more sources than a snapshot lists",
        OLD_ENTRY,
        "{NEW, source_tables: {excluding_tables: old}}",
        sources=9,
    ),
    RetiredCase(
        "named in lower case",
        "{name: shop.old, match: '*OLD'}, {name: 'shop.{table}', source_tables: {excluding_tables: OLD}}",
        "{NEW, source_tables: {excluding_tables: OLD, lower_case: true}}",
        {"table": "OLD"},
    ),
    RetiredCase("still included", OLD_ENTRY, "{NEW, source_tables: {excluding_tables: older}}", is_left=False),
    RetiredCase(
        "one of its source tables is included",
        OLD_ENTRY,
        "{NEW, source_tables: {excluding_dbs: db0}}",
        sources=2,
        is_left=False,
    ),
    RetiredCase(
        "another spelling may be included",
        "{name: shop.old, match: '*OLD'}, {name: 'shop.{table}', source_tables: {excluding_tables: OLD}}",
        "{NEW, source_tables: {excluding_tables: old, lower_case: true}}",
        {"table": "OLD"},
        is_left=False,
    ),
]


@pytest.mark.parametrize("case", RETIRED_CASES, ids=lambda case: case.name)
async def test_a_table_whose_source_tables_no_entry_includes_gets_no_more_records(case: RetiredCase) -> None:
    world = NamingWorld(tables=case.before)
    for number in range(case.sources):
        database = "s" if case.sources == 1 else f"db{number}"
        world.add("old", number, to="old", topic="s.old", source={"db": database, **case.source})
    await world.run()
    world.tables = case.after.replace("NEW", "name: 'shop.{table}', options: {bucket: 2, bucket-key: id}")
    world.add("new", 100, topic="s.new", source={"db": "other", "schema": "public"})
    if case.is_left:
        await world.run()
        await asyncio.to_thread(world.check)
    else:
        with pytest.raises(BadInput, match="contradicts"):
            await world.run()


async def test_a_table_that_is_included_again_continues_at_its_position() -> None:
    world = NamingWorld()
    world.add("old", 1)
    await world.run()
    world.tables = "{name: 'shop.{table}', options: {bucket: -1}, source_tables: {excluding_tables: old}}"
    world.add("old", 2)
    world.add("new", 3)
    await world.run()
    assert (await asyncio.to_thread(world.rows))["old"] == [1]
    world.tables = "{name: 'shop.{table}', options: {bucket: -1}}"
    await world.run()
    await asyncio.to_thread(world.check)


async def test_another_source_table_can_not_take_the_name_of_a_table_that_is_left_out() -> None:
    world = NamingWorld()
    world.add("old", 1, source={"db": "left"})
    await world.run()
    world.tables = (
        "{name: 'shop.{table}', options: {bucket: -1}, source_tables: {excluding_dbs: left, mapping: {new: old}}}"
    )
    world.add("new", 2)
    with pytest.raises(BadInput, match=r"records of left\.old"):
        await world.run()


@pytest.mark.parametrize("entry", ["excluding_tables: bad", "including_tables: good"])
async def test_a_table_that_fails_and_is_excluded_leaves_the_quarantine(
    entry: str, caplog: pytest.LogCaptureFixture
) -> None:
    world = NamingWorld(broken={"bad"})
    for number in range(4):
        world.add(("good", "bad")[number % 2], number, topic="all")
    with pytest.raises(FaultyIOError):
        await world.run()
    world.tables = f"{{name: 'shop.{{table}}', options: {{bucket: -1}}, source_tables: {{{entry}}}}}"
    world.add("good", 9, topic="all")
    world.truth.pop("bad")
    with caplog.at_level(logging.WARNING):
        await world.run()
    await asyncio.to_thread(world.check)
    events = [getattr(record, FIELDS) for record in caplog.records if hasattr(record, FIELDS)]
    (kept,) = [event for event in events if event["event"].startswith("kept records")]
    assert kept["tables"] == ["shop.bad"]


async def test_a_table_renamed_with_its_entry_keeps_its_position() -> None:
    world = NamingWorld()
    world.add("orders", 1, to="new_orders")
    await world.run()
    await asyncio.to_thread(world.catalog.rename_table, "shop.orders", "shop.new_orders")
    world.tables = "{name: 'shop.new_{table}', options: {bucket: -1}}"
    world.add("orders", 2, to="new_orders")
    with pytest.raises(PositionRefused, match=r"--accept-gap shop\.new_orders"):
        await world.run()
    await world.run(flags=parse_recovery_flags(["shop.new_orders"], [], [], ["shop.new_orders"]))
    await asyncio.to_thread(world.check)


async def test_tables_of_other_pipelines_are_left_alone() -> None:
    world = NamingWorld()
    catalog = world.catalog
    await asyncio.to_thread(catalog.create_database, "shop")
    await asyncio.to_thread(catalog.create_table, "shop.theirs", pa.schema([("id", pa.int64())]))
    world.add("orders", 1)
    await world.run()
    await world.run()
    theirs = await asyncio.to_thread(catalog.load, "shop.theirs")
    assert await asyncio.to_thread(theirs.snapshots.latest) is None
    await asyncio.to_thread(world.check)


@dataclass(frozen=True)
class NameCase:
    """records: the source table, the name of its target table ("" for none), and the content of `source`."""

    id: str
    tables: str
    records: Sequence[tuple[str, str, Mapping[str, Any]]]


NAMES = [
    NameCase("a prefix and a suffix", "{name: 'shop.ods_{table}_v1'}", [("Orders", "ods_Orders_v1", {})]),
    NameCase(
        "the schema, where two have a table of one name",
        "{name: 'shop.{schema}_{table}'}",
        [("t", "a_t", {"schema": "a"}), ("t", "b_t", {"schema": "b"})],
    ),
    NameCase(
        "a mapping, whatever the case",
        "{name: 'shop.p_{table}', source_tables: {mapping: {ORDERS: purchases}}}",
        [("orders", "purchases", {}), ("items", "p_items", {})],
    ),
    NameCase(
        "what is included, without what is excluded",
        "{name: 'shop.{table}', source_tables: {including_tables: 't.*', excluding_tables: '.*_tmp'}}",
        [("t1", "t1", {}), ("t_tmp", "", {}), ("xt", "", {})],
    ),
    NameCase(
        "databases that are included",
        "{name: 'shop.{table}', source_tables: {including_dbs: 'a|b', excluding_dbs: b}}",
        [("t", "t", {"db": "a"}), ("u", "", {"db": "b"}), ("v", "", {"db": "c"})],
    ),
    NameCase(
        "shards of several databases",
        "{name: 'shop.{table}'}",
        [("t", "t", {"db": "a"}), ("t", "t", {"db": "b"})],
    ),
    NameCase(
        "databases that stay apart",
        "{name: 'shop.{table}', source_tables: {merge_shards: false, mapping: {b_t: other}}}",
        [("t", "a_t", {"db": "a"}), ("t", "other", {"db": "b"})],
    ),
    NameCase(
        "a prefix and a suffix of a database",
        "{name: 'shop.x_{table}_y', source_tables: {prefix_of_db: {A: p_}, suffix_of_db: {a: _s, b: ''}}}",
        [("t", "p_t_s", {"db": "a"}), ("t", "x_t", {"db": "b"}), ("t", "x_t_y", {"db": "c"})],
    ),
    NameCase(
        "entries of their own come first, shadow tables of online changes never",
        "{name: 'shop.{table}'}, {name: shop.special, match: orders}",
        [("orders", "special", {}), ("_orders_gho", "", {}), ("items", "items", {})],
    ),
]


@pytest.mark.parametrize("case", NAMES, ids=lambda case: case.id)
async def test_tables_are_named_by_the_rules_of_the_entry(case: NameCase) -> None:
    world = NamingWorld(tables=case.tables)
    for number, (source_table, table, source) in enumerate(case.records):
        world.add(source_table, number, to=table, topic="all", source=source)
    await world.run()
    for number, (source_table, table, source) in enumerate(case.records):
        world.add(source_table, 10 + number, to=table, topic="all", source=source)
    await world.run()  # finds them again
    assert await asyncio.to_thread(world.rows) == world.expected


@pytest.mark.parametrize(
    ("name", "topics", "expected"),
    [
        (
            "shop.{region}_{table}",
            ["eu.v1.orders", "us.v2.orders", "ops.orders"],
            {"eu_t": [0, 10], "us_t": [1, 11]},
        ),
        (
            "shop.orders_{version}",
            ["eu.v1.orders", "us.v1.x", "us.v2.x"],
            {"orders_v1": [0, 1, 10, 11], "orders_v2": [2, 12]},
        ),
        ("shop.{region}_t", ["eü.v1.orders"], {"eü_t": [0, 10]}),
    ],
    ids=["one a region, other topics are left out", "several topics in one table", "unicode"],
)
async def test_parts_of_the_topic_name_tables(name: str, topics: list[str], expected: dict[str, list[int]]) -> None:
    parts = r"(?P<region>\w+)\.(?P<version>v\d+)\..*"
    world = NamingWorld(
        tables=f"{{name: '{name}', source_tables: {{topic_parts: '{parts}'}}, options: {{bucket: -1}}}}"
    )
    for first in (0, 10):
        for number, topic in enumerate(topics):
            world.add("t", first + number, to="", topic=topic)
        await world.run()
    assert await asyncio.to_thread(world.rows) == expected


@pytest.mark.parametrize(
    ("tables", "source_table", "message"),
    [
        (
            "{name: 'shop.{table}'}",
            "a/b",
            r"records of s.a/b would be written to 'shop.a/b'.*mapping.*excluding_tables",
        ),
        ("{name: 'shop.{table}'}", "a$b", r"'shop.a\$b', which can't be the name of a table"),
        ("{name: 'shop.{schema}_{table}'}", "t", r"its records have no schema. Leave \{schema\} out"),
        ("{name: shop.t, match: other}, {name: 'shop.{table}'}", "t", r"the entry shop.t already has a table of"),
    ],
    ids=["a slash", "a dollar", "no schema", "another entry's"],
)
async def test_an_invalid_table_name_is_refused(tables: str, source_table: str, message: str) -> None:
    world = NamingWorld(tables=tables)
    world.add(source_table, 1, source={"schema": None})
    with pytest.raises(BadInput, match=message):
        await world.run()


async def test_keys_and_partitions_apply_to_tables_with_these_columns() -> None:
    entry = "primary_key: [id, dt], partition_by: [dt], source_tables: {partition_by: {items: [day]}}"
    world = NamingWorld(tables=f"{{name: 'shop.{{table}}', {entry}}}")
    world.add("orders", 1, dt="d1", key=["id"])
    world.add("items", 2, day="d2", id2=7, key=["id", "day"])
    world.add("clients", 3, name="x", key=["id"])
    await world.run()
    world.add("clients", 4, name="x", key=["id"])
    await world.run()

    def keys() -> dict[str, tuple[Sequence[str], Sequence[str]]]:
        schemas = {name: world.catalog.load(f"shop.{name}").schema for name in ("orders", "items", "clients")}
        return {name: (schema.primary_keys, schema.partition_keys) for name, schema in schemas.items()}

    assert await asyncio.to_thread(keys) == {
        "orders": (("id", "dt"), ("dt",)),
        "items": (("id", "day"), ("day",)),
        "clients": (("id",), ()),
    }


@pytest.mark.parametrize("name", ["{table}", "orders"])
async def test_the_record_key_is_ignored_where_the_entry_says_so(name: str) -> None:
    world = NamingWorld(tables=f"{{name: 'shop.{name}', key_from_records: false}}")
    world.add("orders", 1, key=["id"])
    world.add("orders", 1, key=["id"])
    await world.run()
    world.add("orders", 2, key=["id"])
    await world.run()  # a table without a key does not contradict the entry
    assert (await asyncio.to_thread(world.rows))["orders"] == [1, 1, 2]
    assert (await asyncio.to_thread(world.catalog.load, "shop.orders")).schema.primary_keys == ()


async def test_a_table_that_cannot_be_created_is_retried_across_restarts() -> None:
    world = NamingWorld(broken={"bad"})
    for number in range(6):
        world.add(("good", "bad")[number % 2], number, topic="all", partition=number % 4 // 2)
    with pytest.raises(FaultyIOError):
        await world.run()
    assert (await asyncio.to_thread(world.rows)) == {"good": [0, 2, 4]}
    world.broken = set()
    await world.run()
    await asyncio.to_thread(world.check)
