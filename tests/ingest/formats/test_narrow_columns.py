"""A column whose type is too narrow for the source stops the pipeline, unless a setting allows rounding."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Final

import pytest

from tests.ingest.formats.debezium.changes import Record, as_json, batch_of, change, orders, rows_of
from tidelake.errors import BadInput
from tidelake.ingest.formats.base import DecodedBatch, FailureKind, Target
from tidelake.ingest.formats.connect_schema import ConnectorSettings
from tidelake.ingest.formats.debezium.debezium_json_decoder import DebeziumJsonDecoder
from tidelake.ingest.pipeline.error_policy import ErrorPolicy

_DECIMAL_4: Final = {
    "type": "bytes",
    "name": "org.apache.kafka.connect.data.Decimal",
    "parameters": {"scale": "4", "connect.decimal.precision": "8"},
}
_MICROS: Final = {"type": "int64", "name": "io.debezium.time.MicroTimestamp"}
_MICRO_TIME: Final = {"type": "int64", "name": "io.debezium.time.MicroTime"}
_MILLIS: Final = {"type": "int64", "name": "io.debezium.time.Timestamp"}


def with_schema(column: dict[str, Any], value: object) -> Record:
    """A create of (id 1, x), whose schema says of x `column`."""
    image = {"type": "struct", "fields": [{"type": "int64", "field": "id"}, {**column, "field": "x"}]}
    envelope = {"type": "struct", "fields": [{**image, "field": "before"}, {**image, "field": "after"}]}
    payload = json.loads(change("c", after={"id": 1, "x": value}).value or b"")
    return Record(as_json({"id": 1}), as_json({"schema": envelope, "payload": payload}))


def plain(value: object) -> Record:
    return change("c", after={"id": 1, "x": value})


def decoded(record: Record, target: Target, **options: Any) -> DecodedBatch:
    return DebeziumJsonDecoder(lambda source: target, **options).decode(batch_of([record] * 3))


@dataclass(frozen=True)
class Pair:
    """What is sent, the column's type, what the refusal says of it, and what rounding makes of it (None: refused)."""

    id: str
    record: Record
    type: str
    says: str
    fits: str
    rounded: Any = None
    settings: ConnectorSettings = field(default_factory=ConnectorSettings)


PAIRS: Final = (
    Pair("a decimal of more digits", plain(12.3456), "DECIMAL(6, 2)", "12.3456 has more than 2 digits",
         "DECIMAL(8, 4)", Decimal("12.35")),
    Pair("a decimal in a text", plain("12.345"), "DECIMAL(6, 2)", "12.345 has more", "DECIMAL(7, 3)", Decimal("12.35")),
    Pair("a decimal of a wider type, though it would fit", with_schema(_DECIMAL_4, "AeJA"), "DECIMAL(6, 2)",
         "the record's schema says DECIMAL(8, 4)", "DECIMAL(8, 4)", Decimal("12.35")),
    Pair("a decimal out of range", plain(12345.5), "DECIMAL(6, 2)", "12345.5 is out of the range", "DECIMAL(7, 2)"),
    Pair("microseconds", with_schema(_MICROS, 1_700_000_000_123_000), "TIMESTAMP(3)",
         "the record's schema says TIMESTAMP(6)", "TIMESTAMP(6)", "2023-11-14 22:13:20.123000"),
    Pair("a part of a second", with_schema(_MILLIS, 1_500), "TIMESTAMP(0)", "1500 is finer than the s of TIMESTAMP(0)",
         "TIMESTAMP(3)", "1970-01-01 00:00:01"),
    Pair("a finer text", with_schema({"type": "string"}, "2024-01-01T00:00:00.000001"), "TIMESTAMP(3)",
         "is finer than the ms", "TIMESTAMP(6)", "2024-01-01 00:00:00"),
    Pair("microseconds of a day", plain(45_296_700_999), "TIME(6)", "45296700999 is finer than the ms", "STRING",
         "12:34:56.700000"),
    Pair("an integer that no float is", with_schema({"type": "float"}, 86_399_999_999), "FLOAT",
         "86399999999 has more digits than a FLOAT can hold", "DOUBLE", 86400000000.0),
    Pair("a double by its schema, though it would fit", with_schema({"type": "double"}, 0.5), "FLOAT",
         "the record's schema says DOUBLE", "DOUBLE", 0.5),
    Pair("a double", plain(12.3456789), "FLOAT", "12.3456789 has more digits than a FLOAT can hold", "DOUBLE",
         12.34567928314209),
    Pair("a long in a DOUBLE", plain(2**53 + 1), "DOUBLE", "9007199254740993 has more digits than a DOUBLE can hold",
         "DECIMAL(16, 0)", 2.0**53),
    Pair("a long in an INT", plain(2**40), "INT", "1099511627776 is out of the range of INT", "BIGINT"),
    Pair("a fraction in an INT", plain(12.5), "INT", "12.5 is not a whole number", "DECIMAL(11, 1)"),
    Pair("a long text", plain("abcd"), "VARCHAR(3)", '4 characters "abcd" are too long for VARCHAR(3)', "STRING"),
    Pair("long bytes", plain("AAEC"), "BINARY(2)", "are too long for BINARY(2)", "BYTES"),
    Pair("more than a day", with_schema(_MICRO_TIME, 90_000_000_000), "TIME(0)",
         "25:00:00 (90000000000) is not a time within one day", "STRING"),
)  # fmt: skip


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.id)
def test_a_value_too_wide_for_its_column_fails_with_the_needed_type_and_command(pair: Pair, either_way: str) -> None:
    target = orders({"id": "BIGINT", "x": pair.type})
    found = decoded(pair.record, target)
    assert rows_of(found) == []
    failure = found.failures[0]
    assert (failure.kind, failure.columns) == (FailureKind.NARROW_COLUMN, ("x",))
    assert failure.reason.startswith(f"column x of shop.orders is {pair.type}: ")
    assert pair.says in failure.reason
    assert (
        f"Change the column to {pair.fits}: `tidelake table alter shop.orders --set-type 'x {pair.fits}'`"
        in failure.reason
    )
    assert ("inexact_values: round" in failure.reason) == (pair.rounded is not None)


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.id)
def test_values_are_rounded_only_if_a_setting_allows_it(pair: Pair, either_way: str) -> None:
    of_column = Target("shop.orders", orders({"id": "BIGINT", "x": pair.type}).schema, rounded_columns=frozenset({"x"}))
    for found in (
        decoded(pair.record, orders({"id": "BIGINT", "x": pair.type}), inexact_values="round"),
        decoded(pair.record, of_column),
    ):
        rows = [row[2] for row in rows_of(found)]
        if pair.rounded is None:
            assert rows == []
        else:
            assert [str(value) for value in rows] == [str(pair.rounded)] * 3


