"""`sync-database` with a broker: topics that are created during the run become tables, and truncates empty them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import tidelake
from tests.ingest.formats.debezium.changes import change
from tests.ingest.quarantine.world import until
from tests.support.kafka_broker import KafkaBroker
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.config.sync_database import SyncDatabaseArguments, sync_database_configuration
from tidelake.ingest.pipeline.builder import build_pipeline

pytestmark = pytest.mark.interop


class Shop:
    """tables: to the ids of their rows."""

    def __init__(self, broker: KafkaBroker, lake: Path) -> None:
        self.broker, self.lake = broker, lake
        self.prefix = f"shop-{uuid4().hex[:8]}"
        self.tables: dict[str, list[int]] = {}

    def send(self, table: str, op: str, number: int | None = None) -> None:
        topic = f"{self.prefix}.{table}"
        if table not in self.tables:
            self.broker.create_topic(topic)
        rows = self.tables.setdefault(table, [])
        source = {"db": "shop", "schema": "public", "table": table}
        if op == "t":
            record = change("t", key=None, source=source)
            rows.clear()
        else:
            record = change(op, after={"id": number}, key={"id": number}, source=source)
            rows.append(number or 0)
        key = None if record.key is None else record.key.decode()
        value = None if record.value is None else record.value.decode()
        line: dict[str, Any] = {"topic": topic, "partition": 0, "offset": 0, "timestamp_ms": 1, "headers": []}
        self.broker.send([{**line, "key": key, "value": value}])

    @property
    def config(self) -> Any:
        arguments = SyncDatabaseArguments(
            str(self.lake),
            "ods",
            name="{schema}_{table}",
            kafka_conf=[
                ("properties.bootstrap.servers", self.broker.address),
                ("topic-pattern", f"{self.prefix}\\..*"),
                ("value.format", "debezium-json"),
            ],
        )
        settings = ["source.discovery_interval_ms=100", "checkpoint.interval_ms=100"]
        return parse_config(json.dumps(sync_database_configuration(arguments)), "sync-database", settings)

    def is_true(self) -> bool:
        catalog = tidelake.open_catalog(str(self.lake))
        if "ods" not in catalog.list_databases():
            return not self.tables
        held = {name: catalog.table(f"ods.{name}").scan().to_arrow()["id"] for name in catalog.list_tables("ods")}
        found = {name.removeprefix("public_"): sorted(map(int, ids.to_pylist())) for name, ids in held.items()}
        return found == {name: sorted(ids) for name, ids in self.tables.items()}


async def test_new_topics_become_tables_and_truncates_empty_them(kafka_broker: KafkaBroker, tmp_path: Path) -> None:
    shop = Shop(kafka_broker, tmp_path / "lake")
    await asyncio.to_thread(shop.send, "orders", "c", 1)
    for number, table in enumerate(["orders", "items", "clients"], 2):  # a process each
        pipeline = await asyncio.to_thread(build_pipeline, shop.config)
        running = asyncio.create_task(pipeline.run())
        await until(shop.is_true, running)
        await asyncio.to_thread(shop.send, table, "c", number)
        await until(shop.is_true, running)
        await asyncio.to_thread(shop.send, "orders", "t")
        await until(shop.is_true, running)
        await asyncio.to_thread(shop.send, "orders", "c", 10 * number)
        await until(shop.is_true, running)
        pipeline.stop()
        await running
