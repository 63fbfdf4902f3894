"""A running pipeline takes topics of a real broker that its changed configuration adds."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

import tidelake
from tests.support.kafka_broker import KafkaBroker
from tidelake.checkpoint.offsets import POSITION_PROPERTY, chain_breaks, position_from_text
from tidelake.ingest.config.config import ConfigFile
from tidelake.ingest.pipeline import reload as reload_module
from tidelake.ingest.pipeline.reload_requests import ReloadAnswer, ReloadRequests
from tidelake.ingest.pipeline.service import run
from tidelake.storage.fileio import open_file_io

PARTITIONS = 2


@dataclass
class Shop:
    """Two topics of a broker, and a pipeline that reads one of them, or both."""

    home: Path
    broker: KafkaBroker
    topics: Sequence[str]

    def __post_init__(self) -> None:
        self.file = ConfigFile(self.home / "shop.yaml")
        self.requests = ReloadRequests(open_file_io(f"{self.home}/lake", {}), f"{self.home}/lake", "shop")

    def write_file(self, topics: Sequence[str], *names: str) -> None:
        tables = ", ".join(
            f"{{name: shop.{name}, match: '{topic}', topics: {topic}, columns: {{id: INT}}, key_from_records: false}}"
            for name, topic in zip(names, self.topics, strict=False)
        )
        source = f"{{type: kafka, bootstrap_servers: '{self.broker.address}', topics: [{', '.join(topics)}]}}"
        self.file.path.write_text(
            f"warehouse: {self.home}/lake\nformat: json\nsource: {source}\ncheckpoint: {{interval_ms: 50}}\n"
            f"tables: [{tables}]\n"
        )

    def send(self, *numbers: int) -> None:
        records = [
            {"partition": number % PARTITIONS, "key": None, "value": json.dumps({"id": number}), "timestamp_ms": 1000}
            for number in numbers
        ]
        for topic in self.topics:
            self.broker.send([{**record, "topic": topic, "headers": []} for record in records])

    def rows(self, name: str) -> list[int]:
        catalog = tidelake.open_catalog(f"{self.home}/lake")
        if "shop" not in catalog.list_databases() or name not in catalog.list_tables("shop"):
            return []
        found: list[int] = catalog.table(f"shop.{name}").scan().to_arrow()["id"].to_pylist()
        return sorted(found)

    def breaks(self, name: str) -> list[object]:
        snapshots = tidelake.open_catalog(f"{self.home}/lake").table(f"shop.{name}").snapshots()
        positions = (
            (s.commit_identifier, position_from_text(s.properties[POSITION_PROPERTY], name)) for s in snapshots
        )
        return list(chain_breaks(positions))

    async def has(self, running: asyncio.Task[object], name: str, end: int) -> None:
        async with asyncio.timeout(90):
            while await asyncio.to_thread(self.rows, name) != list(range(end)):
                assert not running.done(), running.exception()
                await asyncio.sleep(0.1)

    async def reload(self) -> ReloadAnswer:
        request = await asyncio.to_thread(lambda: self.requests.ask(self.file.digest()))
        async with asyncio.timeout(90):
            while True:
                answer = await asyncio.to_thread(self.requests.read_answer, request)
                if answer is not None:
                    return answer
                await asyncio.sleep(0.05)


@pytest.fixture
def shop(kafka_broker: KafkaBroker, tmp_path: Path) -> Shop:
    made = Shop(tmp_path, kafka_broker, [kafka_broker.create_topic(partitions=PARTITIONS) for _ in range(2)])
    made.send(0, 1, 2)
    made.write_file(made.topics[:1], "a")
    return made


@pytest.mark.interop
async def test_a_topic_and_its_table_are_added_and_one_that_is_missing_changes_nothing(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reload_module, "REQUESTS_INTERVAL_MS", 50)
    config = await asyncio.to_thread(shop.file.load)
    running: asyncio.Task[object] = asyncio.create_task(run(config, file=shop.file))
    try:
        await shop.has(running, "a", 3)
        await asyncio.to_thread(shop.write_file, [*shop.topics, "no-such-topic"], "a", "b")
        failed = await shop.reload()
        assert (failed.outcome, "no such topic: no-such-topic" in failed.reason) == ("failed", True)
        await asyncio.to_thread(shop.send, 3, 4)
        await shop.has(running, "a", 5)
        await asyncio.to_thread(shop.write_file, shop.topics, "a", "b")
        taken = await shop.reload()
        assert taken.lines == ["added: shop.b", "changed: source.topics"]
        await shop.has(running, "b", 5)
        await asyncio.to_thread(shop.send, 5, 6)
        for name in "ab":
            await shop.has(running, name, 7)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert [await asyncio.to_thread(shop.breaks, name) for name in "ab"] == [[], []]
