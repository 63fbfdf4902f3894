"""A pipeline's configuration as a Spark query: the same rows, or the same refusals."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import URLError

import pytest
import zstandard
from msgspec import structs

import tidelake
from tests.support.kafka_broker import KafkaBroker
from tests.tidelake.shop_log import create_shop_tables, rows_in_key_order, write_shop_log
from tidelake.checkpoint.offsets import OffsetRange, TopicPartition
from tidelake.cli.demo.shop import ORDERS, STOCK, TABLES
from tidelake.errors import BadInput, PositionRefused, TidelakeError, UnsupportedFeature
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.pipeline.builder import build_pipeline
from tidelake.ingest.pipeline.recovery_flags import parse_recovery_flags
from tidelake.ingest.pipeline.service import run as run_pipeline
from tidelake.ingest.settings import BootstrapSettings, Config, FreshnessSettings
from tidelake.ingest.source_settings import KafkaSettings
from tidelake.ingest.spark.batch_position import recorded_position
from tidelake.spark import pipeline_query
from tidelake.spark.pipeline_query import PipelineQuery, start_query
from tidelake.spark.query_tables import sinks_of
from tidelake.spark.start_positions import StartPositions
from tidelake.storage.base.logs import FIELDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def config(home: Path, more: str = "", source: str = "") -> Config:
    text = (
        f"warehouse: {home}/lake\n"
        f"source: {{type: change-log-folder, path: {home}/changes, until: end{source}}}\n"
        f"tables: [{{name: shop.customers}}, {{name: shop.orders}}, {{name: shop.stock}}]\n{more}"
    )
    return parse_config(text, "shop.yaml", pipeline="shop")


def run(spark: SparkSession, settings: Config, checkpoint: Path) -> None:
    running = start_query(spark, settings, str(checkpoint))
    try:
        running.query.awaitTermination()
    except Exception:
        assert not running.query.isActive
    assert running.has_ended()


def ranges_of(table: tidelake.Table, number: int) -> Mapping[TopicPartition, OffsetRange]:
    """In the table's snapshot of this number."""
    return recorded_position(table.context.snapshots.get(table.snapshots()[number].id)).ranges


@pytest.mark.interop
def test_one_query_writes_every_configured_table(spark: SparkSession, tmp_path: Path) -> None:
    shop = write_shop_log(tmp_path / "changes")
    tables = create_shop_tables(tmp_path / "lake")
    run(spark, config(tmp_path), tmp_path / "checkpoint")
    for table in TABLES:
        assert rows_in_key_order(table, tables[table.name].scan().to_arrow()) == shop.expected_rows(table).to_pylist()
    run(spark, config(tmp_path), tmp_path / "checkpoint")
    assert {len(table.snapshots()) for table in tables.values()} == {1}

    run(spark, config(tmp_path), tmp_path / "another")  # a new checkpoint begins at the tables' own position
    assert {len(table.snapshots()) for table in tables.values()} == {1}


@pytest.mark.interop
def test_a_query_begins_where_the_service_ended_whatever_the_configured_start_is(
    spark: SparkSession, tmp_path: Path
) -> None:
    shop = write_shop_log(tmp_path / "changes")
    logs = sorted((tmp_path / "changes").iterdir())
    later = {path: path.read_text() for path in logs[1:]}
    for path in later:
        path.unlink()
    tables = create_shop_tables(tmp_path / "lake")
    asyncio.run(run_pipeline(config(tmp_path)))
    for path, text in later.items():
        path.write_text(text)
    begins = StartPositions.of(config(tmp_path)).begins()
    assert begins == {p: r.end for table in tables.values() for p, r in ranges_of(table, -1).items()}

    run(spark, config(tmp_path), tmp_path / "checkpoint")
    for table in TABLES:
        found = rows_in_key_order(table, tables[table.name].scan().to_arrow())
        assert found == shop.expected_rows(table).to_pylist()


