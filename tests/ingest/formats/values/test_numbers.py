from __future__ import annotations

import math
import struct
from typing import Final

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ingest.formats.values.value_case import CellCase, declared
from tidelake.ingest.formats.values.floats import nearest_float32

_UNSIGNED: Final = declared("int64", None, {"__debezium.source.column.type": "BIGINT UNSIGNED"})
_FLOAT: Final = declared("float")
_DECIMAL: Final = declared("bytes", "org.apache.kafka.connect.data.Decimal", {"scale": "2"})
_BITS: Final = declared("bytes", "io.debezium.data.Bits", {"length": "12"})

CASES: Final = (
    CellCase("true", "BOOLEAN", "true", True),
    CellCase("a converter's number", "BOOLEAN", "0", False),
    CellCase("JSON's other zero", "BOOLEAN", "-0", False),
    CellCase("a text of it is none", "BOOLEAN", '"-0"', refused='text "-0" is not a valid BOOLEAN'),
    CellCase("a word", "BOOLEAN", '"Yes"', True),
    CellCase("two is no boolean", "BOOLEAN", "2", refused="number 2 is not a valid BOOLEAN"),
    CellCase("no boolean", "BOOLEAN", '"maybe"', refused='text "maybe" is not a valid BOOLEAN'),
    CellCase("smallest byte", "TINYINT", "-128", -128),
    CellCase("a byte too large", "TINYINT", "128", refused="128 is out of the range of TINYINT"),
    CellCase("short", "SMALLINT", "32767", 32767),
    CellCase("an int too small", "INT", "-2147483649", refused="out of the range of INT"),
    CellCase("largest long", "BIGINT", "9223372036854775807", 2**63 - 1),
    CellCase("beyond a long", "BIGINT", "9223372036854775808", refused="out of the range of BIGINT"),
    CellCase("digits in a text", "BIGINT", '"-12"', -12),
    CellCase("blanks are no digits", "BIGINT", '" 12"', refused='text " 12" is not a valid BIGINT'),
    CellCase("a zero fraction", "INT", "12.0", 12),
    CellCase("an exponent", "INT", "1.2e3", 1200),
    CellCase("an exponent of astronomers", "BIGINT", "1e999999", refused="more digits|not a whole number"),
    CellCase("a fraction is not rounded", "INT", "12.5", refused="12.5 is not a whole number", fits="DECIMAL(11, 1)"),
    CellCase(
        "a double in an INT", "INT", "12.5", refused="not a whole number", fits="DOUBLE", source=declared("double")
    ),
    CellCase("a value of a wider integer", "INT", "1099511627776", refused="1099511627776 is out", fits="BIGINT"),
    CellCase("a value wider than a long", "BIGINT", "-9223372036854775809", refused="is out", fits="DECIMAL(19, 0)"),
    CellCase("tinyint(1) as a boolean", "TINYINT", "true", 1),
    CellCase("an object", "INT", '{"a":1}', refused="object .* is not a valid number"),
    CellCase("a decimal in bytes", "INT", '"BLA="', 12, source=_DECIMAL),
    CellCase("bits as a number", "INT", '"DQs="', 0x0B0D, source=_BITS),
    CellCase(
        "unsigned, past the sign", "BIGINT", "-1", refused="18446744073709551615 is out of the range", source=_UNSIGNED
    ),
    CellCase("unsigned, small", "BIGINT", "5", 5, source=_UNSIGNED),
    CellCase("minus zero", "DOUBLE", "-0.0", -0.0),
    CellCase("smallest double", "DOUBLE", "5e-324", 5e-324),
    CellCase("largest double", "DOUBLE", "1.7976931348623157E308", 1.7976931348623157e308),
    CellCase("a double too large", "DOUBLE", "1e309", refused="1e309 is out of the range of DOUBLE"),
    CellCase("NaN is a text", "DOUBLE", '"NaN"', math.nan),
    CellCase("minus infinity is a text", "FLOAT", '"-Infinity"', -math.inf),
    CellCase("a number in a text", "DOUBLE", '"0.10"', 0.1),
    CellCase("a boolean is no number", "DOUBLE", "true", refused="boolean true is not a valid number"),
    CellCase("a float's shortest text", "FLOAT", "0.1", 0.10000000149011612),
    CellCase("largest float", "FLOAT", "3.4028235e+38", 3.4028234663852886e38),
    CellCase("a float too large", "FLOAT", "3.5e38", refused="out of the range of FLOAT"),
    CellCase("rounding twice would go down", "FLOAT", "16777217.0000000001", 16777218.0, rounds=True),
    CellCase(
        "more digits than a FLOAT can hold", "FLOAT", "12.3456789", refused="more digits than a FLOAT", fits="DOUBLE"
    ),
    CellCase("a whole number that a FLOAT lacks", "FLOAT", "16777217", refused="more digits", fits="DOUBLE"),
    CellCase("nine digits, as databases print a float", "FLOAT", "0.100000001", 0.10000000149011612),
    CellCase("a float sent as the double that it is", "FLOAT", "0.10000000149011612", 0.10000000149011612),
    CellCase("a float by its schema is the nearest", "FLOAT", "0.1000000001", 0.10000000149011612, source=_FLOAT),
    CellCase("a float in a DOUBLE is its text", "DOUBLE", "0.1", 0.1, source=_FLOAT),
    CellCase("a long that a DOUBLE lacks", "DOUBLE", "9007199254740993", refused="more digits", fits="DECIMAL(16, 0)"),
    CellCase("a long as JavaScript prints a double", "DOUBLE", "12345678901234567000", 12345678901234567000.0),
    CellCase(
        "a decimal that a DOUBLE lacks",
        "DOUBLE",
        '"0.12345678901234567890"',
        refused="more digits than a DOUBLE can hold",
        fits="DECIMAL(19, 19)",
    ),
    CellCase("a long that a DOUBLE lacks, rounded", "DOUBLE", "9007199254740993", 9007199254740992.0, rounds=True),
    CellCase("a decimal in bytes as a double", "DOUBLE", '"BNI="', 12.34, source=_DECIMAL),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_json_value_in_a_column_of_numbers(case: CellCase) -> None:
    case.check()


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_the_shortest_text_of_a_float_reads_back(value: float) -> None:
    text: str = pa.scalar(value, pa.float32()).cast(pa.string()).as_py()
    assert struct.pack("<f", nearest_float32(text)) == struct.pack("<f", value)
