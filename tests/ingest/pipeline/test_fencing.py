"""A starting process takes over its pipeline: from older processes, from one that still commits, and from a concurrent
start.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from pathlib import Path

import pyarrow as pa
import pytest

import tidelake
from tests.ingest.pipeline.fakes import FakeSource, FakeTable, Published, Rig, raw_batch
from tidelake.checkpoint.committable import TableCommittable
from tidelake.checkpoint.epoch import EPOCH_PROPERTY, Epoch, epoch_of
from tidelake.checkpoint.offsets import (
    POSITION_PROPERTY,
    OffsetRange,
    SourceIdentity,
    SourcePosition,
    TopicPartition,
    chain_breaks,
    position_from_text,
    position_to_text,
)
from tidelake.errors import RecoveryOutdated, WriterFenced
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.pipeline.builder import build_pipeline
from tidelake.ingest.pipeline.run_metrics import RunMetrics
from tidelake.ingest.raw_batch import RawBatch
from tidelake.ingest.settings import Config
from tidelake.ingest.sources.change_log_folder import ChangeLogFolder

T0 = TopicPartition("log", 0)


def epochs(table: FakeTable) -> list[int]:
    return [epoch_of(snapshot.properties, "here").number for snapshot in table.snapshots]


async def test_every_start_has_a_new_epoch_that_every_snapshot_stores() -> None:
    a, b = FakeTable("a"), FakeTable("b")
    source = FakeSource([raw_batch([0], [b"a/x"])])
    for _ in range(2):
        await Rig(source, [a, b]).pipeline.run()
        source.batches.append(raw_batch([source.read_from[T0] + 1], [b"a/x"]))
    assert (epochs(a), epochs(b)) == ([1, 1, 2, 2], [1, 2])


async def test_an_older_process_that_commits_while_we_start_is_not_lost() -> None:
    table = FakeTable("t")
    source = FakeSource([raw_batch([0, 1]), raw_batch([2])])
    rig = Rig(source, [table])
    commit = rig.sinks["t"].commit

    def after_the_older_one(committable: TableCommittable) -> int | None:
        rig.sinks["t"].commit = commit  # type: ignore[method-assign]
        position = SourcePosition(SourceIdentity("fake"), {T0: OffsetRange(0, 2)})
        properties = {POSITION_PROPERTY: position_to_text(position), EPOCH_PROPERTY: Epoch(7, "older").to_text()}
        table.snapshots.append(Published(5, [(0, "v0"), (1, "v1")], properties))
        raise RecoveryOutdated("t: …")

    rig.sinks["t"].commit = after_the_older_one  # type: ignore[method-assign]
    await rig.pipeline.run()
    assert source.read_from == {T0: 2}
    assert table.rows == [(0, "v0"), (1, "v1"), (2, "v2")]
    assert epochs(table) == [7, 8, 8]
    assert [snapshot.identifier for snapshot in table.snapshots] == [5, 6, 7]


async def test_the_first_table_is_taken_over_before_the_others() -> None:
    """Else of two processes each could come first in one of them, and both would have to stop."""
    tables = [FakeTable(name) for name in ("c", "a", "b")]
    rig = Rig(FakeSource([]), tables)

    def fenced(committable: TableCommittable) -> int | None:
        raise WriterFenced("a: …")

    rig.sinks["a"].commit = fenced  # type: ignore[method-assign]
    with pytest.raises(WriterFenced):
        await rig.pipeline.run()
    assert [len(table.snapshots) for table in tables] == [0, 0, 0]


# ---------------------------------------------------------------- with real tables


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """Two append tables, and a folder with ten records for each."""
    catalog = tidelake.open_catalog(str(tmp_path / "lake"))
    catalog.create_database("shop")
    for name in ("orders", "users"):
        catalog.create_table(f"shop.{name}", pa.schema([("id", pa.int64())]), options={"ignore-delete": "true"})
    (tmp_path / "in").mkdir()
    lines = [record(offset, ("orders", "users")[offset % 2]) for offset in range(20)]
    (tmp_path / "in" / "0.jsonl").write_text("".join(lines))
    return parse_config(
        f"warehouse: {tmp_path}/lake\nsource: {{type: change-log-folder, path: {tmp_path}/in, until: end}}\n"
        "tables: [{name: shop.orders}, {name: shop.users}]",
        "shop.yaml",
        pipeline="shop",
    )


def record(offset: int, table: str) -> str:
    source = {"db": "shop", "schema": "public", "table": table, "connector": "postgresql"}
    value = json.dumps({"before": None, "after": {"id": offset}, "op": "c", "source": source})
    return json.dumps({"topic": "log", "partition": 0, "offset": offset, "key": None, "value": value}) + "\n"


async def test_concurrent_starts_write_each_record_once(config: Config) -> None:
    pipelines = [await asyncio.to_thread(build_pipeline, config) for _ in range(4)]
    outcomes = await asyncio.gather(*(p.run() for p in pipelines), return_exceptions=True)
    assert all(isinstance(outcome, RunMetrics) or only_fenced(outcome) for outcome in outcomes), outcomes
    assert any(isinstance(outcome, RunMetrics) for outcome in outcomes)
    await asyncio.to_thread(check, config)


async def test_an_older_process_is_fenced_at_its_next_commit(config: Config, tmp_path: Path) -> None:
    source = HeldSource(tmp_path / "in", follow=False, kept_headers=frozenset())
    older = await asyncio.to_thread(build_pipeline, config, open_source=lambda: source)
    newer = await asyncio.to_thread(build_pipeline, config)
    run = asyncio.create_task(older.run())
    await source.was_asked.wait()  # it owns the pipeline, and would read now
    await newer.run()
    source.may_read.set()
    with pytest.raises(WriterFenced, match="took over"):
        await run
    await asyncio.to_thread(check, config)


async def test_old_snapshots_expire_during_commits_and_the_position_is_kept(config: Config) -> None:
    catalog = tidelake.open_catalog(config.warehouse)
    changes = [
        tidelake.SetOption("snapshot.num-retained.min", "1"),
        tidelake.SetOption("snapshot.num-retained.max", "1"),
    ]
    for name in ("shop.orders", "shop.users"):
        await asyncio.to_thread(catalog.alter_table, name, changes)
    for _ in range(3):
        pipeline = await asyncio.to_thread(build_pipeline, config)
        await pipeline.run()
    table = await asyncio.to_thread(catalog.table, "shop.orders")
    left = await asyncio.to_thread(table.snapshots)
    assert [epoch_of(snapshot.properties, "here").number for snapshot in left] == [3]
    assert pipeline.metrics.records == 0  # it knew where it stood


class HeldSource(ChangeLogFolder):
    """A folder that nothing is read from until a test says so."""

    was_asked = asyncio.Event()
    may_read = asyncio.Event()

    async def read(self, positions: Mapping[TopicPartition, int]) -> AsyncGenerator[RawBatch, None]:
        self.was_asked.set()
        await self.may_read.wait()
        async with aclosing(super().read(positions)) as batches:
            async for batch in batches:
                yield batch


def only_fenced(outcome: object) -> bool:
    errors = outcome.exceptions if isinstance(outcome, ExceptionGroup) else [outcome]
    return all(isinstance(error, WriterFenced) for error in errors)


def check(config: Config) -> None:
    catalog = tidelake.open_catalog(config.warehouse)
    for remainder, name in enumerate(("orders", "users")):
        table = catalog.table(f"shop.{name}")
        assert sorted(table.scan().to_arrow()["id"].to_pylist()) == list(range(remainder, 20, 2))
        found = [(s.commit_identifier, s.properties[POSITION_PROPERTY]) for s in table.snapshots()]
        assert chain_breaks((identifier, position_from_text(text, name)) for identifier, text in found) == []
