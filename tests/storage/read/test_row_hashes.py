"""Hashes of rows are equal for equal values, across batches."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelake.storage.merge.values.equality import value_codes
from tidelake.storage.read.row_hashes import row_hashes

ROW = pa.struct([("x", pa.int32()), ("y", pa.string())])

# values of a column, all of them different
COLUMNS = [
    pytest.param(pa.bool_(), [True, False], id="booleans"),
    pytest.param(pa.int8(), [0, 1, -1], id="small integers"),
    pytest.param(pa.int64(), [0, 1, -1, 2**63 - 1, -(2**63)], id="integers"),
    pytest.param(pa.float32(), [0.0, -0.0, 1.5, math.nan, math.inf], id="floats"),
    pytest.param(pa.float64(), [0.0, -0.0, 1.5, math.nan, -math.inf], id="doubles"),
    pytest.param(pa.decimal128(38, 2), [Decimal("0.00"), Decimal("-0.01"), Decimal(2**70)], id="decimals"),
    pytest.param(pa.string(), ["", "a", "b", "a ", "\0", "\0\0", "a" * 40], id="texts"),
    pytest.param(pa.binary(), [b"", b"\0", b"\xff" * 300], id="bytes"),
    pytest.param(pa.date32(), [datetime.date(1970, 1, 1), datetime.date(1969, 12, 31)], id="dates"),
    pytest.param(pa.timestamp("us"), [datetime.datetime(2026, 1, 1), datetime.datetime(1970, 1, 1)], id="times"),
    pytest.param(pa.list_(pa.int32()), [[], [None], [1, 2], [2, 1], [1], [1, None], [0]], id="lists"),
    pytest.param(pa.list_(pa.list_(pa.string())), [[], [[]], [["a"], []], [[], ["a"]], [["a"]]], id="lists of lists"),
    pytest.param(pa.list_(pa.float32(), 2), [[1, 2], [2, 1]], id="vectors"),
    pytest.param(ROW, [{"x": 1, "y": None}, {"x": None, "y": "1"}, {"x": None, "y": None}], id="rows"),
    pytest.param(
        pa.map_(pa.string(), pa.int32()),
        [[], [("a", 1)], [("b", 1)], [("a", None)], [("a", 1), ("b", 2)], [("a", 2), ("b", 1)]],
        id="maps",
    ),
]


@pytest.mark.parametrize(("kind", "values"), COLUMNS)
def test_values_have_equal_hashes_only_if_they_are_equal(kind: pa.DataType, values: list[Any]) -> None:
    column = pa.array([*values, None, *reversed(values), None], kind)
    hashes, codes = row_hashes([column], len(column)), value_codes(column)
    assert len(np.unique(hashes)) == len(values) + 1
    assert ((hashes[:, None] == hashes) == (codes[:, None] == codes)).all()
    parts = [column.slice(start, 2) for start in range(0, len(column), 2)]
    assert np.concatenate([row_hashes([part], len(part)) for part in parts]).tolist() == hashes.tolist()


def test_map_order_is_ignored_and_all_nan_are_equal() -> None:
    maps = pa.array([[("a", 1), ("b", 2)], [("b", 2), ("a", 1)]], pa.map_(pa.string(), pa.int32()))
    nan = pa.array(np.array([0x7FF8 << 48, 0xFFF8 << 48], np.uint64).view(np.float64))
    assert [len(np.unique(row_hashes([column], 2))) for column in (maps, nan)] == [1, 1]


SMALL = st.none() | st.integers(-1, 1)


@given(rows=st.lists(st.tuples(SMALL, SMALL, SMALL), min_size=1, max_size=20))
def test_rows_have_equal_hashes_only_if_all_columns_are_equal(
    rows: list[tuple[int | None, ...]],
) -> None:
    columns = [pa.array(column, pa.int32()) for column in zip(*rows, strict=True)]
    assert len(np.unique(row_hashes(columns, len(rows)))) == len(set(rows))
