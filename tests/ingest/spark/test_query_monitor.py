"""What a query's driver reports of its batches: progress, commits, and problems."""

from __future__ import annotations

import json
import logging
import socket
import urllib.request
from uuid import uuid4

import pyarrow as pa
import pytest

import tidelake
from tests.support.manual_clock import ManualClock
from tidelake.checkpoint.offsets import OffsetRange, TopicPartition
from tidelake.checkpoint.record_times import RecordTimes
from tidelake.errors import BadInput
from tidelake.ingest.monitoring.observations import RunObservations
from tidelake.ingest.monitoring.readiness import not_ready
from tidelake.ingest.settings import MetricsSettings
from tidelake.ingest.spark.query_monitor import QueryMonitor, WrittenFiles
from tidelake.storage.base.logs import FIELDS
from tidelake.storage.model.table import TableContext

PARTITION = TopicPartition("orders", 0)


@pytest.fixture
def context() -> TableContext:
    catalog = tidelake.open_catalog(f"memory://{uuid4().hex}/lake")
    catalog.create_database("x")
    return catalog.create_table("x.t", pa.schema([("id", pa.int64())])).context


def monitor(port: int | None = None) -> QueryMonitor:
    return QueryMonitor(MetricsSettings(port=port), "shop", "lake", 1_000)


def reported(of: QueryMonitor, context: TableContext, batch_id: int, start: int, end: int) -> None:
    with of.batch(batch_id):
        of.was_read({PARTITION: OffsetRange(start, end)}, {PARTITION: 100 * (end - start)})
        of.commit_began(context)
        of.commit_ended(context, 7, WrittenFiles(end - start, 2, 50, RecordTimes(1_000, 2_000)), batch_id + 1)


def test_offsets_rows_and_snapshots_of_batches_add_up(context: TableContext) -> None:
    found = monitor()
    reported(found, context, 0, 10, 15)
    reported(found, context, 1, 15, 18)
    observed = found.observed
    assert (observed.checkpoints, observed.topics["orders"].records) == (2, 8)
    assert observed.topics["orders"].nbytes == 800
    assert (observed.partitions[PARTITION].committed, observed.lag) == (18, 0)
    table = observed.table("x.t")
    assert (table.rows, table.commits, table.snapshot_id, table.commit_ms) == (8, 2, 2, 7)
    assert table.newest_committed_ms == 2_000
    assert observed.waiting_since_ms is None
    observed.set_end_offsets({PARTITION: 30})
    assert observed.lag == 12


def test_each_batch_is_logged_in_one_line(context: TableContext, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        reported(monitor(), context, 3, 0, 5)
    (fields,) = [getattr(record, FIELDS) for record in caplog.records if getattr(record, FIELDS).get("batch_id") == 3]
    del fields["took_ms"], fields["lag_ms"]
    assert fields == {
        "event": "batch",
        "batch_id": 3,
        "tables": 1,
        "rows": 5,
        "records": 5,
        "bytes": 500,
        "files": 2,
        "file_bytes": 50,
        "commit_ms": 7,
        "dead_letters": 0,
        "lag": 0,
        "offsets": {"orders-0": 5},
    }


def test_a_failed_batch_is_awaited_and_counted_once_after_its_retry(context: TableContext) -> None:
    found = monitor()
    with pytest.raises(OSError, match="disk"), found.batch(0):
        found.was_read({PARTITION: OffsetRange(0, 5)}, {PARTITION: 500})
        found.commit_began(context)
        found.commit_ended(context, 7, WrittenFiles(5, 1, 9), None)
        raise OSError("disk full")
    observed = found.observed
    assert (observed.checkpoints, observed.lag, observed.table("x.t").commits) == (0, 5, 0)
    assert observed.waiting_since_ms is not None
    reported(found, context, 0, 0, 5)
    assert (observed.checkpoints, observed.lag, observed.topics["orders"].records) == (1, 0, 5)
    assert observed.topics["orders"].nbytes == 500


def test_dead_letters_are_counted_by_their_kind() -> None:
    found = monitor()
    found.dead_lettered([json.dumps({"kind": kind}) for kind in ("bad_value", "bad_value", "unknown_value")])
    assert found.observed.dead_letters == {"bad_value": 2, "unknown_value": 1}


@pytest.mark.parametrize(("waits_ms", "codes"), [(59_000, []), (61_000, ["commits_stalled"])])
def test_a_batch_may_take_a_minute_even_with_a_short_interval(waits_ms: int, codes: list[str]) -> None:
    clock = ManualClock()
    observed = RunObservations(100, clock, "RUNNING", stall_tolerance_ms=60_000)
    observed.offsets_read(PARTITION, 0, 5)
    clock.advance(waits_ms)
    assert [reason.code for reason in not_ready(observed)] == codes


def test_the_endpoint_answers_while_the_query_runs(context: TableContext) -> None:
    found = monitor(port=0)
    with found.serving(lambda: {PARTITION: 9}):
        reported(found, context, 0, 0, 5)
        with urllib.request.urlopen(f"http://127.0.0.1:{found.port}/metrics", timeout=60) as answer:
            lines = answer.read().decode().splitlines()
        assert 'tidelake_table_rows_total{table="x.t"} 5.0' in lines
        assert 'tidelake_source_committed_offset{partition="0",topic="orders"} 5.0' in lines
    assert found.observed.state == "STOPPING"


def test_an_occupied_address_is_refused_before_the_query_starts() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        found = monitor(taken.getsockname()[1])
        with pytest.raises(BadInput, match=r"can't listen on 127\.0\.0\.1"), found.serving(dict):
            pytest.fail("it listens")


def test_a_batch_of_several_sinks_counts_once_when_the_next_one_begins_or_spark_reports_it(
    context: TableContext,
) -> None:
    found = monitor()
    for batch_id in (0, 0, 1):
        found.began(batch_id)
        found.commit_began(context)
        found.commit_ended(context, 7, WrittenFiles(3, 1, 9), batch_id + 1)
    assert found.observed.checkpoints == 1
    found.completed(1)
    found.completed(1)
    assert (found.observed.checkpoints, found.observed.table("x.t").rows) == (2, 9)
