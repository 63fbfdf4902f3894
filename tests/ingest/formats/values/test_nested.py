from __future__ import annotations

from decimal import Decimal
from typing import Final

import pytest

from tests.ingest.formats.values.value_case import CellCase, declared
from tidelake.errors import UnsupportedFeature
from tidelake.ingest.formats.connect_schema import (
    UNDECLARED,
    ConnectorSettings,
    parse_connect_schema,
    source_type,
    spelled_source_type,
)
from tidelake.ingest.formats.values.dispatch import value_decoder_for
from tidelake.storage.model.types import BIGINT, STRING, ArrayType, AtomicType, DataType, MultisetType, Root

_DATES: Final = source_type(
    parse_connect_schema(b'{"type":"array","items":{"type":"int32","name":"io.debezium.time.Date"}}')
)
_SET: Final = declared("string", "io.debezium.data.EnumSet")
_TEXT: Final = declared("string")
_POINT: Final = "ROW<x DOUBLE, y DOUBLE, wkb BYTES>"
_HEX: Final = ConnectorSettings(binary_handling_mode="hex")

CASES: Final = (
    CellCase("numbers and a null", "ARRAY<INT>", "[1, null ,-2]", [1, None, -2]),
    CellCase("no elements", "ARRAY<INT>", "[]", []),
    CellCase("elements by their own source type", "ARRAY<STRING>", "[0]", ["1970-01-01"], source=_DATES),
    CellCase("JSON inside a text", "ARRAY<BIGINT>", '"[1,2]"', [1, 2]),
    CellCase("a SET of MySQL", "ARRAY<STRING>", r'"S,\"L\""', ["S", '"L"'], source=_SET),
    CellCase("a SET of a connector that sends no other text", "ARRAY<STRING>", '"S,L"', ["S", "L"], connector="vitess"),
    CellCase("a SET that is configured", "ARRAY<STRING>", '"S,L"', ["S", "L"], source=spelled_source_type("a", "set")),
    CellCase("a SET whose labels look like an array", "ARRAY<STRING>", '"[a,{b}"', ["[a", "{b}"], source=_SET),
    CellCase("an empty SET", "ARRAY<STRING>", '""', [], source=_SET),
    CellCase("a SET in a text", "STRING", '"S,L"', "S,L", source=_SET),
    CellCase("any other text", "ARRAY<STRING>", '"hello, world"', refused="declare this in source_types.*'set'"),
    CellCase("any other text of MySQL", "ARRAY<STRING>", '"a, b"', refused="'set'", source=_TEXT, connector="mysql"),
    CellCase("no text", "ARRAY<STRING>", '""', refused="'set'"),
    CellCase("an array of PostgreSQL", "ARRAY<STRING>", r'"{\"x, y\",NULL}"', ["x, y", None]),
    CellCase("an array of numbers", "ARRAY<INT>", '"{1, -2 ,null}"', [1, -2, None]),
    CellCase("an array of booleans", "ARRAY<BOOLEAN>", '"{t,f}"', [True, False]),
    CellCase("an array of decimals", "ARRAY<DECIMAL(5, 2)>", '"{1.50}"', [Decimal("1.50")]),
    CellCase("an empty array of PostgreSQL", "ARRAY<STRING>", '"{}"', []),
    CellCase("a quoted null is a text", "ARRAY<STRING>", r'"{\"NULL\",\\NULL}"', ["NULL", "NULL"]),
    CellCase("quotes and backslashes", "ARRAY<STRING>", r'"{\"a\\\"b\\\\\",c d}"', ['a"b\\', "c d"]),
    CellCase("blanks inside an element", "ARRAY<STRING>", '"{ a b , c }"', ["a b", "c"]),
    CellCase("an array with bounds", "ARRAY<INT>", '"[0:1]={7,8}"', [7, 8]),
    CellCase("an array of arrays", "ARRAY<ARRAY<INT>>", '"{{1,2},{}}"', [[1, 2], []]),
    CellCase("an array of arrays with bounds", "ARRAY<ARRAY<INT>>", '"[1:1][-2:-1]={{1,2}}"', [[1, 2]]),
    CellCase("an object in a text", "ARRAY<STRING>", r'"{\"a\":1}"', refused="is not PostgreSQL's text of an array"),
    CellCase("an array that does not end", "ARRAY<STRING>", '"{a,{b}"', refused="not PostgreSQL's text"),
    CellCase("an array that ends twice", "ARRAY<STRING>", '"{a},{b}"', refused="not PostgreSQL's text"),
    CellCase("an element that is missing", "ARRAY<STRING>", '"{a,}"', refused="not PostgreSQL's text"),
    CellCase("an element of another type", "ARRAY<INT>", '"{1,x}"', refused='text "x" is not a valid INT'),
    CellCase("null where none may be", "ARRAY<INT NOT NULL>", "[null]", refused="null element, which is NOT NULL"),
    CellCase("an element out of range", "ARRAY<TINYINT>", "[300]", refused="300 is out of the range of TINYINT"),
    CellCase("a number is no array", "ARRAY<INT>", "1", refused="number 1 is not a valid ARRAY"),
    CellCase("a map", "MAP<STRING, STRING>", '{"k k":"v","n":null}', [("k k", "v"), ("n", None)]),
    CellCase("a map inside a text", "MAP<STRING, STRING>", r'"{\"k\": \"é\"}"', [("k", "é")]),
    CellCase(
        "pairs, as Connect writes keys that are no texts",
        "MAP<INT, BOOLEAN>",
        "[[1,true],[2,null]]",
        [(1, True), (2, None)],
    ),
    CellCase("a key that is null", "MAP<INT, BOOLEAN>", "[[null,true]]", refused="is not a valid MAP"),
    CellCase("keys of an object as numbers", "MAP<INT, INT>", '{"7":8}', [(7, 8)]),
    CellCase("a row", _POINT, '{"y":2,"x":1.5}', {"x": 1.5, "y": 2.0, "wkb": None}),
    CellCase(
        "bytes in a row are base64 in any mode",
        _POINT,
        '{"wkb":"AAE="}',
        {"x": None, "y": None, "wkb": b"\0\1"},
        settings=_HEX,
    ),
    CellCase("a field the row lacks", _POINT, '{"x":1,"srid":4326}', refused="field 'srid' is not in ROW"),
    CellCase("a row in a row", "ROW<a ROW<b INT>>", '{"a":{"b":1}}', {"a": {"b": 1}}),
    CellCase("a vector", "VECTOR<FLOAT, 2>", "[1,2.5]", [1.0, 2.5]),
    CellCase("a vector of another length", "VECTOR<FLOAT, 2>", "[1]", refused="1 elements"),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_json_value_in_a_nested_column(case: CellCase) -> None:
    case.check()


@pytest.mark.parametrize("target", [MultisetType(STRING), AtomicType(Root.VARIANT)], ids=str)
def test_types_without_a_json_form_are_refused_by_name(target: DataType) -> None:
    with pytest.raises(UnsupportedFeature, match=str(target.root)):
        value_decoder_for(UNDECLARED, target, "", ConnectorSettings())


def test_a_nested_type_is_refused_for_its_element_type() -> None:
    with pytest.raises(UnsupportedFeature, match="MULTISET"):
        value_decoder_for(UNDECLARED, ArrayType(MultisetType(BIGINT)), "", ConnectorSettings())
