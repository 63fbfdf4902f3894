"""Paimon's arguments map to a configuration, or are refused by name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tidelake.errors import BadInput
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.config.sync_table import SyncTableArguments, sync_table_configuration
from tidelake.ingest.secrets import Secret
from tidelake.ingest.settings import Config
from tidelake.ingest.source_settings import KafkaSettings

KAFKA = {"properties.bootstrap.servers": "a:1,b:2", "topic": "t", "value.format": "canal-json"}


def parsed(kafka: dict[str, str] | None = None, **others: Any) -> Config:
    conf = tuple({**KAFKA, **(kafka or {})}.items())
    arguments = SyncTableArguments("/lake", "shop", "orders", kafka_conf=conf, **others)
    return parse_config(json.dumps(sync_table_configuration(arguments)), "sync-table")


def source(**kafka: str) -> KafkaSettings:
    found = parsed({key.replace("__", "-").replace("_", "."): value for key, value in kafka.items()}).source
    assert isinstance(found, KafkaSettings)
    return found


def test_every_argument_maps_to_a_setting() -> None:
    config = parsed(
        {"topic": "t-1;t-2", "properties.isolation.level": "read_uncommitted"},
        primary_keys=["id"],
        partition_keys=["id"],
        type_mapping=["to-string"],
        computed_column=[("dt", "date_format(created, yyyy-MM-dd)")],
        metadata_column=["topic", "offset"],
        metadata_column_prefix="_",
        catalog_conf=[("s3.endpoint", "http://x")],
        table_conf=[("bucket", "4")],
    )
    (table,) = config.tables
    assert (config.pipeline, config.warehouse, config.format) == ("shop.orders", "/lake", "canal-json")
    assert isinstance(config.source, KafkaSettings)
    assert config.source.bootstrap_servers == ["a:1", "b:2"]
    assert config.source.topic_names == ["t-1", "t-2"]
    assert config.source.isolation_level == "read_uncommitted"
    assert config.warehouse_options == {"s3.endpoint": "http://x"}
    assert (table.name, table.match_patterns) == ("shop.orders", ["*"])  # shards are merged
    assert (table.primary_key, table.partition_by, table.raw_options) == (["id"], ["id"], {"bucket": "4"})
    assert table.type_mapping == ["to-string"]
    assert table.computed_columns == {"dt": "date_format(created, yyyy-MM-dd)"}
    assert (table.metadata_columns, table.metadata_column_prefix) == (["topic", "offset"], "_")


@pytest.mark.parametrize("is_taken", [True, False])
def test_the_record_key_is_used_unless_disabled(is_taken: bool) -> None:
    (table,) = parsed(sync_primary_keys_from_source_schema=is_taken).tables
    assert table.key_from_records is is_taken
    assert table.key_of_new(("id",)) == (("id",) if is_taken else ())


def test_the_schema_registry_is_a_format_option() -> None:
    config = parsed({"value.format": "debezium-avro", "schema.registry.url": "http://x"})
    assert config.format_options == {"schema.registry.url": "http://x"}


def test_start_and_end_of_reading_are_mapped() -> None:
    assert source().start == "earliest"
    assert source(scan_startup_mode="latest-offset").start == "latest"
    at = source(**{"scan.startup.mode": "timestamp", "scan.startup.timestamp__millis": "5"})
    assert getattr(at.start, "timestamp_ms", None) == 5
    offsets = source(
        **{
            "scan.startup.mode": "specific-offsets",
            "scan.startup.specific__offsets": "partition:0,offset:42;partition:1,offset:300",
        }
    )
    assert getattr(offsets.start, "offsets", None) == {"t": {0: 42, 1: 300}}
    group = source(scan_startup_mode="group-offsets", properties_group_id="g")
    assert (getattr(group.start, "group", None), group.group_id) == ("g", "g")
    assert source(scan_bounded_mode="latest-offset").until == "end"
    assert source(**{"scan.bounded.mode": "timestamp", "scan.bounded.timestamp__millis": "7"}).until_timestamp_ms == 7


@pytest.mark.parametrize(
    ("kafka", "message"),
    [
        ({"value.format": ""}, "format"),
        ({"scan.startup.mode": "soon"}, "scan.startup.mode=soon: expected earliest-offset"),
        ({"scan.startup.mode": "timestamp"}, "scan.startup.timestamp-millis is missing"),
        ({"scan.startup.mode": "group-offsets"}, "the consumer group is missing"),
        (
            {"scan.startup.mode": "specific-offsets", "scan.startup.specific-offsets": "0:1"},
            "write partition:0,offset:42",
        ),
        ({"properties.acks": "all"}, "properties.acks: this setting is not supported"),
    ],
)
def test_arguments_without_a_counterpart_are_refused_by_name(kafka: dict[str, str], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        parsed(kafka)


def test_javas_login_is_translated() -> None:
    login = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="p";'
    found = parsed({"properties.sasl.jaas.config": login, **SCRAM}).source
    assert isinstance(found, KafkaSettings)
    assert (found.sasl_plain_username, found.sasl_plain_password) == ("u", Secret("p"))


SCRAM = {"properties.security.protocol": "SASL_SSL", "properties.sasl.mechanism": "SCRAM-SHA-512"}


@pytest.mark.parametrize("missing", ["properties.bootstrap.servers", "value.format"])
def test_missing_required_arguments_are_named(missing: str) -> None:
    conf = tuple((key, value) for key, value in KAFKA.items() if key != missing)
    with pytest.raises(BadInput, match=f"{missing} is missing"):
        sync_table_configuration(SyncTableArguments("/lake", "shop", "orders", kafka_conf=conf))
