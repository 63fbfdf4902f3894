"""The list of all metrics: name, kind, labels, meaning. `docs/operations.md` shows this list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

PREFIX: Final = "tidelake_"
OTHER: Final = "_other"  # the label of series beyond `metrics.tables_max` or `metrics.partitions_max`


# Names of metrics that all pipelines and queries of a process share.
OF_PROCESS: Final = frozenset({"store_requests", "store_request_duration_seconds"})


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric.

    name: the name without PREFIX; for counters also without `_total`.
    beyond: how `_other` combines several series; None leaves them out.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    beyond: Literal["sum", "max"] | None = None

    @property
    def exposed_name(self) -> str:
        return f"{PREFIX}{self.name}{'_total' if self.kind == 'counter' else ''}"


_PARTITION: Final = ("topic", "partition")
_TABLE: Final = ("table",)

METRICS: Final = (
    Metric("pipeline_info", "gauge", "always 1; its labels name the pipeline and the version", ("pipeline", "version")),
    Metric("ready", "gauge", "1 while `/ready` is ok"),
    Metric("start_timestamp_seconds", "gauge", "when this process started the pipeline"),
    Metric("source_records", "counter", "records read", ("topic",)),
    Metric("source_bytes", "counter", "bytes of the records read, uncompressed", ("topic",)),
    Metric("source_committed_offset", "gauge", "next offset after the committed records", _PARTITION),
    Metric(
        "source_end_offset",
        "gauge",
        "end of the log; absent if the source can't tell, and while it does not answer",
        _PARTITION,
    ),
    Metric(
        "source_lag_records",
        "gauge",
        "offsets between the committed offset and the end of the log; absent while the source does not answer",
        _PARTITION,
        "sum",
    ),
    Metric(
        "source_lag_seconds",
        "gauge",
        "age of the oldest record that is not committed; 0 if there is none; absent while the source does not answer",
        _PARTITION,
        "max",
    ),
    Metric("skipped_records", "counter", "records skipped on purpose", ("kind",)),
    Metric("dead_letters", "counter", "records that became dead letters", ("code",)),
    Metric(
        "lineage_events",
        "counter",
        "OpenLineage events: `sent`, `failed` (the server or the client refused), `dropped` (too many waited)",
        ("outcome",),
    ),
    Metric("transactions_waiting", "gauge", "partitions whose last transaction may be incomplete"),
    Metric("transactions_split", "counter", "transactions that exceeded the wait limit, and may be committed in parts"),
    Metric("decode_processes", "gauge", "processes that decode; 0: the pipeline's own one does"),
    Metric("decode_process_restarts", "counter", "decode processes that ended and were replaced"),
    Metric("decode_batches", "counter", "batches that these processes decoded"),
    Metric(
        "decode_outdated_batches",
        "counter",
        "batches that they decoded for a table that changed meanwhile, so that the pipeline decoded them again",
    ),
    Metric("decode_bytes_in_flight", "gauge", "bytes of records that these processes have, or have decoded ahead"),
    Metric("table_rows", "counter", "rows written, old images of updates included", _TABLE, "sum"),
    Metric("table_commits", "counter", "commits", _TABLE, "sum"),
    Metric(
        "table_commit_attempts",
        "counter",
        "attempts of commits: more than commits if others commit to the table, too",
        _TABLE,
        "sum",
    ),
    Metric("table_last_commit_duration_seconds", "gauge", "duration of the newest commit", _TABLE, "max"),
    Metric("table_last_commit_timestamp_seconds", "gauge", "time of the newest commit", _TABLE),
    Metric("table_snapshot_id", "gauge", "newest snapshot of this pipeline", _TABLE),
    Metric(
        "table_newest_record_timestamp_seconds",
        "gauge",
        "time of the newest committed record; absent until this process commits one",
        _TABLE,
    ),
    Metric(
        "table_freshness_seconds",
        "gauge",
        "now minus the newest record time; grows while no records arrive: look at the lag, too",
        _TABLE,
        "max",
    ),
    Metric(
        "table_freshness_target_seconds",
        "gauge",
        "value of `freshness.target_ms`; absent without a target",
        _TABLE,
    ),
    Metric(
        "table_oldest_record_age_seconds",
        "gauge",
        "age of the oldest record of the newest commit when its row became visible: the freshness that was reached",
        _TABLE,
        "max",
    ),
    Metric("table_files", "gauge", "live data files", ("table", "level"), "sum"),
    Metric("table_file_bytes", "gauge", "size of live data files", ("table", "level"), "sum"),
    Metric("table_sorted_runs_max", "gauge", "sorted runs of the bucket with the most", _TABLE, "max"),
    Metric("table_held_back", "gauge", "1 for a table in quarantine", _TABLE, "sum"),
    Metric(
        "table_bootstrap_rows",
        "gauge",
        "rows of the source's initial snapshot that wait, sorted, for their commit; absent without a bootstrap",
        _TABLE,
        "sum",
    ),
    Metric("compactions", "counter", "compactions done while writing", _TABLE, "sum"),
    Metric("compaction_written_bytes", "counter", "bytes that compactions wrote", _TABLE, "sum"),
    Metric("compaction_queue", "gauge", "compactions waiting for a thread"),
    Metric("compaction_running", "gauge", "running compactions"),
    Metric("compaction_duration_seconds", "histogram", "duration of each compaction"),
    Metric("commit_duration_seconds", "histogram", "duration of each table's commit, with all its attempts"),
    Metric("checkpoint_duration_seconds", "histogram", "duration of each checkpoint, with all its tables"),
    Metric("checkpoints", "counter", "complete checkpoints"),
    Metric(
        "checkpoint_interval_seconds", "gauge", "value of `checkpoint.interval_ms`, or what `freshness` chose instead"
    ),
    Metric(
        "checkpoint_buffer_bytes",
        "gauge",
        "bytes of records after which a checkpoint is due earlier; absent without a target of `freshness`",
    ),
    Metric(
        "freshness_binds",
        "gauge",
        "1 for what keeps the target of `freshness` from being reached (`nothing`, `source`, `cpu`, `store`, "
        "`compaction`, `cost`), 0 for the others; absent without a target",
        ("by",),
    ),
    Metric(
        "checkpoint_waiting_seconds",
        "gauge",
        "how long records have waited for a checkpoint; `/ready` is red beyond twice the interval, with a target of "
        "`freshness` beyond twice the target, or 10 s if that is longer",
    ),
    Metric(
        "store_requests",
        "counter",
        "requests of this process to object stores; what the client repeats after a failure counts once",
        ("operation", "kind"),
    ),
    Metric("store_request_duration_seconds", "histogram", "duration of each such request", ("operation",)),
    Metric("write_buffer_bytes", "gauge", "bytes of rows in the write buffers of all tables"),
    Metric("write_buffer_limit_bytes", "gauge", "value of `write.memory_bytes`"),
)
