"""Many tables of one pipeline, a log in memory that grows while it is read, and tables that can be made to fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import pyarrow as pa

from tests.ingest.formats.debezium.changes import change
from tests.support.faulty_file_io import Call, Fault, FaultyFileIO, ProcessDied
from tests.support.memory_log import MemoryLog, MemoryLogSource
from tidelake.checkpoint.offsets import POSITION_PROPERTY, TopicPartition, chain_breaks, position_from_text
from tidelake.ingest.clock import SystemClock
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.pipeline.builder import build_pipeline
from tidelake.ingest.pipeline.pipeline import Pipeline
from tidelake.ingest.raw_batch import RawBatch
from tidelake.ingest.sources.source import empty_batch
from tidelake.storage.catalog.filesystem import FileSystemCatalog
from tidelake.storage.fileio.base import FileIO
from tidelake.storage.fileio.memory import MemoryFileIO
from tidelake.table import Table

CONFIG = """
warehouse: {warehouse}
pipeline: shop
source: {{type: change-log-folder, path: /unused}}
checkpoint: {{interval_ms: {interval_ms}}}
errors: {{tolerance: {tolerance}}}
quarantine: {{enabled: true, retry_ms_min: {retry_ms}, retry_ms_max: {retry_ms_max}, {quarantine}}}
tables: [{tables}]
"""


class GrowingSource(MemoryLogSource):
    """Reads on when the log has grown, until `ends` is set."""

    def __init__(self, log: MemoryLog, batch_records: int = 3) -> None:
        super().__init__(log, batch_records)
        self.ends = asyncio.Event()
        self.has_grown = asyncio.Event()

    async def read(self, positions: Mapping[TopicPartition, int]) -> AsyncGenerator[RawBatch, None]:
        at = dict(positions)
        while True:
            self.has_grown.clear()
            is_last = self.ends.is_set()
            for partition in sorted(self._log.records.keys() - at.keys()):
                at[partition] = 0
                yield empty_batch(partition, 0)
            async for batch in super().read(at):
                at[TopicPartition(batch.topic, batch.partition)] = batch.next_offset
                yield batch
            if is_last:
                return
            if not self.ends.is_set():
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.1):  # wait_for may swallow a cancellation
                        await self.has_grown.wait()


@dataclass
class QuarantineWorld:
    """tables: append tables `shop.t0`, `shop.t1` …, so that a repeated row is detected.
    is_shared: all tables share one topic; otherwise each has its own.
    entry: more settings of each table. entries: of single ones.
    broken: tables that can't be written now. refuses: narrows which calls that are.
    """

    tables: int = 3
    is_shared: bool = False
    are_created: bool = True
    interval_ms: int = 20
    quarantine: str = ""
    retry_ms: int = 20
    tolerance: str = "none"
    entry: str = ""
    entries: Mapping[str, str] = field(default_factory=dict)
    log: MemoryLog = field(default_factory=MemoryLog)
    warehouse: str = field(default_factory=lambda: f"memory://{uuid4()}/lake")
    store: FileIO = field(default_factory=MemoryFileIO)
    broken: set[str] = field(default_factory=set)
    refuses: Callable[[Call], bool] = lambda call: call.name in ("open_output", "create_if_absent", "write")
    truth: dict[str, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.names = [f"t{number}" for number in range(self.tables)]
        self.catalog = FileSystemCatalog(self.store, self.warehouse)
        self.catalog.create_database("shop")
        for name in self.names if self.are_created else ():
            self.catalog.create_table(f"shop.{name}", pa.schema([("id", pa.int64())]), options={"bucket": "-1"})
            self.add(name, -1)
        self.is_dead_at: int | None = None

    def topic(self, name: str) -> str:
        return "all" if self.is_shared else f"s.{name}"

    def add(self, name: str, number: int, **columns: Any) -> None:
        source = {"db": "s", "table": name}
        partition = number % 2 if number >= 0 else 0
        record = change("c", after={"id": number, **columns}, key=None, source=source)
        self.log.append(self.topic(name), record.value, record.key, partition)
        self.truth.setdefault(name, []).append(number)

    def io(self) -> FaultyFileIO:
        def decide(call: Call) -> Fault | None:
            is_broken = any(f"/shop.db/{name}/" in call.path for name in self.broken)
            return Fault.BEFORE if is_broken and self.refuses(call) else None

        return FaultyFileIO(self.store, decide)

    def pipeline(self, source: GrowingSource, io: FileIO | None = None) -> Pipeline:
        of_each = {name: self.entry + self.entries.get(name, "") for name in self.names}
        tables = ", ".join(f"{{name: shop.{n}, topics: [{self.topic(n)}], {more}}}" for n, more in of_each.items())
        text = CONFIG.format(
            warehouse=self.warehouse,
            interval_ms=self.interval_ms,
            quarantine=self.quarantine,
            retry_ms=self.retry_ms,
            retry_ms_max=max(50, self.retry_ms),
            tolerance=self.tolerance,
            tables=tables,
        )
        config = parse_config(text, "shop.yaml", (), {}, "shop")
        return build_pipeline(config, io=io or self.io(), open_source=lambda: source, clock=SystemClock())

    # ------------------------------------------------------------ what is there

    def rows(self, name: str) -> list[int]:
        if not self.catalog.table_exists(f"shop.{name}"):
            return []
        found: list[int] = Table(self.catalog.load(f"shop.{name}")).scan(columns=["id"]).to_arrow()["id"].to_pylist()
        return sorted(map(int, found))  # a table made from schemaless JSON has texts

    def wrong(self) -> dict[str, tuple[list[int], list[int]]]:
        """Tables whose rows are others than the log's, each with both."""
        both = {name: (self.rows(name), sorted(self.truth.get(name, []))) for name in self.names}
        return {name: pair for name, pair in both.items() if pair[0] != pair[1]}

    def breaks(self) -> list[Any]:
        found: list[Any] = []
        for name in self.names:
            own = [s for s in self.catalog.load(f"shop.{name}").snapshots.all() if s.commit_user == "shop"]
            chain = [(s.commit_identifier, position_from_text(s.properties[POSITION_PROPERTY], name)) for s in own]
            found += chain_breaks(chain)
            assert [i for i, _ in chain] == sorted({i for i, _ in chain}), name
        return found

    def kept(self) -> list[str]:
        """Tables that something is kept for."""
        return [e.name for e in self.store.list_directory(f"{self.warehouse}/shop.quarantine")]


async def until(is_so: Callable[[], bool], running: asyncio.Task[Any] | None = None) -> None:
    """Waits for what only shows in the tables."""
    async with asyncio.timeout(60):
        while not await asyncio.to_thread(is_so):
            if running is not None and running.done():
                await running
                raise AssertionError("the pipeline ended")
            await asyncio.sleep(0.05)


__all__ = ["GrowingSource", "ProcessDied", "QuarantineWorld", "until"]
