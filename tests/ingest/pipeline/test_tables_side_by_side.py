"""Many tables on a store: what is asked for one table, and that the tables are asked for side by side."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.ingest.pipeline.fakes import FakeSource, FakeTable, Rig, raw_batch, until
from tests.ingest.pipeline.test_many_tables import Meeting
from tests.support.faulty_file_io import Call, FaultyFileIO
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.monitoring.observations import RunObservations
from tidelake.ingest.pipeline.builder import build_pipeline
from tidelake.ingest.pipeline.flow import Flow
from tidelake.ingest.pipeline.pipeline import Pipeline
from tidelake.ingest.raw_batch import RawBatch
from tidelake.storage.fileio.memory import MemoryFileIO
from tidelake.storage.fileio.store_requests import kind_of

TABLES = 12
STEADY = {
    "exists data": 1,  # asked of local disks and memory only, where it is cheap
    "open_output data": 1,
    "open_output manifest": 1,
    "open_output manifest_list": 2,
    "create_if_absent snapshot": 1,
    "read snapshot": 2,  # the one before it, before and after the commit
    "exists schema": 1,  # a newer one
}


class World:
    """A pipeline that creates its tables, in a store.

    has_one_topic: all tables share a topic, and each file of changes makes one checkpoint. Otherwise each table has its
        own topic, so that each batch has rows of one table.
    """

    def __init__(self, path: Path) -> None:
        self.io = FaultyFileIO(MemoryFileIO())
        self.has_one_topic = False
        self.tolerance: object = "none"
        self._folder = path / "changes"
        self._folder.mkdir()
        self._warehouse = f"memory://{path.name}/lake"
        self._files = 0
        self._offsets = Counter[str]()

    async def change(self, tables: Sequence[int], *, has_columns: bool = True) -> None:
        """Add a file with a row of each table."""
        lines = []
        for table in tables:
            source = {"db": "shop", "schema": "public", "table": f"t{table}", "connector": "postgresql"}
            value = {
                "before": None,
                "after": {"id": 1, "v": f"x{self._files}"} if has_columns else {},
                "op": "c",
                "source": source,
            }
            topic = "shop" if self.has_one_topic else f"shop.t{table}"
            line = {"topic": topic, "partition": 0, "offset": self._offsets[topic], "key": '{"id": 1}'}
            lines.append(json.dumps({**line, "value": json.dumps(value)}) + "\n")
            self._offsets[topic] += 1
        await asyncio.to_thread((self._folder / f"{self._files:03}.jsonl").write_text, "".join(lines))
        self._files += 1

    def pipeline(self) -> Pipeline:
        settings: dict[str, Any] = {
            "pipeline": "shop",
            "warehouse": self._warehouse,
            "source": {"type": "change-log-folder", "path": str(self._folder), "until": "end"},
            "tables": [{"name": "shop.{table}", "options": {"bucket": 1, "write-only": True}}],
            "errors": {"tolerance": self.tolerance},
            "checkpoint": {"interval_ms": 3_600_000, "bytes_max": 1 if self.has_one_topic else 1 << 30},
        }
        return build_pipeline(parse_config(json.dumps(settings), "shop.json"), io=self.io)

    async def run(self) -> None:
        await (await asyncio.to_thread(self.pipeline)).run()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def file_of(call: Call) -> str:
    return f"{call.name} {kind_of(call.path)}"


# ---------------------------------------------------------------- side by side


async def test_tables_of_waiting_batches_are_created_side_by_side(world: World) -> None:
    """The first one is created alone, because the records of the others were not read by then."""
    await world.change(range(TABLES))
    pipeline = await asyncio.to_thread(world.pipeline)
    meeting, is_first = Meeting(TABLES - 1), iter((True,))

    def at_call(call: Call) -> None:
        if file_of(call) != "create_if_absent schema":
            return
        if next(is_first, False):
            asyncio.run(until(lambda: len(pipeline.observed.topics) == TABLES))
        else:
            meeting()

    world.io.fault = at_call
    await pipeline.run()
    created = [call for call in world.io.calls if file_of(call) == "create_if_absent schema"]
    assert len(created) == TABLES


async def test_each_waiting_batch_is_decoded_ahead_at_most_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first records of a table don't show its columns, so that it is tried again with each of them."""
    looked_at, first_records_of = list[RawBatch](), Flow._first_records_of

    async def noted(flow: Flow, waiting: Sequence[RawBatch]) -> object:
        looked_at.extend(waiting)
        return await first_records_of(flow, waiting)

    monkeypatch.setattr(Flow, "_first_records_of", noted)
    world.tolerance = "all"
    await world.change([0, 0, 0, *range(1, TABLES)], has_columns=False)
    await world.change(range(TABLES))
    await world.run()
    assert len({id(batch) for batch in looked_at}) == len(looked_at)
    created = [call for call in world.io.calls if file_of(call) == "create_if_absent schema"]
    assert len(created) == TABLES


