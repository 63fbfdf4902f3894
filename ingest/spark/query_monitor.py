"""Observations of a query's batches in the driver, for the endpoint of `metrics` and for the log.

Metrics, probes and page are the same as those of `tidelake ingest run`; a batch corresponds to a checkpoint. Records
are counted as offsets, rows as in the files that tasks wrote. Facts that only tasks know (skipped records, single
compactions) are not reported. The ends of the source come from Spark's progress reports.

`tidelake spark run` has a monitor of its own. For the sinks of other jobs a `MetricsListener` makes one for each query.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from tidelake.checkpoint.offsets import OffsetRange, TopicPartition
from tidelake.checkpoint.record_times import RecordTimes
from tidelake.errors import BadInput
from tidelake.ingest.clock import SystemClock
from tidelake.ingest.monitoring.metrics import PipelineCollector, ProcessGauges
from tidelake.ingest.monitoring.monitor import PipelineMonitor
from tidelake.ingest.monitoring.observations import RunObservations
from tidelake.ingest.settings import MetricsSettings
from tidelake.storage.base import env
from tidelake.storage.base.logs import get_logger
from tidelake.storage.commit.commit_message import CommitMessage
from tidelake.storage.model.table import TableContext

Ends = Callable[[], Mapping[TopicPartition, int]]
"""Returns the known ends of the logs."""

_STALL_TOLERANCE_MS: Final = 60_000  # a Spark batch may take longer than the trigger's interval without a problem

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class WrittenFiles:
    """The files that a batch adds to a table.

    rows: rows in the files.
    nbytes: bytes of the files.
    times: times of the records; None if they have none.
    """

    rows: int
    files: int
    nbytes: int
    times: RecordTimes | None = None

    @staticmethod
    def of(messages: Sequence[CommitMessage], times: RecordTimes | None = None) -> WrittenFiles:
        new = [file for message in messages for file in message.increment.new_files]
        return WrittenFiles(sum(f.row_count for f in new), len(new), sum(f.file_size for f in new), times)


@dataclass(slots=True)
class _Batch:
    """The events of the running batch.

    began_ms, ended_ms: monotonic times of its beginning, and of its last event.
    """

    identifier: int
    began_ms: int
    ended_ms: int
    reached: dict[TopicPartition, int] = field(default_factory=dict)
    tables: set[str] = field(default_factory=set)
    files: int = 0
    file_bytes: int = 0
    commit_ms: int = 0
    dead_letters: int = 0


class QueryMonitor:
    """The monitor of one query. Its methods may be called from any thread."""

    def __init__(self, settings: MetricsSettings, pipeline: str, warehouse: str, interval_ms: int) -> None:
        self.observed = RunObservations(interval_ms, SystemClock(), stall_tolerance_ms=_STALL_TOLERANCE_MS)
        self._settings = settings
        self._monitor = PipelineMonitor(settings, pipeline, warehouse, self.observed, _no_gauges())
        self._lock = env.Lock()
        self._batch: _Batch | None = None

    @property
    def port(self) -> int:
        """The port of the endpoint, inside `serving`."""
        return self._monitor.server.port

    # ------------------------------------------------------------ events of the driver

    @contextmanager
    def batch(self, batch_id: int) -> Iterator[None]:
        """Observe a batch. All events in the block belong to it. It is complete if the block ends without an error."""
        observed = self.observed
        with self._lock:
            now_ms = observed.clock.now_ms()
            self._batch = _Batch(batch_id, now_ms, now_ms)
            if observed.waiting_since_ms is None:
                observed.waiting_since_ms = now_ms
        with observed.activity(f"batch {batch_id}"):
            yield
        self._event()
        self.completed(batch_id)

    def began(self, batch_id: int) -> None:
        """Record that a sink of the query got a batch, or that another sink did. An earlier batch is complete then."""
        with self._lock:
            earlier = None if self._batch is None else self._batch.identifier
        if earlier == batch_id:
            return
        if earlier is not None:
            self.completed(earlier)
        with self._lock:
            now_ms = self.observed.clock.now_ms()
            self._batch = _Batch(batch_id, now_ms, now_ms)
            if self.observed.waiting_since_ms is None:
                self.observed.waiting_since_ms = now_ms

    def completed(self, batch_id: int) -> None:
        """Count and log a batch, unless that was done."""
        with self._lock:
            batch = self._batch
            if batch is None or batch.identifier != batch_id:
                return
            self._batch = None
            took_ms = batch.ended_ms - batch.began_ms
            done = self.observed.checkpoint_completed(batch_id, len(batch.tables), took_ms, batch.reached)
            fields: dict[str, Any] = {"took_ms": took_ms, "commit_ms": batch.commit_ms}
            fields |= {"files": batch.files, "file_bytes": batch.file_bytes, "dead_letters": batch.dead_letters}
            fields |= self.observed.log_fields()
        _log.info("batch", batch_id=batch_id, tables=done.tables, **fields)

    def _event(self) -> None:
        with self._lock:
            if self._batch is not None:
                self._batch.ended_ms = self.observed.clock.now_ms()

    def was_read(
        self, ranges: Mapping[TopicPartition, OffsetRange], record_bytes: Mapping[TopicPartition, int]
    ) -> None:
        """Record the offsets of the batch.

        record_bytes: bytes of its records.
        """
        with self._lock:
            for partition, found in ranges.items():
                self.observed.offsets_read(partition, found.start, found.end, record_bytes.get(partition, 0))
                if self._batch is not None:
                    self._batch.reached[partition] = found.end

    def commit_began(self, context: TableContext) -> None:
        self._monitor.watch_table(context)
        with self._lock:
            self.observed.commit_began(context.name)

    def commit_ended(self, context: TableContext, took_ms: int, written: WrittenFiles, snapshot_id: int | None) -> None:
        """Record the end of a table's commit, successful or not.

        snapshot_id: None if no snapshot was created.
        """
        with self._lock:
            self.observed.commit_ended(context.name)
            if snapshot_id is None:
                return
            self.observed.was_written(context.name, written.rows, written.times)
            self.observed.committed(context.name, snapshot_id, took_ms, 1)
            if self._batch is not None:
                self._batch.tables.add(context.name)
                self._batch.files += written.files
                self._batch.file_bytes += written.nbytes
                self._batch.commit_ms = max(self._batch.commit_ms, took_ms)
        self._event()

    def dead_lettered(self, lines: Sequence[str]) -> None:
        with self._lock:
            self.observed.dead_letters.update(msgspec.json.decode(line)["kind"] for line in lines)
            if self._batch is not None:
                self._batch.dead_letters += len(lines)

    def ended(self, error: str | None) -> None:
        """Record that the query ended.

        error: why it failed; None if it was stopped.
        """
        self.observed.state = "STOPPED" if error is None else "FAILED"
        self.observed.refusal = error

    # ------------------------------------------------------------ the endpoint

    @property
    def collector(self) -> PipelineCollector:
        return self._monitor.collector

    async def poll_once(self, ends: Ends) -> None:
        """Look at the ends of the source, and at the files of tables with new commits. Logs errors, and raises none."""
        await self._monitor.poll_once(_Ends(ends))

    @contextmanager
    def serving(self, ends: Ends) -> Iterator[None]:
        """Serve the endpoint while the query runs. Without `metrics.port`, no endpoint exists.

        Raises BadInput for an unavailable address.
        """
        self.observed.state = "RUNNING"
        if self._settings.port is None:
            yield
            return
        started, stop = env.Future[None](), env.Event()
        thread = env.Thread(target=lambda: asyncio.run(self._serve(ends, started, stop)), name="monitor", daemon=True)
        thread.start()
        try:
            started.result()
            yield
        finally:
            self.observed.state = "STOPPING"
            stop.set()
            thread.join()

    async def _serve(self, ends: Ends, started: env.Future[None], stop: env.Event) -> None:
        try:
            async with self._monitor.running(_Ends(ends)):
                started.set_result(None)
                await asyncio.to_thread(stop.wait)
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)


class _Ends:
    """The ends of the logs, with the interface of a source."""

    def __init__(self, ends: Ends) -> None:
        self._ends = ends

    async def bounds(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, OffsetRange]:
        """Return the bounds. The start of a partition is unknown."""
        found = await asyncio.to_thread(self._ends)
        return {partition: OffsetRange(0, found[partition]) for partition in partitions if partition in found}

    async def deleted_topics(self) -> Collection[str]:
        """Return no topics: Spark itself reports deleted topics."""
        return ()


def _no_gauges() -> ProcessGauges:
    """Return gauges without values, because rows are buffered and compacted in tasks."""
    return ProcessGauges(lambda: 0, 0, lambda: 0, lambda: 0)


class QueryMonitors:
    """The monitors of the queries of this driver whose sinks are observed. Thread-safe."""

    def __init__(self) -> None:
        self._lock = env.Lock()
        self._make: Callable[[str, str], QueryMonitor] | None = None
        self._monitors: dict[str, QueryMonitor] = {}

    def observe(self, make: Callable[[str, str], QueryMonitor] | None) -> None:
        """Make a monitor for each query with a sink from now on; with None, for no query any more.

        make: returns the monitor of a query, from its id and the warehouse of its first sink

        Raises BadInput if queries are observed already.
        """
        with self._lock:
            if make is not None and self._make is not None:
                raise BadInput("this process has an open MetricsListener. Close it first, or add it to this session")
            self._make, self._monitors = make, {}

    def of(self, query: str | None, warehouse: str) -> QueryMonitor | None:
        """Return the monitor of a query; None if nothing is observed. It is made at the first call.

        query: its id; None if Spark doesn't report it
        """
        with self._lock:
            if self._make is None or query is None:
                return None
            if query not in self._monitors:
                self._monitors[query] = self._make(query, warehouse)
            return self._monitors[query]

    def known(self, query: str) -> QueryMonitor | None:
        with self._lock:
            return self._monitors.get(query)

    def forget(self, query: str) -> None:
        with self._lock:
            self._monitors.pop(query, None)

    def all(self) -> dict[str, QueryMonitor]:
        """Return the monitors by the ids of their queries."""
        with self._lock:
            return dict(self._monitors)


MONITORS: Final = QueryMonitors()
