"""The state of a running pipeline as one JSON document, for `/status`, the status page and `ingest status`."""

from __future__ import annotations

from dataclasses import asdict
from hashlib import sha256
from typing import Any, Final

from tidelake.ingest.monitoring.metrics import ProcessGauges
from tidelake.ingest.monitoring.observations import RunObservations, TableObservation
from tidelake.ingest.monitoring.readiness import not_ready
from tidelake.ingest.monitoring.table_levels import sorted_runs
from tidelake.storage.base.clock import epoch_ms

BUCKETS_SHOWN: Final = 64  # buckets per table, those with the most sorted runs


def identity_of(pipeline: str, warehouse: str) -> str:
    """Return an identity that all processes of one pipeline share. It does not reveal the warehouse."""
    return sha256(f"{warehouse}\0{pipeline}".encode()).hexdigest()[:16]


def status_document(observed: RunObservations, gauges: ProcessGauges, pipeline: str, version: str) -> dict[str, Any]:
    """Return the document. Names in `_at_ms` are epoch milliseconds, others in `_ms` durations. Null means unknown."""
    now_ms, now_epoch_ms = observed.clock.now_ms(), epoch_ms()
    reasons, held_back = not_ready(observed), observed.problems()
    waiting, is_lag_known = observed.waiting_since_ms, observed.is_lag_known
    return {
        "pipeline": pipeline,
        "version": version,
        "state": observed.state,
        "now_ms": now_epoch_ms,
        "started_at_ms": observed.started_at_ms,
        "ready": not reasons,
        "reasons": [asdict(reason) for reason in reasons],
        "lag": observed.lag,
        "lag_ms": observed.lag_ms(),
        "waiting_ms": None if waiting is None else now_ms - waiting,
        "rows": sum(table.rows for table in observed.tables.values()),
        "records": sum(counts.records for counts in observed.topics.values()),
        "bytes": sum(counts.nbytes for counts in observed.topics.values()),
        "transactions": {"waiting": observed.transactions.waiting, "split": observed.transactions.split},
        "decoding": asdict(observed.decoding),
        "skipped": dict(observed.skipped),
        "dead_letters": dict(observed.dead_letters),
        "write_buffer": {"bytes": gauges.buffer_bytes(), "limit_bytes": gauges.buffer_limit_bytes},
        "compactions": {"waiting": gauges.compactions_waiting(), "running": gauges.compactions_running()},
        "activities": [{"name": name, "for_ms": for_ms} for name, for_ms in observed.activities()],
        "checkpoint": {
            "interval_ms": observed.interval_ms,
            "count": observed.checkpoints,
            "recent": [asdict(one) for one in observed.recent_checkpoints],
        },
        "freshness": _freshness(observed),
        "partitions": [
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "committed": progress.committed,
                "read": progress.read,
                "end": progress.end if is_lag_known else None,
                "lag": progress.lag if is_lag_known else None,
                "lag_ms": progress.lag_ms(now_ms, now_epoch_ms) if is_lag_known else None,
            }
            for partition, progress in sorted(observed.partitions.items())
        ],
        "tables": [
            {
                "name": name,
                **_table(table, now_epoch_ms),
                "target_ms": None if observed.freshness is None else observed.freshness.target_of(name),
                "held_back": held_back.get(name),
            }
            for name, table in sorted(observed.tables.items())
        ],
    }


def _freshness(observed: RunObservations) -> dict[str, Any] | None:
    """Return how the freshness is kept, newest changes last; null without a target."""
    kept = observed.freshness
    if kept is None:
        return None
    return {
        "target_ms": kept.target_ms,
        "table": kept.table,
        "reached_ms": kept.reached_ms,
        "binds": kept.binds,
        "reason": kept.reason,
        "compaction": kept.pace,
        "buffer_bytes": kept.buffer_bytes,
        "hour": None if kept.hour is None else {**asdict(kept.hour), "currency": kept.currency},
        "changes": [asdict(one) for one in list(kept.changes)],
    }


def _table(table: TableObservation, now_ms: int) -> dict[str, Any]:
    newest_ms, counted = table.newest_committed_ms, table.row_count
    return {
        # Until the table was looked at, only the rows that this process wrote are known.
        "rows": table.rows if counted is None else counted.rows,
        "rows_are_exact": None if counted is None else counted.is_exact,
        "rows_written": table.rows,
        "snapshot_id": table.snapshot_id,
        "commits": table.commits,
        "commit_attempts": table.commit_attempts,
        "commit_ms": table.commit_ms,
        "committed_at_ms": table.committed_at_ms,
        "newest_record_at_ms": newest_ms,
        "oldest_age_ms": table.oldest_age_ms,
        "freshness_ms": None if newest_ms is None else max(0, now_ms - newest_ms),
        "bootstrap_rows": table.bootstrap_rows,
        "compactions": table.compactions,
        **_levels(table),
    }


def _levels(table: TableObservation) -> dict[str, Any]:
    """Return the levels of a table.

    In `buckets`, `partition` is a number that counts the table's partitions. `levels` has files and bytes of each
    level.
    """
    if table.levels is None:
        unknown = ("files", "file_bytes", "uncompacted_bytes", "write_amplification", "sorted_runs_max", "bucket_count")
        return {**dict.fromkeys(unknown), "buckets": []}
    by_level = table.levels.by_level().values()
    partitions = {found: n for n, found in enumerate(dict.fromkeys(key.partition for key in table.levels.buckets))}
    worst = sorted(table.levels.buckets.items(), key=lambda item: -sorted_runs(item[1]))[:BUCKETS_SHOWN]
    return {
        "files": sum(one.files for one in by_level),
        "file_bytes": sum(one.nbytes for one in by_level),
        "uncompacted_bytes": table.levels.uncompacted_bytes,
        "write_amplification": table.levels.write_amplification,
        "sorted_runs_max": table.levels.sorted_runs_max(),
        "bucket_count": len(table.levels.buckets),
        "buckets": [
            {
                "partition": partitions[key.partition],
                "bucket": key.bucket,
                "levels": {str(level): {"files": files, "bytes": size} for level, (files, size) in levels.items()},
            }
            for key, levels in sorted(worst, key=lambda item: (item[0].partition, item[0].bucket))
        ],
    }
