from __future__ import annotations

from typing import Final

import pytest

from tests.ingest.formats.values.value_case import declared
from tidelake.errors import BadInput
from tidelake.ingest.formats.connect_schema import (
    UNDECLARED,
    ConnectorSettings,
    SemanticType,
    SourceType,
    completed,
    parse_connect_schema,
    source_type,
    spelled_source_type,
)
from tidelake.ingest.formats.connector_rules import CONNECTORS
from tidelake.storage.model.types import parse_type

ADAPTIVE: Final = [("TIME(3)", 10**3), ("TIME(4)", 10**6), ("TIME(7)", 10**9), ("TIMESTAMP(0)", 10**3),
                   ("TIMESTAMP(3)", 10**3), ("TIMESTAMP(4)", 10**6), ("TIMESTAMP(6)", 10**6), ("TIMESTAMP(7)", 10**9),
                   ("TIMESTAMP(9) WITH LOCAL TIME ZONE", 10**9)]  # fmt: skip


@pytest.mark.parametrize(("target", "per_second"), ADAPTIVE)
def test_without_a_schema_the_column_type_defines_the_unit(target: str, per_second: int) -> None:
    found = completed(UNDECLARED, parse_type(target), "postgresql", ConnectorSettings())
    assert found.per_second == per_second


@pytest.mark.parametrize(
    ("mode", "connector", "time", "timestamp"),
    [
        (None, "postgresql", 10**3, 10**6),
        (None, "", 10**3, 10**6),
        (None, "mysql", 10**6, 10**6),
        (None, "mariadb", 10**6, 10**6),
        (None, "vitess", 10**6, 10**6),
        (None, "TiCDC", 10**6, 10**6),
        (None, "sqlserver", 10**3, 10**6),
        (None, "oracle", 10**3, 10**6),
        (None, "db2", 10**3, 10**6),
        (None, "informix", 10**3, 10**6),
        (None, "cassandra", 10**9, 10**3),
        ("adaptive", "mariadb", 10**3, 10**6),
        ("adaptive_time_microseconds", "postgresql", 10**6, 10**6),
        ("connect", "mariadb", 10**3, 10**3),
        ("microseconds", "", 10**6, 10**6),
        ("nanoseconds", "", 10**9, 10**9),
        ("isostring", "postgresql", 0, 0),
    ],
)
def test_the_connector_mode_wins_over_the_column_type(
    mode: str | None, connector: str, time: int, timestamp: int
) -> None:
    settings = ConnectorSettings(time_precision_mode=mode)
    for text, per_second in (("TIME(0)", time), ("TIMESTAMP(6)", timestamp)):
        assert completed(UNDECLARED, parse_type(text), connector, settings).per_second == per_second


@pytest.mark.parametrize("target", ["TIME(0)", "TIMESTAMP(6)", "TIMESTAMP(3) WITH LOCAL TIME ZONE"])
@pytest.mark.parametrize("connector", ["yugabytedb", "cockroachdb", "spanner", "mongodb", "Pg"])
def test_a_number_has_no_unit_if_the_connector_is_unknown_or_sends_texts(connector: str, target: str) -> None:
    found = completed(UNDECLARED, parse_type(target), connector, ConnectorSettings())
    assert found.per_second == 0
    assert "Declare it in source_types of the table" in found.unknown_unit


def test_every_listed_connector_says_where_its_rule_comes_from() -> None:
    for name, rules in CONNECTORS.items():
        assert name == name.lower()
        assert rules.source
        assert rules.title


def test_a_declared_schema_wins_over_connector_settings() -> None:
    micro = declared("int64", "io.debezium.time.MicroTimestamp")
    settings = ConnectorSettings(time_precision_mode="connect")
    assert completed(micro, parse_type("TIMESTAMP(3)"), "mysql", settings) is micro


def test_propagated_source_types_identify_unsigned_longs() -> None:
    parameter = "__debezium.source.column.type"
    assert declared("int64", None, {parameter: "BIGINT UNSIGNED ZEROFILL"}).semantic_type is SemanticType.UNSIGNED
    assert declared("int64", None, {parameter: "INT UNSIGNED"}).semantic_type is SemanticType.PLAIN
    assert (
        declared("bytes", "org.apache.kafka.connect.data.Decimal", {parameter: "BIGINT UNSIGNED"}).semantic_type
        is SemanticType.DECIMAL
    )


def test_a_parameter_that_is_no_number_counts_as_absent() -> None:
    assert declared("bytes", "io.debezium.data.Bits", {"length": "many"}).length == 0


def test_nested_schemas_are_read_to_the_bottom() -> None:
    schema = parse_connect_schema(
        b'{"type":"struct","fields":[{"field":"m","type":"map","keys":{"type":"string"},'
        b'"values":{"type":"array","items":{"type":"int32","name":"io.debezium.time.Date"}}}]}'
    )
    values = source_type(schema).fields["m"].value
    assert values is not None
    assert values.element is not None
    assert values.element.semantic_type is SemanticType.DATE


@pytest.mark.parametrize(
    "data", [b"", b"7", b'{"type":1}', b'{"fields":[]}', b'{"type":"struct","fields":7}', b'"\xff"']
)
def test_an_invalid_schema_is_refused(data: bytes) -> None:
    with pytest.raises(BadInput, match="not a Kafka Connect schema"):
        parse_connect_schema(data)


@pytest.mark.parametrize(
    ("word", "semantic_type", "length", "per_second"),
    [
        ("BIGINT  Unsigned", SemanticType.UNSIGNED, 0, 0),
        ("bits", SemanticType.BITS, 0, 0),
        ("bits(12)", SemanticType.BITS, 12, 0),
        ("bits varying", SemanticType.BITS, 2**31 - 1, 0),
        ("hex", SemanticType.HEX, 0, 0),
        ("time us", SemanticType.TIME, 0, 10**6),
        ("timestamp s", SemanticType.TIMESTAMP, 0, 1),
    ],
)
def test_source_types_are_parsed(word: str, semantic_type: SemanticType, length: int, per_second: int) -> None:
    found = spelled_source_type("c", word)
    assert (found.semantic_type, found.length, found.per_second) == (semantic_type, length, per_second)


def test_a_decimal_in_bytes_without_a_schema_has_the_columns_scale() -> None:
    spelled = spelled_source_type("c", "decimal base64")
    assert completed(spelled, parse_type("DECIMAL(9, 3)"), "", ConnectorSettings()).scale == 3


@pytest.mark.parametrize("word", ["", "int", "bits(x)", "time"])
def test_an_unknown_spelling_is_refused_with_the_known_ones(word: str) -> None:
    with pytest.raises(BadInput, match=r"of column c: not one of bigint unsigned, .*bits\(n\)"):
        spelled_source_type("c", word)


@pytest.mark.parametrize(
    ("setting", "word", "known"),
    [
        ("time_precision_mode", "seconds", "adaptive, adaptive_time_microseconds, connect"),
        ("binary_handling_mode", "bytes", "base64, hex"),
        ("decimal_handling_mode", "exact", "string, precise"),
    ],
)
def test_an_unknown_setting_is_refused_with_the_known_ones(setting: str, word: str, known: str) -> None:
    with pytest.raises(BadInput, match=f"{setting}: '{word}' is not one of {known}"):
        ConnectorSettings(**{setting: word})


def test_no_source_types_are_declared_by_default() -> None:
    assert SourceType("", SemanticType.PLAIN) == UNDECLARED
