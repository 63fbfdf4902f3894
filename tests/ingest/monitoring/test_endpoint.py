"""The endpoint of a real run: every metric compared with the expected value, the probes, the documents."""

from __future__ import annotations

import asyncio
import json
import re
import time
from asyncio import to_thread
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import prometheus_client.openmetrics.parser
import pytest
from prometheus_client.parser import text_string_to_metric_families

import tidelake
from tests.ingest.pipeline.fakes import until
from tests.support.manual_clock import ManualClock
from tidelake.checkpoint.offsets import TopicPartition
from tidelake.checkpoint.record_times import RecordTimes
from tidelake.errors import BadInput
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.formats.base import FailureKind
from tidelake.ingest.monitoring import metrics
from tidelake.ingest.monitoring.metric_list import METRICS
from tidelake.ingest.monitoring.metrics import PipelineCollector, ProcessGauges
from tidelake.ingest.monitoring.observations import RunObservations
from tidelake.ingest.monitoring.status import status_document
from tidelake.ingest.pipeline.builder import build_pipeline
from tidelake.ingest.pipeline.pipeline import Pipeline
from tidelake.storage.base.clock import epoch_ms
from tidelake.storage.base.duration_histogram import DurationHistogram
from tidelake.storage.catalog.opening import open_catalog
from tidelake.storage.commit.manifests.snapshot_files import delta_entries, live_entries
from tidelake.storage.fileio.store_requests import Operation, StoreRequests
from tidelake.storage.model.format import CommitKind, FileKind

DOCS = Path(__file__).parent.parent.parent.parent / "docs"
TABLES = ("customers", "orders")
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def line(
    offset: int,
    table: str,
    id_: int,
    *,
    time_ms: int,
    partition: int = 0,
    value: str | None = None,
    transaction: str | None = None,
) -> str:
    """transaction: the id of one that has more records than this."""
    source = {"db": "shop", "table": table, "connector": "postgresql"}
    change: dict[str, Any] = {"before": None, "after": {"id": id_, "name": f"n{id_}"}, "op": "c", "source": source}
    if transaction is not None:
        change["transaction"] = {"id": transaction, "total_order": 1, "data_collection_order": 1}
    record = {
        "topic": "shop",
        "partition": partition,
        "offset": offset,
        "timestamp_ms": time_ms,
        "key": json.dumps({"id": id_}),
        "value": json.dumps(change) if value is None else value,
    }
    return json.dumps(record) + "\n"


@asynccontextmanager
async def running(path: Path, *flags: str) -> AsyncIterator[tuple[Pipeline, aiohttp.ClientSession]]:
    """A pipeline that follows the folder, and a client of its endpoint."""
    await to_thread((path / "in").mkdir, exist_ok=True, parents=True)
    text = f"""
        warehouse: {path}/lake
        source: {{type: change-log-folder, path: {path}/in, poll_interval_ms: 10}}
        tables: [{{name: db.orders, options: {{bucket: 2}}}}, {{name: db.customers}}]
        errors: {{tolerance: all}}
        checkpoint: {{interval_ms: 50}}
        metrics: {{port: 0}}
    """
    pipeline = await to_thread(lambda: build_pipeline(parse_config(text, "shop.yaml", flags, pipeline="shop")))
    run = asyncio.create_task(pipeline.run())
    try:
        await until(lambda: run.done() or pipeline.observed.state == "RUNNING")
        assert pipeline.monitor is not None
        async with aiohttp.ClientSession(f"http://127.0.0.1:{pipeline.monitor.server.port}/") as client:
            yield pipeline, client
    finally:
        pipeline.stop()
        await run


async def get_json(client: aiohttp.ClientSession, path: str) -> Any:
    async with client.get(path) as answer:
        return await answer.json()


