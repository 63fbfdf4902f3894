from __future__ import annotations

from typing import Final

import pytest

from tests.ingest.formats.values.value_case import CellCase, declared
from tidelake.ingest.formats.connect_schema import ConnectorSettings, spelled_source_type

_HEX: Final = ConnectorSettings(binary_handling_mode="hex")
_BITS: Final = declared("bytes", "io.debezium.data.Bits", {"length": "12"})

CASES: Final = (
    CellCase("base64", "BYTES", '"AAH+/w=="', b"\x00\x01\xfe\xff"),
    CellCase("base64 for URLs", "BYTES", '"AAH-_w=="', b"\x00\x01\xfe\xff"),
    CellCase("no bytes", "BYTES", '""', b""),
    CellCase("padding is not optional", "BYTES", '"AAE"', refused="is not base64"),
    CellCase("not ASCII", "BYTES", '"é"', refused="is not base64"),
    CellCase("hex, as the setting says", "BYTES", '"0001fEFF"', b"\x00\x01\xfe\xff", settings=_HEX),
    CellCase("hex under a schema that says string", "BYTES", '"00"', b"\0", source=declared("string"), settings=_HEX),
    CellCase(
        "a schema that says bytes is base64 in any mode",
        "BYTES",
        '"AAE="',
        b"\0\1",
        source=declared("bytes"),
        settings=_HEX,
    ),
    CellCase("no hex names the setting", "BYTES", '"AAE="', refused="check binary_handling_mode", settings=_HEX),
    CellCase(
        "one column in base64 among hex",
        "BYTES",
        '"AAE="',
        b"\0\1",
        source=spelled_source_type("b", "base64"),
        settings=_HEX,
    ),
    CellCase("bits become big-endian", "BINARY(2)", '"DQs="', b"\x0b\x0d", source=_BITS),
    CellCase("shorter than declared", "BINARY(4)", '"AAE="', b"\x00\x01"),
    CellCase("longer than declared", "VARBINARY(1)", '"AAE="', refused=r"2 bytes .* are too long for VARBINARY\(1\)"),
    CellCase("a blob has no limit", "BLOB", '"AAE="', b"\x00\x01"),
    CellCase("a number", "BYTES", "1", refused="number 1 is not a valid BYTES"),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_json_value_in_a_column_of_bytes(case: CellCase) -> None:
    case.check()
