"""`tidelake doctor` and a real broker: topics, their newest records, retention."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import Call, Said
from tests.support.kafka_broker import KafkaBroker

HOUR_MS = 3_600_000

pytestmark = pytest.mark.interop


def record(time_ms: int) -> Mapping[str, Any]:
    source = {"db": "shop", "schema": "public", "table": "t", "connector": "postgresql"}
    value = json.dumps({"before": None, "after": {"id": 1}, "op": "c", "source": source})
    return {"topic": "", "partition": 0, "key": None, "value": value, "timestamp_ms": time_ms, "headers": []}


def findings(said: Said) -> dict[str, list[dict[str, str]]]:
    return {one["check"]: one["findings"] for one in said.document["checks"]}


def doctor(call: Call, root: Path, broker: KafkaBroker, *topics: str) -> Said:
    path = root / "shop.yaml"
    source = f'{{type: kafka, bootstrap_servers: "{broker.address}", topics: [{", ".join(topics)}]}}'
    path.write_text(f"pipeline: p\nwarehouse: {root}/lake\nsource: {source}\ntables: [{{name: shop.t}}]\n")
    return call("doctor", path, "--json")


def test_topics_that_can_be_read_are_all_ok(call: Call, tmp_path: Path, kafka_broker: KafkaBroker) -> None:
    topic, empty = kafka_broker.create_topic(partitions=2), kafka_broker.create_topic()
    kafka_broker.send([record(int(time.time() * 1000))], topic)
    said = doctor(call, tmp_path, kafka_broker, topic, empty)
    assert said.code == 0, said.out
    assert {one["status"] for found in findings(said).values() for one in found} == {"ok"}, said.out
    assert "1 record to read" in findings(said)["position"][0]["found"]


def test_a_missing_topic_a_wrong_clock_and_a_short_retention(
    call: Call, tmp_path: Path, kafka_broker: KafkaBroker
) -> None:
    now_ms = int(time.time() * 1000)
    ahead = kafka_broker.create_topic()
    old = kafka_broker.create_topic(None, 1, **{"retention.ms": str(10 * HOUR_MS)})
    kafka_broker.send([record(now_ms + HOUR_MS // 2)], ahead)
    kafka_broker.send([record(now_ms - 8 * HOUR_MS)], old)
    said = doctor(call, tmp_path, kafka_broker, ahead, old)
    assert said.code == 0  # warnings only
    [clock] = findings(said)["topics"]
    assert (clock["status"], "in the future" in clock["found"]) == ("warning", True)
    [retention] = findings(said)["position"]
    assert (retention["status"], "8.0 h old" in retention["found"]) == ("warning", True)
    assert f"raise retention.ms of {old}" in retention["remedy"]

    missing = doctor(call, tmp_path, kafka_broker, ahead, "nowhere")
    assert missing.code == 1
    assert "nowhere: there is no such topic" in [one["found"] for one in findings(missing)["topics"]]
    assert [one["status"] for one in findings(missing)["broker"]] == ["ok"]


def test_a_compacted_topic_of_a_format_whose_tombstones_delete_nothing_is_a_warning(
    call: Call, tmp_path: Path, kafka_broker: KafkaBroker
) -> None:
    compacted = kafka_broker.create_topic(None, 1, **{"cleanup.policy": "compact"})
    kafka_broker.send([record(int(time.time() * 1000))], compacted)
    [found] = findings(doctor(call, tmp_path, kafka_broker, compacted))["topics"]
    assert (found["status"], found["found"].split(":")[0]) == ("warning", compacted)
    assert "min.compaction.lag.ms" in found["remedy"]
    flattened = call("doctor", tmp_path / "shop.yaml", "--json", "--set", "format=debezium-flattened-json")
    assert [one["status"] for one in findings(flattened)["topics"]] == ["ok"]
