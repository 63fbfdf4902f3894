"""A listener of a session's streaming queries that exports what its sinks write, for Prometheus and for probes.

Spark's own progress of a query can't carry these figures: its observed metrics are those of the query's plan, and
`foreachBatch` writes with other plans. So sinks report to monitors in the driver, and the listener adds what Spark
knows: names of queries, the ends of their sources, and when a batch or a query has ended.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector
from pyspark.sql.streaming.listener import StreamingQueryListener
from pyspark.sql.utils import is_remote

from tidelake.checkpoint.offsets import TopicPartition
from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.ingest.monitoring.metric_list import OF_PROCESS, PREFIX
from tidelake.ingest.monitoring.metrics import registry_of
from tidelake.ingest.monitoring.readiness import NotReady, not_ready
from tidelake.ingest.monitoring.server import MonitoringServer
from tidelake.ingest.settings import MetricsSettings
from tidelake.ingest.spark.query_monitor import MONITORS, QueryMonitor
from tidelake.spark.kafka.connector_offsets import from_members
from tidelake.storage.base import env
from tidelake.storage.base.arguments import checked

_QUERY_LABEL: Final = "query"
_POLL_SECONDS: Final = 5.0


class MetricsListener(StreamingQueryListener):
    """Exports what the sinks of this driver's queries write.

        spark.streams.addListener(MetricsListener(port=9404))

    It answers over HTTP from its creation on: `/metrics` with the names of `tidelake ingest run` and a label `query`
    (the query's name, or its id), `/ready`, `/live` and `/status`. A query that was stopped is left out. One that
    failed stays, and makes `/ready` red, until it is started again.

    port: port of the endpoint; 0 takes a free one, which the attribute `port` has
    host: its address
    interval_ms: interval of the queries' triggers. `/ready` is red if records wait for two of them, or for a minute if
        that is longer

    Raises BadInput for an unavailable address, or if another listener is open. Raises UnsupportedFeature on Spark
    Connect, where sinks run in another process.
    """

    @checked
    def __init__(self, port: int, host: str = "127.0.0.1", *, interval_ms: int = 60_000) -> None:
        if is_remote():
            raise UnsupportedFeature(
                "MetricsListener on Spark Connect",
                "a listener runs in the client, and sinks run in the server",
                "Use it in a classic session: master=… instead of remote=…",
            )
        self._names: dict[str, str] = {}  # id of a query to its name
        self._ends: dict[str, Mapping[TopicPartition, int]] = {}
        self._settings = MetricsSettings(port=port, host=host)
        self._interval_ms = interval_ms
        self._server = MonitoringServer(
            registry_of(_QueriesCollector(self)), self._status, self._reasons, self._refresh
        )
        self._stop = env.Event()
        started = env.Future[None]()
        MONITORS.observe(self._monitor_of)
        self._thread = env.Thread(target=lambda: asyncio.run(self._serve(started)), name="metrics", daemon=True)
        self._thread.start()
        try:
            started.result()
        except BadInput as error:
            MONITORS.observe(None)
            raise BadInput(f"MetricsListener: {host}:{port} is not available. Pass another port or host") from error

    @property
    def port(self) -> int:
        return self._server.port

    def close(self) -> None:
        """Close the endpoint. Sinks report no more."""
        MONITORS.observe(None)
        self._stop.set()
        self._thread.join()

    def queries(self) -> Iterator[tuple[str, QueryMonitor]]:
        """Yield names and monitors of the queries whose sinks were called."""
        for query, monitor in MONITORS.all().items():
            yield self._names.get(query, query), monitor

    # ------------------------------------------------------------ events of Spark

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
        query, name = str(event.id), event.name or str(event.id)
        for other, known in list(self._names.items()):
            if other == query or known == name:  # an earlier run, or a query in place of this one
                MONITORS.forget(other)
                self._names.pop(other, None)
                self._ends.pop(other, None)
        self._names[query] = name

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's name
        progress = event.progress
        query = str(progress.id)
        monitor = MONITORS.known(query)
        if monitor is None:
            return
        self._ends[query] = ends = _ends_of(progress.sources)
        monitor.completed(progress.batchId)
        monitor.observed.set_end_offsets(ends)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Do nothing: nothing has changed."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 - Spark's name
        query = str(event.id)
        monitor = MONITORS.known(query)
        if monitor is None:
            self._names.pop(query, None)
        elif event.exception is None:
            MONITORS.forget(query)
            self._names.pop(query, None)
            self._ends.pop(query, None)
        else:
            first = next(iter(str(event.exception).splitlines()), "")
            monitor.ended(f"the query failed: {first}")

    # ------------------------------------------------------------ the endpoint

    def _monitor_of(self, query: str, warehouse: str) -> QueryMonitor:
        monitor = QueryMonitor(self._settings, self._names.get(query, query), warehouse, self._interval_ms)
        monitor.observed.state = "RUNNING"
        return monitor

    async def _serve(self, started: env.Future[None]) -> None:
        try:
            async with self._server.serving(self._settings.host, self._settings.port or 0):
                started.set_result(None)
                while not await asyncio.to_thread(self._stop.wait, _POLL_SECONDS):
                    await self._refresh()
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)

    async def _refresh(self) -> None:
        for query, monitor in MONITORS.all().items():
            await monitor.poll_once(lambda of=query: self._ends.get(of, {}))  # type: ignore[misc]

    def _status(self) -> dict[str, Any]:
        queries = {
            name: {
                "state": monitor.observed.state,
                "batches": monitor.observed.checkpoints,
                "lag": monitor.observed.lag,
                "offsets": {str(p): progress.committed for p, progress in sorted(monitor.observed.partitions.items())},
                "tables": {
                    table: {"rows": of.rows, "snapshot_id": of.snapshot_id, "commit_ms": of.commit_ms}
                    for table, of in sorted(monitor.observed.tables.items())
                },
            }
            for name, monitor in self.queries()
        }
        return {"identity": f"listener {id(self)}", "queries": queries}

    def _reasons(self) -> list[NotReady]:
        return [
            NotReady(reason.code, f"{name}: {reason.reason}", reason.tables)
            for name, monitor in self.queries()
            for reason in not_ready(monitor.observed)
        ]


class _QueriesCollector(Collector):
    """The collector of all queries' metrics: each series with the label `query`, those of the process once."""

    def __init__(self, listener: MetricsListener) -> None:
        self._listener = listener

    def collect(self) -> Iterable[Family]:
        families: dict[str, Family] = {}
        for name, monitor in self._listener.queries():
            for found in monitor.collector.collect():
                is_of_process = found.name.removeprefix(PREFIX) in OF_PROCESS
                known = families.get(found.name)
                if known is None:
                    known = families[found.name] = Family(found.name, found.documentation, found.type)
                elif is_of_process:
                    continue
                label = {} if is_of_process else {_QUERY_LABEL: name}
                known.samples += [sample._replace(labels={**sample.labels, **label}) for sample in found.samples]
        return families.values()

    def describe(self) -> list[Family]:
        return []


def _ends_of(sources: Sequence[Any]) -> dict[TopicPartition, int]:
    """Return the ends of Kafka's partitions in a progress. Other sources have other offsets, or report none."""
    found: dict[TopicPartition, int] = {}
    for source in sources:
        try:
            found |= from_members(json.loads(source.latestOffset or "null") or {})
        except (ValueError, AttributeError, TypeError):
            continue
    return found