@pytest.mark.interop
def test_a_checkpoint_directory_that_another_driver_has_overtaken_has_one_remedy_that_works(
    spark: SparkSession, tmp_path: Path
) -> None:
    shop = write_shop_log(tmp_path / "changes")
    logs = sorted((tmp_path / "changes").iterdir())
    later = {path: path.read_text() for path in logs[1:]}
    for path in later:
        path.unlink()
    tables = create_shop_tables(tmp_path / "lake")
    run(spark, config(tmp_path), tmp_path / "checkpoint")
    for path, text in later.items():
        path.write_text(text)
    names = [f"shop.{table.name}" for table in TABLES if tables[table.name].snapshots()]
    asyncio.run(run_pipeline(config(tmp_path), recovery_flags=parse_recovery_flags(names, [], [], names)))
    with pytest.raises(PositionRefused, match="says where the query reads") as refused:
        run(spark, config(tmp_path), tmp_path / "checkpoint")
    (remedy,) = refused.value.ways_out
    (directory,) = re.findall(r"--checkpoint ([^`]+)`", remedy)
    run(spark, config(tmp_path), Path(directory))
    for table in TABLES:
        found = rows_in_key_order(table, tables[table.name].scan().to_arrow())
        assert found == shop.expected_rows(table).to_pylist()


@pytest.mark.interop
def test_tables_that_are_new_to_query_and_service_begin_at_the_configured_position(
    spark: SparkSession, tmp_path: Path
) -> None:
    shop = write_shop_log(tmp_path / "changes")
    tables = create_shop_tables(tmp_path / "lake")
    asyncio.run(run_pipeline(config(tmp_path)))
    ends = {p: r.end for table in tables.values() for p, r in ranges_of(table, -1).items()}
    topics: dict[str, dict[int, int]] = {}
    for partition, end in ends.items():
        topics.setdefault(partition.topic, {})[partition.partition] = end - 1
    begins = f", start: {{offsets: {json.dumps(topics)}}}"
    for driver in ("service", "query"):
        renamed = structs.replace(config(tmp_path, source=begins), pipeline=driver, warehouse=str(tmp_path / driver))
        create_shop_tables(tmp_path / driver)
        if driver == "service":
            asyncio.run(run_pipeline(renamed))
        else:
            run(spark, renamed, tmp_path / "checkpoint")
    found, expected = (
        {
            table.name: rows_in_key_order(
                table, tidelake.open_catalog(str(tmp_path / driver)).table(f"shop.{table.name}").scan().to_arrow()
            )
            for table in TABLES
        }
        for driver in ("query", "service")
    )
    assert found == expected
    assert 0 < sum(map(len, found.values())) < sum(len(shop.expected_rows(table)) for table in TABLES)


@pytest.mark.parametrize(
    ("one", "two", "begins"),
    [
        pytest.param({"0": 7}, {"0": 7}, {"0": 7}, id="equally far"),
        pytest.param({"0": 7}, {"1": 3}, None, id="other partitions"),
        pytest.param({"0": 7}, {"0": 5}, None, id="one is behind"),
        pytest.param({"0": 7}, {}, None, id="one is new"),
        pytest.param({}, {}, {}, id="nothing is read"),
    ],
)
def test_tables_that_were_read_differently_far_are_brought_to_one_position_first(
    one: dict[str, int], two: dict[str, int], begins: dict[str, int] | None
) -> None:
    reached = {
        name: {TopicPartition("t", int(number)): at for number, at in ends.items()}
        for name, ends in (("d.one", one), ("d.two", two))
    }
    positions = StartPositions(reached, {"d.one": ("*",), "d.two": ("t",), "d.other": ("u",)})
    if begins is None:
        with pytest.raises(PositionRefused, match=r"(?s)t-\d was read differently far.*`--until latest`"):
            positions.begins()
    else:
        assert positions.begins() == {TopicPartition("t", int(number)): at for number, at in begins.items()}


@pytest.mark.interop
def test_a_bad_record_on_an_executor_raises_the_message_of_its_decoder(spark: SparkSession, tmp_path: Path) -> None:
    line = {"topic": "shop.public.orders", "partition": 0, "offset": 7, "key": '{"id":1}', "value": "{broken"}
    (tmp_path / "changes").mkdir()
    (tmp_path / "changes" / "a.jsonl").write_text(json.dumps(line) + "\n")
    tables = create_shop_tables(tmp_path / "lake")
    with pytest.raises(TidelakeError, match=r"^topic shop\.public\.orders, partition 0, offset 7"):
        run(spark, config(tmp_path), tmp_path / "checkpoint")
    assert {len(table.snapshots()) for table in tables.values()} == {0}