@pytest.mark.parametrize(
    ("record", "type_", "value"),
    [
        pytest.param(plain("12.34000"), "DECIMAL(6, 2)", Decimal("12.34"), id="zeros at the end"),
        pytest.param(with_schema({"type": "int64"}, 7), "INT", 7, id="a container that is wider than its values"),
        pytest.param(with_schema({"type": "float"}, 0.1), "DOUBLE", 0.1, id="a float stays what it printed"),
        pytest.param(plain(0.1), "FLOAT", 0.10000000149011612, id="as a float prints itself"),
        pytest.param(with_schema(_MILLIS, 1_000), "TIMESTAMP(0)", "1970-01-01 00:00:01", id="ms of whole seconds"),
        pytest.param(
            with_schema(_MICRO_TIME, 1_000_000), "TIME(0)", "00:00:01",
            id="MySQL's times are always in microseconds",
        ),
    ],
)  # fmt: skip
def test_exact_values_are_accepted(record: Record, type_: str, value: Any, either_way: str) -> None:
    rows = [row[2] for row in rows_of(decoded(record, orders({"id": "BIGINT", "x": type_})))]
    assert [str(found) for found in rows] == [str(value)] * 3


def test_with_time_precision_mode_microseconds_only_exact_values_are_accepted() -> None:
    target = orders({"id": "BIGINT", "x": "TIMESTAMP(3)"})
    settings = ConnectorSettings(time_precision_mode="microseconds")
    assert len(rows_of(decoded(with_schema(_MICROS, 1_000), target, settings=settings))) == 3
    assert rows_of(decoded(with_schema(_MICROS, 1_001), target, settings=settings)) == []


def test_a_configured_source_type_wins_over_the_schema() -> None:
    target = orders({"id": "BIGINT", "x": "TIMESTAMP(3)"}, source_types={"x": "timestamp us"})
    assert len(rows_of(decoded(with_schema(_MICROS, 1_000), target))) == 3


@pytest.mark.parametrize(
    ("type_", "value", "path", "fits"),
    [
        ("ARRAY<DECIMAL(3, 1)>", [1.5, 1.25], "x.element", "DECIMAL(4, 2)"),
        ("ROW<a INT, b MAP<STRING, INT>>", {"a": 1, "b": {"k": 2**40}}, "x.b.value", "BIGINT"),
    ],
)
def test_a_member_of_a_column_is_named_by_its_path(type_: str, value: Any, path: str, fits: str) -> None:
    failure = decoded(plain(value), orders({"id": "BIGINT", "x": type_})).failures[0]
    assert (failure.kind, failure.columns) == (FailureKind.NARROW_COLUMN, (path,))
    assert f"--set-type '{path} {fits}'" in failure.reason


