"""Records that belong to several tables: each table gets them, with its own position, errors and schema."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
import pytest

from tests.ingest.formats.debezium.changes import change
from tests.support.faulty_file_io import Call, Fault, FaultyFileIO
from tests.support.levels import sample
from tests.support.memory_log import MemoryLog, MemoryLogSource
from tests.support.recorded_truth import differences, format_options_for, own_recorded
from tidelake.checkpoint.offsets import POSITION_PROPERTY, TopicPartition, chain_breaks, position_from_text
from tidelake.errors import RecordRefused
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.pipeline.builder import build_pipeline
from tidelake.ingest.pipeline.recovery_flags import RecoveryFlags
from tidelake.ingest.replay.replay import DeadLetterReplay
from tidelake.ingest.settings import Config, TableSettings
from tidelake.ingest.source_settings import FolderSettings
from tidelake.storage.catalog.filesystem import FileSystemCatalog
from tidelake.storage.ddl.schema_changes import UpdateColumnType
from tidelake.storage.fileio.base import FileIO
from tidelake.storage.fileio.local import LocalFileIO
from tidelake.storage.fileio.memory import MemoryFileIO
from tidelake.storage.model.types import STRING
from tidelake.table import Table

CONFIG: Final = """
warehouse: {warehouse}
pipeline: shop
source: {{type: change-log-folder, path: /unused}}
checkpoint: {{bytes_max: {bytes_max}, interval_ms: 3600000}}
quarantine: {{retry_ms_min: 20, retry_ms_max: 50}}
tables: [{tables}]
{settings}
"""
ROW: Final = "columns: {id: INT, n: INT, v: STRING}"
KEYED: Final = f"{{name: shop.keyed, match: orders, {ROW}}}"
HISTORY: Final = f"{{name: shop.history, match: orders, mode: append, {ROW}, options: {{bucket: -1}}}}"
COPY: Final = f"{{name: shop.copy, match: 'o*', {ROW}}}"
BY_N: Final = f"{{name: shop.by_n, match: orders, {ROW}, primary_key: [n], key_from_records: false}}"
SUM: Final = (
    "{name: shop.sum, match: orders, columns: {id: INT, n: INT}, keep_columns: [id, n], primary_key: [id], "
    "options: {merge-engine: aggregation, fields.n.aggregate-function: sum}}"
)
NUMBERS: Final = "{name: shop.numbers, match: orders, columns: {id: INT, n: INT, v: INT}}"

PLACE: Final = ("topic", "partition", "offset", "op")


@dataclass
class SharingWorld:
    """A log with the records of the source table `orders`, and the pipeline that reads it into several tables."""

    tables: str
    settings: str = ""
    bytes_max: int = 500
    batch_records: int = 4
    log: MemoryLog = field(default_factory=MemoryLog)
    warehouse: str = field(default_factory=lambda: f"memory://{uuid4()}/lake")
    store: FileIO = field(default_factory=MemoryFileIO)

    def add(self, op: str, id_: int, n: int | None = None, v: str | None = None, **more: Any) -> int:
        """Append the record of a change. Returns its offset."""
        row, named = {"id": id_, "n": n, "v": v, **more}, {"db": "s", "table": "orders", "ts_ms": 1_000}
        record = change(op, row if op == "d" else None, None if op == "d" else row, key={"id": id_}, source=named)
        return self.log.append("all", record.value, record.key, 0)

    def truncate(self) -> int:
        record = change("t", key=None, source={"db": "s", "table": "orders"})
        return self.log.append("all", record.value, None, 0)

    def config(self) -> Config:
        text = CONFIG.format(
            warehouse=self.warehouse, bytes_max=self.bytes_max, tables=self.tables, settings=self.settings
        )
        return parse_config(text, "shop.yaml", (), {}, "shop")

    async def run(self, io: FileIO | None = None, skip: int | None = None) -> Any:
        """One process, from its start to the end of the log."""
        flags = RecoveryFlags(skip=frozenset() if skip is None else frozenset([(TopicPartition("all", 0), skip)]))
        source = partial(MemoryLogSource, self.log, batch_records=self.batch_records)

        def build() -> Any:
            return build_pipeline(self.config(), flags, io=io or self.store, open_source=source)

        return await (await asyncio.to_thread(build)).run()

    async def rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        def read() -> list[tuple[Any, ...]]:
            found = Table(FileSystemCatalog(self.store, self.warehouse).load(f"shop.{table}")).scan().to_arrow()
            return sorted(zip(*(found[name].to_pylist() for name in columns), strict=True), key=repr)

        return await asyncio.to_thread(read)

    async def breaks(self, *tables: str) -> list[Any]:
        def read() -> list[Any]:
            catalog, found = FileSystemCatalog(self.store, self.warehouse), list[Any]()
            for name in tables:
                own = [s for s in catalog.load(f"shop.{name}").snapshots.all() if s.commit_user == "shop"]
                chain = [(s.commit_identifier, position_from_text(s.properties[POSITION_PROPERTY], name)) for s in own]
                found += chain_breaks(chain)
            return found

        return await asyncio.to_thread(read)


def folded(history: pa.Table, key: Sequence[str]) -> pa.Table:
    """The table that a history leads to."""
    rows = history.select([*PLACE, *key]).to_pylist()
    state: dict[Any, int] = {}
    order = {"-": 0, "+": 1}
    for row, number in sorted(
        zip(rows, range(len(rows)), strict=True),
        key=lambda one: (one[0]["topic"], one[0]["partition"], one[0]["offset"], order[one[0]["op"][0]]),
    ):
        at = tuple(row[name] for name in key)
        state.pop(at, None)
        if row["op"][0] == "+":
            state[at] = number
    return history.take(list(state.values())).drop_columns([*PLACE, "op_ts"])


# ---------------------------------------------------------------- what each table has


@pytest.mark.parametrize(
    ("tables", "expected"),
    [
        pytest.param(
            [KEYED, HISTORY],
            {"keyed": [(2, 5), (3, 5)], "history": [(1, 1), (1, 1), (1, 7), (2, 5), (3, 5)]},
            id="a table with its key, and the history of all changes",
        ),
        pytest.param([HISTORY, KEYED], {"keyed": [(2, 5), (3, 5)]}, id="in the other order"),
        pytest.param([KEYED, COPY], {"keyed": [(2, 5), (3, 5)], "copy": [(2, 5), (3, 5)]}, id="twice the same"),
        pytest.param(
            [KEYED, HISTORY, COPY, COPY.replace("copy", "other")],
            {"keyed": [(2, 5), (3, 5)], "copy": [(2, 5), (3, 5)], "other": [(2, 5), (3, 5)]},
            id="four tables",
        ),
        pytest.param(
            [KEYED, "{name: shop.high, match: orders, filter: n > 6, " + ROW + "}", HISTORY],
            {"keyed": [(2, 5), (3, 5)], "high": []},
            id="a filtered table between them",
        ),
    ],
)
@pytest.mark.parametrize("runs", [1, 2])
async def test_a_record_of_several_tables_is_written_to_each(
    tables: list[str], expected: dict[str, list[tuple[Any, ...]]], runs: int
) -> None:
    world = SharingWorld(", ".join(tables))
    world.add("c", 1, 1)
    world.add("c", 2, 5)
    if runs == 2:
        await world.run()
    world.add("u", 1, 7)
    world.add("d", 1, 1)
    world.add("c", 3, 5)
    await world.run()
    for table, rows in expected.items():
        assert await world.rows(table, "id", "n") == sorted(rows, key=repr), table
    assert await world.breaks(*(one.split("shop.")[1].split(",")[0] for one in tables)) == []


async def test_new_rows_are_also_aggregated_and_kept_under_another_key() -> None:
    world = SharingWorld(f"{SUM}, {KEYED}, {BY_N}")
    for id_, n in ((1, 4), (2, 4), (3, 5), (1, 6)):
        world.add("c", id_, n)
    await world.run()
    assert await world.rows("keyed", "id", "n") == [(1, 6), (2, 4), (3, 5)]
    assert await world.rows("sum", "id", "n") == [(1, 10), (2, 4), (3, 5)]
    assert await world.rows("by_n", "id", "n") == [(1, 6), (2, 4), (3, 5)]


async def test_an_aggregate_under_another_key_follows_updates_and_leaves_out_the_key_of_the_records() -> None:
    revenue = (
        "{name: shop.revenue, match: orders, columns: {n: INT, v: STRING}, keep_columns: [n, v], "
        "key_from_records: false, primary_key: [v], "
        "options: {merge-engine: aggregation, fields.n.aggregate-function: sum}}"
    )
    world = SharingWorld(f"{KEYED}, {revenue}")
    rows = [{"id": 1, "n": 5, "v": "a"}, {"id": 2, "n": 6, "v": "a"}, {"id": 1, "n": 9, "v": "b"}]
    history = [("c", None, rows[0]), ("c", None, rows[1]), ("u", rows[0], rows[2])]
    for op, before, after in history:
        record = change(op, before, after, key={"id": (after or {})["id"]}, source={"db": "s", "table": "orders"})
        world.log.append("all", record.value, record.key, 0)
    await world.run()
    assert await world.rows("revenue", "v", "n") == [("a", 6), ("b", 9)]
    assert await world.rows("keyed", "id", "n") == [(1, 9), (2, 6)]
    record = change("d", rows[1], None, key={"id": 2}, source={"db": "s", "table": "orders"})
    world.log.append("all", record.value, record.key, 0)
    await world.run()
    assert (await world.rows("revenue", "v", "n"))[-1] == ("b", 9)
    assert await world.rows("keyed", "id", "n") == [(1, 9)]


async def test_a_table_that_is_added_later_begins_at_its_own_position_beside_the_first() -> None:
    world = SharingWorld(KEYED)
    world.add("c", 1, 1)
    world.add("u", 1, 2)
    await world.run()
    world.tables = f"{KEYED}, {HISTORY}"
    world.add("d", 1)
    await world.run()
    assert await world.rows("history", "op", "offset") == [("+I", 0), ("+U", 1), ("-D", 2)]
    assert await world.rows("keyed", "id") == []
    assert await world.breaks("keyed", "history") == []


async def test_several_topics_are_one_table_and_one_of_them_is_another_table_too() -> None:
    world = SharingWorld(f"{{name: shop.all, match: ['a.*', 'b.*'], {ROW}, primary_key: [id, n]}}, "
                         f"{{name: shop.of_b, match: '*', topics: ['b.*'], {ROW}}}")  # fmt: skip
    for number, topic in enumerate(("a.x", "a.y", "b.x")):
        record = change("c", None, {"id": 1, "n": number, "v": None}, key={"id": 1}, source={"db": topic[0]})
        world.log.append(topic, record.value, record.key, 0)
    await world.run()
    assert await world.rows("all", "id", "n") == [(1, 0), (1, 1), (1, 2)]
    assert await world.rows("of_b", "id", "n") == [(1, 2)]


# ---------------------------------------------------------------- crashes and failing tables


@pytest.mark.sampled
@pytest.mark.parametrize("seed", sample(range(40)))
async def test_after_a_crash_or_a_failing_table_anywhere_each_table_has_each_record_once(seed: int) -> None:
    random = Random(seed)
    world = SharingWorld(f"{KEYED}, {HISTORY}, {COPY}", bytes_max=random.choice([1, 500, 10_000]))
    state: dict[int, int] = {}
    changes = 0
    for _ in range(random.randint(2, 4)):
        for _ in range(random.randint(3, 12)):
            id_, n = random.randint(0, 5), random.randint(0, 9)
            if id_ in state and random.random() < 0.3:
                world.add("d", id_, state.pop(id_))
            else:
                world.add("u" if id_ in state else "c", id_, n)
                state[id_] = n
            changes += 1
        io = FaultyFileIO(world.store)
        if random.random() < 0.6:
            io.crash_call(random.randint(1, 150), random.choice([Fault.BEFORE, Fault.AFTER]))
        else:
            broken, left = random.choice(["keyed", "history", "copy"]), random.randint(1, 20)

            def fails(call: Call, broken: str = broken) -> Fault | None:
                nonlocal left
                is_write = call.name in ("open_output", "create_if_absent", "write")
                writes = is_write and f"/shop.db/{broken}/" in call.path
                left -= writes
                return Fault.BEFORE if writes and left >= 0 else None

            io.fault = fails
        with suppress(BaseException):
            await world.run(io)
    await world.run()
    expected = sorted(state.items(), key=repr)
    assert await world.rows("keyed", "id", "n") == expected
    assert await world.rows("copy", "id", "n") == expected
    assert await world.rows("history", "offset") == sorted(((offset,) for offset in range(changes)), key=repr)
    assert await world.breaks("keyed", "history", "copy") == []


async def test_one_table_in_quarantine_does_not_stop_the_others_and_misses_no_record() -> None:
    world = SharingWorld(f"{KEYED}, {NUMBERS}, {HISTORY}")
    world.add("c", 1, 1, "1")
    bad = world.add("c", 2, 2, "two")
    for number in range(3, 20):
        world.add("c", number, number, str(number))
    with pytest.raises(RecordRefused, match=rf"offset {bad}: .*v"):
        await world.run()
    for table in ("keyed", "history"):
        assert await world.rows(table, "id") == sorted(((n,) for n in range(1, 20)), key=repr)
    assert await world.rows("numbers", "id") == [(1,)]
    world.add("c", 20, 20, "20")
    await world.run(skip=bad)
    assert await world.rows("numbers", "id") == sorted(((n,) for n in range(1, 21) if n != 2), key=repr)
    for table in ("keyed", "history"):
        assert await world.rows(table, "id") == sorted(((n,) for n in range(1, 21)), key=repr)
    assert await world.breaks("keyed", "numbers", "history") == []


# ---------------------------------------------------------------- records that one table can't take


async def test_a_dead_letter_is_of_the_table_that_cannot_take_the_record_and_replayed_only_for_it(
    tmp_path: Path,
) -> None:
    letters = "errors: {tolerance: 1, dead_letters: {table: ops.letters}}"
    world = SharingWorld(f"{HISTORY}, {NUMBERS}", letters, warehouse=str(tmp_path / "lake"), store=LocalFileIO())
    world.add("c", 1, 1, "1")
    world.add("c", 2, 2, "two")
    await world.run()
    assert await world.rows("history", "id", "v") == [(1, "1"), (2, "two")]
    assert await world.rows("numbers", "id") == [(1,)]

    def found() -> list[Any]:
        letters = Table(FileSystemCatalog(world.store, world.warehouse).load("ops.letters")).scan().to_arrow()
        return [(row["table"], row["offset"], row["replay_outcome"]) for row in letters.to_pylist()]

    assert await asyncio.to_thread(found) == [("shop.numbers", 1, None)]
    await world.run()  # the record is not read, or not counted, again
    assert await asyncio.to_thread(found) == [("shop.numbers", 1, None)]
    world.tables = f"{HISTORY}, {NUMBERS.replace('v: INT', 'v: STRING')}"
    await asyncio.to_thread(_widen, world)
    source = MemoryLogSource(world.log, batch_records=4)
    (report,) = await asyncio.to_thread(lambda: asyncio.run(DeadLetterReplay(world.config(), source).run()))
    assert (report.outcomes, report.rows) == ({"replayed": 1}, {"shop.numbers": 1})
    assert await world.rows("numbers", "id", "v") == [(1, "1"), (2, "two")]
    assert await world.rows("history", "id") == [(1,), (2,)]


def _widen(world: SharingWorld) -> None:
    FileSystemCatalog(world.store, world.warehouse).alter_table("shop.numbers", [UpdateColumnType(("v",), STRING)])


@pytest.mark.parametrize(
    "order", [[HISTORY, "{name: shop.new, match: orders}"], ["{name: shop.new, match: orders}", HISTORY]]
)
async def test_a_record_that_cannot_create_one_of_its_tables_is_written_to_the_others(order: list[str]) -> None:
    world = SharingWorld(", ".join(order), "errors: {tolerance: all}", batch_records=10)
    for number in range(4):
        row = {"id": number, "n": 1, "v": "x"}
        key = {"id": number} if number == 3 else number  # a number doesn't name the columns of a key
        record = change("c", None, row, key=key, source={"db": "s", "table": "orders", "ts_ms": 1_000})
        world.log.append("all", record.value, record.key, 0)
    run = await world.run()
    assert await world.rows("history", "id") == [(0,), (1,), (2,), (3,)]
    assert await world.rows("new", "id") == [("3",)]  # without declared types
    assert run.dead_letters == 3


async def test_a_record_that_no_table_can_take_counts_once_and_has_a_dead_letter_for_each() -> None:
    other = NUMBERS.replace("shop.numbers", "shop.others")
    world = SharingWorld(f"{KEYED}, {NUMBERS}, {other}", "errors: {tolerance: 1}")
    world.add("c", 1, 1, "1")
    world.add("c", 2, 2, "two")
    world.add("c", 3, 3, "3")
    await world.run()
    assert await world.rows("keyed", "id") == [(1,), (2,), (3,)]
    assert await world.rows("numbers", "id") == await world.rows("others", "id") == [(1,), (3,)]


async def test_each_table_follows_the_schema_as_its_own_entry_says() -> None:
    fixed = "{name: shop.fixed, match: orders, " + ROW + ", schema_evolution: {mode: ignore}}"
    world = SharingWorld(f"{KEYED}, {fixed}, {HISTORY}")
    world.add("c", 1, 1)
    world.add("c", 2, 2, note="é")
    world.add("c", 3, 3, note="x")
    await world.run()
    assert await world.rows("keyed", "id", "note") == [(1, None), (2, "é"), (3, "x")]
    assert await world.rows("history", "id", "note") == [(1, None), (2, "é"), (3, "x")]
    assert await world.rows("fixed", "id") == [(1,), (2,), (3,)]


@pytest.mark.parametrize("crash", [None, *range(20, 90, 7)])
async def test_a_truncate_empties_each_table_that_has_its_rows(crash: int | None) -> None:
    world = SharingWorld(f"{KEYED}, {COPY}")
    world.add("c", 1, 1)
    await world.run()
    world.add("c", 2, 2)
    world.truncate()
    world.add("c", 3, 3)
    if crash is not None:
        io = FaultyFileIO(world.store)
        io.crash_call(crash, Fault.AFTER)
        with suppress(BaseException):
            await world.run(io)
    await world.run()
    assert await world.rows("keyed", "id") == await world.rows("copy", "id") == [(3,)]
    assert await world.breaks("keyed", "copy") == []


async def test_a_truncate_that_a_history_cannot_have_stops_only_the_history() -> None:
    world = SharingWorld(f"{HISTORY}, {KEYED}")
    world.add("c", 1, 1)
    at = world.truncate()
    world.add("c", 2, 2)
    with pytest.raises(RecordRefused, match=r"shop\.history keeps deleted rows"):
        await world.run()
    assert await world.rows("keyed", "id") == [(2,)]
    await world.run(skip=at)
    assert await world.rows("history", "id") == [(1,), (2,)]
    assert await world.rows("keyed", "id") == [(2,)]


# ---------------------------------------------------------------- captures of a real database


@pytest.mark.exhaustive(kept=2)
@pytest.mark.parametrize("name", ["orders", "customers"])
@pytest.mark.parametrize("kill_at", [None, 60, 130])
async def test_a_capture_as_a_table_and_as_its_history_leads_to_the_database(
    name: str, kill_at: int | None, tmp_path: Path
) -> None:
    recorded = await asyncio.to_thread(own_recorded, f"pg-shop/json-schema/{name}")

    def config(options: dict[str, str]) -> Config:
        (tmp_path / "log").mkdir(exist_ok=True)
        for path in recorded.files:
            shutil.copyfile(path, tmp_path / "log" / path.name)
        common: dict[str, Any] = {"match": list(recorded.topics), "source_types": dict(recorded.source_types)}
        return Config(
            pipeline="truth",
            warehouse=str(tmp_path / "lake"),
            source=FolderSettings(path=tmp_path / "log", until="end"),
            format=recorded.format,
            format_options=options,
            tables=[
                TableSettings(name="shop.keyed", **common),
                TableSettings(name="shop.history", mode="append", options={"bucket": "-1"}, **common),
            ],
        )

    def run(io: FileIO | None) -> None:
        with format_options_for(recorded) as options:
            asyncio.run(build_pipeline(config(options), io=io).run())

    if kill_at is not None:
        io = FaultyFileIO(LocalFileIO())
        io.crash_call(kill_at, Fault.AFTER)
        with suppress(BaseException):
            await asyncio.to_thread(run, io)
    await asyncio.to_thread(run, None)

    def check() -> None:
        catalog = FileSystemCatalog(LocalFileIO(), str(tmp_path / "lake"))
        keyed, history = (Table(catalog.load(f"shop.{one}")).scan().to_arrow() for one in ("keyed", "history"))
        assert differences(recorded, keyed) == []
        assert differences(recorded, folded(history, recorded.primary_key)) == []
        places = set(zip(*(history[one].to_pylist() for one in PLACE), strict=True))
        assert len(places) == history.num_rows

    await asyncio.to_thread(check)
