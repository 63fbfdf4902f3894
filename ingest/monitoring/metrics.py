"""The metrics of a pipeline for Prometheus, made from the observations at each request.

Labels are bounded: tables and partitions beyond a limit share one series, `_other`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from tidelake.ingest.formats.base import FailureKind
from tidelake.ingest.monitoring.metric_list import METRICS, OTHER, PREFIX, Metric
from tidelake.ingest.monitoring.observations import BINDINGS, LINEAGE_OUTCOMES, RunObservations, TableObservation
from tidelake.ingest.monitoring.readiness import not_ready
from tidelake.storage.base.clock import epoch_ms
from tidelake.storage.base.duration_histogram import DurationHistogram
from tidelake.storage.fileio.store_requests import STORE_REQUESTS

Labels = tuple[str, ...]
Sample = tuple[Labels, float]


@dataclass(frozen=True, slots=True)
class ProcessGauges:
    """Gauges of resources that all tables of the process share. They are read when they are needed."""

    buffer_bytes: Callable[[], int]
    buffer_limit_bytes: int
    compactions_waiting: Callable[[], int]
    compactions_running: Callable[[], int]


class PipelineCollector(Collector):
    """The collector of a pipeline's metrics. It is thread-safe, and quick enough to be called at every scrape."""

    def __init__(
        self,
        observed: RunObservations,
        gauges: ProcessGauges,
        info: Labels,
        tables_max: int,
        partitions_max: int,
    ) -> None:
        """Create the collector.

        observed: the observations of the run.
        gauges: the gauges of the process.
        info: pipeline and release.
        tables_max: number of tables with a label.
        partitions_max: number of partitions with a label.
        """
        self._observed = observed
        self._gauges = gauges
        self._info = info
        self._tables_max = tables_max
        self._partitions_max = partitions_max

    def collect(self) -> Iterator[Family]:
        samples = {**self._of_source(), **self._of_tables(), **self._of_process()}
        histograms = self._histograms()
        for metric in METRICS:
            if metric.kind == "histogram":
                yield _histogram(metric, histograms[metric.name])
            else:
                yield _family(metric, self._bounded(metric, samples[metric.name]))

    def describe(self) -> list[Family]:
        return []

    # ------------------------------------------------------------ values

    def _of_source(self) -> dict[str, Iterable[Sample]]:
        observed = self._observed
        now_ms, now_epoch_ms = observed.clock.now_ms(), epoch_ms()
        topics = sorted(observed.topics.copy().items())
        partitions = sorted(observed.partitions.copy().items())
        labelled = [((p.topic, str(p.partition)), progress) for p, progress in partitions]
        ending = labelled if observed.is_lag_known else []
        return {
            "source_records": [((topic,), counts.records) for topic, counts in topics],
            "source_bytes": [((topic,), counts.nbytes) for topic, counts in topics],
            "source_committed_offset": [(at, progress.committed) for at, progress in labelled],
            "source_end_offset": [(at, progress.end) for at, progress in ending if progress.end is not None],
            "source_lag_records": [(at, progress.lag) for at, progress in ending],
            "source_lag_seconds": [(at, progress.lag_ms(now_ms, now_epoch_ms) / 1000) for at, progress in ending],
            "skipped_records": [((kind,), count) for kind, count in sorted(observed.skipped.copy().items())],
            "lineage_events": [((outcome,), observed.lineage_events[outcome]) for outcome in LINEAGE_OUTCOMES],
            "dead_letters": [((code,), count) for code, count in _with_all_codes(observed.dead_letters)],
        }

    def _of_tables(self) -> dict[str, Iterable[Sample]]:
        tables = sorted(self._observed.tables.copy().items())
        now_ms, held_back, kept = epoch_ms(), self._observed.problems(), self._observed.freshness

        def of(value: Callable[[TableObservation], float | None]) -> list[Sample]:
            found = (((name,), value(table)) for name, table in tables)
            return [(at, one) for at, one in found if one is not None]

        levels = [
            ((name, str(level)), files)
            for name, table in tables
            if table.levels is not None
            for level, files in table.levels.by_level().items()
        ]
        return {
            "table_rows": of(lambda t: t.rows),
            "table_commits": of(lambda t: t.commits),
            "table_commit_attempts": of(lambda t: t.commit_attempts),
            "table_last_commit_duration_seconds": of(lambda t: _seconds(t.commit_ms)),
            "table_last_commit_timestamp_seconds": of(lambda t: _seconds(t.committed_at_ms)),
            "table_snapshot_id": of(lambda t: t.snapshot_id),
            "table_newest_record_timestamp_seconds": of(lambda t: _seconds(t.newest_committed_ms)),
            "table_freshness_seconds": of(lambda t: _age_s(t.newest_committed_ms, now_ms)),
            "table_freshness_target_seconds": [
                ((name,), target_ms / 1000)
                for name, _ in tables
                if kept is not None and (target_ms := kept.target_of(name)) is not None
            ],
            "table_oldest_record_age_seconds": of(lambda t: _seconds(t.oldest_age_ms)),
            "table_files": [(at, files.files) for at, files in levels],
            "table_file_bytes": [(at, files.nbytes) for at, files in levels],
            "table_sorted_runs_max": of(lambda t: None if t.levels is None else t.levels.sorted_runs_max()),
            "table_held_back": [((name,), float(name in held_back)) for name, _ in tables],
            "table_bootstrap_rows": of(lambda t: t.bootstrap_rows),
            "compactions": of(lambda t: t.compactions),
            "compaction_written_bytes": of(lambda t: t.compacted_bytes),
        }

    def _of_process(self) -> dict[str, Iterable[Sample]]:
        observed, gauges = self._observed, self._gauges
        since_ms = observed.waiting_since_ms
        alone: dict[str, float] = {
            "ready": not not_ready(observed),
            "start_timestamp_seconds": observed.started_at_ms / 1000,
            "compaction_queue": gauges.compactions_waiting(),
            "compaction_running": gauges.compactions_running(),
            "transactions_waiting": observed.transactions.waiting,
            "transactions_split": observed.transactions.split,
            "decode_processes": observed.decoding.processes,
            "decode_process_restarts": observed.decoding.restarts,
            "decode_batches": observed.decoding.batches,
            "decode_outdated_batches": observed.decoding.outdated,
            "decode_bytes_in_flight": observed.decoding.bytes_in_flight,
            "checkpoints": observed.checkpoints,
            "checkpoint_interval_seconds": observed.interval_ms / 1000,
            "checkpoint_waiting_seconds": 0 if since_ms is None else (observed.clock.now_ms() - since_ms) / 1000,
            "write_buffer_bytes": gauges.buffer_bytes(),
            "write_buffer_limit_bytes": gauges.buffer_limit_bytes,
        }
        kept = observed.freshness
        requests = [((str(operation), kind), count) for (operation, kind), count in STORE_REQUESTS.counts().items()]
        return {
            "pipeline_info": [(self._info, 1)],
            "store_requests": sorted(requests),
            "checkpoint_buffer_bytes": [] if kept is None else [((), kept.buffer_bytes)],
            "freshness_binds": [] if kept is None else [((by,), float(by == kept.binds)) for by in BINDINGS],
            **{name: [((), value)] for name, value in alone.items()},
        }

    def _histograms(self) -> Mapping[str, Mapping[Labels, DurationHistogram]]:
        return {
            "compaction_duration_seconds": {(): self._observed.compaction_durations},
            "commit_duration_seconds": {(): self._observed.commit_durations},
            "checkpoint_duration_seconds": {(): self._observed.checkpoint_durations},
            "store_request_duration_seconds": {
                (str(operation),): durations for operation, durations in sorted(STORE_REQUESTS.durations().items())
            },
        }

    # ------------------------------------------------------------ labels

    def _bounded(self, metric: Metric, samples: Iterable[Sample]) -> list[Sample]:
        """Return samples of at most the allowed number of tables or partitions. The others are combined into one."""
        limit = {"table": self._tables_max, "topic": self._partitions_max}.get(next(iter(metric.labels), ""))
        if limit is None:
            return list(samples)
        kept: set[str] = set()
        bounded: dict[Labels, float] = {}
        for labels, value in samples:
            # Both labels identify a partition. For a table's level, only the first label identifies the table.
            owner = " ".join(labels) if "partition" in metric.labels else labels[0]
            if len(kept) < limit:
                kept.add(owner)
            if owner in kept:
                bounded[labels] = value
                continue
            beyond = _combiner_of_remaining(metric)
            rest = (OTHER, *labels[1:]) if "level" in metric.labels else (OTHER,) * len(labels)
            if beyond is not None:
                bounded[rest] = beyond((bounded[rest], value)) if rest in bounded else value
        return list(bounded.items())