def test_a_key_cannot_change_its_type_and_the_message_says_what_can_be_done() -> None:
    failure = decoded(change("c", after={"id": 2**40}), orders({"id": "INT"})).failures[0]
    assert "column id of shop.orders is INT" in failure.reason
    assert "`tidelake table rewrite shop.orders --set-type 'id BIGINT'`" in failure.reason
    assert "tidelake table alter" not in failure.reason


def test_a_column_of_the_bucket_key_cannot_change_its_type_either() -> None:
    table = orders({"id": "BIGINT", "x": "INT"})
    by_x = replace(table, schema=replace(table.schema, options={"bucket": "1", "bucket-key": "x"}))
    failure = decoded(plain(2**40), by_x).failures[0]
    assert "create a new table with x BIGINT" in failure.reason
    assert "tidelake table alter" not in failure.reason


def test_no_tolerance_makes_a_dead_letter_of_a_value_that_a_wider_column_holds() -> None:
    batch = batch_of([plain(12.3456)])
    found = DebeziumJsonDecoder(lambda source: orders({"id": "BIGINT", "x": "DECIMAL(6, 2)"})).decode(batch)
    policy = ErrorPolicy("all")
    fatal = policy.first_fatal(found.failures, lambda failure: True)
    assert fatal is not None
    message = str(policy.refusal(fatal, batch))
    assert message.startswith(
        "topic shop.public.orders, partition 0, offset 100: column x of shop.orders is DECIMAL(6, 2)"
    )
    assert "Then start again: reading continues with this record; `--skip-record " in message


def test_a_rounded_column_that_the_table_lacks_is_refused() -> None:
    with pytest.raises(BadInput, match=r"rounded_columns of shop\.orders: the table has no column 'qyt'"):
        Target("shop.orders", orders().schema, rounded_columns=frozenset({"qyt"}))


def test_a_key_is_never_rounded(either_way: str) -> None:
    by_decimal = orders({"id": "DECIMAL(6, 2)"})
    failure = decoded(change("c", after={"id": 1.001}), by_decimal, inexact_values="round").failures[0]
    assert failure.kind is FailureKind.NARROW_COLUMN
    assert "create a new table with id DECIMAL(7, 3)" in failure.reason
    assert "round" not in failure.reason
    with pytest.raises(BadInput, match="'id' is a column of the primary key, and rows with different keys"):
        replace(by_decimal, rounded_columns=frozenset({"id"}))


_MAP_OF_DECIMALS: Final = {"type": "map", "keys": _DECIMAL_4, "values": _DECIMAL_4}


@pytest.mark.parametrize(
    ("type_", "record", "path"),
    [
        pytest.param("MAP<DECIMAL(6, 2), INT>", plain({"1.001": 1, "1.002": 2}), "x.key", id="of an object"),
        pytest.param("MAP<DECIMAL(6, 2), INT>", plain([["1.001", 1], ["1.002", 2]]), "x.key", id="of pairs"),
        pytest.param(
            "MAP<ROW<a DECIMAL(6, 2)>, INT>", plain([[{"a": "1.001"}, 1]]), "x.key.a", id="a field of a key"
        ),
        pytest.param(
            "ARRAY<MAP<DECIMAL(6, 2), INT>>", plain([[["1.001", 1]]]), "x.element.key", id="of a MAP in an ARRAY"
        ),
        pytest.param(
            "MAP<DECIMAL(6, 2), DECIMAL(6, 2)>", with_schema(_MAP_OF_DECIMALS, [["AeJA", "AeJA"]]), "x.key",
            id="by the record's schema",
        ),
    ],
)  # fmt: skip
def test_a_map_key_is_never_rounded(type_: str, record: Record, path: str, either_way: str) -> None:
    target = orders({"id": "BIGINT", "x": type_})
    for found in (
        decoded(record, target, inexact_values="round"),
        decoded(record, Target("shop.orders", target.schema, rounded_columns=frozenset({"x"}))),
    ):
        failure = found.failures[0]
        assert (failure.kind, failure.columns) == (FailureKind.NARROW_COLUMN, (path,))
        assert "Its type can't be changed any more: create a new table with" in failure.reason
        assert "round" not in failure.reason


def test_a_map_value_is_rounded(either_way: str) -> None:
    target = orders({"id": "BIGINT", "x": "MAP<STRING, DECIMAL(6, 2)>"})
    rows = [row[2] for row in rows_of(decoded(plain({"1.001": 12.345}), target, inexact_values="round"))]
    assert rows == [[("1.001", Decimal("12.35"))]] * 3


def test_a_field_named_key_is_not_treated_as_a_map_key() -> None:
    failure = decoded(plain({"key": 2**40}), orders({"id": "BIGINT", "x": "ROW<key INT>"})).failures[0]
    assert "--set-type 'x.key BIGINT'" in failure.reason
