"""Observations of a query's batches in the driver, for the endpoint of `metrics` and for the log.

Metrics, probes and page are the same as those of `tidelake ingest run`; a batch corresponds to a checkpoint. Records
are counted as offsets, rows as in the files that tasks wrote. Facts that only tasks know (bytes, record times, single
compactions) are not reported. The ends of the source come from Spark's progress reports.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import msgspec

from tidelake.checkpoint.offsets import OffsetRange, TopicPartition
from tidelake.ingest.clock import SystemClock
from tidelake.ingest.monitoring.metrics import ProcessGauges
from tidelake.ingest.monitoring.monitor import PipelineMonitor
from tidelake.ingest.monitoring.observations import RunObservations
from tidelake.ingest.settings import MetricsSettings
from tidelake.storage.base import env
from tidelake.storage.base.logs import get_logger
from tidelake.storage.model.table import TableContext

Ends = Callable[[], Mapping[TopicPartition, int]]
"""Returns the known ends of the logs."""

_STALL_TOLERANCE_MS: Final = 60_000  # a Spark batch may take longer than the trigger's interval without a problem

_log = get_logger(__name__)


class QueryMonitor:
    """The monitor of one query. Its methods may be called from any thread."""

    def __init__(self, settings: MetricsSettings, pipeline: str, warehouse: str, interval_ms: int) -> None:
        self.observed = RunObservations(interval_ms, SystemClock(), stall_tolerance_ms=_STALL_TOLERANCE_MS)
        self._settings = settings
        self._monitor = PipelineMonitor(settings, pipeline, warehouse, self.observed, _no_gauges())
        self._lock = env.Lock()
        self._reached: dict[TopicPartition, int] = {}
        self._tables: set[str] = set()

    @property
    def port(self) -> int:
        """The port of the endpoint, inside `serving`."""
        return self._monitor.server.port

    # ------------------------------------------------------------ events of the driver

    @contextmanager
    def batch(self, batch_id: int) -> Iterator[None]:
        """Observe a batch. All events in the block belong to it. It is complete if the block ends without an error."""
        observed, began_ms = self.observed, self.observed.clock.now_ms()
        with self._lock:
            self._reached, self._tables = {}, set()
            if observed.waiting_since_ms is None:
                observed.waiting_since_ms = began_ms
        with observed.activity(f"batch {batch_id}"):
            yield
        with self._lock:
            took_ms = observed.clock.now_ms() - began_ms
            done = observed.checkpoint_completed(batch_id, len(self._tables), took_ms, self._reached)
            fields = observed.log_fields()
        _log.info("batch", batch_id=batch_id, tables=done.tables, took_ms=took_ms, **fields)

    def was_read(self, ranges: Mapping[TopicPartition, OffsetRange]) -> None:
        """Record the offsets of the batch."""
        with self._lock:
            for partition, found in ranges.items():
                self.observed.offsets_read(partition, found.start, found.end)
                self._reached[partition] = found.end

    def commit_began(self, context: TableContext) -> None:
        self._monitor.watch_table(context)
        with self._lock:
            self.observed.commit_began(context.name)

    def commit_ended(self, context: TableContext, took_ms: int, rows: int, snapshot_id: int | None) -> None:
        """Record the end of a table's commit, successful or not.

        rows: number of rows in the files.
        snapshot_id: None if no snapshot was created.
        """
        with self._lock:
            self.observed.commit_ended(context.name)
            if snapshot_id is not None:
                self._tables.add(context.name)
                self.observed.was_written(context.name, rows, None)
                self.observed.committed(context.name, snapshot_id, took_ms, 1)

    def dead_lettered(self, lines: Sequence[str]) -> None:
        with self._lock:
            self.observed.dead_letters.update(msgspec.json.decode(line)["kind"] for line in lines)

    # ------------------------------------------------------------ the endpoint

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
