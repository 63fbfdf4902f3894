"""Paimon's arguments for many tables map to a configuration."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tidelake.errors import BadInput, ConfigError
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.config.sync_database import SyncDatabaseArguments, sync_database_configuration
from tidelake.ingest.settings import Config, SourceTablesSettings

KAFKA = (("properties.bootstrap.servers", "a:1"), ("topic-pattern", "shop\\..*"), ("value.format", "debezium-json"))


def parsed(**arguments: Any) -> Config:
    given = SyncDatabaseArguments("/lake", "shop", kafka_conf=KAFKA, **arguments)
    return parse_config(json.dumps(sync_database_configuration(given)), "sync-database")


def test_every_argument_maps_to_a_setting() -> None:
    config = parsed(
        table_prefix="ods_",
        table_suffix="_v1",
        table_prefix_db=[("a", "a_")],
        table_suffix_db=[("b", "_b")],
        table_mapping=[("orders", "purchases")],
        including_tables="o.*|i.*",
        excluding_tables=".*_tmp",
        including_dbs="a|b",
        excluding_dbs="b",
        merge_shards=False,
        primary_keys=["id"],
        partition_keys=["id"],
        multiple_table_partition_keys=[("items", ("day", "hour"))],
        type_mapping=["to-string"],
        metadata_column=["topic"],
        table_conf=[("bucket", "4")],
    )
    (table,) = config.tables
    assert (config.pipeline, table.name, table.is_template) == ("shop", "shop.ods_{table}_v1", True)
    assert (table.primary_key, table.partition_by, table.raw_options) == (["id"], ["id"], {"bucket": "4"})
    assert (table.type_mapping, table.metadata_columns) == (["to-string"], ["topic"])
    assert table.source_tables == SourceTablesSettings(
        including_tables="o.*|i.*",
        excluding_tables=".*_tmp",
        including_dbs="a|b",
        excluding_dbs="b",
        mapping={"orders": "purchases"},
        prefix_of_db={"a": "a_"},
        suffix_of_db={"b": "_b"},
        merge_shards=False,
        partition_by={"items": ["day", "hour"]},
    )


@pytest.mark.parametrize("is_taken", [True, False])
def test_the_record_key_is_used_unless_disabled(is_taken: bool) -> None:
    (table,) = parsed(sync_primary_keys_from_source_schema=is_taken).tables
    assert table.key_from_records is is_taken


def test_a_name_template_replaces_prefix_and_suffix() -> None:
    assert parsed(name="{schema}_{table}").tables[0].name == "shop.{schema}_{table}"
    with pytest.raises(BadInput, match="leave out --table-prefix and --table-suffix"):
        parsed(name="{schema}_{table}", table_prefix="x")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "all"}, "it is only for an entry of several tables"),
        ({"name": "{day}"}, "a placeholder that is not allowed"),
        ({"name": "{schema}"}, "several tables would have the same name"),
        ({"including_tables": "("}, "`including_tables` is not a regular expression"),
        ({"table_mapping": [("a", "b/c")]}, "the name 'b/c', which is not the name of a table"),
        ({"name": "{topic}", "table_prefix_db": [("a", "b")]}, "prefixes and suffixes need {table} in `name`"),
    ],
)
def test_contradictory_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    if arguments.get("name") == "all":
        arguments = {**arguments, "including_tables": "a"}
    with pytest.raises(ConfigError, match=message):
        parsed(**arguments)
