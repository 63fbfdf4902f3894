"""Masks keep the rows that the expressions of the same conditions keep, with nulls, NaN and both zeros."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.levels import examples
from tidelake import col
from tidelake.storage.read.arrow_expressions import matching_rows
from tidelake.storage.read.conditions import as_predicate
from tidelake.storage.read.predicate import Predicate
from tidelake.storage.read.row_masks import row_mask

SCHEMA = pa.schema(
    [
        ("i", pa.int32()),
        ("f", pa.float64()),
        ("s", pa.string()),
        ("d", pa.decimal128(5, 2)),
        ("b", pa.bool_()),
        ("r", pa.struct([("x", pa.int32())])),
        ("m", pa.map_(pa.string(), pa.int32())),
        ("row", pa.int32()),
    ]
)
BATCH = pa.RecordBatch.from_arrays(
    [
        pa.array([1, None, -5, 7, 2**31 - 1], pa.int32()),
        pa.array([float("nan"), None, -0.0, 0.0, float("inf")]),
        pa.array(["", None, "é", "z", "\0"]),
        pa.array(["1.00", None, "-0.01", "999.99", "0.00"]).cast(pa.decimal128(5, 2)),
        pa.array([True, None, False, True, False]),
        pa.array([{"x": 1}, None, {"x": None}, {"x": 7}, {"x": 7}], SCHEMA.field("r").type),
        pa.array([[("k", 1)], None, [], [("k", None)], [("l", 7)]], SCHEMA.field("m").type),
        pa.array(range(5), pa.int32()),
    ],
    schema=SCHEMA,
)
VALUES: dict[str, list[Any]] = {
    "i": [1, -5, 7.5, 2**40],
    "f": [0.0, float("nan"), 1e300],
    "s": ["", "é", "y"],
    "d": [1, "0.5"],
    "b": [True],
}


def compared() -> st.SearchStrategy[Predicate]:
    def of(name: str) -> st.SearchStrategy[Predicate]:
        column, values = col(name), st.sampled_from(VALUES[name])
        makes = [
            lambda v: column == v,
            lambda v: column != v,
            lambda v: column < v,
            lambda v: column <= v,
            lambda v: column > v,
            lambda v: column >= v,
            lambda v: column.is_null(),
        ]
        usable = makes if name != "b" else [makes[0], makes[1], makes[-1]]
        return st.builds(lambda make, v: make(v), st.sampled_from(usable), values)

    return st.sampled_from(sorted(VALUES)).flatmap(of)


CONDITIONS = st.recursive(
    compared(),
    lambda inner: st.one_of(
        st.builds(lambda a, b: a & b, inner, inner),
        st.builds(lambda a, b: a | b, inner, inner),
        inner.map(lambda a: ~a),
    ),
    max_leaves=6,
)


@settings(max_examples=examples(400))
@given(CONDITIONS)
def test_a_mask_keeps_the_rows_that_the_expression_keeps(condition: Predicate) -> None:
    predicate = as_predicate(condition, SCHEMA)
    mask = row_mask(predicate, SCHEMA)
    assert mask is not None
    expected = matching_rows(BATCH, predicate.expression(SCHEMA))
    assert BATCH.filter(mask(BATCH)).column("row").to_pylist() == expected.column("row").to_pylist()


@pytest.mark.parametrize(
    "condition",
    [
        col("i").is_in([1, None]),
        col("s").like("%é"),
        col("r.x") == 7,
        col("m")["k"] == 1,
        (col("i") == 1) | col("s").starts_with("é"),
        ~col("s").contains("x"),
    ],
)
def test_other_conditions_are_left_to_the_engine(condition: Predicate) -> None:
    assert row_mask(as_predicate(condition, SCHEMA), SCHEMA) is None
