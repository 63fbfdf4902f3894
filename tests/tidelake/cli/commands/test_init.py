"""`tidelake init` writes a configuration from a broker's topics, which `tidelake ingest plan` and `run` accept."""

from __future__ import annotations

import re
import socket
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml

import tidelake
from tests.ingest.proposal.samples import as_bytes, change
from tests.support.cases import recorded_lines, recorded_topics, recording
from tests.support.command_line import Call, Said
from tests.support.kafka_broker import KafkaBroker
from tests.support.schema_registry import schema_registry
from tests.tidelake.cli.test_terminal import on_a_terminal

ID = {"id": 1}


@pytest.fixture
def prefix() -> str:
    """Of the topics of a test: the broker has others."""
    return f"i{uuid4().hex[:8]}"


def send(broker: KafkaBroker, topic: str, *records: tuple[Any, Any], partitions: int = 1) -> str:
    broker.create_topic(topic, partitions)
    broker.send(
        {
            "topic": topic,
            "key": key if key is None else (as_bytes(key) or b"").decode(),
            "value": value if value is None else (as_bytes(value) or b"").decode(),
            "partition": number % partitions,
            "timestamp_ms": 1_795_196_040_376,
            "headers": [],
        }
        for number, (key, value) in enumerate(records)
    )
    return topic


def init(call: Call, broker: KafkaBroker, prefix: str, output: Path, *more: str | Path) -> Said:
    return call("init", "--brokers", broker.address, "--topics", f"{prefix}.*", "-o", output, *more)


