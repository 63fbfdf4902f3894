"""Pools of decoding processes for tests, and pipelines that surely use them."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from tidelake.ingest.decoding import decode_pool
from tidelake.ingest.decoding.decode_pool import DecodePool
from tidelake.ingest.decoding.decoder_process import DecodeTask
from tidelake.ingest.decoding.target_numbers import DecoderSetup
from tidelake.ingest.formats.base import DecodedBatch, OpenedFormat, TargetOf
from tidelake.ingest.monitoring.observations import DecodingCounts
from tidelake.ingest.raw_batch import RawBatch

PATIENCE_S = 60


async def until(is_so: Callable[[], bool]) -> None:
    deadline = asyncio.get_running_loop().time() + PATIENCE_S
    while not is_so():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.01)


@asynccontextmanager
async def pool_of(
    format_: OpenedFormat, target_of: TargetOf, size: int = 1, counts: DecodingCounts | None = None
) -> AsyncIterator[DecodePool]:
    """A pool whose processes are ready."""
    pool = DecodePool(size, DecoderSetup(format_), target_of, counts or DecodingCounts())
    async with pool.running():
        await until(lambda: pool.ready == size)
        yield pool


async def decoded_by(pool: DecodePool, batches: Sequence[RawBatch]) -> list[DecodedBatch | None]:
    """What the pool makes of batches that are all begun ahead."""
    tasks = [pool.task(batch) for batch in batches]
    beginning = asyncio.create_task(_begin(pool, tasks))
    found = [await pool.decoded(task) for task in tasks]
    await beginning
    return found


async def _begin(pool: DecodePool, tasks: Sequence[DecodeTask]) -> None:
    for task in tasks:
        await pool.begin(task)


def use_processes_for_all(patch: pytest.MonkeyPatch) -> None:
    """Pipelines wait for their processes, and give them small batches, too."""
    begin = DecodePool.begin

    async def begin_when_ready(pool: DecodePool, task: DecodeTask) -> None:
        await until(lambda: pool.ready > 0)
        await begin(pool, task)

    patch.setattr(DecodePool, "begin", begin_when_ready)
    patch.setattr(decode_pool, "SMALL_BYTES", 0)


def has_ended(pid: int) -> bool:
    """Whether no process has the number, or one that only its parent has to take note of."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def wait_for_end(pid: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not has_ended(pid):
        assert time.monotonic() < deadline, f"process {pid} of {os.getpid()} goes on"
        time.sleep(0.01)


def decoding_processes(test: str) -> list[int]:
    """All processes that decode and were started by a test whose name contains this text, directly or not."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            command, environment = (path / "cmdline").read_bytes(), (path / "environ").read_bytes()
            if b"decoder_program" in command and re.search(rf"PYTEST_CURRENT_TEST=[^\0]*{test}".encode(), environment):
                found.append(int(path.name))
    return found
