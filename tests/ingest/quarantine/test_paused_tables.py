"""Tables of a running pipeline that an operator pauses, resumes and releases."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.ingest.quarantine.world import GrowingSource, QuarantineWorld, until
from tidelake.errors import ConfigError
from tidelake.ingest.pipeline.pipeline import Pipeline
from tidelake.ingest.quarantine import catch_up, table_requests
from tidelake.ingest.quarantine.record_log import read_notices

PAUSED = "shop.t1"


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catch_up, "REQUESTS_INTERVAL_MS", 20)


async def new_world(**settings: Any) -> QuarantineWorld:
    return await asyncio.to_thread(partial(QuarantineWorld, **settings))


async def is_right(world: QuarantineWorld) -> bool:
    return await asyncio.to_thread(lambda: (world.wrong(), world.breaks()) == ({}, []))


class Running:
    """A pipeline of the world that runs until the block ends."""

    def __init__(self, world: QuarantineWorld) -> None:
        self.world = world
        self.location = f"{world.warehouse}/shop.quarantine"

    async def __aenter__(self) -> Running:
        self._source = GrowingSource(self.world.log)
        self.pipeline: Pipeline = await asyncio.to_thread(self.world.pipeline, self._source)
        self.task = asyncio.create_task(self.pipeline.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._source.ends.set()
        self._source.has_grown.set()
        await self.task

    def add(self, number: int) -> None:
        for name in self.world.names:
            self.world.add(name, number)
        self._source.has_grown.set()

    async def until(self, is_so: Callable[[], bool]) -> None:
        await until(is_so, self.task)

    async def ask(self, request: Callable[..., object]) -> None:
        await asyncio.to_thread(request, self.world.store, self.location, PAUSED)

    def state(self) -> str | None:
        found = {one.table: one.state for one in read_notices(self.world.store, self.location)}
        return found.get(PAUSED)


def has(world: QuarantineWorld, name: str, number: int) -> Callable[[], bool]:
    return lambda: number in world.rows(name)


@pytest.mark.parametrize("is_shared", [False, True], ids=["a topic each", "one topic"])
async def test_a_paused_table_gets_no_rows_until_it_is_resumed_and_then_all(is_shared: bool) -> None:
    world = await new_world(is_shared=is_shared)
    async with Running(world) as run:
        run.add(0)
        await run.until(has(world, "t1", 0))
        await run.ask(table_requests.pause)
        await run.until(lambda: run.state() == "paused")
        run.add(1)
        await run.until(has(world, "t0", 1))
        assert 1 not in await asyncio.to_thread(world.rows, "t1")
        assert run.pipeline.observed.problems() == {}
        await run.ask(table_requests.resume)
        await run.until(has(world, "t1", 1))
        run.add(2)
        await run.until(has(world, "t1", 2))
    assert await is_right(world)


async def test_a_pause_outlasts_the_process_and_its_end_is_no_error() -> None:
    world = await new_world()
    async with Running(world) as run:
        run.add(0)
        await run.until(has(world, "t1", 0))
        await run.ask(table_requests.pause)
        await run.until(lambda: run.state() == "paused")
        run.add(1)
    assert list(await asyncio.to_thread(world.wrong)) == ["t1"]
    async with Running(world) as run:
        run.add(2)
        await run.until(has(world, "t0", 2))
        assert await asyncio.to_thread(run.state) == "paused"
        assert 2 not in await asyncio.to_thread(world.rows, "t1")
    await asyncio.to_thread(table_requests.resume, world.store, f"{world.warehouse}/shop.quarantine", PAUSED)
    async with Running(world) as run:
        run.add(3)
    assert await is_right(world)


async def test_the_configuration_pauses_a_table_too() -> None:
    world = await new_world(entries={"t1": "paused: true"})
    async with Running(world) as run:
        run.add(0)
        await run.until(has(world, "t0", 0))
        assert await asyncio.to_thread(run.state) == "paused"
    world.entries = {}
    async with Running(world) as run:
        run.add(1)
    assert await is_right(world)


async def test_a_released_table_is_retried_at_once() -> None:
    world = await new_world(retry_ms=3_600_000)
    async with Running(world) as run:
        run.add(0)
        await run.until(has(world, "t1", 0))
        world.broken = {"t1"}
        run.add(1)
        await run.until(lambda: run.state() == "failed")
        world.broken = set()
        await run.ask(table_requests.release)
        await run.until(has(world, "t1", 1))
    assert await is_right(world)


async def test_the_last_table_is_not_paused() -> None:
    world = await new_world(tables=2)
    async with Running(world) as run:
        for name in world.names:
            await asyncio.to_thread(table_requests.pause, world.store, run.location, f"shop.{name}")
        await run.until(lambda: len(read_notices(world.store, run.location)) == 1)
        run.add(0)
        await run.until(lambda: any(has(world, name, 0)() for name in world.names))


def test_a_table_without_a_quarantine_can_t_be_paused() -> None:
    world = QuarantineWorld(tables=1, entries={"t0": "paused: true"})
    with pytest.raises(ConfigError, match=r"shop\.t0 can't be paused: the pipeline has no quarantine"):
        world.pipeline(GrowingSource(world.log))


def test_requests_are_files_that_can_be_withdrawn() -> None:
    world = QuarantineWorld()
    location = f"{world.warehouse}/shop.quarantine"
    assert table_requests.read_requests(world.store, location) == table_requests.TableRequests()
    assert table_requests.pause(world.store, location, "shop.a b/ü")
    assert not table_requests.pause(world.store, location, "shop.a b/ü")
    table_requests.release(world.store, location, "shop.t0")
    found = table_requests.read_requests(world.store, location)
    assert found == table_requests.TableRequests(frozenset({"shop.a b/ü"}), frozenset({"shop.t0"}))
    table_requests.forget_released(world.store, location, found.released)
    assert table_requests.resume(world.store, location, "shop.a b/ü")
    assert not table_requests.resume(world.store, location, "shop.a b/ü")
    assert table_requests.read_requests(world.store, location) == table_requests.TableRequests()