@pytest.mark.interop
def test_tables_are_created_from_their_first_record_like_in_the_service(spark: SparkSession, tmp_path: Path) -> None:
    shop = write_shop_log(tmp_path / "changes")
    text = (
        f"warehouse: {tmp_path}/lake\n"
        f"source: {{type: change-log-folder, path: {tmp_path}/changes, until: end}}\n"
        "tables: [{name: shop.customers}, {name: shop.orders, options: {bucket: 3}}, {name: shop.others}]\n"
    )
    on_spark = parse_config(text, "shop.yaml", pipeline="shop")
    run(spark, on_spark, tmp_path / "checkpoint")
    service = structs.replace(on_spark, warehouse=str(tmp_path / "of-service"))
    asyncio.run(run_pipeline(service))
    made = tidelake.open_catalog(str(tmp_path / "lake"))
    assert sorted(made.list_tables("shop")) == ["customers", "orders"]  # no record for the third
    for name in made.list_tables("shop"):
        ours = made.table(f"shop.{name}")
        theirs = tidelake.open_catalog(str(tmp_path / "of-service")).table(f"shop.{name}")
        assert ours.schema == theirs.schema
        assert ours.primary_key == theirs.primary_key
        assert ours.options == theirs.options
        by_key = [(key, "ascending") for key in ours.primary_key]
        assert ours.scan().to_arrow().sort_by(by_key) == theirs.scan().to_arrow().sort_by(by_key)
    assert made.table("shop.orders").scan().to_arrow().num_rows == shop.expected_rows(ORDERS).num_rows


@pytest.mark.interop
def test_a_table_that_cannot_be_created_ends_the_query_with_the_reason(spark: SparkSession, tmp_path: Path) -> None:
    write_shop_log(tmp_path / "changes")
    settings = config(tmp_path)
    (orders, *_) = [table for table in settings.tables if table.name == "shop.orders"]
    wrong = structs.replace(settings, tables=[structs.replace(orders, primary_key=["nothing"])])
    with pytest.raises(BadInput, match=r"shop\.orders can't be created: .* has no column nothing"):
        run(spark, wrong, tmp_path / "checkpoint")
    assert tidelake.open_catalog(str(tmp_path / "lake")).list_databases() == []


@pytest.mark.parametrize(
    ("more", "message"),
    [
        pytest.param(
            "schema_evolution: {include: [add.column, drop.column]}",
            "drop.column: a column is renamed",
            id="a dropped column",
        ),
        pytest.param("format: paper", "paper.*canal-json", id="another format"),
        pytest.param("format: protobuf", "Protobuf records .*schema_registry_url", id="a format without its registry"),
    ],
)
def test_settings_unsupported_on_spark_are_refused(
    spark: SparkSession, tmp_path: Path, more: str, message: str
) -> None:
    write_shop_log(tmp_path / "changes")
    with pytest.raises(TidelakeError, match=message):
        start_query(spark, config(tmp_path, more), str(tmp_path / "checkpoint"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"paused": True}, "paused: a Spark query has no quarantine"),
        ({"mode": "scd2"}, "mode: scd2: Spark's tasks write a change without the version that it ends"),
        ({"freshness": FreshnessSettings(target_ms=500)}, "freshness: the trigger of a Spark query has one interval"),
        ({"bootstrap": BootstrapSettings(enabled=True)}, "bootstrap: each batch of a Spark query commits its own rows"),
    ],
    ids=["a pause", "versions", "a target of freshness", "a bootstrap"],
)
def test_settings_of_a_table_unsupported_on_spark_are_refused(
    tmp_path: Path, given: dict[str, Any], message: str
) -> None:
    settings = config(tmp_path, "")
    shaped = [structs.replace(table, **given) for table in settings.tables]
    with pytest.raises(UnsupportedFeature, match=message):
        pipeline_query.check_settings(structs.replace(settings, tables=shaped))


