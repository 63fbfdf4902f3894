"""Filters that Spark pushes down find the same rows as in Spark: NULL is unknown, NaN is the greatest number."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from operator import ge, gt, le, lt
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringStartsWith,
)

from tests.support.levels import examples
from tidelake.spark.pushed_filters import predicate_of

COLUMNS: Final[dict[str, tuple[pa.DataType, list[Any]]]] = {
    "flag": (pa.bool_(), [True, False]),
    "tiny": (pa.int8(), [-128, 0, 1, 127]),
    "big": (pa.int64(), [-(2**63), -1, 0, 2**53 + 1, 2**63 - 1]),
    "real": (pa.float64(), [-math.inf, -1.5, -0.0, 0.0, 2.5, math.inf, math.nan]),
    "single": (pa.float32(), [-math.inf, -1.5, -0.0, 0.0, 2.5, math.nan]),
    "price": (pa.decimal128(10, 2), [Decimal("-1.00"), Decimal("0.00"), Decimal("0.10"), Decimal("99999999.99")]),
    "wide": (pa.decimal128(38, 10), [Decimal("9999999999999999999999999999.9999999999"), Decimal("0.1000000000")]),
    "name": (pa.string(), ["", "a", "A", "ab", "\u00e9", "\U0001f600", "\uffff"]),
    "raw": (pa.binary(), [b"", b"a", b"\xff", b"\x00"]),
    "day": (pa.date32(), [date(1, 1, 1), date(1970, 1, 1), date(9999, 12, 31)]),
    "at": (pa.timestamp("ms"), [datetime(1969, 12, 31, 23), datetime(2026, 5, 1)]),
    "zoned": (pa.timestamp("us", "UTC"), [datetime(1969, 12, 31, 23, tzinfo=UTC), datetime(2026, 5, 1, tzinfo=UTC)]),
}
SCHEMA: Final = pa.schema([(name, kind) for name, (kind, _) in COLUMNS.items()])
COMPARISONS: Final[dict[type, Callable[[Any, Any], bool]]] = {
    GreaterThan: gt,
    GreaterThanOrEqual: ge,
    LessThan: lt,
    LessThanOrEqual: le,
}


def by_sparks_order(value: Any) -> Any:
    """Comparable as Spark compares: NaN with itself, and above all others."""
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value)
    return value.encode() if isinstance(value, str) else value


def truth(pushed: Filter, value: Any) -> bool | None:
    """What Spark says of one value; None is unknown."""
    match pushed:
        case Not(child=child):
            inner = truth(child, value)
            return None if inner is None else not inner
        case IsNull():
            return value is None
        case IsNotNull():
            return value is not None
        case EqualNullSafe(value=other) if value is None or other is None:
            return value is None and other is None
        case _ if value is None:
            return None
        case EqualTo(value=other) | EqualNullSafe(value=other):
            return bool(by_sparks_order(value) == by_sparks_order(other))
        case In(value=others):
            is_one = any(by_sparks_order(value) == by_sparks_order(other) for other in others if other is not None)
            return True if is_one else None if None in others else False
        case StringStartsWith(value=prefix):
            return str(value).startswith(prefix)
        case GreaterThan() | GreaterThanOrEqual() | LessThan() | LessThanOrEqual():
            return COMPARISONS[type(pushed)](by_sparks_order(value), by_sparks_order(pushed.value))
    raise AssertionError(pushed)


@st.composite
def filters(draw: st.DrawFn) -> Filter:
    name = draw(st.sampled_from(list(COLUMNS)))
    values = st.sampled_from(COLUMNS[name][1])
    kinds: list[st.SearchStrategy[Filter]] = [
        *(st.builds(kind, st.just((name,)), values) for kind in (EqualTo, EqualNullSafe, *COMPARISONS)),
        st.builds(EqualNullSafe, st.just((name,)), st.none()),
        st.builds(In, st.just((name,)), st.lists(st.none() | values, max_size=4).map(tuple)),
        st.builds(IsNull, st.just((name,))),
        st.builds(IsNotNull, st.just((name,))),
    ]
    if name == "name":
        kinds.append(st.builds(StringStartsWith, st.just((name,)), values))
    found = draw(st.one_of(kinds))
    return Not(found) if draw(st.booleans()) else found


def rows_of(column: str) -> pa.Table:
    values = [*COLUMNS[column][1], None]
    others = {field.name: pa.nulls(len(values), field.type) for field in SCHEMA}
    return pa.table({**others, column: pa.array(values, SCHEMA.field(column).type)}, SCHEMA)


@settings(max_examples=examples(500))
@given(filters())
def test_a_pushed_filter_finds_the_same_rows_as_spark(pushed: Filter) -> None:
    predicate = predicate_of(pushed, SCHEMA)
    if predicate is None:
        return  # Spark applies it itself
    inner = pushed.child if isinstance(pushed, Not) else pushed
    column = inner.attribute[0]  # type: ignore[attr-defined]
    rows = rows_of(column)
    found = rows.filter(predicate.expression(SCHEMA)).column(column).to_pylist()
    wanted = [value for value in rows.column(column).to_pylist() if truth(pushed, value)]
    assert str(found) == str(wanted)


@pytest.mark.parametrize(
    "pushed",
    [
        *(kind((name,), values[-1]) for name, (_, values) in COLUMNS.items() for kind in (EqualTo, EqualNullSafe)),
        *(kind(("big",), 1) for kind in COMPARISONS),
        In(("name",), ("a", None)),
        Not(In(("name",), ("a",))),
        StringStartsWith(("name",), "a"),
        IsNull(("raw",)),
        Not(EqualNullSafe(("real",), math.nan)),
    ],
    ids=str,
)
def test_common_filters_are_pushed_down(pushed: Filter) -> None:
    assert predicate_of(pushed, SCHEMA) is not None


@pytest.mark.parametrize(
    "pushed",
    [
        EqualTo(("parts", "a"), 1),
        EqualTo(("missing",), 1),
        EqualTo(("big",), "1"),
        EqualTo(("at",), datetime(2026, 1, 1, tzinfo=UTC)),
        EqualTo(("zoned",), datetime(2026, 1, 1)),
        EqualTo(("name",), 1),
        GreaterThan(("flag",), False),
        StringContains(("name",), "a"),
        StringStartsWith(("raw",), "a"),
        Not(In(("name",), ("a", None))),
        LessThan(
            ("wide",), Decimal("1.000000000000000000000000000E+28")
        ),  # was 9999999999999999999999999999.9999999999
    ],
    ids=str,
)
def test_filters_with_possibly_different_semantics_stay_in_spark(pushed: Filter) -> None:
    assert predicate_of(pushed, SCHEMA) is None
