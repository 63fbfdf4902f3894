"""One run of a pipeline: start, flow of records, clean-up. Its states, and the transitions between them, are data:

    CREATED ──STARTED──► STARTING ──READING_BEGAN──► RUNNING ──STOP_REQUESTED──► STOPPING ──STOP_REQUESTED──► CANCELLED
                           │ STOP_REQUESTED: CANCELLED │ WORK_ENDED                 │ WORK_ENDED        WORK_ENDED │
                           │                           ▼                            ▼                              │
                           │                      CLEANING_UP ──STOP_REQUESTED──► CLEANING_UP_STOPPED ◄────────────┘
                           │ WORK_ENDED                                            ▲  │ STOP_REQUESTED
                           └───────────────────────────────────────────────────────┘  ▼
                                                                              CLEANING_UP_CANCELLED

No record is lost in any state: the next run reads records again that were not committed. A transition that the table
`TRANSITIONS` lacks is illegal: it raises, and changes nothing. A stop request without effect keeps the state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from tidelake.checkpoint.coordinator import CheckpointCoordinator
from tidelake.checkpoint.offsets import OffsetRange, TopicPartition
from tidelake.checkpoint.ownership import Ownership
from tidelake.errors import BadInput, PositionRefused, ReloadRefused, SourceUnavailable, WriterFenced
from tidelake.ingest.pipeline.flow import Flow
from tidelake.ingest.pipeline.handover import Handover
from tidelake.ingest.pipeline.pipeline_recovery import RecoveredPipeline
from tidelake.ingest.pipeline.run_metrics import RunMetrics
from tidelake.ingest.pipeline.startup import Startup
from tidelake.ingest.sources.source import Source
from tidelake.ingest.tables.table_sink import TableSink
from tidelake.storage.base.logs import get_logger
from tidelake.storage.base.threads import run_uncancellable, single_error
from tidelake.storage.maintenance.maintenance_worker import MaintenanceWorker
from tidelake.storage.model.table import TableContext

if TYPE_CHECKING:
    from tidelake.ingest.monitoring.monitor import PipelineMonitor
    from tidelake.ingest.openlineage.run_reporter import RunReporter
    from tidelake.ingest.openlineage.run_snapshot import TableOrigins

_log = get_logger(__name__)


class RunState(Enum):
    """The state of a run."""

    CREATED = "nothing yet"
    STARTING = "finds the position of each table, and becomes the owner of the pipeline"
    RUNNING = "reads, decodes, writes and commits"
    STOPPING = "reads no more records; writes and commits those that were read"
    CANCELLED = "ends at once; waits only for work that can't be interrupted"
    CLEANING_UP = "drops what is not committed, finishes maintenance, closes the source"
    CLEANING_UP_STOPPED = "the same, after a request to stop"
    CLEANING_UP_CANCELLED = "the same, without waiting for maintenance"
    ENDED = "everything is closed"


class RunEvent(Enum):
    """An event that changes the state."""

    STARTED = "`run` was called"
    READING_BEGAN = "the first record may arrive"
    STOP_REQUESTED = "`stop` was called"
    WORK_ENDED = "the source ended, everything was committed, or something failed"
    CLEANED_UP = "every step of the clean-up was tried"


_S, _E = RunState, RunEvent

TRANSITIONS: Final[Mapping[tuple[RunState, RunEvent], RunState]] = MappingProxyType(
    {
        (_S.CREATED, _E.STARTED): _S.STARTING,
        (_S.CREATED, _E.STOP_REQUESTED): _S.CREATED,
        (_S.STARTING, _E.READING_BEGAN): _S.RUNNING,
        (_S.STARTING, _E.STOP_REQUESTED): _S.CANCELLED,
        (_S.STARTING, _E.WORK_ENDED): _S.CLEANING_UP_STOPPED,  # the start failed, so maintenance is not awaited
        (_S.RUNNING, _E.STOP_REQUESTED): _S.STOPPING,
        (_S.RUNNING, _E.WORK_ENDED): _S.CLEANING_UP,
        (_S.STOPPING, _E.STOP_REQUESTED): _S.CANCELLED,
        (_S.STOPPING, _E.WORK_ENDED): _S.CLEANING_UP_STOPPED,
        (_S.CANCELLED, _E.STOP_REQUESTED): _S.CANCELLED,
        (_S.CANCELLED, _E.WORK_ENDED): _S.CLEANING_UP_STOPPED,
        (_S.CLEANING_UP, _E.STOP_REQUESTED): _S.CLEANING_UP_STOPPED,
        (_S.CLEANING_UP, _E.CLEANED_UP): _S.ENDED,
        (_S.CLEANING_UP_STOPPED, _E.STOP_REQUESTED): _S.CLEANING_UP_CANCELLED,
        (_S.CLEANING_UP_STOPPED, _E.CLEANED_UP): _S.ENDED,
        (_S.CLEANING_UP_CANCELLED, _E.STOP_REQUESTED): _S.CLEANING_UP_CANCELLED,
        (_S.CLEANING_UP_CANCELLED, _E.CLEANED_UP): _S.ENDED,
        (_S.ENDED, _E.STOP_REQUESTED): _S.ENDED,
    }
)


class IllegalRunTransition(RuntimeError):
    """The caller called the steps of a run in an order that is not allowed."""

    def __init__(self, state: RunState, event: RunEvent) -> None:
        super().__init__(f"{event.name} is not possible in state {state.name}: it {state.value}")


def next_run_state(state: RunState, event: RunEvent) -> RunState:
    """Return the state after the event. Raises IllegalRunTransition for a transition that the table lacks."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalRunTransition(state, event) from None


