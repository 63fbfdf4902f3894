"""One run of a pipeline: it starts up, lets records flow, and cleans up. `run_states` says what may follow what."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING

from ingest.pipeline.flow import Flow
from ingest.pipeline.pipeline_recovery import RecoveredPipeline
from ingest.pipeline.run_metrics import RunMetrics
from ingest.pipeline.run_states import RunEvent, RunState, next_run_state
from ingest.pipeline.startup import Startup
from ingest.sources.base import Source, SourceUnavailable
from ingest.tables.table_sink import TableSink
from storage.errors import BadInput, PositionRefused
from storage.logs import get_logger
from storage.maintenance.maintenance_worker import MaintenanceWorker
from storage.threads import run_uncancellable, sole_error

if TYPE_CHECKING:
    from ingest.monitoring.monitor import PipelineMonitor

_log = get_logger(__name__)


class Pipeline:
    """`run` it once, or `plan`; `stop` may be called at any time from the same event loop.

    sinks: the tables that exist, by name; it may grow.
    maintenance: maintains the tables, after commits
    monitor: tells others of it, from the start of a run to its end.
    """

    def __init__(
        self,
        startup: Startup,
        flow: Flow,
        source: Source,
        sinks: Mapping[str, TableSink],
        maintenance: MaintenanceWorker,
        metrics: RunMetrics,
        monitor: PipelineMonitor | None = None,
    ) -> None:
        self._startup = startup
        self._flow = flow
        self.source = source
        self._sinks = sinks
        self._maintenance = maintenance
        self.metrics = metrics
        self.observed = metrics.observed
        self.monitor = monitor
        self._state = RunState.CREATED
        self._run_task: asyncio.Task[object] | None = None
        self._reading_began = False

    def stop(self) -> None:
        """First call: read no more, write and commit what was read, end. Second: end at once.

        Nothing is lost either way: what was not committed is read again.
        """
        before = self._state
        self._enter(RunEvent.STOP_REQUESTED)
        if self._state is before:
            return
        match self._state:
            case RunState.STOPPING:
                self._flow.stop_reading()
            case RunState.CANCELLED:
                self._cancel()
            case RunState.CLEANING_UP_CANCELLED:
                self._maintenance.cancel()

    async def run(self) -> RunMetrics:
        """Until the source ends, `stop` is called, or something fails.

        Raises what a part raised: RecordRefused, PositionRefused, SourceUnavailable, CommitConflict and so on;
        several at once come as a group. Cancelled: as after the second `stop`, and the cancellation goes on.
        """
        self._enter(RunEvent.STARTED)
        self._run_task = asyncio.current_task()
        try:
            async with nullcontext() if self.monitor is None else self.monitor.running(self.source):
                await self._work()
            self.metrics.ended = "stopped" if self._state is RunState.STOPPING else "end of source"
        except asyncio.CancelledError:
            if self._state is not RunState.CANCELLED or self._run_task is None or self._run_task.uncancel():
                raise
            # before reading begins there is nothing that a stop could leave uncommitted
            self.metrics.ended = "stopped at once" if self._reading_began else "stopped"
        except BaseExceptionGroup as group:
            one = sole_error(group)
            raise one from one.__cause__  # not None: that would take the cause away
        finally:
            self._enter(RunEvent.WORK_ENDED)
            is_complete = self._reading_began and self.metrics.ended in ("stopped", "end of source")
            await self._clean_up(is_maintenance_finished=is_complete)
            self._enter(RunEvent.CLEANED_UP)
        return self.metrics

    async def plan(self) -> RecoveredPipeline:
        """Where `run` would start; writes nothing. Instead of `run`, not before it. Raises what `run` would.

        `observed` then tells how far each partition lags, as far as the source knows where it ends.
        """
        try:
            recovered = await self._startup.plan()
            self.observed.reading_began(recovered.starts)
            bounds = await self.source.bounds(list(recovered.starts))
            self.observed.ends_are({partition: bound.end for partition, bound in bounds.items()})
            return recovered
        finally:
            await self.source.close()

    def _enter(self, event: RunEvent) -> None:
        self._state = next_run_state(self._state, event)
        self.observed.state = self._state.name

    def _cancel(self) -> None:
        assert self._run_task is not None
        self._run_task.cancel()
        for sink in list(self._sinks.values()):  # a checkpoint that waits for them would hold up the end
            sink.writer.cancel_compactions()

    async def _work(self) -> None:
        recovered, coordinator = await self._startup.run()
        _log.info(
            "reading begins",
            tables=len(recovered.positions),
            partitions=len(recovered.starts),
            fresh_tables=len(recovered.fresh),
        )
        self._enter(RunEvent.READING_BEGAN)
        self._reading_began = True
        try:
            await self._flow.run(coordinator, recovered.starts, recovered.chosen)
        except* PositionRefused:
            await self._raise_refusal_of_next_start()
            raise

    async def _raise_refusal_of_next_start(self) -> None:
        """Raise what the next start would refuse with, if it would: that says for each table what each option does."""
        with suppress(BadInput, SourceUnavailable):
            await self._startup.plan_next()

    async def _clean_up(self, *, is_maintenance_finished: bool) -> None:
        """Each step is tried, whatever became of the others; what is raised stays how the run itself ended.

        Cancelled: the other steps are done first.
        """
        cancellation = None
        steps: dict[str, Callable[[], Awaitable[None]]] = {
            f"drop what {name} holds": partial(run_uncancellable, sink.writer.abort)
            for name, sink in list(self._sinks.items())
        }
        steps["end expiry"] = partial(run_uncancellable, self._maintenance.close, finish=is_maintenance_finished)
        steps["close the source"] = self.source.close
        for what, step in steps.items():
            try:
                await step()
            except asyncio.CancelledError as error:
                cancellation = error
            except Exception as error:
                _log.warning("clean-up failed", step=what, error=str(error), effect="what was committed stays")
        if cancellation is not None:
            raise cancellation
