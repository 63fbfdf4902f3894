"""`MetricsListener`: what a job's own queries report of their sinks, under the names of the service."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import tidelake
from tidelake.errors import BadInput
from tidelake.spark import MetricsListener, sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])

pytestmark = [pytest.mark.interop, pytest.mark.needs("Spark")]


@pytest.fixture
def listener(spark: SparkSession) -> Iterator[MetricsListener]:
    opened = MetricsListener(port=0)
    spark.streams.addListener(opened)
    yield opened
    spark.streams.removeListener(opened)
    opened.close()


@pytest.fixture
def lake(tmp_path: Path) -> tidelake.Catalog:
    catalog = tidelake.open_catalog(str(tmp_path / "lake"))
    catalog.create_database("shop")
    for name in ("orders", "other"):
        catalog.create_table(f"shop.{name}", SCHEMA, primary_key=["id"])
    (tmp_path / "in").mkdir()
    return catalog


def put(home: Path, name: str, *values: str) -> None:
    """Add a file of change records, whose times are the second 1 and on."""
    source = {"db": "d", "table": "t", "connector": "mysql"}
    lines = []
    for offset, text in enumerate(values):
        value = json.dumps({"before": None, "after": {"id": offset, "name": text}, "op": "c", "source": source})
        place = {"topic": "d.t", "partition": 0, "offset": offset, "timestamp_ms": 1_000 * (offset + 1)}
        lines.append(json.dumps({**place, "key": json.dumps({"id": offset}), "value": value}, ensure_ascii=False))
    (home / "in" / name).write_text("".join(line + "\n" for line in lines), encoding="utf-8")


def run(spark: SparkSession, home: Path, into: Any, name: str | None = "orders") -> Any:
    rows = spark.readStream.text(str(home / "in"), lineSep="\n")
    writer = rows.writeStream.foreachBatch(into).option("checkpointLocation", str(home / f"checkpoint-{name}"))
    writer = writer if name is None else writer.queryName(name)
    return writer.start()


def raw(home: Path, table: str = "shop.orders", **options: Any) -> Any:
    return sink(table, str(home / "lake"), format="debezium-json", **options)


def get(listener: MetricsListener, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{listener.port}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def metrics(listener: MetricsListener) -> dict[str, float]:
    _, text = get(listener, "/metrics")
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in lines}


def test_rows_bytes_offsets_commits_and_dead_letters_have_the_names_of_the_service(
    spark: SparkSession, lake: tidelake.Catalog, listener: MetricsListener, tmp_path: Path
) -> None:
    put(tmp_path, "1.jsonl", "a", "Zoë 🦭", "c")
    bad = {"topic": "d.t", "partition": 0, "offset": 3, "timestamp_ms": 9_000, "key": None, "value": "no JSON"}
    with (tmp_path / "in" / "1.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(bad) + "\n")
    query = run(spark, tmp_path, raw(tmp_path, dead_letters=str(tmp_path / "dead")))
    query.processAllAvailable()
    _wait_for_listeners(spark)
    found = metrics(listener)
    query.stop()
    of_table, of_partition = 'query="orders",table="shop.orders"', 'partition="0",query="orders",topic="d.t"'
    assert found[f"tidelake_table_rows_total{{{of_table}}}"] == 3
    assert found[f"tidelake_table_commits_total{{{of_table}}}"] == 1
    assert found[f"tidelake_table_newest_record_timestamp_seconds{{{of_table}}}"] == 3
    assert found[f"tidelake_source_committed_offset{{{of_partition}}}"] == 4
    assert found['tidelake_source_records_total{query="orders",topic="d.t"}'] == 4
    assert found['tidelake_source_bytes_total{query="orders",topic="d.t"}'] > 100
    assert sum(value for name, value in found.items() if name.startswith("tidelake_dead_letters_total")) == 1
    assert found['tidelake_commit_duration_seconds_count{query="orders"}'] == 1


def test_a_batch_of_two_sinks_is_one_batch_and_two_tables(
    spark: SparkSession, lake: tidelake.Catalog, listener: MetricsListener, tmp_path: Path
) -> None:
    first, second = raw(tmp_path), raw(tmp_path, "shop.other", commit_user="other")

    def both(batch: DataFrame, batch_id: int) -> None:
        first(batch, batch_id)
        second(batch, batch_id)

    put(tmp_path, "1.jsonl", "a", "b")
    query = run(spark, tmp_path, both)
    query.processAllAvailable()
    _wait_for_listeners(spark)
    status = json.loads(get(listener, "/status")[1])["queries"]["orders"]
    query.stop()
    assert status["batches"] == 1
    assert {name: table["rows"] for name, table in status["tables"].items()} == {"shop.orders": 2, "shop.other": 2}
    assert status["offsets"] == {"d.t-0": 2}


def test_each_query_has_its_series_and_those_of_a_stopped_one_go(
    spark: SparkSession, lake: tidelake.Catalog, listener: MetricsListener, tmp_path: Path
) -> None:
    put(tmp_path, "1.jsonl", "a")
    orders, unnamed = run(spark, tmp_path, raw(tmp_path)), run(spark, tmp_path, raw(tmp_path, "shop.other"), None)
    for query in (orders, unnamed):
        query.processAllAvailable()
    rows = {name for name in metrics(listener) if name.startswith("tidelake_table_rows_total")}
    assert rows == {
        'tidelake_table_rows_total{query="orders",table="shop.orders"}',
        f'tidelake_table_rows_total{{query="{unnamed.id}",table="shop.other"}}',
    }
    orders.stop()
    _wait_for_listeners(spark)
    assert not any('query="orders"' in name for name in metrics(listener))
    unnamed.stop()


def test_a_query_that_failed_makes_ready_red_until_it_is_started_again(
    spark: SparkSession, lake: tidelake.Catalog, listener: MetricsListener, tmp_path: Path
) -> None:
    put(tmp_path, "1.jsonl", "a")
    good = raw(tmp_path)

    def fails(batch: DataFrame, batch_id: int) -> None:
        good(batch, batch_id)
        raise RuntimeError("out of luck")

    query = run(spark, tmp_path, fails)
    with pytest.raises(Exception, match="out of luck"):
        query.processAllAvailable()
    _wait_for_listeners(spark)
    code, text = get(listener, "/ready")
    assert (code, "orders: the query failed: " in text) == (503, True)
    put(tmp_path, "2.jsonl", "a", "b")
    again = run(spark, tmp_path, raw(tmp_path, reread=True))
    again.processAllAvailable()
    code, text = get(listener, "/ready")
    again.stop()
    assert (code, json.loads(text)) == (200, {"ready": True, "reasons": []})


def test_queries_without_a_sink_of_ours_have_no_series(
    spark: SparkSession, lake: tidelake.Catalog, listener: MetricsListener, tmp_path: Path
) -> None:
    put(tmp_path, "1.jsonl", "a")
    query = run(spark, tmp_path, lambda batch, _: batch.count())
    query.processAllAvailable()
    query.stop()
    assert not any("query=" in name for name in metrics(listener))


def test_a_port_in_use_and_a_second_listener_are_refused(spark: SparkSession, listener: MetricsListener) -> None:
    with pytest.raises(BadInput, match="has an open MetricsListener"):
        MetricsListener(port=0)
    port = listener.port
    listener.close()
    with socket.create_server(("127.0.0.1", port)), pytest.raises(BadInput, match="Pass another port or host"):
        MetricsListener(port=port)
    MetricsListener(port=0).close()


def _wait_for_listeners(spark: SparkSession) -> None:
    """Wait until Spark has delivered all events, which it does in a thread of its own."""
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
