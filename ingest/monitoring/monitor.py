"""Monitors a running pipeline: requests the log ends from the source, reads the tables' files, serves the results.

Errors here are logged, and never stop the pipeline.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Final, Protocol

from tidelake.checkpoint.offsets import OffsetRange, TopicPartition
from tidelake.errors import SourceUnavailable
from tidelake.ingest.monitoring.lsm_page import lsm_page
from tidelake.ingest.monitoring.metrics import PipelineCollector, ProcessGauges, registry_of
from tidelake.ingest.monitoring.observations import RunObservations, TableObservation
from tidelake.ingest.monitoring.readiness import not_ready
from tidelake.ingest.monitoring.run_history import RunHistory
from tidelake.ingest.monitoring.server import MonitoringServer
from tidelake.ingest.monitoring.status import identity_of, status_document
from tidelake.ingest.monitoring.table_levels import TableLevelsReader
from tidelake.ingest.settings import MetricsSettings
from tidelake.storage.base.logs import get_logger
from tidelake.storage.base.threads import run_uncancellable
from tidelake.storage.model.table import TableContext

_REFRESH_MS_MAX: Final = 5_000
_FOREIGN_TABLE_INTERVAL_MS: Final = (
    60_000  # interval for tables that only others commit to; each look sends requests to the store
)
_REFRESH_WAIT_S: Final = 1.0  # longest time that a request waits for a look at the tables
_SOURCE_LIMIT_S: Final = 5.0  # after this time, the missing answer of a broker is reported, and the request is repeated

_log = get_logger(__name__)


class OffsetBoundsProvider(Protocol):
    """The methods of a source that the monitor needs."""

    async def bounds(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, OffsetRange]:
        """See `Source.bounds`."""
        ...

    async def deleted_topics(self) -> Collection[str]:
        """See `Source.deleted_topics`."""
        ...


class PipelineMonitor:
    """Monitors a pipeline. Create it before the pipeline, which reports to `observed`. Use `running` during the run.

    config_name: the configuration's path, for commands that the page shows.
    """

    def __init__(
        self,
        settings: MetricsSettings,
        pipeline: str,
        warehouse: str,
        observed: RunObservations,
        gauges: ProcessGauges,
        config_name: str = "CONFIG",
    ) -> None:
        self._settings = settings
        self._observed = observed
        self._levels: dict[str, TableLevelsReader] = {}
        self._seen: dict[str, tuple[int | None, int]] = {}  # table to our snapshot at the last look, and its time
        self._failed: dict[str, str] = {}
        release = version("tidelake")
        self.collector = PipelineCollector(
            observed, gauges, (pipeline, release), settings.tables_max, settings.partitions_max
        )
        more = {"identity": identity_of(pipeline, warehouse), "config": config_name}
        self._history = RunHistory()
        self.server = MonitoringServer(
            registry_of(self.collector),
            lambda: {**status_document(observed, gauges, pipeline, release), **more},
            lambda: not_ready(observed),
            self._refresh_tables,
            self._history.document,
            self._table_page,
        )
        self._polling: asyncio.Task[None] | None = None

    def watch_table(self, context: TableContext) -> None:
        """Report the files of this table, too. Thread-safe. A table that is opened again replaces the earlier one."""
        self._levels[context.name] = TableLevelsReader(context)
        self._observed.table(context.name)

    def forget_table(self, table: str) -> None:
        """Report the files of this table no longer."""
        self._levels.pop(table, None)
        self._seen.pop(table, None)

    @asynccontextmanager
    async def running(self, source: OffsetBoundsProvider) -> AsyncIterator[None]:
        """Monitor the pipeline inside the block. Raises BadInput for an unavailable address, and no other error."""
        async with self.serving():
            watching = asyncio.create_task(self._watch(source), name="monitor")
            try:
                yield
            finally:
                watching.cancel()
                await asyncio.gather(watching, *filter(None, [self._polling]), return_exceptions=True)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Answer requests inside the block, without looking at source and tables. Raises BadInput as `running`."""
        async with self.server.serving(self._settings.host, self._settings.port or 0):
            yield

    async def _watch(self, source: OffsetBoundsProvider) -> None:
        refresh_ms = min(self._observed.interval_ms, _REFRESH_MS_MAX)
        while True:
            await self._observed.clock.sleep_ms(refresh_ms)
            await self.poll_once(source)
            self._history.observe(self._observed)

    def _table_page(self, name: str) -> str | None:
        """Return the page of a table; None if there is none of this name. Blocks. Raises as `lsm_page` does."""
        reader = self._levels.get(name)
        return None if reader is None else lsm_page(reader.context)

    async def poll_once(self, source: OffsetBoundsProvider) -> None:
        """Look once at the source, and at tables with commits since the last look."""
        if self._observed.state == "RUNNING":
            await self._run_logged("source", self._poll_source, source)
            await asyncio.shield(self._tables_polled())

    def _tables_polled(self) -> asyncio.Task[None]:
        """Return the task that looks at the tables. Only one runs at a time."""
        if self._polling is None or self._polling.done():
            self._polling = asyncio.create_task(self._poll_tables(), name="monitor tables")
        return self._polling

    async def _poll_tables(self) -> None:
        for name, reader in list(self._levels.items()):
            await self._run_logged(name, self._poll_table, name, reader)

    async def _refresh_tables(self) -> None:
        """Look at tables with commits since the last look, and wait for that for a moment."""
        loop = asyncio.get_running_loop()
        until = loop.time() + _REFRESH_WAIT_S
        while self._observed.state == "RUNNING" and self._is_behind and loop.time() < until:
            await asyncio.wait({self._tables_polled()}, timeout=until - loop.time())

    @property
    def _is_behind(self) -> bool:
        """Whether a look at the tables is running, or commits came since the last one."""
        if self._polling is not None and not self._polling.done():
            return True
        snapshots = {name: self._observed.table(name).snapshot_id for name in self._levels}
        return any(self._seen.get(name, (None, 0))[0] != newest for name, newest in snapshots.items())

    async def _poll_source(self, source: OffsetBoundsProvider) -> None:
        try:
            async with asyncio.timeout(_SOURCE_LIMIT_S):
                bounds = await source.bounds(list(self._observed.partitions))
        except TimeoutError:
            deleted = await source.deleted_topics()  # no broker reports the ends of these
            problem = f"no answer within {_SOURCE_LIMIT_S:g} s" + (
                f": {', '.join(deleted)} was deleted" if deleted else ""
            )
            self._observed.source_failed(problem)
            raise TimeoutError(f"the source: {problem}") from None
        except SourceUnavailable as error:
            self._observed.source_failed(str(error))
            raise
        self._observed.source_answered()
        self._observed.set_end_offsets({partition: bound.end for partition, bound in bounds.items()})

    async def _poll_table(self, name: str, reader: TableLevelsReader) -> None:
        table, now_ms = self._observed.table(name), self._observed.clock.now_ms()
        seen_id, seen_ms = self._seen.get(name, (None, 0))
        if table.levels is None or seen_id != table.snapshot_id or now_ms - seen_ms >= _FOREIGN_TABLE_INTERVAL_MS:
            self._seen[name] = table.snapshot_id, now_ms
            table.levels = await run_uncancellable(reader.read)
            await self._run_logged(f"rows of {name}", self._count_rows, table, reader)

    async def _count_rows(self, table: TableObservation, reader: TableLevelsReader) -> None:
        table.row_count = await run_uncancellable(reader.count_rows)

    async def _run_logged(self, what: str, work: Callable[..., object], *arguments: object) -> None:
        try:
            await work(*arguments)  # type: ignore[misc]
        except Exception as error:
            if self._failed.get(what) != str(error):
                self._failed[what] = str(error)
                _log.warning(
                    "monitoring knows less",
                    of=what,
                    error=str(error),
                    effect="the pipeline continues; some metrics are not updated",
                )
        else:
            self._failed.pop(what, None)