def test_the_topics_of_a_connector_become_tables(
    call: Call, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    for topic, path in recorded_topics("pg-shop", "json-schema").items():
        name = kafka_broker.create_topic(f"{prefix}.{topic.partition('.')[2]}")
        kafka_broker.send(recorded_lines(path), name)
    send(kafka_broker, f"{prefix}.returns")
    config, lake = tmp_path / "shop.yaml", tmp_path / "lake"
    said = init(call, kafka_broker, prefix, config, "-w", lake)
    assert (said.code, said.out) == (0, "")
    assert f"{config}: 4 tables of debezium-json" in said.err
    assert f"commented out: {prefix}.returns from {prefix}.returns" in said.err
    planned = call("ingest", "plan", config, "--sample", "100", "--json").document
    assert planned["obstacles"] == planned["passed_over"] == []
    assert planned["pipeline"] == "shop"
    run = call("ingest", "run", config, "--until", "latest")
    assert run.code == 0, run.err
    catalog = tidelake.open_catalog(str(lake))
    assert catalog.list_tables("shop") == ["customers", "inventory", "order_items", "orders"]
    assert catalog.table("shop.order_items").primary_key == ("order_id", "line_no")


def test_rows_get_the_key_of_their_records(call: Call, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path) -> None:
    rows = [(str(i % 3).encode(), {"id": i % 3, "url": "/ü", "n": None}) for i in range(9)]
    send(kafka_broker, f"{prefix}.clicks", *rows, partitions=3)
    config, lake = tmp_path / "clicks.yaml", tmp_path / "lake"
    said = init(call, kafka_broker, prefix, config, "-w", lake, "--database", "web", "--json")
    assert said.document["format"] == "json"
    assert [table["name"] for table in said.document["tables"]] == ["web.clicks"]
    assert call("ingest", "run", config, "--until", "latest").code == 0
    rows_read = tidelake.open_catalog(str(lake)).table("web.clicks").scan(columns=["id"]).to_arrow()
    assert sorted(rows_read["id"].to_pylist()) == ["0", "1", "2"]


def test_avro_needs_its_registry(call: Call, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path) -> None:
    topic = kafka_broker.create_topic(f"{prefix}.orders")
    kafka_broker.send(recorded_lines(recorded_topics("pg-shop", "avro")["shopav.public.orders"]), topic)
    config = tmp_path / "shop.yaml"
    without = init(call, kafka_broker, prefix, config)
    assert (without.code, config.exists()) == (2, False)
    assert f"the records of {topic} are Avro, with schemas in a schema registry: pass --registry URL" in without.err
    with schema_registry(recording("pg-shop", "avro") / "schemas.json") as registry:
        said = init(call, kafka_broker, prefix, config, "--registry", registry.url, "-w", tmp_path / "lake")
        assert said.code == 0, said.err
        planned = call("ingest", "plan", config, "--sample", "50", "--json").document
    assert yaml.safe_load(config.read_text())["format"] == "debezium-avro"
    assert planned["estimate"][0]["columns"]["total"] == "DECIMAL(14, 4)"
    assert planned["obstacles"] == []


def test_topics_of_several_formats_need_a_choice(
    call: Call, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    send(kafka_broker, f"{prefix}.orders", (ID, change()))
    send(kafka_broker, f"{prefix}.clicks", (None, {"id": 1}))
    config = tmp_path / "shop.yaml"
    said = init(call, kafka_broker, prefix, config)
    assert (said.code, config.exists()) == (2, False)
    assert "the topics have several formats, and a pipeline reads one" in said.err
    said = init(call, kafka_broker, prefix, config, "--format", "debezium-json")
    assert said.code == 0
    assert f"left out: {prefix}.clicks: its records look like json" in said.err
    assert yaml.safe_load(config.read_text())["source"]["topics"] == [f"{prefix}.orders"]


def test_topics_without_records_need_a_format(
    call: Call, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    send(kafka_broker, f"{prefix}.orders")
    config = tmp_path / "shop.yaml"
    said = init(call, kafka_broker, prefix, config)
    assert said.code == 2
    assert "no topic has records to recognize a format by. Pass --format, one of debezium-json, " in said.err
    assert init(call, kafka_broker, prefix, config, "--format", "canal-json").code == 0
    assert call("ingest", "plan", config).code == 0


def test_an_existing_file_is_kept_without_force(
    call: Call, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    send(kafka_broker, f"{prefix}.orders", (ID, change()))
    config = tmp_path / "shop.yaml"
    config.write_text("mine")
    said = init(call, kafka_broker, prefix, config)
    assert (said.code, config.read_text()) == (3, "mine")
    assert said.err == f"refused: {config} exists. Pass --force to overwrite it, or --output with another name\n"
    assert init(call, kafka_broker, prefix, config, "--force").code == 0
    assert yaml.safe_load(config.read_text())["pipeline"] == "shop"
    assert [path.name for path in tmp_path.iterdir()] == ["shop.yaml"]


def test_the_text_may_go_to_standard_output(call: Call, kafka_broker: KafkaBroker, prefix: str) -> None:
    send(kafka_broker, f"{prefix}.orders", (ID, change()))
    said = call("init", "--brokers", kafka_broker.address, "--topics", f"{prefix}.*", "-o", "-")
    assert said.code == 0
    assert yaml.safe_load(said.out)["pipeline"] == "shop"
    assert "shop.orders from" in said.err


def test_other_settings_are_used_and_written_but_no_password(
    call: Call, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    send(kafka_broker, f"{prefix}.orders", (ID, change()))
    config = tmp_path / "shop.yaml"
    more = [
        part
        for setting in ("checkpoint.interval_ms=5000", "source.client_id=me", "source.sasl_plain_password=hunter2")
        for part in ("--set", setting)
    ]
    assert init(call, kafka_broker, prefix, config, *more).code == 0
    written = yaml.safe_load(config.read_text())
    assert (written["checkpoint"], written["source"]["client_id"]) == ({"interval_ms": "5000"}, "me")
    assert "hunter2" not in config.read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(["--topics", "("], "--topics: '(' is no regular expression", id="no pattern"),
        pytest.param(["--set", "tables=x"], "Choose them with --topics", id="tables"),
        pytest.param(["--set", "source.topics=x"], "use --topics", id="topics as a setting"),
        pytest.param(["--set", "source.topisc=x"], "Did you mean", id="a misspelt setting"),
        pytest.param(["-o", "no/such/shop.yaml"], "there is no folder no/such", id="no folder"),
        pytest.param(["--json", "-o", "-"], "both write to standard output", id="two outputs"),
        pytest.param(["--sample", "0"], "0 is less than 1", id="no sample"),
    ],
)
def test_a_wrong_argument_is_refused_before_brokers_are_asked(call: Call, arguments: list[str], message: str) -> None:
    said = call("init", "--brokers", "localhost:1", *arguments)
    assert said.code in (1, 2)
    assert message in said.err


def test_without_a_terminal_the_brokers_must_be_named(call: Call) -> None:
    said = call("init", "--yes")
    assert (said.code, said.err) == (2, "usage: name the brokers: --brokers localhost:9092\n")


def test_no_topic_is_an_error_that_names_those_there_are(call: Call, kafka_broker: KafkaBroker, prefix: str) -> None:
    send(kafka_broker, prefix, (ID, change()))
    said = call("init", "--brokers", kafka_broker.address, "--topics", f"{prefix}x")
    assert said.code == 1
    assert re.search(rf"no topic at .* matches {prefix}x: its topics are .*\. Correct --topics", said.err)


def test_a_format_that_no_record_has_is_an_error_with_the_reasons(
    call: Call, kafka_broker: KafkaBroker, prefix: str
) -> None:
    send(kafka_broker, prefix, (ID, change()))
    said = init(call, kafka_broker, prefix, Path("-"), "--format", "json")
    assert said.code == 1
    assert f"no topic can feed a table in json: {prefix}: its records look like debezium-json" in said.err
    said = init(call, kafka_broker, prefix, Path("-"), "--format", "jsn")
    assert "this release can decode debezium-json" in said.err
    said = init(call, kafka_broker, prefix, Path("-"), "--registry", "http://localhost:8081")
    assert "records of debezium-json refer to no schema registry" in said.err


def test_internal_topics_are_read_only_by_their_whole_name(call: Call, kafka_broker: KafkaBroker, prefix: str) -> None:
    topic = send(kafka_broker, f"_{prefix}.x", (None, {"id": 1}))
    by_pattern = call("init", "--brokers", kafka_broker.address, "--topics", f"_{prefix}.*", "-o", "-")
    by_name = call("init", "--brokers", kafka_broker.address, "--topics", re.escape(topic), "-o", "-")
    assert (by_pattern.code, by_name.code) == (1, 0)


@pytest.mark.parametrize("kind", ["refuses", pytest.param("never answers", marks=pytest.mark.interop)])
def test_without_a_broker_it_fails_within_ten_seconds(call: Call, kind: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1] if kind == "never answers" else 1
        started = time.monotonic()
        said = call("init", "--brokers", f"127.0.0.1:{port}", "-o", "-")
        assert time.monotonic() - started < 10
    assert said.code == 1
    assert f"Kafka at 127.0.0.1:{port} can't be reached" in said.err
    assert "Check `source.bootstrap_servers`" in said.err


def test_on_a_terminal_it_asks_for_what_is_open(kafka_broker: KafkaBroker, prefix: str, tmp_path: Path) -> None:
    send(kafka_broker, f"{prefix}.orders", (ID, change()))
    send(kafka_broker, f"{prefix}.clicks", (None, {"id": 1}))
    config = tmp_path / "my.yaml"
    answers = [kafka_broker.address, "(", f"{prefix}.*", "avro", "json", str(tmp_path / "lake"), str(config)]
    code, shown = on_a_terminal("init", typed="".join(f"{answer}\n" for answer in answers), columns=200)
    assert code == 0, shown
    for question in (
        "Kafka brokers [localhost:9092]: ",
        "Topics, as a regular expression (",
        "'(' is no regular expression",
        "A pipeline reads one format. Which one (",
        "write one of",
        "Warehouse: a folder, or an address such as s3://bucket/lake [lake]: ",
        f"Write to [{prefix}.yaml]: ",
    ):
        assert question in shown
    written = yaml.safe_load(config.read_text())
    assert (written["format"], written["warehouse"], written["pipeline"]) == ("json", str(tmp_path / "lake"), "my")
