"""Values converted to JSON: nothing is rounded, truncated or lost."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from tidelake.storage.model.types.json_values import json_rows, json_values

MAP = pa.map_(pa.string(), pa.float64())


@pytest.mark.parametrize(
    ("column", "values"),
    [
        pytest.param(pa.array([2**63 - 1, None], pa.int64()), [2**63 - 1, None], id="integers"),
        pytest.param(pa.array([True, None, False]), [True, None, False], id="booleans"),
        pytest.param(pa.array(["a\nb\u2028", "", None]), ["a\nb\u2028", "", None], id="texts"),
        pytest.param(
            pa.array([1.5, float("nan"), -0.0, float("-inf"), float("inf"), None]),
            [1.5, "NaN", -0.0, "-Infinity", "Infinity", None],
            id="floats",
        ),
        pytest.param(
            pa.array([Decimal("1E-11"), Decimal(-5), None], pa.decimal128(38, 18)),
            ["0.000000000010000000", "-5.000000000000000000", None],
            id="decimals keep their digits",
        ),
        pytest.param(pa.array([b"\x00\xff", b"", None]), ["AP8=", "", None], id="bytes"),
        pytest.param(
            pa.array([0, -1, None, 24_000_000], pa.date32())[:3], ["1970-01-01", "1969-12-31", None], id="dates"
        ),
        pytest.param(
            pa.array([0, 86_399_999, None], pa.time32("ms")), ["00:00:00.000", "23:59:59.999", None], id="times"
        ),
        pytest.param(
            pa.array([-1, 1_500_000, None, 253_402_300_800_000_000], pa.timestamp("us")),
            ["1969-12-31T23:59:59.999999", "1970-01-01T00:00:01.500000", None, "10000-01-01T00:00:00.000000"],
            id="timestamps before 1970 and after 9999",
        ),
        pytest.param(pa.array([1], pa.timestamp("ns", "UTC")), ["1970-01-01T00:00:00.000000001Z"], id="nanoseconds"),
        pytest.param(
            pa.array([3 * 10**18], pa.timestamp("us")), ["3000000000000000000 us"], id="beyond Arrow's calendar"
        ),
        pytest.param(
            pa.array([[("a", 1.0), ("b", None)], None, [], [("c", float("nan"))]], MAP)[1:],
            [None, [], [["c", "NaN"]]],
            id="a slice of maps",
        ),
        pytest.param(pa.array([], MAP), [], id="no maps"),
        pytest.param(
            pa.array([[{"x": Decimal("1.0")}], None, [None, {"x": None}]])[1:],
            [None, [None, {"x": None}]],
            id="a slice of lists of rows",
        ),
        pytest.param(pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int8(), 2))[1:], [None, [3, 4]], id="vectors"),
        pytest.param(pa.array([{}, None], pa.struct([])), [{}, None], id="rows without columns"),
        pytest.param(pa.chunked_array([[1], [], [2, None]], pa.int64()), [1, 2, None], id="chunks"),
    ],
)
def test_a_value_becomes_its_json_form(column: pa.Array, values: list[Any]) -> None:
    assert json_values(column) == values
    assert json.loads(msgspec.json.encode(json_values(column))) == values


def test_entries_under_a_null_map_are_ignored() -> None:
    entries = pa.StructArray.from_arrays([pa.array(["hidden", "seen"]), pa.array([1, 2])], ["key", "value"])
    offsets = pa.array([0, 1, 2], pa.int32())
    validity = pa.array([False, True]).buffers()[1]
    column = pa.Array.from_buffers(
        pa.map_(pa.string(), pa.int64()), 2, [validity, offsets.buffers()[1]], children=[entries]
    )
    assert json_values(column) == [None, [["seen", 2]]]


def test_rows_keep_the_order_of_columns() -> None:
    rows = json_rows(pa.table({"b": [1, 2], "a": ["x", None]}))
    assert [list(row.items()) for row in rows] == [[("b", 1), ("a", "x")], [("b", 2), ("a", None)]]
