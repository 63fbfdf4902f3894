"""A task that is cancelled while its thread works."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest

import tidelake
import tidelake.aio
from tidelake.storage.read.follow import Follower

ROWS = pa.table({"id": [1, 2, 3]})


class Held:
    """Wraps a method, which waits behind a gate. Records when it begins and ends."""

    def __init__(self, name: str, method: Callable[..., object], message: list[str]) -> None:
        self.has_begun, self.gate = threading.Event(), threading.Event()
        self._name, self._method, self._said = name, method, message

    def __call__(self, *args: object, **kwargs: object) -> object:
        self.has_begun.set()
        assert self.gate.wait(30)
        try:
            return self._method(*args, **kwargs)
        finally:
            self._said.append(f"{self._name} has ended")


def hold(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, message: list[str]) -> Held:
    """Holds every call of this method of the blocking API."""
    held = Held(name, getattr(owner, name), message)

    def method(*args: object, **kwargs: object) -> object:  # a function, so that it is bound to its object
        return held(*args, **kwargs)

    monkeypatch.setattr(owner, name, method)
    return held


@pytest.mark.parametrize("name", ["write", "commit"])
async def test_a_writer_is_closed_after_its_cancelled_call(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = await tidelake.aio.open_catalog(str(tmp_path))
    await catalog.create_database("db")
    table = await catalog.create_table("db.t", ROWS.schema)
    events: list[str] = []
    writer = table.writer()
    held = hold(monkeypatch, tidelake.Writer, name, events)
    close = tidelake.Writer.close

    def reported(writer: tidelake.Writer) -> None:
        events.append("closes")
        close(writer)

    monkeypatch.setattr(tidelake.Writer, "close", reported)

    async def work() -> None:
        async with writer:
            try:
                await writer.write(ROWS)
                await writer.commit()
            finally:
                events.append("the call returns")

    task = asyncio.create_task(work())
    await asyncio.to_thread(held.has_begun.wait, 30)
    task.cancel()
    for _ in range(10):  # turns of the loop: a call that was abandoned would return in the next one
        await asyncio.sleep(0)
    held.gate.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert events == [f"{name} has ended", "the call returns", "closes"]


@dataclass(frozen=True)
class Call:
    """of: who has it."""

    name: str
    of: str
    arguments: dict[str, object] = field(default_factory=dict)


CALLS = [
    Call("create_database", "catalog", {"name": "more"}),
    Call("drop_database", "catalog", {"name": "empty"}),
    Call("create_table", "catalog", {"name": "db.more", "schema": ROWS.schema}),
    Call("drop_table", "catalog", {"name": "db.t"}),
    Call("rename_table", "catalog", {"name": "db.t", "new_name": "db.other"}),
    Call("alter_table", "catalog", {"name": "db.t", "changes": [tidelake.SetOption("snapshot.time-retained", "2 h")]}),
    Call("truncate", "table"),
    Call("compact", "table"),
    Call("expire", "table", {"retain_max": 1}),
]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)
async def test_a_writing_call_is_awaited_despite_repeated_cancellation(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = await tidelake.aio.open_catalog(str(tmp_path))
    for name in ("db", "empty"):
        await catalog.create_database(name)
    table = await catalog.create_table("db.t", ROWS.schema)
    owner = catalog if call.of == "catalog" else table
    events: list[str] = []
    held = hold(monkeypatch, tidelake.Catalog if call.of == "catalog" else tidelake.Table, call.name, events)

    async def work() -> None:
        try:
            await getattr(owner, call.name)(**call.arguments)
        finally:
            events.append("the call returns")

    task = asyncio.create_task(work())
    await asyncio.to_thread(held.has_begun.wait, 30)
    for _ in range(3):
        task.cancel()
        for _ in range(10):
            await asyncio.sleep(0)
    held.gate.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert events == [f"{call.name} has ended", "the call returns"]


async def test_a_cancelled_consumer_has_written_its_position(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = await tidelake.aio.open_catalog(str(tmp_path))
    await catalog.create_database("db")
    table = await catalog.create_table("db.t", ROWS.schema)
    events: list[str] = []
    held = Held("step", lambda: None, events)
    monkeypatch.setattr(Follower, "step", held)

    async def work() -> None:
        try:
            async for _ in table.follow(consumer="mine"):
                pass
        finally:
            events.append("the call returns")

    task = asyncio.create_task(work())
    await asyncio.to_thread(held.has_begun.wait, 30)
    task.cancel()
    for _ in range(10):
        await asyncio.sleep(0)
    held.gate.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert events == ["step has ended", "the call returns"]


@pytest.mark.parametrize("how", ["closed", "left by break", "cancelled"])
async def test_abandoned_batches_are_closed_in_a_thread(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = await tidelake.aio.open_catalog(str(tmp_path))
    await catalog.create_database("db")
    scan = await (await catalog.create_table("db.t", ROWS.schema)).scan()
    closed_by = asyncio.get_running_loop().create_future()

    def batches(_scan: tidelake.Scan) -> Iterator[pa.RecordBatch]:
        try:
            while True:
                yield ROWS.to_batches()[0]
        finally:
            loop.call_soon_threadsafe(closed_by.set_result, threading.current_thread())

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(tidelake.Scan, "to_batches", batches)
    if how == "closed":
        async with aclosing(scan.to_batches()) as read:
            assert (await anext(read)).num_rows == 3
    elif how == "left by break":
        async for _ in scan.to_batches():
            break
    else:
        has_come = asyncio.Event()
        reading = asyncio.create_task(read_for_ever(scan, has_come))
        await has_come.wait()
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
    assert await asyncio.wait_for(closed_by, 30) is not threading.main_thread()


async def read_for_ever(scan: tidelake.aio.Scan, has_come: asyncio.Event) -> None:
    async for _ in scan.to_batches():
        has_come.set()
