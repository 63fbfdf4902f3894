"""Paimon's functions over columns: the results, and the refused arguments."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tidelake.errors import BadInput
from tidelake.ingest.derived.computed_columns import computed_columns
from tidelake.storage.model.types import arrow_type, parse_type

MOMENT = datetime(2024, 3, 9, 16, 5, 7, 123456)
CASES: list[tuple[str, str, Any, str, Any]] = [
    ("year(c)", "TIMESTAMP(6)", MOMENT, "INT", 2024),
    ("month(c)", "DATE", date(2024, 3, 9), "INT", 3),
    ("DAY(c)", "STRING", "2024-03-09", "INT", 9),
    ("hour(c)", "STRING", "2024-03-09 16:05:07.5", "INT", 16),
    ("minute(c)", "STRING", "2024-03-09T16:05:07", "INT", 5),
    ("second(c, 3)", "BIGINT", 1_709_999_107_123, "INT", 7),
    ("year(c)", "INT", 1_709_999_107, "INT", 2024),
    ("hour(c, 6)", "STRING", "1709999107123456", "INT", 15),
    ("day(c)", "TIMESTAMP(6)", datetime(1969, 12, 31, 23), "INT", 31),
    ("date_format(c, yyyy-MM-dd)", "TIMESTAMP(3)", MOMENT, "STRING", "2024-03-09"),
    ("date_format(c, yyyyMMdd'T'HHmmss.SSS)", "TIMESTAMP(6)", MOMENT, "STRING", "20240309T160507.123"),
    ("date_format(c, yy/M/d h:mm a)", "TIMESTAMP(6)", MOMENT, "STRING", "24/3/9 4:05 PM"),
    ("date_format(c, EEE d MMM yyyy)", "DATE", date(2024, 3, 9), "STRING", "Sat 9 Mar 2024"),
    ("date_format(c, yyyy-MM, 0)", "STRING", "1709999107", "STRING", "2024-03"),
    ("substring(c, 2)", "STRING", "abcd", "STRING", "cd"),
    ("substring(c, 1, 3)", "STRING", "äöüß", "STRING", "öü"),
    ("substring(c, 0, 2)", "BIGINT", 1234, "STRING", "12"),
    ("truncate(c, 10)", "INT", 17, "INT", 10),
    ("truncate(c, 10)", "BIGINT", -1, "BIGINT", -10),
    ("truncate(c, 50)", "DECIMAL(4, 2)", Decimal("10.65"), "DECIMAL(4, 2)", Decimal("10.50")),
    ("truncate(c, 2)", "STRING", "abc", "STRING", "ab"),
    ("truncate(c, 9)", "STRING", "abc", "STRING", "abc"),
    ("cast(2023)", "STRING", "any", "STRING", "2023"),
    ("cast(2023, INT)", "STRING", "any", "INT", 2023),
    ("cast(1.5, DECIMAL(4, 2))", "STRING", "any", "DECIMAL(4, 2)", Decimal("1.50")),
    ("upper(c)", "STRING", "aß", "STRING", "Aẞ"),
    ("lower(c)", "VARCHAR(4)", "AB", "STRING", "ab"),
    ("trim(c)", "STRING", "  a b ", "STRING", "a b"),
]


@pytest.mark.parametrize(("call", "column_type", "value", "result_type", "result"), CASES, ids=lambda v: str(v)[:40])
def test_a_function_computes_a_column_from_a_column(
    call: str, column_type: str, value: Any, result_type: str, result: Any
) -> None:
    (computed,) = computed_columns({"x": call}, {"c": parse_type(column_type)})
    assert str(computed.type) == str(parse_type(result_type))
    given = pa.array([value, None], arrow_type(parse_type(column_type)))
    found = computed.evaluate(given)
    found = found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
    assert found.type == arrow_type(computed.type)
    assert found.to_pylist() == [result, result if call.startswith("cast") else None]
    assert len(computed.evaluate(given.slice(0, 0))) == 0


def test_now_is_the_time_of_the_process() -> None:
    (computed,) = computed_columns({"x": "now()"}, {})
    before = datetime.now()
    (found,) = computed.evaluate(pa.nulls(1)).to_pylist()
    assert (found - before).total_seconds() < 60


def test_computed_columns_may_refer_to_each_other_in_any_order() -> None:
    expressions = {"c": "upper(b)", "b": "date_format(a, MMM)", "d": "year(a)"}
    found = [column.name for column in computed_columns(expressions, {"a": parse_type("DATE")})]
    assert sorted(found) == ["b", "c", "d"]
    assert found.index("b") < found.index("c")


@pytest.mark.parametrize(
    ("expressions", "message"),
    [
        ({"x": "yaer(c)"}, r"computed column x: 'yaer\(c\)' is not a call of one of the functions year, month"),
        ({"x": "c"}, "is not a call of"),
        ({"x": "year(z)"}, "computed column x: the column 'z' does not exist"),
        (
            {"x": "upper(y)", "y": "upper(x)"},
            "computed columns x, y depend on each other. Remove the circular dependency",
        ),
        ({"x": "year(f)"}, "a FLOAT can't hold epoch times"),
        ({"x": "year(c, 4)"}, "0 .s., 3 .ms., 6"),
        ({"x": "upper(i)"}, "upper takes a string, but i is INT"),
        ({"x": "substring(c, 3, 2)"}, "end after its beginning"),
        ({"x": "substring(f, 1)"}, "no unique text form"),
        ({"x": "truncate(c, 0)"}, "a positive number"),
        ({"x": "truncate(c)"}, "truncate takes 2 arguments, but has 1"),
        ({"x": "truncate(f, 2)"}, "an integer, a DECIMAL or a string"),
        ({"x": "date_format(c, yyyy-QQ)"}, "'QQ' in the pattern 'yyyy-QQ'"),
        ({"x": "cast(a, INT)"}, "'a' is not a valid INT"),
    ],
)
def test_an_invalid_expression_is_refused_with_the_reason(expressions: dict[str, str], message: str) -> None:
    types = {"c": parse_type("STRING"), "f": parse_type("FLOAT"), "i": parse_type("INT")}
    with pytest.raises(BadInput, match=message):
        computed_columns(expressions, types)
