"""A start with many tables: they are read in parallel, and the source is asked once for all of them."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path

import pyarrow as pa
import pytest

import tidelake
from tests.ingest.pipeline.fakes import FakeSource, FakeTable, Rig, raw_batch
from tests.support.faulty_file_io import FaultyFileIO
from tidelake.checkpoint.offsets import TopicPartition
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.pipeline.builder import build_pipeline
from tidelake.ingest.pipeline.pipeline import Pipeline
from tidelake.ingest.sources.source import Latest, Start
from tidelake.ingest.tables.table_history import HISTORY_SNAPSHOTS, history_snapshots_of_each
from tidelake.storage.base.threads import IO_THREADS_MAX
from tidelake.storage.fileio import open_file_io
from tidelake.storage.model.schema.schema_store import SchemaStore
from tidelake.storage.model.schema.table_schema import TableSchema

TABLES = 40


class Meeting:
    """Calls that wait until `count` of them are there at the same time; a call that waits in vain fails the test."""

    def __init__(self, count: int) -> None:
        self._barrier = threading.Barrier(count)
        self._left = count
        self._lock = threading.Lock()

    def __call__(self) -> None:
        with self._lock:
            self._left -= 1
            is_awaited = self._left >= 0
        if is_awaited:
            self._barrier.wait(30)


def pipeline_of(path: Path, io: FaultyFileIO) -> Pipeline:
    tables = ", ".join(f"{{name: shop.t{number}}}" for number in range(TABLES))
    text = f"warehouse: {path}/lake\nsource: {{type: change-log-folder, path: {path}, until: end}}\ntables: [{tables}]"
    return build_pipeline(parse_config(text, "shop.yaml", pipeline="shop"), io=io)


@pytest.fixture
def io(tmp_path: Path) -> FaultyFileIO:
    catalog = tidelake.open_catalog(str(tmp_path / "lake"))
    catalog.create_database("shop")
    for number in range(TABLES):
        catalog.create_table(f"shop.t{number}", pa.schema([("id", pa.int64())]))
    return FaultyFileIO(open_file_io(str(tmp_path / "lake")))


def test_tables_are_opened_in_parallel(tmp_path: Path, io: FaultyFileIO, monkeypatch: pytest.MonkeyPatch) -> None:
    meeting, latest = Meeting(8), SchemaStore.latest

    def look(store: SchemaStore) -> TableSchema | None:
        meeting()
        return latest(store)

    monkeypatch.setattr(SchemaStore, "latest", look)
    pipeline_of(tmp_path, io)


async def test_a_start_reads_few_files_of_each_table(tmp_path: Path, io: FaultyFileIO) -> None:
    """Of a table that the pipeline knows; the number must not grow with the number of tables."""
    first = await asyncio.to_thread(pipeline_of, tmp_path, io)
    await first.run()
    io.calls.clear()
    second = await asyncio.to_thread(pipeline_of, tmp_path, io)
    await second.plan()
    of_tables = Counter(call.path.split("/shop.db/")[1].split("/")[0] for call in io.calls if "/shop.db/" in call.path)
    assert len(of_tables) == TABLES
    assert max(of_tables.values()) <= 16, [call for call in io.calls if "/t0/" in call.path]


async def test_table_states_are_read_in_parallel() -> None:
    tables = [FakeTable(f"t{number}") for number in range(TABLES)]
    rig, meeting = Rig(FakeSource([raw_batch([0], [b"t0/x"])]), tables), Meeting(min(TABLES, IO_THREADS_MAX))
    for sink in rig.sinks.values():
        sink.at_read_state = meeting
    await rig.pipeline.run()


async def test_source_offsets_are_requested_once_for_all_tables() -> None:
    class Asked(FakeSource):
        times = 0

        async def offsets(self, partitions: Collection[TopicPartition], start: Start) -> dict[TopicPartition, int]:
            self.times += 1
            return await super().offsets(partitions, start)

        async def bounds(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, object]:  # type: ignore[override]
            self.times += 1
            return await super().bounds(partitions)

    source = Asked([raw_batch([0], [b"t0/x"])])
    await Rig(source, [FakeTable(f"t{number}") for number in range(TABLES)], start=Latest()).pipeline.run()
    assert source.times == 2


def test_with_many_tables_fewer_snapshots_of_each_are_read() -> None:
    assert [history_snapshots_of_each(tables) for tables in (1, 16, 64, 200)] == [
        HISTORY_SNAPSHOTS,
        HISTORY_SNAPSHOTS,
        16,
        8,
    ]
