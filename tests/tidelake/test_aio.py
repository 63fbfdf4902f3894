"""A task that is cancelled while its thread works."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import tidelake
import tidelake.aio

ROWS = pa.table({"id": [1, 2, 3]})


class Held:
    """Wraps a method: it waits behind a gate, and tells when it begins and ends."""

    def __init__(self, name: str, method: Callable[..., object], said: list[str]) -> None:
        self.has_begun, self.gate = threading.Event(), threading.Event()
        self._name, self._method, self._said = name, method, said

    def __call__(self, *args: object, **kwargs: object) -> object:
        self.has_begun.set()
        assert self.gate.wait(30)
        try:
            return self._method(*args, **kwargs)
        finally:
            self._said.append(f"{self._name} has ended")


@pytest.mark.parametrize("name", ["write", "commit"])
async def test_a_writer_is_closed_after_the_call_that_was_cancelled(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = await tidelake.aio.open_catalog(str(tmp_path))
    await catalog.create_database("db")
    table = await catalog.create_table("db.t", ROWS.schema)
    said: list[str] = []
    writer = table.writer()
    held = Held(name, getattr(writer._inner, name), said)
    monkeypatch.setattr(writer._inner, name, held)
    close = writer._inner.close

    def told() -> None:
        said.append("closes")
        close()

    monkeypatch.setattr(writer._inner, "close", told)

    async def work() -> None:
        async with writer:
            await writer.write(ROWS)
            await writer.commit()

    task = asyncio.create_task(work())
    await asyncio.to_thread(held.has_begun.wait, 30)
    task.cancel()
    await asyncio.sleep(0.05)
    assert not task.done()
    held.gate.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert said == [f"{name} has ended", "closes"]
