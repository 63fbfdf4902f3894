"""Types and values of vectors are read from any JSON form, or refused by name."""

from __future__ import annotations

from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import pytest

from tests.support.case_errors import refused_as
from tests.support.case_values import column_type, comparable, expected_value, python_value
from tests.support.cases import NotUnderstood, check_members, options_of
from tests.support.value_text import read_value
from tidelake.errors import BadInput
from tidelake.storage.model.types import parse_type


@pytest.mark.parametrize(
    ("text", "samples", "found"),
    [
        pytest.param("int", [], "INT", id="a name"),
        pytest.param("timestamp_ltz_micros", [], "TIMESTAMP(6) WITH LOCAL TIME ZONE", id="a unit in the name"),
        pytest.param("timestamp", [5], "TIMESTAMP(3)", id="numbers alone are milliseconds"),
        pytest.param("timestamp", ["2024-01-01 00:00:00"], "TIMESTAMP(6)", id="as in SQL"),
        pytest.param("decimal", ["1.5", "2.25"], "DECIMAL(38, 2)", id="digits of the values"),
        pytest.param("varbinary", ["00"], "BYTES", id="without a length"),
        pytest.param("map", [[[1, "a"]]], "MAP<INT, STRING>", id="a map of what there is"),
        pytest.param("map", [{"a": 1.5}], "MAP<STRING, DOUBLE>", id="a map as an object"),
        pytest.param("map<string, array<int>>", [], "MAP<STRING, ARRAY<INT>>", id="a map that is told"),
        pytest.param("array<map>", [[[[1, "a"]]]], "ARRAY<MAP<INT, STRING>>", id="a map in an array"),
        pytest.param("array<row>", [[[1, "a"], None]], "ARRAY<ROW<`f0` INT, `f1` STRING>>", id="rows by position"),
        pytest.param(None, [{"b": True}, None], "ROW<`b` BOOLEAN>", id="a row by name"),
        pytest.param(None, [True, None], "BOOLEAN", id="switches are no numbers"),
        pytest.param(None, [1, 2**40], "BIGINT", id="a large number"),
        pytest.param(None, [1, "NaN", 2.5], "DOUBLE", id="no number"),
        pytest.param(None, [{"hex": "00"}], "BYTES", id="bytes"),
        pytest.param(None, [[["a"], None]], "ARRAY<ARRAY<STRING>>", id="nested arrays"),
        pytest.param(None, [[1, "a"]], "ROW<`f0` INT, `f1` STRING>", id="parts of several kinds are a row"),
        pytest.param(None, [None], "INT", id="nulls alone"),
    ],
)
def test_a_column_has_the_given_type_or_one_that_fits_its_values(text: str, samples: list[Any], found: str) -> None:
    assert str(column_type(text, samples)) == found


@pytest.mark.parametrize(
    ("data_type", "written", "value"),
    [
        ("DATE", "2024-01-01", date(2024, 1, 1)),
        ("DATE", "-1", -1),
        ("TIME(3)", "45296789", time(12, 34, 56, 789000)),
        ("TIMESTAMP(6)", "1969-12-31 23:59:59.5", datetime(1969, 12, 31, 23, 59, 59, 500_000)),
        ("TIMESTAMP(9)", "1970-01-01T00:00:00.000000001", 1),
        ("DECIMAL(10, 2)", 1.1, Decimal("1.1")),
        ("DECIMAL(10, 2)", "unscaled:-50", Decimal("-0.50")),
        ("BIGINT", "i64:7", 7),
        ("DOUBLE", "-Infinity", float("-inf")),
        ("BYTES", "00ff", b"\x00\xff"),
        ("BYTES", "text", b"text"),
        ("STRING", "i64:7", "i64:7"),
        ("ROW<a INT, b STRING>", [1, None], {"a": 1, "b": None}),
        ("MAP<STRING, INT>", {"a": 1}, [("a", 1)]),
        ("MULTISET<STRING>", [["a", "2"]], [("a", 2)]),
    ],
)
def test_values_are_read_by_their_type(data_type: str, written: Any, value: Any) -> None:
    assert python_value(written, parse_type(data_type)) == value


@pytest.mark.parametrize(
    ("data_type", "written"), [("BOOLEAN", 1), ("INT", 1.5), ("ROW<a INT>", [1, 2]), ("STRING", 5)]
)
def test_a_value_of_another_type_raises(data_type: str, written: Any) -> None:
    with pytest.raises(NotUnderstood, match="as a value of type"):
        python_value(written, parse_type(data_type))


def test_members_unknown_to_the_runner_are_named() -> None:
    check_members({"id": "a", "why": "because", "v": 1}, {"v", "w"})
    with pytest.raises(NotUnderstood, match="strange in a case; its runner knows v, w"):
        check_members({"v": 1, "strange": 2}, {"v", "w"})


def test_options_are_written_as_in_tables() -> None:
    given = {"ignore-delete": True, "changelog.time-retained-hours": 24, "num-levels": 3, "unset": None}
    expected = {"ignore-delete": "true", "changelog.time-retained": "24 h", "num-levels": "3"}
    assert options_of({"options": given}) == expected


def test_nan_equals_nan_and_maps_have_no_order() -> None:
    assert comparable([float("nan")]) == comparable([float("nan")])
    assert comparable([(2, "b"), (1, "a")]) == comparable([(1, "a"), (2, "b")])
    assert comparable([2, 1]) != comparable([1, 2])
    assert comparable([2, 1], unordered=True) == comparable([1, 2], unordered=True)
    assert expected_value("10000", parse_type("DECIMAL(4, 0)")) == 10000


@pytest.mark.parametrize(
    ("reported", "ours"),
    [
        ("arithmetic overflow", "column 'v': sum overflows at 1 + 2"),
        ("Data type for 'listagg' must be 'VARCHAR' type", "listagg takes STRING, without a length"),
        (True, "whatever"),
    ],
)
def test_an_error_is_matched_by_its_message(reported: Any, ours: str) -> None:
    with refused_as(reported):
        raise BadInput(ours)


def test_an_error_with_another_message_does_not_match() -> None:
    with (
        pytest.raises(AssertionError, match="expected 'arithmetic overflow', got: no column 'v'"),
        refused_as("arithmetic overflow"),
    ):
        raise BadInput("no column 'v'")
    with pytest.raises(NotUnderstood, match="xyzzy"), refused_as("xyzzy"):
        raise BadInput("no column 'v'")
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"), refused_as(True):
        pass


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[1,null,3]", ["1", None, "3"]),
        ("[0..2,null]", ["0", "1", "2", None]),
        ("({k1:1,'key, two':null})", [[["k1", "1"], ["key, two", None]]]),
        ("([ROW(1,'x')])", [[["1", "x"]]]),
        ("(-1.5, [])", ["-1.5", []]),
    ],
)
def test_values_written_for_people_are_read(text: str, value: Any) -> None:
    assert read_value(text) == (value, "")
    assert read_value(f"{text} with RowKind -D") == (value, "with RowKind -D")


def test_a_truncated_value_raises() -> None:
    with pytest.raises(NotUnderstood, match="the value"):
        read_value("[1,")
