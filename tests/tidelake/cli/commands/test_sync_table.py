"""`tidelake sync-table`: from a topic into one table, with Paimon's arguments."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tidelake
from tests.ingest.formats.debezium.changes import change
from tests.support.command_line import Call
from tests.support.kafka_broker import KafkaBroker


def test_shards_of_two_topics_become_one_table(call: Call, kafka_broker: KafkaBroker, tmp_path: Path) -> None:
    topics = [kafka_broker.create_topic() for _ in range(2)]
    for number, topic in enumerate(topics):
        record = change("c", after={"id": number, "note": f"n{number}"}, source={"db": f"shard{number}", "table": "o"})
        assert record.key is not None
        assert record.value is not None
        line = {"partition": 0, "timestamp_ms": 1, "key": record.key.decode(), "headers": []}
        kafka_broker.send([{**line, "value": record.value.decode()}], topic)
    arguments = [
        *("sync-table", "--warehouse", tmp_path, "--database", "shop", "--table", "orders", "--primary_keys", "id"),
        *("--kafka_conf", f"properties.bootstrap.servers={kafka_broker.address}"),
        *("--kafka_conf", f"topic={';'.join(topics)}", "--kafka_conf", "value.format=debezium-json"),
        *("--kafka-conf", "scan.bounded.mode=latest-offset", "--table_conf", "bucket=2"),
    ]
    result = call(*arguments)
    assert result.code == 0, result.err
    table = tidelake.open_catalog(str(tmp_path)).table("shop.orders")
    rows = sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["id"])
    assert rows == [{"id": "0", "note": "n0"}, {"id": "1", "note": "n1"}]
    assert table.options["bucket"] == "2"
    again = call(*arguments, "--json")
    assert (again.code, again.document["records"]) == (0, 0)  # it continues at its position


def test_the_equivalent_file_hides_secrets(call: Call, tmp_path: Path) -> None:
    result = call(
        *("sync-table", "--warehouse", tmp_path, "--database", "shop", "--table", "orders", "--show"),
        *("--kafka-conf", "properties.bootstrap.servers=b:1", "--kafka-conf", "topic=t"),
        *("--kafka-conf", "value.format=json", "--catalog-conf", "s3.secret-access-key=hush"),
    )
    assert result.code == 0
    assert "hush" not in result.out
    assert '"topics"' in result.out


@pytest.mark.parametrize(("command", "table"), [("sync-table", ("--table", "orders")), ("sync-database", ())])
def test_the_key_of_the_records_can_be_left_out_as_in_paimon(call: Call, command: str, table: tuple[str, ...]) -> None:
    kafka = ("properties.bootstrap.servers=b:1", "topic=t", "value.format=canal-json")
    result = call(
        *(command, "--warehouse", "/lake", "--database", "shop", *table, "--show"),
        *(part for one in kafka for part in ("--kafka_conf", one)),
        *("--sync_primary_keys_from_source_schema", "false"),
    )
    assert result.code == 0, result.err
    assert json.loads(result.out)["tables"][0]["key_from_records"] is False


def test_an_argument_without_a_counterpart_fails_by_name(call: Call, tmp_path: Path) -> None:
    result = call(
        *("sync-table", "--warehouse", tmp_path, "--database", "shop", "--table", "orders"),
        *("--kafka-conf", "properties.bootstrap.servers=b:1", "--kafka-conf", "topic=t"),
        *("--kafka-conf", "value.format=json", "--kafka-conf", "properties.acks=all"),
    )
    assert result.code == 1
    assert "properties.acks: this setting is not supported" in result.err
