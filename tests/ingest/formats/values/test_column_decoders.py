"""A columnar kernel gives the result of the cell decoder, or refuses."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field, replace
from decimal import Context, Decimal
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.ingest.formats.values.value_case import declared
from tests.support.levels import examples
from tidelake.ingest.formats.columnar import COLUMNAR_FAILURES
from tidelake.ingest.formats.connect_schema import (
    JSON_VALUE,
    UNDECLARED,
    ConnectorSettings,
    SemanticType,
    SourceType,
    completed,
    spelled_source_type,
)
from tidelake.ingest.formats.types.mysql_types import mysql_source_type
from tidelake.ingest.formats.values.conversion import ColumnDecoder, float_hook, value_by_value
from tidelake.ingest.formats.values.dispatch import column_decoder_for, value_decoder_for
from tidelake.ingest.formats.values.json_text import BadValue
from tidelake.ingest.formats.values.unavailable_placeholders import UnavailablePlaceholders
from tidelake.storage.model.types import parse_type

PLACEHOLDERS: Final = UnavailablePlaceholders("__debezium_unavailable_value")


@dataclass(frozen=True)
class Column:
    """A column that has a kernel, and values which that kernel must take."""

    type: str
    takes: tuple[str, ...]
    source: SourceType = UNDECLARED
    settings: ConnectorSettings = field(default_factory=ConnectorSettings)
    rounds: bool = False

    @property
    def id(self) -> str:
        rounded = "rounded" if self.rounds else ""
        return " from ".join(
            part for part in (self.type, self.source.semantic_type, self.source.connect, rounded) if part
        )

    def kernels(self) -> tuple[ColumnDecoder, ColumnDecoder]:
        """(by columns, by cells)"""
        target = parse_type(self.type)
        source = completed(self.source, target, "", self.settings)
        kernel = column_decoder_for(source, target, PLACEHOLDERS, rounds=self.rounds)
        assert kernel is not None
        cell = value_decoder_for(self.source, target, "", self.settings, rounds=self.rounds)
        return kernel, value_by_value(cell, target, PLACEHOLDERS)


_HEX: Final = ConnectorSettings(binary_handling_mode="hex")
_DECIMAL: Final = declared("bytes", "org.apache.kafka.connect.data.Decimal", {"scale": "2"})

COLUMNS: Final = (
    Column("BOOLEAN", ("true", "false")),
    Column("TINYINT", ("-128", "127", "0")),
    Column("INT", ("2147483647", "-0")),
    Column("BIGINT", ("-9223372036854775808", "9223372036854775807")),
    Column("BIGINT", ("3020399000000", "-1"), declared("int64", "io.debezium.time.MicroTime")),
    Column("FLOAT", ("0.1", "-0.0", "3.4028235e+38", '"NaN"', '"-Infinity"', "1e-30", "3")),
    Column("FLOAT", ("0.1", "0.1000000001", "3", "16777217.5"), declared("float")),
    Column("FLOAT", ("0.1", "0.1000000001", "3", "16777217.5"), declared("double"), rounds=True),
    Column("DOUBLE", ("0.1", "-0.0", "5e-324", "1.7976931348623157e308", '"Infinity"', "9007199254740992")),
    Column("DOUBLE", ("0.1", "-0.0", "5", "-7"), declared("float")),
    Column("STRING", ('"é"', '""', '"\\u0000"', '"\\ud83e\\udd8a"', '"\u2028"', '"__debezium_unavailable_value"')),
    Column("VARCHAR(3)", ('"éé🦊"', '"__debezium_unavailable_value"')),
    Column("STRING", ('"AAE="', '"X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="'), declared("bytes")),
    Column("BYTES", ('"AAE="', '""', '"X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="')),
    Column("VARBINARY(2)", ('"00fF"', '"__debezium_unavailable_value"'), settings=_HEX),
    Column("BINARY(2)", ('"DQs="',), declared("bytes", "io.debezium.data.Bits", {"length": "12"})),
    Column("DECIMAL(12, 2)", ('"12.5"', '"-0"')),
    Column("DECIMAL(12, 2)", ("12.50", "-0.1", "1E2", "7")),
    Column("DECIMAL(38, 10)", ("-1234567890123456789012345678.0123456789",)),
    Column("DECIMAL(12, 2)", ('"BNI="', '"/nlg"', '"1234"'), _DECIMAL),
    Column("DECIMAL(12, 4)", ("12.50",), _DECIMAL),
    Column("DECIMAL(38, 20)", ('"S0tLS0tLSw=="',), _DECIMAL),
    Column("DECIMAL(38, 30)", ('"12345678.123456789012345678901234567890"',)),
    Column("DECIMAL(20, 0)", ("-1", "5"), spelled_source_type("n", "bigint unsigned")),
    Column("DATE", ("-719162", "2932896")),
    Column("DATE", ('"0001-01-01"', '"9999-12-31"')),
    Column("TIME(0)", ("0", "86399999")),
    Column("TIME(6)", ("86399999000",)),
    Column("TIME(6)", ("86399999999",), rounds=True),
    Column("TIMESTAMP(0)", ("-1000", "253402300799000")),
    Column("TIMESTAMP(0)", ("-1", "253402300799000"), rounds=True),
    Column("TIMESTAMP(3)", ("-1000", "0"), declared("int64", "io.debezium.time.MicroTimestamp")),
    Column("TIMESTAMP(3)", ("-1001", "1"), declared("int64", "io.debezium.time.MicroTimestamp"), rounds=True),
    Column("TIMESTAMP(6)", ("-62135596800000000", "253402300799999999")),
    Column("TIMESTAMP(9)", ("1506379009500",), declared("int64", "io.debezium.time.Timestamp")),
    Column("TIMESTAMP(6) WITH LOCAL TIME ZONE", ('"1900-01-01T00:00:00.5Z"', '"9999-12-31T23:59:59.999999Z"')),
    Column("TIMESTAMP(6)", ('"0001-01-01 00:00:00"', '"2024-02-29T01:02"')),
    Column("ARRAY<INT>", ("[1,null]", "[]", str(list(b"__debezium_unavailable_value")))),
    Column("ARRAY<STRING>", ('["a",null]', '["__debezium_unavailable_value"]')),
    Column("ARRAY<BOOLEAN>", ("[true]",)),
    Column("BOOLEAN", ('"1"', '"0"', "true", "-0"), JSON_VALUE),
    Column("INT", ('"2147483647"', '"-1"'), JSON_VALUE),
    Column("DOUBLE", ('"0.1"', '"-0"', '"0.3333333333333333"', '"NaN"'), JSON_VALUE),
    Column("DATE", ('"2024-02-29"',), JSON_VALUE),
    Column("TIMESTAMP(3)", ('"2024-02-29 23:59:59.125"',), JSON_VALUE),
    Column("BYTES", ('"\\u0001ÿ"', '""'), mysql_source_type("blob")),
)

_NUMBERS: Final = st.one_of(
    st.integers().map(str),
    st.integers(-(2**63), 2**63 - 1).map(str),
    st.integers(-1000, 1000).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.floats(allow_nan=False, allow_infinity=False, width=32).map(repr),
    st.decimals(allow_nan=False, allow_infinity=False).map(str),
)
_DATE_TEXTS: Final = st.from_regex(r"[+-]?\d{4}-[01]\d-[0-3]\d", fullmatch=True)
_TIMESTAMP_TEXTS: Final = st.from_regex(
    r"[012]\d{3}-[01]\d-[0-3]\d([T ][012]\d(:[0-5]\d(:[0-6]\d(\.\d{0,10})?)?)?(Z|[+-]\d\d(:?\d\d)?)?)?", fullmatch=True
)
_ODD: Final = st.sampled_from(
    [
        "null", "true", "false", "[]", "{}", "[null]", '""', '"null"', '"NaN"', '"1_0"', '" 1"', '"１"', "0.0", "-0.0",
        "1e400",
        "9007199254740993", "16777217", "1.401298464324817e-45", "86400000", "86400000000", '"24:00:00"', '"infinity"',
        '"__debezium_unavailable_value"', '["__debezium_unavailable_value"]', '{"__debezium_unavailable_value": 1}',
        str(list(b"__debezium_unavailable_value")), '"X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="',
    ]
)  # fmt: skip
_VALUES: Final = st.one_of(
    _ODD,
    _NUMBERS,
    st.one_of(st.text(max_size=5), _NUMBERS, _DATE_TEXTS, _TIMESTAMP_TEXTS, st.binary(max_size=9).map(bytes.hex)).map(
        json.dumps
    ),
    st.lists(st.one_of(st.none(), st.integers(-5, 300), st.text(max_size=2), st.booleans()), max_size=3).map(
        json.dumps
    ),
)


def _by_column(kernel: ColumnDecoder, raws: list[str]) -> tuple[pa.Array, Any]:
    list_type: Any = list[kernel.json_type]  # type: ignore[name-defined]
    values = msgspec.json.Decoder(list_type, float_hook=float_hook).decode(f"[{','.join(raws)}]".encode())
    return kernel.to_arrow(values)


def _assert_equal(by_column: tuple[pa.Array, Any], by_cell: tuple[pa.Array, Any]) -> None:
    (found, found_flags), (expected, expected_flags) = by_column, by_cell
    found.validate(full=True)
    assert found.type == expected.type
    # not equals(): there NaN is unlike NaN, and -0.0 like 0.0
    assert [repr(v) for v in _plain(found)] == [repr(v) for v in _plain(expected)]
    assert np.array_equal(
        np.zeros(len(found), bool) if found_flags is None else found_flags,
        np.zeros(len(expected), bool) if expected_flags is None else expected_flags,
    )


def _plain(column: pa.Array) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        column = column.view(pa.int64())
    elif pa.types.is_date(column.type):
        column = column.view(pa.int32())
    values: list[Any] = column.to_pylist()
    return values


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.id)
def test_a_kernel_decodes_the_usual_values(column: Column) -> None:
    by_columns, by_cells = column.kernels()
    for raws in ([], ["null"], list(column.takes), ["null", *column.takes, "null"]):
        _assert_equal(_by_column(by_columns, raws), _by_column(by_cells, raws))


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.id)
@settings(max_examples=examples(50))
@given(data=st.data())
def test_a_kernel_equals_the_cell_decoder_or_refuses(column: Column, data: st.DataObject) -> None:
    by_columns, by_cells = column.kernels()
    raws = data.draw(st.lists(st.one_of(st.sampled_from([*column.takes, "null"]), _VALUES), max_size=4))
    try:
        found = _by_column(by_columns, raws)
    except COLUMNAR_FAILURES:
        return
    _assert_equal(found, _by_column(by_cells, raws))


@given(
    st.integers(-(10**45), 10**45),
    st.integers(0, 60),
    st.integers(0, 38),
    st.sampled_from(["text", "number", "bytes"]),
)
@example(-296775947557256221799281193389812588846, 11, 10, "number")
def test_a_decimal_that_does_not_fit_never_becomes_another_number(
    unscaled: int, sent_scale: int, scale: int, sent_as: str
) -> None:
    """Arrow's own casts of 128-bit decimals wrap here and there, and so does what it makes of Python's decimals."""
    column = Column(f"DECIMAL(38, {scale})", (), declared("string"))
    text = str(Decimal(unscaled).scaleb(-sent_scale, Context(prec=80)))
    if sent_as == "bytes":
        column = replace(column, source=SourceType("bytes", SemanticType.DECIMAL, scale=sent_scale))
        text = base64.b64encode(unscaled.to_bytes(20, "big", signed=True)).decode()
    by_columns, by_cells = column.kernels()
    raws = [text if sent_as == "number" else json.dumps(text)]
    try:
        found = _by_column(by_columns, raws)
    except COLUMNAR_FAILURES:
        return
    _assert_equal(found, _by_column(by_cells, raws))


def test_cells_that_cannot_be_read_are_refused_whole() -> None:
    _, by_cells = COLUMNS[1].kernels()
    with pytest.raises(BadValue, match="128 is out of the range"):
        _by_column(by_cells, ["1", "128"])


def test_bytes_after_numbers_stay_bytes_where_a_connector_changes_how_it_sends_decimals() -> None:
    """Read as digits `1234` is another number than its bytes are."""
    column = Column("DECIMAL(38, 2)", (), declared("bytes", "org.apache.kafka.connect.data.Decimal", {"scale": "2"}))
    by_columns, by_cells = column.kernels()
    raws = ["12.50", '"1234"']
    assert _plain(_by_column(by_cells, raws)[0]) == [Decimal("12.50"), Decimal("-26588.24")]
    with pytest.raises(BadValue):
        _by_column(by_columns, raws)


def test_an_integer_not_exact_as_float_is_refused_by_the_cell_decoder() -> None:
    by_columns, by_cells = Column("FLOAT", (), declared("float")).kernels()
    assert _plain(_by_column(by_columns, ["86399999999.0", "16777216", "0.1"])[0])[:2] == [86400000000.0, 16777216.0]
    for kernel in (by_columns, by_cells):
        with pytest.raises(BadValue):
            _by_column(kernel, ["86399999999"])
