"""A test that blocks the event loop fails: tests/support/blocking.py is on in every coroutine test."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from blockbuster import BlockBuster, BlockingError

from tests.support.blocking import FILE_IO_METHODS, file_io_classes


async def test_sleeping_in_the_event_loop_fails() -> None:
    with pytest.raises(BlockingError, match=r"time\.sleep"):
        time.sleep(0)


async def test_writing_a_file_in_the_event_loop_fails(tmp_path: Path) -> None:
    with pytest.raises(BlockingError, match=r"io\.\w+\.write"):
        (tmp_path / "file").write_text("text")


async def test_reading_a_file_in_the_event_loop_fails() -> None:
    with pytest.raises(BlockingError, match=r"io\.\w+\.read"):
        Path(__file__).read_bytes()


async def test_making_a_file_durable_in_the_event_loop_fails() -> None:
    with pytest.raises(BlockingError, match=r"os\.fsync"):
        os.fsync(0)


@pytest.mark.parametrize("method", FILE_IO_METHODS)
@pytest.mark.parametrize("file_io", file_io_classes())
async def test_a_file_io_in_the_event_loop_fails(file_io: type, method: str) -> None:
    with pytest.raises(BlockingError, match=method):
        getattr(file_io, method)(object())


async def test_blocking_calls_may_run_in_a_thread(tmp_path: Path) -> None:
    await asyncio.to_thread((tmp_path / "file").write_text, "text")
    assert await asyncio.to_thread((tmp_path / "file").read_text) == "text"


async def test_a_test_may_allow_one_call_by_name(blockbuster: BlockBuster) -> None:
    blockbuster.functions["time.sleep"].deactivate()
    time.sleep(0)


@pytest.mark.usefixtures("blockbuster")
def test_a_loop_started_by_a_synchronous_test_is_watched_on_request() -> None:
    async def careless() -> None:
        time.sleep(0)

    with pytest.raises(BlockingError):
        asyncio.run(careless())


@pytest.mark.parametrize("schedule", ["call_soon", "call_later", "call_at"])
async def test_scheduling_a_callback_from_another_thread_fails(schedule: str) -> None:
    loop = asyncio.get_running_loop()
    arguments: list[object] = [print] if schedule == "call_soon" else [0, print]
    with pytest.raises(RuntimeError, match="Non-thread-safe operation"):
        await asyncio.to_thread(getattr(loop, schedule), *arguments)
    await asyncio.to_thread(loop.call_soon_threadsafe, lambda: None)


async def test_creating_a_task_from_another_thread_fails() -> None:
    loop = asyncio.get_running_loop()
    work = asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="Non-thread-safe operation"):
        await asyncio.to_thread(loop.create_task, work)
    work.close()


@pytest.mark.interop
def test_a_test_that_blocks_is_reported_as_failed(tmp_path: Path) -> None:
    module = tmp_path / "test_careless.py"
    module.write_text("import time\n\n\nasync def test_careless():\n    time.sleep(0)\n")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.support.blocking", "-o", "asyncio_mode=auto", "-q", str(module)],
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == pytest.ExitCode.TESTS_FAILED, run.stdout + run.stderr
    assert "Blocking call to time.sleep" in run.stdout
