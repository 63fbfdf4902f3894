"""A killed connector resends records: an update may refer to a row that a later record has already deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from time import monotonic, sleep
from typing import Final
from uuid import uuid4

import pyarrow as pa
import pytest

from tests.ingest.formats.debezium.changes import change
from tests.ingest.quarantine.world import GrowingSource
from tests.support.memory_log import MemoryLog
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.pipeline.builder import build_pipeline
from tidelake.storage.catalog.filesystem import FileSystemCatalog
from tidelake.storage.fileio.memory import MemoryFileIO
from tidelake.table import Table

LEFT_OUT: Final = "__debezium_unavailable_value"
COLUMNS: Final = pa.schema([("id", pa.string()), ("doc", pa.string())])
CONFIG = """
warehouse: {warehouse}
pipeline: shop
source: {{type: change-log-folder, path: /unused}}
quarantine: {{enabled: {quarantine}, retry_ms_min: 20, retry_ms_max: 50}}
checkpoint: {{interval_ms: 20}}
tables: [{{name: shop.a, match: a}}, {{name: shop.b, match: b}}]
"""


def wait(is_so: Callable[[], bool]) -> None:
    deadline = monotonic() + 60
    while not is_so() and monotonic() < deadline:
        sleep(0.02)


@pytest.mark.parametrize(
    ("batch_records", "quarantine"),
    [
        pytest.param(10, "false", id="in one batch"),
        pytest.param(1, "true", id="one after the other, through the quarantine"),
    ],
)
async def test_a_superseded_update_of_a_deleted_row_does_not_stop_the_pipeline(
    batch_records: int, quarantine: str
) -> None:
    log, store, warehouse = MemoryLog(), MemoryFileIO(), f"memory://{uuid4()}/lake"
    config = parse_config(CONFIG.format(warehouse=warehouse, quarantine=quarantine), "shop.yaml", (), {}, "shop")

    def add(op: str, id_: int, doc: str | None = None, table: str = "a") -> None:
        row = {"id": id_, "doc": doc}
        before, after = (row, None) if op == "d" else (None, row)
        record = change(op, before, after, source={"db": "s", "table": table})
        log.append(f"s.{table}", record.value, record.key)

    def rows() -> list[tuple[str, str]]:
        table = Table(FileSystemCatalog(store, warehouse).load("shop.a"))
        return sorted((row["id"], row["doc"]) for row in table.scan().to_arrow().to_pylist())

    async def run(expected: list[tuple[str, str]]) -> None:
        source = GrowingSource(log, batch_records)
        running = asyncio.ensure_future(
            (await asyncio.to_thread(partial(build_pipeline, config, io=store, open_source=lambda: source))).run()
        )
        await asyncio.to_thread(wait, lambda: running.done() or rows() == expected)
        source.ends.set()
        await running
        assert await asyncio.to_thread(rows) == expected

    catalog = FileSystemCatalog(store, warehouse)
    await asyncio.to_thread(catalog.create_database, "shop")
    await asyncio.to_thread(partial(catalog.create_table, "shop.a", COLUMNS, primary_key=["id"]))
    add("c", 1, "A")
    add("c", 2, "A")
    add("d", 1)
    add("c", 9, "B", table="b")
    await run([("2", "A")])
    add("u", 1, LEFT_OUT)
    add("d", 1)
    add("u", 2, LEFT_OUT)
    add("c", 3, "C")
    await run([("2", "A"), ("3", "C")])
