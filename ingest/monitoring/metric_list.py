"""Every metric there is: name, kind, labels, meaning. `docs/operations.md` shows this list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

PREFIX: Final = "tidelake_"
OTHER: Final = "_other"  # the label of what is beyond `metrics.tables_max` or `metrics.partitions_max`


@dataclass(frozen=True, slots=True)
class Metric:
    """name: without PREFIX, and of counters without `_total`.

    beyond: what `_other` holds of several; None leaves it out.
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
    Metric("pipeline_info", "gauge", "1; its labels say which", ("pipeline", "version")),
    Metric("ready", "gauge", "1 while `/ready` says yes"),
    Metric("start_timestamp_seconds", "gauge", "when this process began with the pipeline"),
    Metric("source_records", "counter", "records read", ("topic",)),
    Metric("source_bytes", "counter", "bytes of the records read, uncompressed", ("topic",)),
    Metric("source_committed_offset", "gauge", "next offset after what is committed", _PARTITION),
    Metric("source_end_offset", "gauge", "end of the log; absent where the source can't tell", _PARTITION),
    Metric(
        "source_lag_records", "gauge", "offsets between the committed one and the end of the log", _PARTITION, "sum"
    ),
    Metric(
        "source_lag_seconds",
        "gauge",
        "age of the oldest record that is not committed; 0 when there is none",
        _PARTITION,
        "max",
    ),
    Metric("skipped_records", "counter", "records that rightly give no row", ("kind",)),
    Metric("dead_letters", "counter", "records set aside", ("code",)),
    Metric("transactions_waiting", "gauge", "partitions whose last transaction isn't known to be whole yet"),
    Metric("transactions_split", "counter", "transactions that waited in vain, and may be committed in parts"),
    Metric("table_rows", "counter", "rows written, old images of updates included", _TABLE, "sum"),
    Metric("table_commits", "counter", "snapshots asked for", _TABLE, "sum"),
    Metric(
        "table_commit_attempts",
        "counter",
        "attempts at them: more than commits where others commit as well",
        _TABLE,
        "sum",
    ),
    Metric("table_last_commit_duration_seconds", "gauge", "of the newest commit", _TABLE, "max"),
    Metric("table_last_commit_timestamp_seconds", "gauge", "when the newest commit was done", _TABLE),
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
        "now minus that; of a table that gets nothing it grows: look at the lag, too",
        _TABLE,
        "max",
    ),
    Metric("table_files", "gauge", "live data files", ("table", "level"), "sum"),
    Metric("table_file_bytes", "gauge", "their size", ("table", "level"), "sum"),
    Metric("table_sorted_runs_max", "gauge", "sorted runs of the bucket with the most", _TABLE, "max"),
    Metric("table_held_back", "gauge", "1 for a table that is held back while the others go on", _TABLE, "sum"),
    Metric("compactions", "counter", "compactions done beside the writing", _TABLE, "sum"),
    Metric("compaction_written_bytes", "counter", "bytes that they wrote", _TABLE, "sum"),
    Metric("compaction_queue", "gauge", "compactions that wait for a thread"),
    Metric("compaction_running", "gauge", "compactions that run"),
    Metric("compaction_duration_seconds", "histogram", "of each compaction"),
    Metric("commit_duration_seconds", "histogram", "of each table's commit, all its attempts together"),
    Metric("checkpoint_duration_seconds", "histogram", "of each checkpoint, all its tables together"),
    Metric("checkpoints", "counter", "complete checkpoints"),
    Metric("checkpoint_interval_seconds", "gauge", "what `checkpoint.interval_ms` says"),
    Metric(
        "checkpoint_waiting_seconds",
        "gauge",
        "how long records have waited for a checkpoint; `/ready` is red beyond twice the interval",
    ),
    Metric("write_buffer_bytes", "gauge", "rows in the write buffers of all tables"),
    Metric("write_buffer_limit_bytes", "gauge", "what `write.memory_bytes` says"),
)