def test_lineage_is_refused_because_spark_has_its_own(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedFeature, match=r"lineage: Spark has its own OpenLineage listener"):
        pipeline_query.check_settings(config(tmp_path, "lineage: {transport: {type: http, url: 'http://l'}}"))


@pytest.mark.parametrize(
    "options", ["binary_handling_mod: hex", "binary_handling_mode: octal", "truncates: Fail", "truncates: null"]
)
def test_format_options_are_refused_with_the_same_message_as_without_spark(tmp_path: Path, options: str) -> None:
    settings = config(tmp_path, f"format_options: {{{options}}}")
    with pytest.raises(BadInput) as without_spark:
        build_pipeline(settings)
    with pytest.raises(BadInput) as on_spark:
        sinks_of(settings)
    assert str(on_spark.value) == str(without_spark.value)


@pytest.mark.parametrize(
    ("more", "place"),
    [
        pytest.param("errors: {tolerance: all}", "{home}/lake/shop.dead-letters", id="by default in the warehouse"),
        pytest.param("errors: {tolerance: all, dead_letters: /letters}", "/letters", id="where the configuration says"),
        pytest.param("errors: {dead_letters: /letters}", None, id="nowhere when none is tolerated"),
    ],
)
def test_dead_letters_are_written_where_configured(tmp_path: Path, more: str, place: str | None) -> None:
    found = {table_sink.dead_letters for table_sink in sinks_of(config(tmp_path, more))}
    assert found == {place and place.format(home=tmp_path)}


@pytest.mark.parametrize(
    ("more", "reported"),
    [
        pytest.param("", [], id="nothing"),
        pytest.param("checkpoint: {interval_ms: 7}\nerrors: {tolerance: all, dead_letters: /letters}", [], id="heeded"),
        pytest.param(
            "checkpoint: {bytes_max: 7}\nerrors: {waiting_ms_max: 7, waiting_bytes_max: 7}\n"
            "write: {memory_bytes: 7, queue_bytes: 16777216, spill_directory: /spill}",
            [
                *("checkpoint.bytes_max", "errors.waiting_ms_max", "errors.waiting_bytes_max"),
                *("write.memory_bytes", "write.spill_directory"),
            ],
            id="all but a default",
        ),
    ],
)
def test_a_warning_names_settings_without_effect(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, more: str, reported: list[str]
) -> None:
    pipeline_query.check_settings(config(tmp_path, more))
    assert [getattr(record, FIELDS)["settings"] for record in caplog.records] == ([reported] if reported else [])


@pytest.mark.parametrize("setting", sorted({*KafkaSettings.__struct_fields__} - {"until"}))
def test_a_kafka_setting_reaches_the_connector_or_is_refused_or_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, setting: str
) -> None:
    plain = KafkaSettings(bootstrap_servers="b", topics="t")
    value = getattr(plain, setting)
    other = not value if isinstance(value, bool) else value + 1 if isinstance(value, int) else "other"
    source = structs.replace(plain, **{setting: other})
    try:
        pipeline_query.check_settings(structs.replace(config(tmp_path), source=source))
        refused = False
    except UnsupportedFeature as error:
        refused = f"source.{setting}: " in str(error)
    reaches = pipeline_query.kafka_options(source) != pipeline_query.kafka_options(plain)
    named = [f"source.{setting}"] in [getattr(record, FIELDS)["settings"] for record in caplog.records]
    assert [reaches, refused, named].count(True) == 1


@pytest.mark.interop
def test_compressed_files_and_appended_lines_are_read_like_in_the_service(spark: SparkSession, tmp_path: Path) -> None:
    shop = write_shop_log(tmp_path / "log")
    lines = [line for path in sorted((tmp_path / "log").iterdir()) for line in path.read_bytes().splitlines(True)]
    changes = tmp_path / "changes"
    changes.mkdir()
    third = len(lines) // 3
    (changes / "a.jsonl.gz").write_bytes(gzip.compress(b"".join(lines[:third])))
    (changes / "b.jsonl.zst").write_bytes(zstandard.compress(b"".join(lines[third : 2 * third])))
    (changes / "c.jsonl").write_bytes(b"".join(lines[2 * third : -10]))
    tables = create_shop_tables(tmp_path / "lake")
    run(spark, config(tmp_path), tmp_path / "checkpoint")
    with (changes / "c.jsonl").open("ab") as file:
        file.writelines(lines[-10:])
    run(spark, config(tmp_path), tmp_path / "checkpoint")
    for table in TABLES:
        found = rows_in_key_order(table, tables[table.name].scan().to_arrow())
        assert found == shop.expected_rows(table).to_pylist()


