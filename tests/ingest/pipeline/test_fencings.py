"""A process that is fenced again and again stays away longer and longer before it ends."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.support.faulty_file_io import Fault, FaultyFileIO
from tidelake.errors import WriterFenced
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.pipeline import fencings, service
from tidelake.ingest.pipeline.fencings import FORGET_MS, Fencing, add_fencing
from tidelake.ingest.pipeline.pipeline import Pipeline
from tidelake.storage.base.backoff import ExponentialBackoff
from tidelake.storage.fileio.memory import MemoryFileIO

LAKE = "memory://fencings/lake"
LONGEST_MS = 600_000


@pytest.mark.parametrize(
    ("pauses_ms", "waits_ms"),
    [
        ([], [0]),
        ([0, 0, 0], [0, 5_000, 10_000, 20_000]),
        ([0] * 10, [0, 5_000, 10_000, 20_000, 40_000, 80_000, 160_000, 320_000, *[LONGEST_MS] * 3]),
        ([FORGET_MS, 5_000 + FORGET_MS], [0, 5_000, 10_000]),
        ([0, 5_000 + FORGET_MS + 1, 0], [0, 5_000, 0, 5_000]),
        ([0, -60_000], [0, 5_000, 10_000]),
    ],
    ids=["a take-over", "at once", "for hours", "at the edge", "after a quiet time", "a clock that is behind"],
)
def test_the_wait_doubles_until_nothing_is_fenced_for_a_while(pauses_ms: list[int], waits_ms: list[int]) -> None:
    now_ms = 1_000_000_000
    found = [Fencing(0, 0, 0).next(now_ms)]
    for pause_ms in pauses_ms:
        now_ms += pause_ms
        found.append(found[-1].next(now_ms))
    assert [fencing.wait_ms for fencing in found] == waits_ms


def test_all_processes_of_a_pipeline_count_together_and_other_pipelines_apart() -> None:
    io = MemoryFileIO()
    assert [add_fencing(io, LAKE, "shop").wait_ms for _ in range(3)] == [0, 5_000, 10_000]
    assert [add_fencing(io, f"{LAKE}/", "a b/ü").wait_ms for _ in range(2)] == [0, 5_000]


def test_a_file_that_is_none_is_replaced_and_a_store_that_fails_delays_nothing_for_long() -> None:
    io = MemoryFileIO()
    io.write(f"{LAKE}/torn.fenced", b"{")
    assert [add_fencing(io, LAKE, "torn").wait_ms for _ in range(3)] == [5_000, 0, 5_000]
    broken = FaultyFileIO(io, lambda _: Fault.BEFORE)
    assert add_fencing(broken, LAKE, "shop").wait_ms == 5_000


class Fenced:
    """Runs of a service whose pipeline is fenced at once."""

    def __init__(self, home: Path) -> None:
        (home / "changes").mkdir()
        text = f"warehouse: {home}/lake\nsource: {{type: change-log-folder, path: {home}/changes}}\n"
        self.config = parse_config(f"{text}tables: [{{name: shop.a}}]\n", "shop.yaml", (), {}, "shop")

    async def seconds(self) -> float:
        """Returns how long a run takes until it ends."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(ExceptionGroup) as ended:
            await service.run(self.config)
        assert ended.value.split(WriterFenced)[1] is None
        return loop.time() - began


@pytest.fixture
def fenced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fenced:
    async def run(_: Pipeline) -> Any:
        raise ExceptionGroup("several failed", [WriterFenced("shop.a: another process took over")])

    monkeypatch.setattr(Pipeline, "run", run)
    return Fenced(tmp_path)


async def test_a_fenced_service_ends_at_once_and_then_later_and_later_and_says_why(
    fenced: Fenced, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(fencings, "BACKOFF", ExponentialBackoff(400, 3_200))
    await fenced.seconds()
    assert "stays away" not in caplog.text
    assert await fenced.seconds() >= 0.4
    assert "another process took over" in caplog.text
    assert "fencings_lately=2 wait_ms=400" in caplog.text
    assert await fenced.seconds() >= 0.8


async def test_sigterm_ends_the_wait(fenced: Fenced, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fencings, "BACKOFF", ExponentialBackoff(LONGEST_MS, LONGEST_MS))
    await fenced.seconds()
    waiting = asyncio.create_task(fenced.seconds())
    await asyncio.sleep(0.5)
    assert not waiting.done()
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(waiting, 30)
