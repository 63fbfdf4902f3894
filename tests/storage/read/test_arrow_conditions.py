"""A `pyarrow.compute` expression becomes a condition with the same truth for each row, as far as it is understood."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from functools import reduce
from operator import and_, or_
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.levels import examples
from tidelake.storage.read.condition_text import condition_text
from tidelake.storage.read.conditions import as_predicate
from tidelake.storage.read.predicate import ArrowCondition

ROWS: Final = pa.table(
    {
        "i": pa.array([1, 2, None, 2**53 + 1, -5], pa.int64()),
        "f": pa.array([0.0, -0.0, None, float("nan"), 1.5], pa.float64()),
        "s": pa.array(["a", "ab", None, "", "b%"]),
        "d": pa.array([date(2026, 5, 1), None, date(1969, 1, 1), date(2026, 5, 2), None]),
        "m": pa.array(
            [Decimal("1.10"), None, Decimal("2.50"), Decimal("0.00"), Decimal("-1.00")], pa.decimal128(10, 2)
        ),
        "r": pa.array([{"a": 1}, None, {"a": None}, {"a": 3}, {"a": 1}], pa.struct([("a", pa.int32())])),
    }
)
VALUES: Final[dict[str, list[Any]]] = {
    "i": [1, 2, 2**53, -5],
    "f": [0.0, 1.5, 7.25],
    "s": ["a", "ab", "", "zz"],
    "d": [date(2026, 5, 1), date(2000, 1, 1)],
    "m": [Decimal("1.10"), Decimal("0.00")],
}


def compared(name: str, operator: str, value: Any, is_swapped: bool) -> pc.Expression:
    field, scalar = pc.field(name), pc.scalar(pa.scalar(value, ROWS.schema.field(name).type))
    one, other = (scalar, field) if is_swapped else (field, scalar)
    made: dict[str, pc.Expression] = {
        "==": one == other,
        "!=": one != other,
        "<": one < other,
        "<=": one <= other,
        ">": one > other,
        ">=": one >= other,
    }
    return made[operator]


def one_of(name: str, values: list[Any], keeps_null: bool) -> pc.Expression:
    test = pc.field(name).isin(pa.array(values, ROWS.schema.field(name).type))
    return pc.if_else(pc.field(name).is_valid(), test, pa.scalar(None, pa.bool_())) if keeps_null else test


NAMES: Final = st.sampled_from(list(VALUES))
LEAVES: Final = st.one_of(
    NAMES.flatmap(
        lambda name: st.builds(
            compared,
            st.just(name),
            st.sampled_from(["==", "!=", "<", "<=", ">", ">="]),
            st.sampled_from(VALUES[name]),
            st.booleans(),
        )
    ),
    NAMES.flatmap(
        lambda name: st.builds(
            one_of, st.just(name), st.lists(st.sampled_from(VALUES[name]), min_size=1), st.booleans()
        )
    ),
    st.builds(lambda name: pc.field(name).is_null(), NAMES),
    st.builds(lambda name: pc.field(name).is_valid(), NAMES),
    st.builds(lambda prefix: pc.starts_with(pc.field("s"), prefix), st.sampled_from(["", "a", "b%"])),
    st.just(pc.field("r", "a") == 1),  # these two are not understood
    st.just(pc.add(pc.field("i"), 1) > 2),
)
EXPRESSIONS: Final = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(lambda parts: reduce(and_, parts), st.lists(inner, min_size=2, max_size=4)),
        st.builds(lambda parts: reduce(or_, parts), st.lists(inner, min_size=2, max_size=4)),
        inner.map(lambda one: ~one),
    ),
    max_leaves=8,
)


def kept(condition: pc.Expression) -> list[int]:
    numbered = ROWS.append_column("row", pa.array(range(ROWS.num_rows)))
    rows: list[int] = numbered.filter(condition)["row"].to_pylist()
    return rows


@settings(max_examples=examples(300))
@given(EXPRESSIONS)
def test_the_condition_keeps_the_same_rows_and_what_it_implies_keeps_at_least_these(expression: pc.Expression) -> None:
    found = as_predicate(expression, ROWS.schema)
    assert kept(found.expression(ROWS.schema)) == kept(expression)
    if isinstance(found, ArrowCondition) and found.implied is not None:
        assert set(kept(found.implied.expression(ROWS.schema))) >= set(kept(expression))


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (pc.field("i") > 3, "i > 3"),
        (pc.scalar(3) < pc.field("i"), "i > 3"),
        (
            (pc.field("i") > 3) & (pc.field("s") == "x") & pc.field("d").is_valid(),
            "i > 3 AND s = 'x' AND d IS NOT NULL",
        ),
        (~((pc.field("i") == 1) | pc.field("s").is_null()), "NOT (i = 1 OR s IS NULL)"),
        (one_of("i", [1, 2], True), "i IN (1, 2)"),
        (pc.starts_with(pc.field("s"), "a%"), "s LIKE 'a\\%%'"),
        (pc.field("m") == pa.scalar(Decimal("1.10"), pa.decimal128(10, 2)), "m = 1.10"),
    ],
)
def test_an_expression_that_is_understood_is_a_condition_of_columns(expression: pc.Expression, text: str) -> None:
    assert condition_text(as_predicate(expression, ROWS.schema)) == text


@pytest.mark.parametrize(
    ("expression", "implied"),
    [
        ((pc.field("r", "a") == 3) & (pc.field("i") < 5), "i < 5"),
        ((pc.add(pc.field("i"), 1) > 2) & pc.field("s").isin(["a"]), "s IN ('a')"),
        ((pc.field("i") > 0.5) & (pc.field("i") < 5), "i < 5"),  # Arrow compares the first as doubles
        (pc.field("r", "a") == 3, None),
        ((pc.field("r", "a") == 3) | (pc.field("i") < 5), None),
        (pc.field("s").is_null(nan_is_null=True), None),
    ],
)
def test_of_an_expression_that_is_not_understood_the_other_parts_skip_files(
    expression: pc.Expression, implied: str | None
) -> None:
    found = as_predicate(expression, ROWS.schema)
    assert isinstance(found, ArrowCondition)
    assert (None if found.implied is None else condition_text(found.implied)) == implied
