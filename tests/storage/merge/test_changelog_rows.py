"""Changelog rows between two states of a table, in columns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelake.storage.merge.changelog_rows import KeyedRows, row_changes

State = Mapping[int, Any]
KEYS = 6


def keyed(state: State, value_type: pa.DataType, kind: int = 0) -> KeyedRows:
    keys = sorted(state)
    rows = pa.RecordBatch.from_arrays(
        [
            pa.array(keys, pa.int64()),
            pa.array([state[key] for key in keys], value_type),
            pa.array([kind] * len(keys), pa.int8()),
        ],
        names=["k", "v", "_VALUE_KIND"],
    )
    return KeyedRows(rows, np.array(keys, np.intp))


def commit_changes(
    before: State, after: State, value_type: pa.DataType, compared: list[str] | None
) -> list[tuple[int, int, Any]]:
    changes = row_changes(keyed(before, value_type, 2), keyed(after, value_type), KEYS, compared)
    return [(row["k"], row["_VALUE_KIND"], row["v"]) for row in changes.to_pylist()]


STATES = st.dictionaries(st.integers(0, KEYS - 1), st.none() | st.integers(0, 2))


@given(before=STATES, after=STATES, deduplicates=st.booleans())
def test_changes_equal_a_row_by_row_comparison(before: State, after: State, deduplicates: bool) -> None:
    expected: list[tuple[int, int, Any]] = []
    for key in range(KEYS):
        match key in before, key in after:
            case False, True:
                expected.append((key, 0, after[key]))
            case True, False:
                expected.append((key, 3, before[key]))
            case True, True if not (deduplicates and before[key] == after[key]):
                expected += [(key, 1, before[key]), (key, 2, after[key])]
    assert commit_changes(before, after, pa.int64(), ["v"] if deduplicates else None) == expected


@pytest.mark.parametrize(
    ("value_type", "one", "other", "is_same"),
    [
        pytest.param(pa.float64(), math.nan, -math.nan, True, id="NaN is NaN"),
        pytest.param(pa.float32(), 0.0, -0.0, False, id="zeros of two signs differ"),
        pytest.param(pa.float64(), None, 0.0, False, id="null is no number"),
        pytest.param(pa.float64(), None, None, True, id="null is null"),
        pytest.param(pa.string(), "a", "a ", False, id="texts with their blanks"),
        pytest.param(pa.list_(pa.int32()), [1, None], [1, None], True, id="lists"),
        pytest.param(pa.map_(pa.string(), pa.int32()), [("a", 1), ("b", 2)], [("b", 2), ("a", 1)], True, id="maps"),
        pytest.param(pa.struct([("x", pa.int32())]), {"x": 1}, {"x": None}, False, id="rows"),
        pytest.param(pa.struct([("x", pa.int32())]), None, {"x": None}, False, id="no row is not an empty one"),
    ],
)
def test_updates_without_effect_are_recognised(value_type: pa.DataType, one: Any, other: Any, is_same: bool) -> None:
    found = commit_changes({0: one}, {0: other}, value_type, ["v"])
    assert [kind for _, kind, _ in found] == ([] if is_same else [1, 2])


def test_a_column_that_is_not_compared_makes_no_change() -> None:
    assert commit_changes({0: 1}, {0: 2}, pa.int64(), ["k"]) == []
