"""`tidelake ingest status`: the state of a running pipeline, and the state from the warehouse without one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.command_line import Call
from tests.support.manual_clock import ManualClock
from tidelake.checkpoint.record_times import RecordTimes
from tidelake.ingest.monitoring.metrics import ProcessGauges
from tidelake.ingest.monitoring.observations import FreshnessObservation, HourOfWrites, RunObservations
from tidelake.ingest.monitoring.status import status_document


class Endpoint(BaseHTTPRequestHandler):
    """Answers as a pipeline would, with what the test put there."""

    body = b""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/status" else 404)
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture
def port() -> Iterator[int]:
    with HTTPServer(("127.0.0.1", 0), Endpoint) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.fixture
def observed() -> RunObservations:
    observed = RunObservations(1_000, ManualClock(), state="RUNNING")
    observed.was_written("shop.orders", 1_234, RecordTimes(1, 1))
    observed.committed("shop.orders", 7, 12, 1)
    return observed


def serve(observed: RunObservations) -> None:
    gauges = ProcessGauges(lambda: 5 << 20, 1, lambda: 0, lambda: 0)
    Endpoint.body = msgspec.json.encode(status_document(observed, gauges, "shop", "1"))


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "shop.yaml"
    path.write_text(
        f"warehouse: {tmp_path}/lake\nsource: {{type: change-log-folder, path: x}}\ntables: [{{name: a.b}}]"
    )
    return path


def test_a_running_pipeline_is_shown_with_its_tables(config: Path, call: Call, port: int, observed: Any) -> None:
    serve(observed)
    result = call("ingest", "status", config, "--set", f"metrics.port={port}", "--set", "metrics.host=0.0.0.0")
    assert (result.code, result.err) == (0, "")
    assert "shop  ready  running" in result.out
    assert [word for word in ("shop.orders", "1,234", "#7", "12 ms", "5.0 MiB") if word not in result.out] == []
    (document,) = call("ingest", "status", config, "--url", f"http://127.0.0.1:{port}", "--json").lines
    assert (document["running"]["tables"][0]["rows"], document["quarantine"]) == (1_234, [])


def test_a_table_that_takes_a_snapshot_shows_its_rows(
    config: Path, call: Call, port: int, observed: RunObservations
) -> None:
    observed.table("shop.orders").bootstrap_rows = 1_200_000
    serve(observed)
    assert "bootstrapping 1,200,000 rows" in call("ingest", "status", config, "--url", f"http://127.0.0.1:{port}").out


def test_a_promised_freshness_is_shown_with_what_binds_and_what_an_hour_costs(
    config: Path, call: Call, port: int, observed: RunObservations
) -> None:
    kept = FreshnessObservation(5_000, "shop.orders", lambda _: 5_000, "EUR", 1 << 20, 7_000, "store")
    kept.reason, kept.hour = "a checkpoint takes 4.0 s", HourOfWrites(1_000, 500, 3 << 20, 0.0052)
    observed.freshness, observed.interval_ms = kept, 8_000
    serve(observed)
    shown = call("ingest", "status", config, "--url", f"http://127.0.0.1:{port}").out
    assert (
        "freshness 7.0 s of 5 s for shop.orders · a checkpoint every 8,000 ms · store binds: a checkpoint takes 4.0 s "
        "· an hour costs 1,500 requests (0.0052 EUR), 3.0 MiB"
    ) in " ".join(shown.split())


def test_an_unready_pipeline_exits_with_1_and_prints_the_reason(
    config: Path, call: Call, port: int, observed: Any
) -> None:
    observed.problems = lambda: {"shop.orders": "offset 7 is bad"}
    serve(observed)
    result = call("ingest", "status", config, "--url", f"http://127.0.0.1:{port}")
    assert result.code == 1
    assert "not ready" in result.out
    assert "shop.orders: offset 7 is bad" in result.out


@pytest.mark.parametrize("body", [b"{}", b"<html>", b"[]"])
def test_an_endpoint_that_is_no_pipeline_raises(config: Path, call: Call, port: int, body: bytes) -> None:
    Endpoint.body = body
    result = call("ingest", "status", config, "--url", f"http://127.0.0.1:{port}")
    assert result.code == 1
    assert f"http://127.0.0.1:{port}/status" in result.err


def test_without_an_answer_the_warehouse_is_read(config: Path, call: Call) -> None:
    result = call("ingest", "status", config, "--set", "metrics.port=1")
    assert result.code == 1
    assert "no answer at http://127.0.0.1:1/status: " in result.err
    assert "no table is in quarantine" in result.err


def test_without_an_endpoint_only_the_warehouse_is_read(config: Path, call: Call) -> None:
    result = call("ingest", "status", config)
    assert result.code == 0
    assert "has no `metrics.port`" in result.err
    (document,) = call("ingest", "status", config, "--json").lines
    assert document == {"pipeline": "shop", "tables": ["a.b"], "quarantine": [], "running": None}
