"""Decodes batches in other processes, side by side, ahead of the pipeline that takes them in their order.

Decoding a batch again gives the same result, and the pipeline keeps each batch until it is decoded. So nothing depends
on a process: what it did not finish, or decoded for a table that has changed since, is decoded by the pipeline itself,
and a process that ends is replaced.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from tidelake.ingest.decoding.decoder_process import DecoderProcess, DecodeTask
from tidelake.ingest.decoding.target_numbers import DecoderSetup, TargetNumbers
from tidelake.ingest.formats.base import DecodedBatch, TargetOf
from tidelake.ingest.monitoring.observations import DecodingCounts
from tidelake.ingest.raw_batch import RawBatch
from tidelake.storage.base.backoff import ExponentialBackoff
from tidelake.storage.base.logs import get_logger
from tidelake.storage.base.threads import run_uncancellable

SMALL_BYTES: Final = 32 << 10  # decoding so few records takes as long as passing them to another process and back
_BACKOFF: Final = ExponentialBackoff(first_ms=100, longest_ms=30_000)

_log = get_logger(__name__)


class DecodePool:
    """Processes that decode batches. All methods are called in one event loop.

    size: number of processes.
    setup: what they decode with.
    target_of: returns the current target of a source table.
    """

    def __init__(self, size: int, setup: DecoderSetup, target_of: TargetOf, counts: DecodingCounts) -> None:
        self.size = size
        self._setup = setup
        self._numbers = TargetNumbers(target_of, setup.settings_of)
        self._counts = counts
        self._processes: list[DecoderProcess] = []
        self._changed = asyncio.Event()

    @property
    def pids(self) -> list[int]:
        """The running processes."""
        return [process.pid for process in self._processes]

    @property
    def ready(self) -> int:
        """The number of processes that can decode."""
        return sum(process.is_ready for process in self._processes)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the processes inside the block. They have ended after it. Until they are ready, and whenever none is, the
        pipeline decodes itself.
        """
        self._counts.processes = self.size
        keepers = [asyncio.create_task(self._keep_running(), name="decoding process") for _ in range(self.size)]
        try:
            yield
        finally:
            for keeper in keepers:
                keeper.cancel()
            await asyncio.gather(*keepers, return_exceptions=True)
            for process in self._processes:  # those whose start was cancelled
                process.disconnect()
                await run_uncancellable(process.end)
            self._processes = []
            self._counts.processes = self._counts.bytes_in_flight = 0

    def task(self, batch: RawBatch) -> DecodeTask:
        """Return the task of decoding a batch. Call `begin` with it next."""
        self._counts.bytes_in_flight += batch.nbytes
        return DecodeTask(batch)

    async def begin(self, task: DecodeTask) -> None:
        """Let a process decode the batch, as soon as one has room for it."""
        if task.batch.nbytes < SMALL_BYTES:
            task.finish(None)
            return
        while ready := [process for process in self._processes if process.is_ready]:
            if free := [process for process in ready if process.has_room]:
                if not min(free, key=lambda process: process.bytes_in_flight).begin(task):
                    break
                return
            self._changed.clear()
            await self._changed.wait()
        task.finish(None)

    async def decoded(self, task: DecodeTask) -> DecodedBatch | None:
        """Return the decoded batch. None: the pipeline has to decode it, because no process has, or a table that its
        records belong to has changed since. Call it once for each task.
        """
        outcome = await task.outcome
        self._counts.bytes_in_flight -= task.batch.nbytes
        if outcome is None:
            return None
        if not self._numbers.are_current(outcome.used):
            self._counts.outdated += 1
            return None
        self._counts.batches += 1
        return outcome.decoded

    async def _keep_running(self) -> None:
        failures = 0
        while True:
            try:
                process = await run_uncancellable(self._start)
            except OSError as error:
                _log.warning(
                    "a decoding process can't be started, and is tried again",
                    error=str(error),
                    effect="the pipeline decodes itself meanwhile",
                )
                failures += 1
            else:
                failures = 0 if await self._serve(process) else failures + 1
            await asyncio.sleep(_BACKOFF.wait_ms(failures) / 1000)

    def _start(self) -> DecoderProcess:
        process = DecoderProcess.started(self._numbers, self._changed.set)
        self._processes.append(process)
        return process

    async def _serve(self, process: DecoderProcess) -> bool:
        """Work with a process until it ends. Returns whether it has decoded anything."""
        error = "it ended"
        try:
            await process.serve(self._setup)
        except Exception as failed:  # a message that is none: the process is as good as dead
            error = repr(failed)
        finally:
            process.disconnect()
            code = await run_uncancellable(process.end)
            self._processes.remove(process)
        self._counts.restarts += 1
        _log.warning(
            "a decoding process ended, and is replaced",
            pid=process.pid,
            exit_code=code,
            reason=error,
            effect="the pipeline decodes its batches itself",
        )
        return process.decoded > 0
