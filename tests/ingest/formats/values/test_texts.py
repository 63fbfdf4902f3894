from __future__ import annotations

from typing import Final

import pytest

from tests.ingest.formats.values.value_case import CellCase, declared
from tidelake.ingest.formats.connect_schema import spelled_source_type

_DECIMAL: Final = declared("bytes", "org.apache.kafka.connect.data.Decimal", {"scale": "2"})
_VARIABLE: Final = declared("struct", "io.debezium.data.VariableScaleDecimal")
_ENUM: Final = declared("string", "io.debezium.data.Enum", {"allowed": r"red,blue\, dark"})
_BITS: Final = declared("bytes", "io.debezium.data.Bits", {"length": "12"})
_VARBIT: Final = declared("bytes", "io.debezium.data.Bits", {"length": "2147483647"})

CASES: Final = (
    CellCase("escapes and a pair of surrogates", "STRING", r'"\u0041\n\ud83e\udd8a\u0000"', "A\n🦊\0"),
    CellCase("a line separator that is no line end", "STRING", '"a\u2028b"', "a\u2028b"),
    CellCase("half a pair of surrogates", "STRING", r'"\ud83e "', refused="is not readable text"),
    CellCase("the text null is a text", "STRING", '"null"', "null"),
    CellCase("a number keeps its digits", "STRING", "1.50E+2", "1.50E+2"),
    CellCase("a boolean", "STRING", "true", "true"),
    CellCase("an object is its JSON", "STRING", '{"x":1.0,"y":[null]}', '{"x":1.0,"y":[null]}'),
    CellCase("as long as declared, in characters", "VARCHAR(2)", '"é🦊"', "é🦊"),
    CellCase("longer than declared", "CHAR(1)", '"ab"', refused=r'2 characters "ab" are too long for CHAR\(1\)'),
    CellCase("bytes stay base64", "STRING", '"AAE="', "AAE=", source=declared("bytes")),
    CellCase("a decimal in bytes", "STRING", '"BNI="', "12.34", source=_DECIMAL),
    CellCase(
        "a decimal of any scale", "STRING", '{"scale":-20,"value":"AQ=="}', "100000000000000000000", source=_VARIABLE
    ),
    CellCase("bits with their leading zeros", "STRING", '"AwA="', "000000000011", source=_BITS),
    CellCase("bits without a declared length", "STRING", '"FQ=="', "10101", source=_VARBIT),
    CellCase("no bits", "STRING", '""', "", source=_VARBIT),
    CellCase("days", "STRING", "-719162", "0001-01-01", source=declared("int32", "io.debezium.time.Date")),
    CellCase(
        "microseconds",
        "STRING",
        "1",
        "1970-01-01 00:00:00.000001",
        source=declared("int64", "io.debezium.time.MicroTimestamp"),
    ),
    CellCase(
        "a zoned time",
        "STRING",
        '"05:29:59.5Z"',
        "05:29:59.5Z",
        source=declared("string", "io.debezium.time.ZonedTime"),
    ),
    CellCase(
        "days that no calendar has",
        "STRING",
        "9" * 30,
        refused="outside of the calendar",
        source=declared("int32", "io.debezium.time.Date"),
    ),
    CellCase(
        "an unsigned long", "STRING", "-1", "18446744073709551615", source=spelled_source_type("n", "bigint unsigned")
    ),
    CellCase("an enum label from the binlog", "STRING", r'"blue\\, dark"', "blue, dark", source=_ENUM),
    CellCase("an enum label from the snapshot", "STRING", '"blue, dark"', "blue, dark", source=_ENUM),
    CellCase("a backslash that is one", "STRING", r'"a\\,b"', r"a\,b", source=declared("string")),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_json_value_in_a_column_of_text(case: CellCase) -> None:
    case.check()
