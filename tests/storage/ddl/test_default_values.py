"""A default is a text in the schema, and a value of the column's type."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest

from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.storage.ddl.default_values import default_value
from tidelake.storage.model.types import DataField, arrow_type, parse_type


def default(data_type: str, text: str | None) -> Any:
    found = default_value(DataField(0, "c", parse_type(data_type), None, text))
    assert found.type == arrow_type(parse_type(data_type))
    return found.as_py()


@pytest.mark.parametrize(
    ("data_type", "text", "value"),
    [
        ("INT", None, None),
        ("BOOLEAN", "TRUE", True),
        ("TINYINT", "-128", -128),
        ("BIGINT", "'5'", 5),
        ("DOUBLE", "1.5e3", 1500.0),
        ("DECIMAL(10, 2)", "-1.5", Decimal("-1.50")),
        ("STRING", "none", "none"),
        ("STRING", "'it''s'", "it''s"),  # as Java: the outer quotes go, those inside stay as they are
        ("STRING", "'", "'"),
        ("STRING", "", ""),
        ("BYTES", "é", "é".encode()),
        ("DATE", "1969-12-31", date(1969, 12, 31)),
        ("TIME(3)", "12:34:56.789", time(12, 34, 56, 789000)),
        ("TIMESTAMP(6)", "2024-01-31 12:00:00.000001", datetime(2024, 1, 31, 12, 0, 0, 1)),
        ("TIMESTAMP(3)", "2024-01-31", datetime(2024, 1, 31)),
        ("TIMESTAMP_LTZ(6)", "2024-01-31 12:00:00", datetime(2024, 1, 31, 12, tzinfo=UTC)),
        ("VARCHAR(3)", "'none'", "non"),
        ("CHAR(3)", "n", "n  "),
        ("ARRAY<INT>", "[1, 2]", [1, 2]),
        ("ARRAY<INT>", "'ARRAY(1, null)'", [1, None]),
        ("ARRAY<STRING>", "[]", []),
        ("ARRAY<STRING>", '["a,b", c]', ['"a,b"', "c"]),  # as Java: only a MAP loses its quotes
        ("ARRAY<ARRAY<INT>>", "[[1, 2], [3], null]", [[1, 2], [3], None]),
        ("MAP<STRING, INT>", "{a -> 1, b -> 2}", [("a", 1), ("b", 2)]),
        ("MAP<STRING, INT>", "MAP(a, 1, b, null)", [("a", 1), ("b", None)]),
        ("MAP<STRING, STRING>", '{"k,1" -> "v"}', [("k,1", "v")]),
        ("MAP<STRING, INT>", "{}", []),
        ("ROW<a INT, b STRING>", "{1, text}", {"a": 1, "b": "text"}),
        ("ROW<a INT, b ARRAY<INT>>", "STRUCT(null, [1, 2])", {"a": None, "b": [1, 2]}),
        ("ROW<a INT, b STRING>", "{}", {"a": None, "b": None}),
    ],
)
def test_a_default_is_a_value_of_the_columns_type(data_type: str, text: str | None, value: Any) -> None:
    assert default(data_type, text) == value


@pytest.mark.parametrize(
    ("data_type", "text"),
    [
        ("INT", "many"), ("INT", "2147483648"), ("INT", ""), ("BOOLEAN", "maybe"), ("DECIMAL(3, 1)", "123.4"),
        ("ARRAY<INT>", "1, 2"), ("ARRAY<INT>", "[many]"), ("MAP<INT, INT>", "{1}"), ("MAP<INT, INT>", "{null -> 1}"),
        ("MAP<INT, INT>", "MAP(1)"), ("ROW<a INT>", "{1, 2}"), ("ARRAY<INT NOT NULL>", "[null]"),
        ("DATE", "31.1.2024"), ("TIME(3)", "noon"), ("TIMESTAMP(6)", "now"), ("TIMESTAMP_LTZ(6)", "now"),
    ],
)  # fmt: skip
def test_an_invalid_default_is_named_with_column_and_type(data_type: str, text: str) -> None:
    with pytest.raises(BadInput, match=re.escape(f"column 'c': its default {text!r} is not a")):
        default(data_type, text)


@pytest.mark.parametrize("data_type", ["VARIANT", "ARRAY<VARIANT>", "MULTISET<INT>"])
def test_types_that_text_can_not_be_converted_to_have_no_defaults(data_type: str) -> None:
    with pytest.raises(UnsupportedFeature, match="Remove the default"):
        default(data_type, "[1]")
