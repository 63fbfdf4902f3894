from __future__ import annotations

import base64
import json
from decimal import Context, Decimal
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ingest.formats.values.value_case import CellCase, declared
from tidelake.ingest.formats.connect_schema import ConnectorSettings, SemanticType, SourceType
from tidelake.ingest.formats.values.decimals import exact_decimal

_SCALE_2: Final = declared(
    "bytes", "org.apache.kafka.connect.data.Decimal", {"scale": "2", "connect.decimal.precision": "12"}
)
_MINUS_SCALE: Final = declared("bytes", "org.apache.kafka.connect.data.Decimal", {"scale": "-2"})
_VARIABLE: Final = declared("struct", "io.debezium.data.VariableScaleDecimal")
_UNSIGNED: Final = SourceType("int64", SemanticType.UNSIGNED)
_PRECISE: Final = ConnectorSettings(decimal_handling_mode="precise")
_D38: Final = "-1234567890123456789012345678.0123456789"

CASES: Final = (
    CellCase("text", "DECIMAL(12, 2)", '"-12.5"', Decimal("-12.50")),
    CellCase("number, from its digits", "DECIMAL(38, 10)", _D38, Decimal(_D38)),
    CellCase("text of 38 digits", "DECIMAL(38, 10)", f'"{_D38}"', Decimal(_D38)),
    CellCase("whole number", "DECIMAL(12, 2)", "7", Decimal("7.00")),
    CellCase("exponent", "DECIMAL(12, 2)", "1.5E+3", Decimal("1500.00")),
    CellCase("a tiny exponent", "DECIMAL(12, 2)", "1e-99999", refused="more than 2 digits", fits="STRING"),
    CellCase("a tiny exponent, rounded to zero", "DECIMAL(12, 2)", "1e-99999", Decimal("0.00"), rounds=True),
    CellCase("zero of any exponent", "DECIMAL(4, 2)", "0e9999", Decimal("0.00")),
    CellCase("minus zero has no sign in Arrow", "DECIMAL(12, 2)", '"-0.00"', Decimal("0.00")),
    CellCase("zeros at the end", "DECIMAL(6, 2)", "12.34000", Decimal("12.34")),
    CellCase(
        "more digits than the column has",
        "DECIMAL(6, 2)",
        "12.3456",
        refused="12.3456 has more than 2 digits after the decimal point",
        fits="DECIMAL(8, 4)",
    ),
    CellCase("more digits than any column has", "DECIMAL(38, 2)", "0.125", refused="more than 2", fits="STRING"),
    CellCase("rounded half up", "DECIMAL(12, 2)", "0.125", Decimal("0.13"), rounds=True),
    CellCase("rounded half up, below zero", "DECIMAL(12, 2)", "-0.125", Decimal("-0.13"), rounds=True),
    CellCase(
        "rounding makes a digit more", "DECIMAL(4, 2)", "99.995", refused="99.995 is out of the range", rounds=True
    ),
    CellCase(
        "a digit too many",
        "DECIMAL(4, 2)",
        '"100"',
        refused=r"100 is out of the range of DECIMAL\(4, 2\)",
        fits="DECIMAL(5, 2)",
    ),
    CellCase("NaN", "DECIMAL(4, 2)", '"NaN"', refused='text "NaN" is not a number'),
    CellCase("underscores", "DECIMAL(4, 2)", '"1_0"', refused="is not a number"),
    CellCase("other scripts' digits", "DECIMAL(4, 2)", '"１２"', refused="is not a number"),
    CellCase("base64 without a schema names the setting", "DECIMAL(12, 2)", '"BNI="', refused="decimal_handling_mode"),
    CellCase("base64 without a schema, told so", "DECIMAL(12, 2)", '"BNI="', Decimal("12.34"), settings=_PRECISE),
    CellCase("base64, positive", "DECIMAL(12, 2)", '"BNI="', Decimal("12.34"), source=_SCALE_2),
    CellCase("base64, negative", "DECIMAL(12, 2)", '"/nlg"', Decimal("-1000.00"), source=_SCALE_2),
    CellCase("base64 that looks like digits", "DECIMAL(12, 2)", '"1234"', Decimal("-26588.24"), source=_SCALE_2),
    CellCase("a schema with numbers", "DECIMAL(12, 2)", "9333.85", Decimal("9333.85"), source=_SCALE_2),
    CellCase(
        "a smaller scale", "DECIMAL(12, 1)", '"BNI="', refused="12.34 has more", fits="DECIMAL(13, 2)", source=_SCALE_2
    ),
    CellCase("a smaller scale, rounded", "DECIMAL(12, 1)", '"BNI="', Decimal("12.3"), source=_SCALE_2, rounds=True),
    CellCase("a scale below zero", "DECIMAL(12, 0)", '"DA=="', Decimal("1200"), source=_MINUS_SCALE),
    CellCase("no bytes at all", "DECIMAL(12, 2)", '""', refused="is not a valid decimal in bytes", source=_SCALE_2),
    CellCase("broken base64", "DECIMAL(12, 2)", '"B"', refused="is not base64", source=_SCALE_2),
    CellCase(
        "scale beside the value", "DECIMAL(12, 4)", '{"scale":3,"value":"BNI="}', Decimal("1.2340"), source=_VARIABLE
    ),
    CellCase(
        "scale of the astronomers",
        "DECIMAL(9, 4)",
        '{"scale":-999999,"value":"BNI="}',
        refused="not a valid dec",
        source=_VARIABLE,
    ),
    CellCase(
        "an object without scale",
        "DECIMAL(12, 4)",
        '{"value":"BNI="}',
        refused="is not a valid number",
        source=_VARIABLE,
    ),
    CellCase("unsigned long", "DECIMAL(20, 0)", "-1", Decimal("18446744073709551615"), source=_UNSIGNED),
    CellCase(
        "unsigned long with no sign", "DECIMAL(20, 0)", "9223372036854775807", Decimal(2**63 - 1), source=_UNSIGNED
    ),
    CellCase("a list", "DECIMAL(12, 2)", "[1]", refused=r"array \[1\] is not a valid number"),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_json_value_in_a_decimal_column(case: CellCase) -> None:
    case.check()


@given(st.decimals(allow_nan=False, allow_infinity=False), st.sampled_from(["number", "text"]))
def test_numbers_and_texts_keep_every_digit(value: Decimal, sent_as: str) -> None:
    text = str(value)
    raw = text if sent_as == "number" else json.dumps(text)
    assert exact_decimal(raw.encode(), SourceType()).as_tuple() == value.as_tuple()


@given(st.integers(-(10**60), 10**60), st.integers(-40, 60))
def test_bytes_keep_every_digit(unscaled: int, scale: int) -> None:
    size = unscaled.bit_length() // 8 + 1
    raw = json.dumps(base64.b64encode(unscaled.to_bytes(size, "big", signed=True)).decode())
    found = exact_decimal(raw.encode(), SourceType("bytes", SemanticType.DECIMAL, scale=scale))
    assert found == Decimal(unscaled).scaleb(-scale, Context(prec=200))
