"""A service that is stopped in the middle of its work continues as without the stop, for each way to stop it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

import tidelake
from tests.support.cases import recorded_lines, recorded_truth
from tests.support.kafka_broker import KafkaBroker
from tests.support.recorded_truth import differences, own_recorded
from tidelake.checkpoint.offsets import POSITION_PROPERTY, SourcePosition, chain_breaks, position_from_text

ORDERS = own_recorded("orders-100k/orders")
PIPELINE = "restarting"
DEADLINE_S = 120

RUN = """
import asyncio, sys
from pathlib import Path
from tidelake.ingest.pipeline.service import run
from tidelake.ingest.config.config import load_config
print(asyncio.run(run(load_config(Path(sys.argv[1])))).ended)
"""


@pytest.fixture(scope="module")
def orders_topic(kafka_broker: KafkaBroker) -> str:
    topic = kafka_broker.create_topic(partitions=4)
    (path,) = ORDERS.files
    kafka_broker.send(recorded_lines(path), topic)
    return topic


def start(config: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", RUN, config], stdout=subprocess.PIPE, text=True)


def until_snapshot(table: tidelake.Table, count: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while len(table.snapshots()) < count:
        assert process.poll() is None, "the service ended before it was stopped"
        assert time.monotonic() < deadline, "no snapshot appeared"
        time.sleep(0.01)


def history(table: tidelake.Table) -> list[tuple[int, SourcePosition]]:
    return [
        (s.commit_identifier, position_from_text(s.properties[POSITION_PROPERTY], f"snapshot {s.id}"))
        for s in table.snapshots()
        if s.commit_user == PIPELINE
    ]


@pytest.mark.interop  # in make test: test_killed_service.py, and SIGTERM in the tests of `ingest run`
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["SIGTERM", "kill -9"])
@pytest.mark.parametrize("has_key", [True, False], ids=["by key", "append"])
def test_a_stopped_service_continues_without_gap_or_duplicates(
    how: signal.Signals, has_key: bool, orders_topic: str, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    catalog = tidelake.open_catalog(str(tmp_path / "lake"))
    catalog.create_database("shop")
    options = {"bucket": "2"} if has_key else {"ignore-delete": "true"}
    key = ORDERS.primary_key if has_key else ()
    table = catalog.create_table("shop.orders", ORDERS.schema, primary_key=key, options=options)
    config = tmp_path / "service.json"  # JSON is YAML
    settings = {
        "pipeline": PIPELINE,
        "warehouse": str(tmp_path / "lake"),
        "source": {"type": "kafka", "bootstrap_servers": kafka_broker.address, "topics": orders_topic, "until": "end"},
        "tables": [{"name": "shop.orders", "match": "orders"}],
        "checkpoint": {"bytes_max": 4 << 20},
    }
    config.write_text(json.dumps(settings))

    for _ in range(2):
        seen = len(table.snapshots())
        service = start(config)
        until_snapshot(table, seen + 2, service)
        service.send_signal(how)
        output, _ = service.communicate(timeout=DEADLINE_S)
        assert (output, service.returncode) == (("stopped\n", 0) if how is signal.SIGTERM else ("", -how))
    last = subprocess.run([sys.executable, "-c", RUN, config], stdout=subprocess.PIPE, text=True, check=True)
    assert last.stdout == "end of source\n"

    positions = history(table)
    assert chain_breaks(positions) == []
    identifiers = [identifier for identifier, _ in positions]
    assert identifiers == sorted(identifiers)
    assert len(positions) > 6
    rows = table.scan().to_arrow()
    if has_key:
        assert differences(ORDERS, rows) == []
    else:  # here a record that was read twice would show
        assert rows.num_rows == sum(count for op, count in row_counts().items() if op in ("c", "r", "u"))


def row_counts() -> Mapping[str, int]:
    (topic,) = ORDERS.topics
    counts: Mapping[str, int] = recorded_truth(ORDERS.capture)["counts"][topic]
    return counts