async def scraped(client: aiohttp.ClientSession) -> Samples:
    async with client.get("metrics") as answer:
        assert answer.status == 200
        text = await answer.text()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def labelled(samples: Samples, name: str) -> dict[tuple[str, ...], float]:
    """Values by the values of the labels, in the order of their names."""
    return {
        tuple(text for _, text in sorted(labels)): value for (found, labels), value in samples.items() if found == name
    }


@pytest.fixture
def new_ms() -> int:
    return epoch_ms() - 5_000


@pytest.fixture
def own_requests(monkeypatch: pytest.MonkeyPatch) -> StoreRequests:
    """Without those that other tests of the process made."""
    requests = StoreRequests()
    monkeypatch.setattr(metrics, "STORE_REQUESTS", requests)
    return requests


@pytest.mark.usefixtures("own_requests")
async def test_every_metric_matches_the_run(tmp_path: Path, new_ms: int) -> None:
    async with running(tmp_path) as (pipeline, client):
        text = "".join(line(n, TABLES[n % 2], n, time_ms=new_ms + n) for n in range(10))
        text += line(10, "orders", 3, time_ms=new_ms, value="{") + line(0, "orders", 7, time_ms=new_ms, partition=1)
        text += line(1, "nowhere", 1, time_ms=new_ms, partition=1)
        await to_thread((tmp_path / "in" / "1.jsonl").write_text, text)
        await until(lambda: sum(t.records for t in pipeline.observed.topics.values()) == 13)
        await until(lambda: pipeline.observed.lag == 0)
        assert pipeline.monitor is not None
        for _ in range(2):  # the first one may join a look that began before the last commit
            await pipeline.monitor.poll_once(pipeline.source)
        before_ms = epoch_ms()
        samples = await scraped(client)
        after_ms = epoch_ms()
        tables = {f"db.{name}": await to_thread(table_facts, tmp_path, f"db.{name}") for name in TABLES}
        observed, metrics = pipeline.observed, pipeline.metrics

        def of_tables(name: str) -> dict[str, float]:
            return {labels[0]: value for labels, value in labelled(samples, f"tidelake_{name}").items()}

        alone = {labels[0]: v for labels, v in samples.items() if not labels[1]}
        assert labelled(samples, "tidelake_source_records_total") == {("shop",): 13}
        assert labelled(samples, "tidelake_source_bytes_total") == {("shop",): metrics.source_bytes}
        assert labelled(samples, "tidelake_source_committed_offset") == {("0", "shop"): 11, ("1", "shop"): 2}
        assert labelled(samples, "tidelake_source_end_offset") == {}  # a folder does not report it
        assert labelled(samples, "tidelake_source_lag_records") == {("0", "shop"): 0, ("1", "shop"): 0}
        assert labelled(samples, "tidelake_source_lag_seconds") == {("0", "shop"): 0, ("1", "shop"): 0}
        assert labelled(samples, "tidelake_skipped_records_total") == {("table not configured",): 1}
        letters = {(kind.name,): int(kind is FailureKind.BAD_RECORD) for kind in FailureKind}
        assert labelled(samples, "tidelake_dead_letters_total") == letters
        outcomes = {("sent",): 0, ("failed",): 0, ("dropped",): 0}
        assert labelled(samples, "tidelake_lineage_events_total") == outcomes
        assert of_tables("table_rows_total") == {"db.orders": 6, "db.customers": 5}
        assert of_tables("table_snapshot_id") == {name: facts["snapshot_id"] for name, facts in tables.items()}
        assert of_tables("table_commits_total") == of_tables("table_commit_attempts_total")
        assert of_tables("table_commits_total") == {name: facts["commits"] for name, facts in tables.items()}
        newest = {"db.orders": (new_ms + 9) / 1000, "db.customers": (new_ms + 8) / 1000}
        assert of_tables("table_newest_record_timestamp_seconds") == newest
        for name, seconds in of_tables("table_freshness_seconds").items():
            assert before_ms / 1000 - newest[name] <= seconds <= after_ms / 1000 - newest[name] + 0.001
        assert labelled(samples, "tidelake_table_files") == {
            (level, name): files for name, facts in tables.items() for level, files in facts["files"].items()
        }
        assert labelled(samples, "tidelake_table_file_bytes") == {
            (level, name): size for name, facts in tables.items() for level, size in facts["bytes"].items()
        }
        assert of_tables("table_sorted_runs_max") == {name: facts["runs"] for name, facts in tables.items()}
        assert of_tables("table_held_back") == {"db.orders": 0, "db.customers": 0}
        for name, at in of_tables("table_last_commit_timestamp_seconds").items():
            assert tables[name]["committed_at_ms"] / 1000 <= at <= after_ms / 1000
        assert of_tables("table_last_commit_duration_seconds").keys() == tables.keys()
        assert of_tables("compactions_total") == {"db.orders": 0, "db.customers": 0}
        assert of_tables("compaction_written_bytes_total") == {"db.orders": 0, "db.customers": 0}
        assert alone["tidelake_checkpoints_total"] == metrics.checkpoints == observed.checkpoints
        assert alone["tidelake_checkpoint_duration_seconds_count"] == metrics.checkpoints
        assert alone["tidelake_commit_duration_seconds_count"] == sum(of_tables("table_commits_total").values())
        assert alone["tidelake_compaction_duration_seconds_count"] == 0
        assert alone["tidelake_ready"] == 1
        assert alone["tidelake_checkpoint_interval_seconds"] == 0.05
        assert alone["tidelake_checkpoint_waiting_seconds"] == 0
        assert alone["tidelake_start_timestamp_seconds"] == observed.started_at_ms / 1000
        assert (alone["tidelake_write_buffer_bytes"], alone["tidelake_write_buffer_limit_bytes"]) == (0, 256 << 20)
        assert (alone["tidelake_compaction_queue"], alone["tidelake_compaction_running"]) == (0, 0)
        assert labelled(samples, "tidelake_pipeline_info") == {("shop", tidelake.__version__): 1}
        assert (alone["tidelake_transactions_waiting"], alone["tidelake_transactions_split_total"]) == (0, 0)

        shown = {name for name, _ in samples if name.startswith("tidelake_")}
        names = {re.sub(r"_(bucket|sum|count|created)$", "", name) for name in shown}
        of_stores = {metric.exposed_name for metric in METRICS if metric.name.startswith("store_request")}
        assert not of_stores & names  # the tables are on a local disk
        with_target = {"tidelake_checkpoint_buffer_bytes", "tidelake_freshness_binds"}
        with_target.add("tidelake_table_freshness_target_seconds")
        absent = {"tidelake_source_end_offset", "tidelake_table_bootstrap_rows"} | of_stores | with_target
        assert names == {metric.exposed_name for metric in METRICS} - absent


