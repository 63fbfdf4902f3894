"""A waiting follower notices a commit at once, even with a long interval."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pyarrow as pa
import pytest

import tidelake
from tidelake import aio
from tidelake.storage.read.follow import follow

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False)])
PATIENT = {"continuous.discovery-interval": "10 h"}


@pytest.fixture
def table(tmp_path: Path) -> tidelake.Table:
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("db")
    catalog.create_table("db.t", SCHEMA, primary_key=["id"])
    return catalog.table("db.t", PATIENT)


def commit(table: tidelake.Table, number: int) -> None:
    with table.writer() as writer:
        writer.write(pa.table({"id": [number]}, SCHEMA))
        writer.commit()


def test_an_idle_follower_notices_a_commit_at_once(table: tidelake.Table) -> None:
    follower = table.follower(start="latest")
    while follower.wait_ms < 3_600_000:
        assert follower.step() is None
    writing = threading.Timer(0.05, commit, [table, 1])
    writing.start()
    batch = next(follow(follower, threading.Event()))
    writing.join()
    assert batch.rows["id"].to_pylist() == [1]


def test_a_waiting_follow_ends_when_stopped(table: tidelake.Table) -> None:
    follower = table.follower(start="latest")
    while follower.wait_ms < 3_600_000:
        assert follower.step() is None
    stop = threading.Event()
    threading.Timer(0.05, stop.set).start()
    assert list(follow(follower, stop)) == []


async def test_an_async_follower_notices_a_commit_at_once(table: tidelake.Table) -> None:
    waiting = aio.Table(table)
    changes = waiting.follow(start="latest")
    first = asyncio.ensure_future(anext(changes))
    await asyncio.sleep(0.2)
    await asyncio.to_thread(commit, table, 1)
    assert (await first).rows["id"].to_pylist() == [1]
    await changes.aclose()


def test_a_snapshot_younger_than_the_delay_is_not_watched(table: tidelake.Table) -> None:
    commit(table, 1)
    young = tidelake.Table(table.context.with_options({"streaming.read.snapshot.delay": "10 h"}))
    follower = young.follower(start=1)
    assert follower.step() is None
    assert follower.call_when_exists(lambda: None) is None
