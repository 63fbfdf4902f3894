"""The types of columns that a pipeline creates: declared, mapped, or derived from the source."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.ingest.evolution.world import TOPIC, EvolvingWorld
from tidelake.errors import BadInput, ConfigError, RecordRefused
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.formats.connect_schema import SourceType
from tidelake.ingest.formats.types.mysql_types import mysql_source_type
from tidelake.ingest.formats.types.type_mapping import TypeMapping
from tidelake.ingest.settings import TableSettings
from tidelake.ingest.shaping.shaped_columns import ShapedColumns
from tidelake.ingest.tables.column_types import ColumnTypes
from tidelake.storage.model.types import BIGINT, parse_type


@pytest.mark.parametrize(
    ("words", "mysql", "plain", "mapped"),
    [
        ("tinyint1-not-bool", "tinyint(1)", "BOOLEAN", "TINYINT"),
        ("tinyint1-not-bool", "tinyint(4)", "TINYINT", "TINYINT"),
        ("to-nullable", "int", "INT", "INT"),
        ("to-string", "int", "INT", "STRING"),
        ("to-string", "datetime(3)", "TIMESTAMP(3)", "STRING"),
        ("char-to-string", "varchar(20)", "VARCHAR(20)", "STRING"),
        ("char-to-string", "int", "INT", "INT"),
        ("longtext-to-bytes", "longtext", "STRING", "BYTES"),
        ("longtext-to-bytes", "mediumtext", "STRING", "STRING"),
        ("bigint-unsigned-to-bigint", "bigint(20) unsigned", "DECIMAL(20, 0)", "BIGINT"),
        ("BIGINT_UNSIGNED_TO_BIGINT", "serial", "DECIMAL(20, 0)", "BIGINT"),
        ("decimal_no_change", "decimal(5,2)", "DECIMAL(5, 2)", "DECIMAL(5, 2)"),
    ],
)
def test_type_mapping_names_map_mysql_types(words: str, mysql: str, plain: str, mapped: str) -> None:
    source = mysql_source_type(mysql)
    assert source.column_type is not None
    assert str(TypeMapping().column_type(source, source.column_type)) == plain
    assert str(TypeMapping.parse([words]).column_type(source, source.column_type)) == mapped


def test_an_unknown_mapping_is_refused_with_the_closest_name() -> None:
    with pytest.raises(BadInput, match="'to-sting' is not a type mapping; did you mean 'to-string'"):
        TypeMapping.parse(["to-sting"])


@pytest.mark.parametrize(
    ("setting", "reason"),
    [("type_mapping: [to-sting]", "not a type mapping"), ("columns: {a: DECIMAL(99, 2)}", "DECIMAL")],
)
def test_an_invalid_type_setting_is_refused(setting: str, reason: str) -> None:
    text = f"{{warehouse: /w, source: {{type: change-log-folder, path: /x}}, tables: [{{name: a.b, {setting}}}]}}"
    with pytest.raises(ConfigError, match=reason):
        parse_config(text, "x.yaml", (), {}, "x")


def with_table(settings: str, more: str = "") -> EvolvingWorld:
    return EvolvingWorld(more, table_settings=settings)


def test_declared_columns_get_their_type_at_creation_and_when_added_later() -> None:
    world = with_table(
        "primary_key: [id], columns: {id: BIGINT, amount: 'DECIMAL(18, 2)', at: TIMESTAMP(3), later: INT}"
    )
    world.add({"id": 1, "amount": "12.50", "note": "a"})
    world.add({"id": 2, "amount": "0.01", "note": "b", "at": 1_700_000_000_123, "more": 1})
    world.run()
    assert world.columns == {
        "id": "BIGINT",
        "amount": "DECIMAL(18, 2)",
        "note": "STRING",
        "at": "TIMESTAMP(3)",
        "later": "INT",
        "more": "STRING",
    }
    assert [str(row["amount"]) for row in world.rows()] == ["12.50", "0.01"]


def test_a_declared_column_is_widened_like_others() -> None:
    world = with_table("columns: {id: BIGINT, amount: 'DECIMAL(4, 2)'}")
    world.add({"id": 1, "amount": "12.50"})
    world.add({"id": 2, "amount": "1234.567"})
    world.run()
    assert world.columns["amount"] == "DECIMAL(7, 3)"
    assert [str(row["amount"]) for row in world.rows()] == ["12.500", "1234.567"]


def test_the_types_of_an_existing_table_are_kept(caplog: pytest.LogCaptureFixture) -> None:
    world = with_table("columns: {v: BIGINT}")
    world.create({"id": "INT", "v": "INT"})
    world.add({"id": 1, "v": 7})
    world.run()
    assert world.columns["v"] == "INT"
    assert "`columns: v` is BIGINT in the configuration, but INT in the table" in caplog.text
    assert "--set-type 'v BIGINT'" in caplog.text


def test_a_column_that_grew_is_named_at_the_next_start_without_a_command_that_would_cut_its_values(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = with_table("columns: {id: BIGINT, v: INT}")
    world.add({"id": 1, "v": 99_999_999_999})
    world.run()
    world.run()
    assert world.columns["v"] == "BIGINT"
    assert "`columns: v` is INT in the configuration, but BIGINT in the table" in caplog.text
    assert "--set-type" not in caplog.text


def test_decimal_no_change_keeps_the_type_and_larger_values_become_dead_letters() -> None:
    columns = "{id: INT, v: 'DECIMAL(4, 2)'}"
    world = with_table(f"columns: {columns}, type_mapping: [decimal-no-change]", "errors: {tolerance: all}")
    world.add({"id": 1, "v": "1.50"})
    world.add({"id": 2, "v": "12345.5"})
    world.run()
    assert (world.columns["v"], len(world.rows()), len(world.dead_letters())) == ("DECIMAL(4, 2)", 1, 1)


def text_for_number(settings: str) -> EvolvingWorld:
    world = with_table(settings)
    world.add({"id": 1, "v": 17}, {"id": "INT", "v": "INT"})
    world.add({"id": 2, "v": "x17"}, {"id": "INT", "v": "STRING"})
    return world


def test_a_number_becomes_a_text_only_where_that_is_allowed() -> None:
    with pytest.raises(RecordRefused, match="x17"):
        text_for_number("").run()
    world = text_for_number("type_mapping: [allow-non-string-to-string]")
    world.run()
    assert (world.columns["v"], [row["v"] for row in world.rows()]) == ("STRING", ["17", "x17"])


def canal(**columns: tuple[str, Any]) -> bytes:
    return json.dumps(
        {
            "type": "INSERT",
            "database": "shop",
            "table": "orders",
            "isDdl": False,
            "pkNames": ["id"],
            "mysqlType": {name: kind for name, (kind, _) in columns.items()},
            "data": [{name: value for name, (_, value) in columns.items()}],
        },
        ensure_ascii=False,
    ).encode()


def test_mapped_columns_hold_the_values_of_canal() -> None:
    words = "type_mapping: [tinyint1-not-bool, char-to-string, longtext-to-bytes, bigint-unsigned-to-bigint]"
    world = with_table(words, "format: canal-json")
    world.log.append(TOPIC, canal(id=("int", "1"), flag=("tinyint(1)", "2"), name=("varchar(3)", "abc")))
    big = ("bigint(20) unsigned", "7")
    world.log.append(TOPIC, canal(id=("int", "2"), flag=("tinyint(1)", "0"), text=("longtext", "ü"), big=big))
    world.run()
    assert world.columns == {"id": "INT", "flag": "TINYINT", "name": "STRING", "text": "BYTES", "big": "BIGINT"}
    assert [tuple(row.values()) for row in world.rows()] == [
        (1, 2, "abc", None, None),
        (2, 0, None, "ü".encode(), 7),
    ]


def test_canal_s_declared_lengths_are_followed() -> None:
    world = with_table("", "format: canal-json")
    world.log.append(TOPIC, canal(id=("int", "1"), v=("varchar(3)", "abc")))
    world.log.append(TOPIC, canal(id=("int", "2"), v=("varchar(30)", "abc")))
    world.log.append(TOPIC, canal(id=("int", "3"), v=("varchar(3)", "abc")))
    world.run()
    assert world.columns["v"] == "VARCHAR(30)"


def test_unmapped_types_are_unchanged() -> None:
    assert TypeMapping.parse(["to-nullable"]).column_type(SourceType("int32"), parse_type("INT")) == parse_type("INT")


@pytest.mark.parametrize(
    ("word", "made"),
    [
        ("bigint unsigned", "DECIMAL(20, 0)"),
        ("date", "DATE"),
        ("timestamp ms", "TIMESTAMP(3)"),
        ("bits(12)", "BINARY(2)"),
        ("base64", "BYTES"),
        ("time us", "BIGINT"),
        ("decimal base64", "BIGINT"),
    ],
)
def test_a_new_column_gets_the_type_of_its_declared_source_type(word: str, made: str) -> None:
    """Where Paimon has one for it; `time us` has none, and the digits of a decimal must be declared."""
    types = ColumnTypes.of(TableSettings(name="a.b", source_types={"no": word}), "debezium-json", ShapedColumns())
    assert str(types.type_of("no", None, BIGINT)) == made
    assert str(types.type_of("other", None, BIGINT)) == "BIGINT"


def test_a_declared_column_type_wins_over_a_declared_source_type() -> None:
    settings = TableSettings(name="a.b", source_types={"no": "bigint unsigned"}, columns={"no": "STRING"})
    assert str(ColumnTypes.of(settings, "debezium-json", ShapedColumns()).type_of("no", None, BIGINT)) == "STRING"