def table_facts(path: Path, name: str) -> dict[str, Any]:
    """What the table itself says."""
    table = tidelake.open_catalog(str(path / "lake")).table(name)
    context = open_catalog(str(path / "lake")).load(name)
    latest = context.snapshots.latest()
    assert latest is not None
    by_bucket: dict[Any, int] = {}
    counts: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for entry in live_entries(context, latest):
        level = str(entry.file.level)
        counts[level] = counts.get(level, 0) + 1
        sizes[level] = sizes.get(level, 0) + entry.file.file_size
        by_bucket[entry.bucket] = by_bucket.get(entry.bucket, 0) + 1
    newest = table.snapshots()[-1]
    return {
        "snapshot_id": newest.id,
        "commits": len(table.snapshots()),
        "committed_at_ms": newest.time_ms,
        "files": counts,
        "bytes": sizes,
        "runs": max(by_bucket.values()),
    }


async def test_compactions_are_counted_with_their_written_bytes(tmp_path: Path, new_ms: int) -> None:
    async with running(tmp_path, "checkpoint.bytes_max=1") as (pipeline, client):
        written, committed, number = 0.0, -1, 0
        while written != committed or number < 12:  # a compaction is done first, and committed with the next checkpoint
            text = line(number, "orders", 1, time_ms=new_ms)
            await to_thread((tmp_path / "in" / f"{number:04}.jsonl").write_text, text)
            await until(lambda n=number: pipeline.observed.checkpoints > n)  # type: ignore[misc]
            samples, number = await scraped(client), number + 1
            written = labelled(samples, "tidelake_compaction_written_bytes_total")["db.orders",]
            committed = await to_thread(compacted_bytes, tmp_path, "db.orders") or -1
        compactions = labelled(samples, "tidelake_compactions_total")["db.orders",]
        assert compactions >= 1
        assert samples["tidelake_compaction_duration_seconds_count", frozenset()] == compactions