async def test_tables_are_flushed_and_published_side_by_side(world: World) -> None:
    for _ in range(2):
        await world.change(range(TABLES))
        await world.run()
    await world.change(range(TABLES))
    meetings = {"open_output data": Meeting(TABLES), "create_if_absent snapshot": Meeting(TABLES)}
    pipeline = await asyncio.to_thread(world.pipeline)

    def at_call(call: Call) -> None:
        has_rows = pipeline.observed.tables.keys() and pipeline.observed.waiting_since_ms is not None
        if has_rows and (meeting := meetings.get(file_of(call))) is not None:
            meeting()

    world.io.fault = at_call
    await pipeline.run()


async def test_states_of_all_tables_of_a_batch_are_read_side_by_side_before_its_rows() -> None:
    tables = [FakeTable(f"t{number}") for number in range(TABLES)]
    values = [f"t{number}/x".encode() for number in range(TABLES)]
    rig, meeting = Rig(FakeSource([raw_batch(range(TABLES), values)]), tables), Meeting(TABLES)
    for sink in rig.sinks.values():
        sink.is_restored = False
        sink.at_restore = meeting
    await rig.pipeline.run()
    assert all(sink.is_restored for sink in rig.sinks.values())
    assert all(len(table.rows) == 1 for table in tables)


async def test_a_state_that_could_not_be_read_ahead_is_read_with_the_first_row() -> None:
    def fail() -> None:
        raise OSError("the store is away")

    rig = Rig(FakeSource([raw_batch([0], [b"t0/x"])]), [table := FakeTable("t0")])
    rig.sinks["t0"].is_restored = False
    rig.sinks["t0"].at_restore = fail
    await rig.pipeline.run()
    assert len(table.rows) == 1


# ---------------------------------------------------------------- few requests


@pytest.fixture
def checkpoints(world: World, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of calls up to each checkpoint."""
    ends, completed = list[int](), RunObservations.checkpoint_completed

    def noted(observed: RunObservations, *of: Any) -> object:
        ends.append(len(world.io.calls))
        return completed(observed, *of)

    monkeypatch.setattr(RunObservations, "checkpoint_completed", noted)
    return ends


async def test_a_busy_table_asks_for_little_and_an_idle_one_for_nothing(world: World, checkpoints: list[int]) -> None:
    """A bucket without rows in a checkpoint is closed, and opened again without a question."""
    world.has_one_topic = True
    await world.change(range(TABLES))
    await world.run()
    rounds = [range(TABLES), range(TABLES), range(1, TABLES), range(1, TABLES), range(TABLES)]
    for tables in rounds:
        await world.change(tables)
    checkpoints.clear()
    await world.run()
    assert len(checkpoints) == len(rounds)
    for number, busy in list(enumerate(rounds))[1:]:
        calls = world.io.calls[checkpoints[number - 1] : checkpoints[number]]
        for table in range(TABLES):
            assert Counter(of_table(calls, table)) == (STEADY if table in busy else {}), (number, table)


def of_table(calls: Sequence[Call], table: int) -> Iterator[str]:
    """Yield the calls for a table, without hints, which are written later."""
    for call in calls:
        if f"/t{table}/" in call.path and (text := file_of(call)) != "write hint":
            yield text