@dataclass(frozen=True, slots=True)
class _Replacement:
    """See `Pipeline.replace`. done: set when a pipeline continues, the new one or this one."""

    new: Callable[[Handover], Pipeline]
    again: Callable[[Handover], Pipeline]
    done: asyncio.Future[None]

    def failed(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)


class _CannotBegin(Exception):
    """The next parts can't begin, and have changed nothing."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(frozen=True, slots=True)
class _CurrentSource:
    """The source that a pipeline reads now, for its monitor."""

    pipeline: Pipeline

    async def bounds(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, OffsetRange]:
        return await self.pipeline.source.bounds(partitions) if not self.pipeline.is_replaced else {}

    async def deleted_topics(self) -> Collection[str]:
        return await self.pipeline.source.deleted_topics() if not self.pipeline.is_replaced else ()


class Pipeline:
    """One run of a pipeline. Call `run` or `plan`, once. `stop` may be called at any time from the same event loop.

    sinks: the tables that exist, by name; it may grow.
    maintenance: maintains the tables after commits.
    monitor: publishes the observations, from the start of a run to its end.
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
        self.handover: Handover | None = None
        self.reporter: RunReporter | None = None
        self.origins: TableOrigins | None = None
        self._replacement: _Replacement | None = None
        self._state = RunState.CREATED
        self._run_task: asyncio.Task[object] | None = None
        self._reading_began = False

    async def replace(self, new: Callable[[Handover], Pipeline], again: Callable[[Handover], Pipeline]) -> None:
        """Continue with the parts of another pipeline, after a checkpoint. Tables that both have keep their sinks.

        new: builds the pipeline with the new parts. Blocks.
        again: builds this one again, in case the new one can't begin. Blocks.

        Raises ReloadRefused if the pipeline is not running, and the error for which the new one can't begin. In both
        cases this one continues, as if nothing had been asked. An error after the new one has published a position ends
        the run instead, as a failed start does: then both raise it.
        """
        if self._state is not RunState.RUNNING or self._replacement is not None:
            raise ReloadRefused(f"the pipeline {self._state.value}, so nothing was changed. Try again when it runs")
        self._replacement = _Replacement(new, again, asyncio.get_running_loop().create_future())
        self._flow.stop_reading()
        await self._replacement.done

    def stop(self) -> None:
        """Stop the run. The first call stops reading; the records read so far are written and committed. The second
        call ends the run at once.

        No record is lost in either case: records that were not committed are read again.
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
        """Run until the source ends, `stop` is called, or a part fails.

        Raises the error of a part: RecordRefused, PositionRefused, SourceUnavailable, CommitConflict and others.
        Several errors are raised as a group. If cancelled, the run ends as after the second `stop`, and the
        cancellation is raised.
        """
        self._enter(RunEvent.STARTED)
        self._run_task = asyncio.current_task()
        try:
            async with self._monitoring(), self._reporting():
                await self._work()
            self.metrics.ended = "stopped" if self._state is RunState.STOPPING else "end of source"
        except asyncio.CancelledError:
            if self._state is not RunState.CANCELLED or self._run_task is None or self._run_task.uncancel():
                raise
            # Before reading begins, no records can be left uncommitted.
            self.metrics.ended = "stopped at once" if self._reading_began else "stopped"
        except BaseExceptionGroup as group:
            one = single_error(group)
            raise one from one.__cause__  # `from None` would remove the cause
        finally:
            self._enter(RunEvent.WORK_ENDED)
            if self._replacement is not None:
                self._replacement.failed(ReloadRefused("the pipeline ended before it could take the changes"))
            is_complete = self._reading_began and self.metrics.ended in ("stopped", "end of source")
            await self._clean_up(is_maintenance_finished=is_complete)
            self._enter(RunEvent.CLEANED_UP)
        return self.metrics

    async def plan(self) -> RecoveredPipeline:
        """Return where `run` would start. Writes nothing. Call it instead of `run`, not before it.

        Raises the errors that `run` would raise at its start. Afterwards `observed` has the lag of each partition, if
        the source reports where it ends.
        """
        try:
            recovered = await self._startup.plan()
            self.observed.reading_started(recovered.starts)
            bounds = await self.source.bounds(list(recovered.starts))
            self.observed.set_end_offsets({partition: bound.end for partition, bound in bounds.items()})
            return recovered
        finally:
            await self.source.close()

    @property
    def state(self) -> RunState:
        return self._state

    @property
    def sinks(self) -> Mapping[str, TableSink]:
        """The tables that exist and can be written, by name."""
        return self._sinks

    @property
    def is_replaced(self) -> bool:
        """Whether its parts are being replaced, so that its source may be closed."""
        return self._replacement is not None

    @property
    def tables(self) -> Collection[str]:
        """The names of all tables that records may go to, as far as they are known."""
        assert self.handover is not None
        return self.handover.settings.keys()

    @property
    def contexts(self) -> dict[str, TableContext]:
        """The tables that exist and can be read."""
        return {name: sink.context for name, sink in list(self._sinks.items())}

    def _enter(self, event: RunEvent) -> None:
        self._state = next_run_state(self._state, event)
        self.observed.state = self._state.name

    def _monitoring(self) -> AbstractAsyncContextManager[None]:
        return nullcontext() if self.monitor is None else self.monitor.running(_CurrentSource(self))

    def _reporting(self) -> AbstractAsyncContextManager[None]:
        """Report the run to OpenLineage, if it is configured."""
        if self.reporter is None:
            return nullcontext()
        self.reporter.contexts, self.reporter.origins = lambda: self.contexts, lambda: self.origins
        return self.reporter.running()

    def _cancel(self) -> None:
        assert self._run_task is not None
        self._run_task.cancel()
        for sink in list(self._sinks.values()):  # a checkpoint that waits for compactions would delay the end
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
        if self.reporter is not None:
            self.reporter.reading_began()
        while self._state is RunState.RUNNING:
            try:
                await self._flow.run(coordinator, recovered.starts, recovered.chosen)
            except* PositionRefused:
                await self._check_next_start()
                raise
            replacement = self._replacement
            if replacement is None or self._state is not RunState.RUNNING:
                return
            try:
                recovered, coordinator = await self._replaced(replacement)
            except Exception as error:
                replacement.failed(error)
                raise
            self._replacement = None

    async def _replaced(self, replacement: _Replacement) -> tuple[RecoveredPipeline, CheckpointCoordinator]:
        """Continue with new parts, or with the old ones, built again. Everything that was read is committed.

        Returns where the tables continue. Raises an error for which neither can begin.
        """
        await self.source.close()
        try:
            begun = await self._begun(replacement.new)
        except _CannotBegin as refused:
            _log.warning("the changed configuration can't be taken", reason=str(refused.error), effect="none")
            try:
                begun = await self._begun(replacement.again)
            except _CannotBegin as error:
                raise error.error from error.error.__cause__
            replacement.failed(refused.error)
            return begun
        if not replacement.done.done():
            replacement.done.set_result(None)
        return begun

    async def _begun(self, build: Callable[[Handover], Pipeline]) -> tuple[RecoveredPipeline, CheckpointCoordinator]:
        """Build the next parts, and recover where they continue. Raises _CannotBegin if nothing was published."""
        assert self.handover is not None
        before, held = self._flow.coordinator, self._sinks
        try:
            next_ = await asyncio.to_thread(build, self.handover)
        except Exception as error:
            raise _CannotBegin(error) from error
        continued = frozenset(name for name, sink in next_._sinks.items() if held.get(name) is sink)
        positions = {name: at for name, at in before.positions.items() if name in continued}
        owned = Ownership(before.epoch, before.identifier, positions)
        try:
            recovered, coordinator = await next_._startup.run(owned)
        except BaseException as error:
            await next_.source.close()
            for name, sink in list(next_._sinks.items()):
                if name not in continued:
                    await run_uncancellable(sink.close)
            if isinstance(error, WriterFenced) or not isinstance(error, Exception) or next_._startup.has_begun:
                raise
            raise _CannotBegin(error) from error
        for name, sink in list(held.items()):
            if name not in continued:
                await run_uncancellable(sink.close)
        self._startup, self._flow, self.source = next_._startup, next_._flow, next_.source
        self._sinks, self.handover, self.origins = next_._sinks, next_.handover, next_.origins
        self.observed.reading_changed(recovered.starts, next_.tables)
        if self.monitor is not None:
            for name in held.keys() - set(next_.tables):
                self.monitor.forget_table(name)
        return recovered, coordinator

    async def _check_next_start(self) -> None:
        """Raise the refusal of the next start, if it would be refused: it has the options of each table."""
        with suppress(BadInput, SourceUnavailable):
            await self._startup.plan_next()

    async def _clean_up(self, *, is_maintenance_finished: bool) -> None:
        """Do every step, even if others fail. An error of the run is not replaced by errors of the clean-up.

        If cancelled, the remaining steps are done first.
        """
        cancellation = None
        steps: dict[str, Callable[[], Awaitable[None]]] = {
            f"drop what {name} holds": partial(run_uncancellable, sink.close)
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