def compacted_bytes(path: Path, name: str) -> int:
    """What compactions have written, by the table's own snapshots."""
    context = open_catalog(str(path / "lake")).load(name)
    snapshots = [s for s in context.snapshots.all() if s.commit_kind == CommitKind.COMPACT]
    return sum(
        entry.file.file_size
        for snapshot in snapshots
        for entry in delta_entries(context, snapshot)
        if entry.kind == FileKind.ADD
    )


@pytest.mark.parametrize(
    ("limit_ms", "waiting", "split"),
    [pytest.param(3_600_000, 1, 0, id="in time"), pytest.param(1, 0, 1, id="for longer than it may")],
)
async def test_incomplete_transactions_are_counted(
    tmp_path: Path, new_ms: int, limit_ms: int, waiting: int, split: int
) -> None:
    flags = ("checkpoint.whole_transactions=true", f"checkpoint.transaction_ms_max={limit_ms}")
    async with running(tmp_path, *flags) as (pipeline, client):
        await to_thread((tmp_path / "in" / "1.jsonl").write_text, line(0, "orders", 1, time_ms=new_ms, transaction="t"))
        await until(
            lambda: (pipeline.observed.transactions.waiting, pipeline.observed.transactions.split) == (waiting, split)
        )
        samples = await scraped(client)
        assert samples["tidelake_transactions_waiting", frozenset()] == waiting
        assert samples["tidelake_transactions_split_total", frozenset()] == split


async def test_probes_and_status_answer_while_it_runs(tmp_path: Path, new_ms: int) -> None:
    async with running(tmp_path) as (pipeline, client):
        await to_thread((tmp_path / "in" / "1.jsonl").write_text, line(0, "orders", 1, time_ms=new_ms))
        await until(lambda: pipeline.observed.checkpoints == 1)
        await until(lambda: pipeline.observed.lag == 0)
        assert await get_json(client, "live") == {"live": True}
        async with client.get("ready") as answer:
            assert (answer.status, await answer.json()) == (200, {"ready": True, "reasons": []})
        status = await get_json(client, "status")
        assert (status["pipeline"], status["state"], status["ready"]) == ("shop", "RUNNING", True)
        assert [table["name"] for table in status["tables"] if table["rows"]] == ["db.orders"]
        assert status["partitions"][0] | {"lag_ms": 0} == {
            "topic": "shop", "partition": 0, "committed": 1, "read": 1, "end": None, "lag": 0, "lag_ms": 0,
        }  # fmt: skip
        pipeline.observed.problems = lambda: {"db.orders": "offset 7 is bad"}
        async with client.get("ready") as answer:
            assert answer.status == 503
            (reason,) = (await answer.json())["reasons"]
            assert reason == {
                "code": "table_held_back",
                "reason": "db.orders: offset 7 is bad",
                "tables": ["db.orders"],
            }
        async with client.get("") as answer:
            page = await answer.text()
        assert answer.content_type == "text/html"
        assert re.findall(r"(?:src|href)=|url\(|https?://(?!www\.w3\.org/2000/svg)", page) == []  # it is all there is
        async with client.get("metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"}) as answer:
            parse: Any = prometheus_client.openmetrics.parser.text_string_to_metric_families
            assert "tidelake_table_rows" in {family.name for family in parse(await answer.text())}


