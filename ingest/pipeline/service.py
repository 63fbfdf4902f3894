"""Runs a pipeline as a process: signals, reloads, and what happens after a refusal."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext

from tidelake.errors import PositionRefused, WriterFenced
from tidelake.ingest.clock import SystemClock, wait_at_most
from tidelake.ingest.pipeline.builder import DEFAULT_COMMAND, build_pipeline
from tidelake.ingest.pipeline.fencings import add_fencing
from tidelake.ingest.pipeline.handover import Handover
from tidelake.ingest.pipeline.pipeline import Pipeline
from tidelake.ingest.pipeline.recovery_flags import RecoveryFlags
from tidelake.ingest.pipeline.reload import ConfigFile, Reload
from tidelake.ingest.pipeline.reload_requests import ReloadRequests
from tidelake.ingest.pipeline.run_metrics import RunMetrics
from tidelake.ingest.settings import Config
from tidelake.storage.base.logs import get_logger
from tidelake.storage.fileio import open_retrying_file_io

_log = get_logger(__name__)


async def run(
    config: Config,
    watch: Callable[[RunMetrics], None] | None = None,
    recovery_flags: RecoveryFlags | None = None,
    command: str = DEFAULT_COMMAND,
    *,
    stays_when_refused: bool = False,
    file: ConfigFile | None = None,
) -> RunMetrics:
    """Run a pipeline until its source ends, it fails, or the process gets SIGTERM or SIGINT (see `Pipeline.stop`).

    watch: called once at the start, with an object that shows the progress of the run.
    recovery_flags: see `build_pipeline`.
    command: see `build_pipeline`.
    stays_when_refused: PositionRefused and WriterFenced are raised only after a signal. Until then the process does
        nothing but answer probes: a supervisor that restarts every process would take over again and again.
    file: the file of the configuration. It is read again after SIGHUP, and on request (see `Reload`). None: never.
    """
    loop, stopped, hangup = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
    handled = list[signal.Signals]()

    def handle(signal_: signal.Signals, handler: Callable[[], None]) -> None:
        loop.add_signal_handler(signal_, handler)
        handled.append(signal_)

    try:
        if file is not None and not sys.stderr.isatty():  # at a terminal it says that the terminal was closed
            handle(signal.SIGHUP, hangup.set)
        pipeline = await asyncio.to_thread(build_pipeline, config, recovery_flags, command)
        if watch is not None:
            watch(pipeline.metrics)

        def stop() -> None:
            stopped.set()
            pipeline.stop()

        for signal_ in (signal.SIGTERM, signal.SIGINT):
            handle(signal_, stop)
        reloading: AbstractAsyncContextManager[None] = nullcontext()
        if file is not None:
            reloading = _reloading(pipeline, config, file, recovery_flags, command, hangup)
        try:
            async with reloading:
                return await pipeline.run()
        except Exception as error:
            if stays_when_refused and _needs_decision(error):
                await _wait_for_stop(pipeline, error, stopped)
            elif (fenced := _fenced(error)) is not None:
                await _stay_away(pipeline, config, fenced, stopped)
            raise
    finally:
        for signal_ in handled:
            loop.remove_signal_handler(signal_)


@asynccontextmanager
async def _reloading(
    pipeline: Pipeline,
    config: Config,
    file: ConfigFile,
    flags: RecoveryFlags | None,
    command: str,
    hangup: asyncio.Event,
) -> AsyncIterator[None]:
    """Take changes of the file inside the block.

    hangup: set by SIGHUP.
    """
    later_flags = RecoveryFlags(skip=frozenset() if flags is None else flags.skip)  # the others apply to one start

    def build(changed: Config, before: Handover) -> Pipeline:
        return build_pipeline(changed, later_flags, command, before=before)

    reload = Reload(pipeline, config, file, build, SystemClock())
    io = await asyncio.to_thread(open_retrying_file_io, config.warehouse, config.warehouse_options)
    requests = ReloadRequests(io, config.warehouse, config.pipeline)
    following = asyncio.create_task(reload.follow(hangup, requests), name="reload")
    try:
        yield
    finally:
        await reload.end(following)


def _needs_decision(error: BaseException) -> bool:
    """Return whether another start would not help, or would take over from the right process."""
    if isinstance(error, BaseExceptionGroup):
        return any(map(_needs_decision, error.exceptions))
    return isinstance(error, PositionRefused | WriterFenced)


def _fenced(error: BaseException) -> WriterFenced | None:
    """Return the error, or the one in a group, that says that another process took over."""
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(_fenced, error.exceptions)), None)
    return error if isinstance(error, WriterFenced) else None


async def _stay_away(pipeline: Pipeline, config: Config, fenced: WriterFenced, stopped: asyncio.Event) -> None:
    """Wait before the process ends, if the pipeline was fenced several times lately: its supervisor would restart it,
    and it would fence the process that fenced it.
    """
    io = await asyncio.to_thread(open_retrying_file_io, config.warehouse, config.warehouse_options)
    fencing = await asyncio.to_thread(add_fencing, io, config.warehouse, config.pipeline)
    if fencing.wait_ms and not stopped.is_set():
        pipeline.observed.refusal = str(fenced)
        _log.error(
            "the pipeline was fenced again, and stays away before it ends",
            reason=str(fenced),
            fencings_lately=fencing.count,
            wait_ms=fencing.wait_ms,
            effect="this process reads and writes nothing; the other one continues. SIGTERM ends it at once",
            remedy="two supervisors seem to restart a process of this pipeline each: stop one of them",
        )
        async with nullcontext() if pipeline.monitor is None else pipeline.monitor.serving():
            await wait_at_most(stopped, fencing.wait_ms, pipeline.observed.clock)


async def _wait_for_stop(pipeline: Pipeline, error: Exception, stopped: asyncio.Event) -> None:
    if not stopped.is_set():
        pipeline.observed.refusal = str(error)
        _log.error(
            "the pipeline is refused, and waits for a signal to end",
            reason=str(error),
            effect="nothing is read or written; /live answers, /ready is red",
        )
    async with nullcontext() if pipeline.monitor is None else pipeline.monitor.serving():
        await stopped.wait()