@pytest.mark.interop
def test_a_checkpoint_directory_of_another_source_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    write_shop_log(tmp_path / "changes")
    create_shop_tables(tmp_path / "lake")
    run(spark, config(tmp_path), tmp_path / "checkpoint")
    for log in sorted((tmp_path / "checkpoint" / "offsets").glob("[0-9]*")):
        version, metadata, *_ = log.read_text().splitlines()
        log.write_text("\n".join([version, metadata, '{"logOffset":0}']))
    for checksum in (tmp_path / "checkpoint" / "offsets").glob(".*.crc"):
        checksum.unlink()
    (tmp_path / "changes" / "z.jsonl").write_text("")
    with pytest.raises(Exception, match="not a change-log file"):
        run(spark, config(tmp_path), tmp_path / "checkpoint")


@pytest.mark.interop
@pytest.mark.timeout(900)
def test_a_kafka_topic_feeds_its_tables_without_a_jar(
    spark: SparkSession, tmp_path: Path, kafka_broker: KafkaBroker
) -> None:
    shop = write_shop_log(tmp_path / "changes")
    files = sorted((tmp_path / "changes").iterdir())
    lines = [json.loads(line) for path in files for line in path.read_text().splitlines()]
    partitions = 1 + max(line["partition"] for line in lines)
    topics = {topic: kafka_broker.create_topic(partitions=partitions) for topic in {line["topic"] for line in lines}}
    kafka_broker.send({**line, "topic": topics[line["topic"]], "headers": []} for line in lines)
    tables = create_shop_tables(tmp_path / "lake")
    text = (
        f"warehouse: {tmp_path}/lake\n"
        f"source: {{type: kafka, bootstrap_servers: '{kafka_broker.address}', topics: {list(topics.values())}, "
        "until: end}\n"
        "tables: [{name: shop.customers}, {name: shop.orders}, {name: shop.stock}]\n"
    )
    for _ in range(2):  # the second finds all there
        run(spark, parse_config(text, "shop.yaml", pipeline="shop"), tmp_path / "checkpoint")
        for table in TABLES:
            found = rows_in_key_order(table, tables[table.name].scan().to_arrow())
            assert found == shop.expected_rows(table).to_pylist()


@pytest.mark.interop
def test_a_missing_topic_raises_the_same_error_as_in_the_service(
    spark: SparkSession, tmp_path: Path, kafka_broker: KafkaBroker
) -> None:
    create_shop_tables(tmp_path / "lake")
    text = (
        f"warehouse: {tmp_path}/lake\n"
        f"source: {{type: kafka, bootstrap_servers: '{kafka_broker.address}', topics: [nothing], until: end}}\n"
        "tables: [{name: shop.orders}]\n"
    )
    with pytest.raises(TidelakeError, match=r"^Kafka at .*: no such topic: nothing"):
        run(spark, parse_config(text, "shop.yaml", pipeline="shop"), tmp_path / "checkpoint")