async def test_an_occupied_port_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    async with running(tmp_path) as (pipeline, _):
        assert pipeline.monitor is not None
        port = pipeline.monitor.server.port
        with pytest.raises(BadInput, match=rf"can't listen on 127.0.0.1:{port}: .*`metrics.port`"):
            async with running(tmp_path / "other", f"metrics.port={port}"):
                pass
        assert not await to_thread((tmp_path / "other" / "lake").exists)


async def test_after_a_takeover_on_one_machine_the_endpoint_answers_once_the_older_process_ended(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as (older, _):
        assert older.monitor is not None
        port = older.monitor.server.port
        async with running(tmp_path, f"metrics.port={port}") as (newer, _):
            assert newer.monitor is not None
            assert not newer.monitor.server.port, "the pipeline runs without"
            older.stop()
            await until(lambda: newer.monitor is not None and newer.monitor.server.port == port)
            async with aiohttp.ClientSession(f"http://127.0.0.1:{port}/") as client:
                assert (await get_json(client, "status"))["started_at_ms"] == newer.observed.started_at_ms


def test_the_number_of_labels_is_bounded_and_totals_are_complete() -> None:
    observed = RunObservations(1_000, ManualClock())
    for number in range(5):
        observed.was_written(f"t{number}", 10, RecordTimes(1_000, 1_000 + number))
        observed.committed(f"t{number}", number, 1_000 * number, 1)
    starts = {TopicPartition("a", number): 0 for number in range(4)}
    observed.reading_started(starts)
    observed.set_end_offsets(dict.fromkeys(starts, 7))
    gauges = ProcessGauges(lambda: 0, 1, lambda: 0, lambda: 0)
    collector = PipelineCollector(observed, gauges, ("p", "1"), tables_max=2, partitions_max=3)
    found = {
        (sample.name, *sample.labels.values()): sample.value for one in collector.collect() for sample in one.samples
    }

    def of(name: str) -> dict[tuple[str, ...], float]:
        return {tuple(labels): value for (found_name, *labels), value in found.items() if found_name == name}

    assert of("tidelake_table_rows_total") == {("t0",): 10, ("t1",): 10, ("_other",): 30}
    assert of("tidelake_table_last_commit_duration_seconds") == {("t0",): 0, ("t1",): 1, ("_other",): 4}
    assert of("tidelake_table_snapshot_id") == {("t0",): 0, ("t1",): 1}
    assert of("tidelake_source_lag_records") == {
        ("a", "0"): 7, ("a", "1"): 7, ("a", "2"): 7, ("_other", "_other"): 7,
    }  # fmt: skip


def test_a_lag_is_absent_while_the_source_does_not_answer() -> None:
    """It may have grown. A zero, or the last known number, would say that the pipeline keeps up."""
    observed = RunObservations(1_000, ManualClock())
    partition = TopicPartition("a", 0)
    observed.reading_started({partition: 0})
    observed.set_end_offsets({partition: 7})
    gauges = ProcessGauges(lambda: 0, 1, lambda: 0, lambda: 0)
    collector = PipelineCollector(observed, gauges, ("p", "1"), tables_max=2, partitions_max=3)
    of_lag = {"tidelake_source_lag_records", "tidelake_source_lag_seconds", "tidelake_source_end_offset"}

    def shown() -> tuple[Any, ...]:
        status = status_document(observed, gauges, "p", "1")
        of_partition = status["partitions"][0]
        samples = {sample.name for one in collector.collect() for sample in one.samples}
        return (
            *(status["lag"], of_partition["lag"], of_partition["end"], observed.lag),
            *(status["lag_ms"] is None, of_partition["lag_ms"] is None, samples & of_lag),
        )

    known = (7, 7, 7, 7, False, False, of_lag)
    assert shown() == known
    observed.source_failed("no broker answers")
    assert shown() == (None, None, None, None, True, True, set())
    assert status_document(observed, gauges, "p", "1")["partitions"][0]["committed"] == 0
    observed.source_answered()
    assert shown() == known


def test_requests_to_stores_are_counted_by_operation_and_kind_and_timed_by_operation(
    own_requests: StoreRequests,
) -> None:
    for kind, took_s in (("snapshot/snapshot-1", 0.02), ("snapshot/snapshot-2", 0.2), ("manifest/manifest-1", 0.02)):
        own_requests.add(Operation.GET, f"s3://b/d.db/t/{kind}", 1, took_s)
    own_requests.add(Operation.PUT, "s3://b/d.db/t/bucket-0/data-1.parquet", 4, 1.2)
    gauges = ProcessGauges(lambda: 0, 1, lambda: 0, lambda: 0)
    collector = PipelineCollector(RunObservations(1_000, ManualClock()), gauges, ("p", "1"), 1, 1)
    found = {
        (sample.name, *sample.labels.values()): sample.value for one in collector.collect() for sample in one.samples
    }
    counts = {key[1:]: value for key, value in found.items() if key[0] == "tidelake_store_requests_total"}
    assert counts == {("GET", "snapshot"): 2, ("GET", "manifest"): 1, ("PUT", "data"): 4}
    assert found["tidelake_store_request_duration_seconds_count", "GET"] == 3
    assert found["tidelake_store_request_duration_seconds_bucket", "GET", "0.1"] == 2
    assert found["tidelake_store_request_duration_seconds_sum", "PUT"] == pytest.approx(1.2)


def test_every_metric_is_documented() -> None:
    lines = re.findall(
        r"^\| `(tidelake_\w+)` \| (\w+) \| (.*?) \| (.+) \|$", (DOCS / "operations.md").read_text(), re.M
    )
    assert {(name, kind, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, labels, _ in lines} == {
        (metric.exposed_name, metric.kind, metric.labels) for metric in METRICS
    }


def test_a_histogram_counts_up_to_each_bound() -> None:
    histogram = DurationHistogram((0.1, 1.0))
    for duration_s in (0.1, 0.5, 3.0):
        histogram.observe(duration_s)
    assert (histogram.cumulative(), histogram.count) == ([("0.1", 1), ("1.0", 2), ("+Inf", 3)], 3)
    assert histogram.sum_s == pytest.approx(3.6)


async def test_the_page_behind_a_table_plays_back_its_levels(tmp_path: Path, new_ms: int) -> None:
    async with running(tmp_path) as (pipeline, client):
        async with client.get("tables/db.orders") as answer:
            assert answer.status == 404  # its first record creates it
        await to_thread((tmp_path / "in" / "a.jsonl").write_text, line(0, "orders", 1, time_ms=new_ms))
        await until(lambda: pipeline.observed.table("db.orders").commits > 0)
        async with client.get("tables/db.orders") as answer:
            assert (answer.status, answer.content_type) == (200, "text/html")
            assert '"table":"db.orders"' in await answer.text()
        async with client.get("tables/db.<b>") as answer:
            assert (answer.status, answer.content_type) == (404, "text/plain")


async def test_the_history_has_the_lag_and_the_least_fresh_table(tmp_path: Path, new_ms: int) -> None:
    async with running(tmp_path) as (pipeline, client):
        text = line(0, "orders", 1, time_ms=new_ms) + line(1, "customers", 1, time_ms=new_ms - 60_000)
        await to_thread((tmp_path / "in" / "a.jsonl").write_text, text)
        await until(lambda: len([t for t in pipeline.observed.tables.values() if t.commits]) == 2)
        async with asyncio.timeout(30):
            while not any((history := await get_json(client, "history"))["stalest"]):
                await to_thread(time.sleep, 0.05)
        assert history["records"][-1] == 2
        assert history["step_ms"] == 5_000
        assert history["stalest"][-1] == "db.customers"
        assert history["freshness_ms"][-1] >= 60_000
        assert set(map(len, [column for name, column in history.items() if name != "step_ms"])) == {
            len(history["at_ms"])
        }