def _combiner_of_remaining(metric: Metric) -> Callable[[Iterable[float]], float] | None:
    """Return the function that combines the values beyond the limit; None if they are left out."""
    if metric.kind == "counter" or metric.beyond == "sum":
        return sum
    return max if metric.beyond == "max" else None


def _with_all_codes(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return the counts with 0 for each other code: an alert on an increase misses a series that begins above 0."""
    return sorted({**dict.fromkeys((kind.name for kind in FailureKind), 0), **dict(counts)}.items())


def _seconds(duration_ms: int | None) -> float | None:
    return None if duration_ms is None else duration_ms / 1000


def _age_s(time_ms: int | None, now_ms: int) -> float | None:
    return None if time_ms is None else max(0, now_ms - time_ms) / 1000


_FAMILIES: Final = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}


def _family(metric: Metric, samples: Iterable[Sample]) -> Family:
    family: Any = _FAMILIES[metric.kind](PREFIX + metric.name, metric.help, labels=metric.labels)
    for labels, value in samples:
        family.add_metric(labels, float(value))
    made: Family = family
    return made


def _histogram(metric: Metric, histograms: Mapping[Labels, DurationHistogram]) -> Family:
    family = HistogramMetricFamily(PREFIX + metric.name, metric.help, labels=metric.labels)
    for labels, histogram in histograms.items():
        family.add_metric(labels, histogram.cumulative(), histogram.sum_s)
    return family


def registry_of(collector: Collector) -> CollectorRegistry:
    """Return a registry with the collector and with metrics of the process: memory, processor time, open files."""
    registry = CollectorRegistry()
    registry.register(collector)
    for more in (ProcessCollector, PlatformCollector, GCCollector):
        more(registry=registry)
    return registry