def test_a_table_of_a_kafka_source_sees_its_topics_only(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream with the columns of Spark's connector, which needs no jar."""
    shop = write_shop_log(tmp_path / "changes")
    tables = create_shop_tables(tmp_path / "lake")
    columns = "topic string, partition int, offset long, timestamp_ms long, key string, value string"
    lines = spark.readStream.schema(columns).json(str(tmp_path / "changes"))
    records = lines.selectExpr(
        "topic", "partition", "offset", "timestamp_millis(timestamp_ms) AS timestamp", "key", "value"
    )
    monkeypatch.setattr(pipeline_query, "read_source", lambda *_: records)
    text = (
        f"warehouse: {tmp_path}/lake\n"
        "source: {type: kafka, bootstrap_servers: 'b:9092', topic_pattern: 'shop[.].*', until: end}\n"
        "tables:\n"
        "  - {name: shop.orders, match: '*', topics: [shop.public.o*]}\n"
        "  - {name: shop.stock, match: '*', topics: 'shop.public.st?ck'}\n"
    )
    run(spark, parse_config(text, "shop.yaml", pipeline="shop"), tmp_path / "checkpoint")
    for table in (ORDERS, STOCK):
        assert rows_in_key_order(table, tables[table.name].scan().to_arrow()) == shop.expected_rows(table).to_pylist()
    assert tables["customers"].snapshots() == []


@pytest.mark.parametrize(
    ("source", "options"),
    [
        pytest.param(
            "bootstrap_servers: ['a:1', 'b:2'], topics: [t, u]",
            {"kafka.bootstrap.servers": "a:1,b:2", "subscribe": "t,u", "startingOffsets": "earliest"},
            id="topics",
        ),
        pytest.param(
            "bootstrap_servers: 'a:1', topic_pattern: 't.*', start: latest, isolation_level: read_uncommitted",
            {"subscribePattern": "t.*", "startingOffsets": "latest", "kafka.isolation.level": "read_uncommitted"},
            id="a pattern",
        ),
        pytest.param(
            "bootstrap_servers: 'a:1', topics: t, start: {timestamp_ms: 7}", {"startingTimestamp": "7"}, id="a time"
        ),
        pytest.param(
            "bootstrap_servers: 'a:1', topics: t, start: {offsets: {t: {0: 5, 1: 6}}}",
            {"startingOffsets": '{"t": {"0": 5, "1": 6}}'},
            id="offsets",
        ),
    ],
)
def test_kafka_settings_are_passed_under_the_connectors_names(source: str, options: dict[str, str]) -> None:
    text = f"warehouse: lake\nsource: {{type: kafka, {source}}}\ntables: [{{name: shop.orders}}]\n"
    settings = parse_config(text, "shop.yaml", pipeline="shop").source
    assert isinstance(settings, KafkaSettings)
    assert options.items() <= pipeline_query.kafka_options(settings).items()


def asked(running: PipelineQuery, path: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://127.0.0.1:{running.monitor.port}{path}", timeout=60) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


@pytest.mark.interop
def test_a_query_answers_at_the_endpoint_of_its_configuration_while_it_runs(
    spark: SparkSession, tmp_path: Path, kafka_broker: KafkaBroker
) -> None:
    create_shop_tables(tmp_path / "lake")
    shop = write_shop_log(tmp_path / "changes")
    lines = [json.loads(line) for path in (tmp_path / "changes").iterdir() for line in path.read_text().splitlines()]
    topic = kafka_broker.create_topic(partitions=1 + max(line["partition"] for line in lines))
    kafka_broker.send({**line, "topic": topic, "headers": []} for line in lines)
    text = (
        f"warehouse: {tmp_path}/lake\n"
        f"source: {{type: kafka, bootstrap_servers: '{kafka_broker.address}', topics: [{topic}]}}\n"
        "tables: [{name: shop.customers}, {name: shop.orders}, {name: shop.stock}]\n"
        "checkpoint: {interval_ms: 100}\nmetrics: {port: 0}\n"
    )
    running = start_query(spark, parse_config(text, "shop.yaml", pipeline="shop"), str(tmp_path / "checkpoint"))
    try:
        deadline = time.monotonic() + 240
        while (status := asked(running, "/status"))["lag"] or not any(at["end"] for at in status["partitions"]):
            assert not running.has_ended()
            assert time.monotonic() < deadline, status
            time.sleep(0.2)
        assert status["state"] == "RUNNING"
        assert status["records"] == len(lines) == sum(at["end"] for at in status["partitions"])
        tables = {table["name"]: table for table in status["tables"]}
        assert {name: table["snapshot_id"] is not None for name, table in tables.items()} == dict.fromkeys(tables, True)
        assert tables["shop.orders"]["rows"] >= len(shop.expected_rows(ORDERS))
        assert asked(running, "/ready")["ready"]
    finally:
        running.stop()
    with pytest.raises(URLError):
        asked(running, "/status")
