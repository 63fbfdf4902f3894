"""Pipelines into a catalog without upper-case letters, from a source that uses them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import uuid4

import pytest

from tests.ingest.formats.debezium.changes import as_json, change
from tests.support.memory_log import MemoryLog, MemoryLogSource
from tidelake.errors import BadInput, RecordRefused
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.pipeline.builder import build_pipeline
from tidelake.storage.catalog.filesystem import FileSystemCatalog
from tidelake.storage.fileio.base import FileIO
from tidelake.storage.fileio.memory import MemoryFileIO
from tidelake.table import Table

CONFIG = """
warehouse: {warehouse}
warehouse_options: {{case-sensitive: 'false'}}
pipeline: shop
source: {{type: change-log-folder, path: /unused}}
quarantine: {{enabled: false}}
{settings}
tables: [{tables}]
"""


@dataclass
class SpellingWorld:
    """tables, settings: as YAML."""

    tables: str
    settings: str = ""
    log: MemoryLog = field(default_factory=MemoryLog)
    warehouse: str = field(default_factory=lambda: f"memory://{uuid4()}/lake")
    store: FileIO = field(default_factory=MemoryFileIO)

    def add(self, table: str, row: Mapping[str, Any], op: str = "c", key: str = "ID", **source: Any) -> None:
        before, after = (row, None) if op == "d" else (None, row)
        named = {"db": "Shop", "table": table, **source}
        record = change(op, before, after, key={key: row[key]}, source=named)
        self.log.append(f"Shop.{table}", record.value, record.key)

    async def run(self) -> Any:
        """One process, from its start to the end of the log."""
        text = CONFIG.format(warehouse=self.warehouse, tables=self.tables, settings=self.settings)
        config = parse_config(text, "shop.yaml", (), {}, "shop")
        source = MemoryLogSource(self.log, batch_records=2)
        pipeline = await asyncio.to_thread(partial(build_pipeline, config, io=self.store, open_source=lambda: source))
        return await pipeline.run()

    def rows(self, name: str) -> list[dict[str, Any]]:
        table = Table(self.catalog.load(f"ods.{name}"))
        found: list[dict[str, Any]] = table.scan().to_arrow().to_pylist()
        return sorted(found, key=str)

    @property
    def catalog(self) -> FileSystemCatalog:
        return FileSystemCatalog(self.store, self.warehouse)


async def test_a_configured_table_follows_its_source_in_lower_case_across_restarts() -> None:
    world = SpellingWorld(
        "{name: ods.orders, match: Orders, primary_key: [Id], columns: {Amount: 'DECIMAL(9, 2)'}, rounded_columns: "
        "[Amount], computed_columns: {Year: 'substring(At, 0, 4)'}, metadata_columns: [topic], "
        "metadata_column_prefix: Kafka_}"
    )
    world.add("Orders", {"ID": 1, "Amount": "1.005", "At": "2024-05-01"})
    world.add("Orders", {"ID": 2, "Amount": "2", "At": "2025-05-01"})
    await world.run()
    world.add("Orders", {"ID": 1}, "d")
    world.add("Orders", {"ID": 3, "Amount": "3", "At": "2026-05-01", "Note": "new"})
    await world.run()
    topic = {"kafka_topic": "Shop.Orders"}
    found = await asyncio.to_thread(world.rows, "orders")
    assert [{**row, "amount": str(row["amount"])} for row in found] == [
        {"id": "2", "amount": "2.00", "at": "2025-05-01", "year": "2025", **topic, "note": None},
        {"id": "3", "amount": "3.00", "at": "2026-05-01", "year": "2026", **topic, "note": "new"},
    ]
    assert (await asyncio.to_thread(world.catalog.load, "ods.orders")).schema.primary_keys == ("id",)


async def test_names_of_tables_become_lower_case_and_a_restart_finds_them() -> None:
    world = SpellingWorld(
        "{name: 'ods.{database}_{table}', source_tables: {including_tables: 'Orders|ITEMS|Mapped', mapping: {MAPPED: "
        "other}, partition_by: {Orders: [Day]}}, primary_key: [ID, day]}"
    )
    world.add("Orders", {"ID": 1, "Day": "d"})
    world.add("ITEMS", {"ID": 2})
    world.add("Mapped", {"ID": 3})
    world.add("orders", {"ID": 4})  # no name that is included: these are the source's
    await world.run()
    world.add("Orders", {"ID": 5, "Day": "d"})
    await world.run()
    tables = await asyncio.to_thread(world.catalog.list_tables, "ods")
    assert tables == ["other", "shop_items", "shop_orders"]
    assert await asyncio.to_thread(world.rows, "shop_orders") == [{"id": "1", "day": "d"}, {"id": "5", "day": "d"}]
    orders = await asyncio.to_thread(world.catalog.load, "ods.shop_orders")
    assert (orders.schema.primary_keys, orders.schema.partition_keys) == (("id", "day"), ("day",))


async def test_two_source_tables_with_one_target_name_raise_an_error_that_names_both() -> None:
    world = SpellingWorld("{name: 'ods.{table}'}")
    world.add("Orders", {"ID": 1})
    world.add("ORDERS", {"ID": 2})
    with pytest.raises(BadInput, match=r"Shop\.O\w+ and of Shop\.O\w+ would both be written to ods\.orders"):
        await world.run()


async def test_shards_of_one_table_may_differ_in_case() -> None:
    world = SpellingWorld("{name: 'ods.{table}'}")
    for number in range(6):
        if number % 2:
            world.add("orders", {"id": number, "note": "a"}, key="id", db="one")
        else:
            world.add("Orders", {"ID": number, "NOTE": "b"}, db="two")
    await world.run()
    found = await asyncio.to_thread(world.rows, "orders")
    assert [(row["id"], row["note"]) for row in found] == [(str(n), "a" if n % 2 else "b") for n in range(6)]


async def test_two_columns_of_one_name_stop_the_pipeline_or_become_a_dead_letter() -> None:
    world = SpellingWorld("{name: ods.orders, match: '*'}")
    world.add("Orders", {"ID": 1, "Note": "a"})
    world.add("Orders", {"ID": 2, "Note": "a", "NOTE": "b"})
    world.add("Orders", {"ID": 3, "Note": "c"})
    with pytest.raises(RecordRefused, match=r"offset 1: its columns '\w+' and '\w+' are both 'note' in lower case"):
        await world.run()
    world.settings = "errors: {tolerance: all}"
    assert (await world.run()).dead_letters == 1
    found = await asyncio.to_thread(world.rows, "orders")
    assert found == [{"id": "1", "note": "a"}, {"id": "3", "note": "c"}]


async def test_a_source_statement_renames_the_column_in_lower_case() -> None:
    world = SpellingWorld(
        "{name: ods.orders, match: '*'}",
        "format: canal-json\nschema_evolution: {include: [add, alter, rename.column]}",
    )
    frame: dict[str, Any] = {
        "database": "Shop",
        "table": "Orders",
        "old": None,
        "pkNames": ["ID"],
        "sqlType": {},
        "ts": 1,
    }

    def send(row: Mapping[str, str] | None, sql: str = "") -> None:
        is_ddl = row is None
        types = None if row is None else dict.fromkeys(row, "varchar(9)")
        kind = {"type": "ALTER" if is_ddl else "INSERT", "isDdl": is_ddl, "sql": sql, "mysqlType": types}
        world.log.append("t", as_json({**frame, **kind, "data": None if row is None else [row]}))

    send({"ID": "1", "Note": "a"})
    send(None, "ALTER TABLE Orders RENAME COLUMN Note TO Remark")
    send({"ID": "2", "Remark": "b"})
    send(None, "ALTER TABLE Orders RENAME COLUMN Remark TO REMARK")
    send({"ID": "3", "REMARK": "c"})
    await world.run()
    found = await asyncio.to_thread(world.rows, "orders")
    assert found == [{"id": "1", "remark": "a"}, {"id": "2", "remark": "b"}, {"id": "3", "remark": "c"}]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("{name: 'ods.Orders'}", "ods.Orders has upper-case letters.*write ods.orders"),
        ("{name: ods.orders, columns: {Id: INT, ID: INT}}", "`columns` has 'id' twice"),
    ],
)
async def test_invalid_configured_names_are_refused(table: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        await SpellingWorld(table).run()
