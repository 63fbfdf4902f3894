"""Values are compared by meaning: different forms of one value are equal, and real differences are found."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.support.expected import changes_difference, difference, json_rows, json_values, meaning

NANOS = pa.timestamp("ns")
MICROS_UTC = pa.timestamp("us", tz="UTC")
VARIANT = pa.struct([("value", pa.binary()), ("metadata", pa.binary())])


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        pytest.param(pa.array([1, None], pa.int32()), [1, None], id="integers"),
        pytest.param(
            pa.array([float("nan"), float("-inf"), -0.0, None]), ["NaN", "-Infinity", -0.0, None], id="doubles"
        ),
        pytest.param(pa.array([None, b"\x00\xff", b""]), [None, {"hex": "00ff"}, {"hex": ""}], id="bytes"),
        pytest.param(pa.array(["1.50", "-1E+3"]).cast(pa.decimal128(9, 2)), ["1.50", "-1000.00"], id="decimals"),
        pytest.param(
            pa.array([-719528, 0, 2932896, None], pa.int32()).view(pa.date32()),
            ["0000-01-01", "1970-01-01", "9999-12-31", None],
            id="dates, the year 0 too",
        ),
        pytest.param(pa.array([1, None], pa.time32("ms")), ["00:00:00.001", None], id="times"),
        pytest.param(
            pa.array([-1, -(2**63) + 1, None], NANOS),
            ["1969-12-31T23:59:59.999999999", "1677-09-21T00:12:43.145224193", None],
            id="nanoseconds before 1970",
        ),
        pytest.param(pa.array([-62135596800], pa.timestamp("s")), ["0001-01-01T00:00:00"], id="seconds, the year 1"),
        pytest.param(pa.array([1_500_000], MICROS_UTC), ["1970-01-01T00:00:01.500000Z"], id="with time zone"),
        pytest.param(pa.array([[1, None], None, []]), [[1, None], None, []], id="lists"),
        pytest.param(pa.array([[1.5, 2.5]], pa.list_(pa.float32(), 2)), [[1.5, 2.5]], id="lists of one size"),
        pytest.param(
            pa.array([{"a": b"x", "b": 1}, None]), [{"a": {"hex": "78"}, "b": 1}, None], id="rows with bytes inside"
        ),
        pytest.param(
            pa.array([[("b", None), ("a", [1])], None, []], pa.map_(pa.string(), pa.list_(pa.int8()))),
            [[["a", [1]], ["b", None]], None, []],
            id="maps, sorted by key",
        ),
        pytest.param(pa.array(["x", "y", "x"]).dictionary_encode(), ["x", "y", "x"], id="dictionary"),
        pytest.param(pa.array([[9], [1, 2], [3]]).slice(1, 1), [[1, 2]], id="a slice"),
        pytest.param(pa.array([], pa.list_(pa.date32())), [], id="no rows"),
    ],
)
def test_arrow_values_become_the_json_of_golden_tables(array: pa.Array, expected: list[Any]) -> None:
    assert repr(json_values(array)) == repr(expected)  # repr: -0.0 is not 0.0
    assert repr(json_values(pa.chunked_array([array, array]))) == repr(expected + expected)


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        pytest.param(pa.decimal128(38, 9), "-1E-9", "-0.000000001", id="decimal with exponent"),
        pytest.param(pa.decimal128(9, 2), "100.00", "1E+2", id="decimal with zeros"),
        pytest.param(NANOS, "2262-01-01 00:00:00", "2262-01-01T00:00:00.000000000", id="space, no fraction"),
        pytest.param(MICROS_UTC, "1969-12-31 23:59:59.999999", "1969-12-31T23:59:59.999999Z", id="without Z"),
        pytest.param(pa.timestamp("s"), "2024-01-01T10:30", "2024-01-01T10:30:00", id="without seconds"),
        pytest.param(pa.time32("ms"), "12:00:00", "12:00:00.000", id="time of day"),
        pytest.param(pa.float32(), 0.1, 0.10000000149011612, id="a float widened to double"),
        pytest.param(pa.float64(), 1, 1.0, id="a whole double"),
        pytest.param(pa.float64(), "NaN", float("nan"), id="NaN"),
        pytest.param(
            pa.map_(pa.int32(), pa.string()), [[2, "b"], [10, "a"]], [[10, "a"], [2, "b"]], id="map in another order"
        ),
        pytest.param(
            pa.struct([("a", pa.decimal128(3, 1)), ("b", pa.int8())]),
            {"b": 1, "a": "1.0"},
            {"a": "1", "b": 1},
            id="row in another order",
        ),
        pytest.param(
            VARIANT,
            {"variant": "1", "value": "0c01", "metadata": "010000"},
            {"value": {"hex": "0c01"}, "metadata": {"hex": "010000"}},
            id="variant",
        ),
    ],
)
def test_two_forms_of_one_value_are_equal(kind: pa.DataType, one: Any, other: Any) -> None:
    assert meaning(kind)(one) == meaning(kind)(other)
    assert meaning(pa.list_(kind))([one, None]) == meaning(pa.list_(kind))([other, None])


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        pytest.param(pa.string(), "1.0", "1.00", id="texts that look like numbers"),
        pytest.param(pa.string(), "2024-01-01 00:00:00", "2024-01-01T00:00:00", id="texts that look like times"),
        pytest.param(pa.float64(), 0.0, -0.0, id="zero and minus zero"),
        pytest.param(pa.float64(), 0.1, 0.10000000149011612, id="doubles as close as floats"),
        pytest.param(pa.decimal128(38, 0), "9" * 38, "9" * 37 + "8", id="the 38th digit"),
        pytest.param(NANOS, "2024-01-01T00:00:00.1", "2024-01-01T00:00:00.100000001", id="a nanosecond"),
        pytest.param(pa.list_(pa.int32()), [1, 2], [2, 1], id="order in a list"),
        pytest.param(pa.list_(pa.int32()), [], None, id="empty and null"),
        pytest.param(pa.string(), "", None, id="empty text and null"),
    ],
)
def test_two_different_values_are_unequal(kind: pa.DataType, one: Any, other: Any) -> None:
    assert meaning(kind)(one) != meaning(kind)(other)


def test_rows_are_compared_as_a_multiset() -> None:
    rows = pa.table({"k": [1, 2, 2], "v": ["a", "b", "b"]})
    assert difference(rows, [[2, "b"], [1, "a"], [2, "b"]]) is None
    assert difference(rows, [[2, "b"], [1, "a"], [2, "b"]], in_order=True) is not None
    assert difference(rows, [[2, "b"], [1, "a"]]) == "\n".join(
        ["3 rows instead of 2", "not expected, 1:", '  {"k": 2, "v": "b"}']
    )
    assert difference(rows, [[1, "a"], [2, "b"], [2, "c"]]) == "\n".join(
        [
            "3 rows",
            "missing, 1:",
            '  {"k": 2, "v": "c"}',
            '    there is one with {"v": "b"}',
            "not expected, 1:",
            '  {"k": 2, "v": "b"}',
        ]
    )


def test_an_expected_row_of_another_width_raises() -> None:
    with pytest.raises(ValueError, match="1 values for the 2 columns"):
        difference(pa.table({"k": [1], "v": ["a"]}), [[1]])


def test_changes_of_one_key_keep_their_order() -> None:
    rows = pa.table({"k": [1, 2, 1], "_VALUE_KIND": pa.array([3, 0, 0], pa.int8())})
    assert changes_difference(rows, [["+I", 2], ["-D", 1], ["+I", 1]], ["k"]) is None
    assert changes_difference(rows, [["+I", 1], ["-D", 1], ["+I", 2]]) is None
    problem = changes_difference(rows, [["+I", 1], ["-D", 1], ["+I", 2]], ["k"])
    assert problem is not None
    assert "another order" in problem


def test_rows_as_objects_keep_the_column_names() -> None:
    assert json_rows(pa.table({"k": [1], "v": [b"x"]})) == [{"k": 1, "v": {"hex": "78"}}]
