"""Comparing a column of numbers with any number gives the result of exact arithmetic."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelake.errors import BadInput
from tidelake.storage.read.predicate import col

COMPARE: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def matching(kind: pa.DataType, values: list[Any], sign: str, number: Any) -> list[Any]:
    """The values, and a null, that a filter keeps."""
    rows = pa.table({"x": pa.array([*values, None], kind)})
    kept: list[Any] = rows.filter(COMPARE[sign](col("x"), number).expression(rows.schema)).column("x").to_pylist()
    return kept


def exact(number: Any) -> Fraction | float:
    """The value of a number. That of a float is its shortest decimal."""
    if isinstance(number, float):
        return Fraction(repr(number)) if math.isfinite(number) else number
    return Fraction(number)


def units(scale: int, *numbers: int) -> list[Decimal]:
    return [Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale)) for number in numbers]


@dataclass(frozen=True)
class Numbers:
    id: str
    kind: pa.DataType
    values: list[Any]


EXACT_COLUMNS: Final = (
    Numbers("TINYINT", pa.int8(), [-128, -1, 0, 1, 2, 127]),
    Numbers("BIGINT", pa.int64(), [-(2**63), -(2**53) - 1, 0, 2**53, 2**53 + 1, 2**63 - 1]),
    Numbers("DECIMAL(4, 2)", pa.decimal128(4, 2), units(2, -9999, -13, -12, 0, 10, 12, 13, 250, 9999)),
    Numbers("DECIMAL(38, 4)", pa.decimal128(38, 4), units(4, 1 - 10**38, -1, 0, 1, 25000, 10**34, 10**38 - 1)),
    Numbers("DECIMAL(38, 38)", pa.decimal128(38, 38), units(38, 1 - 10**38, 0, 1, 10**38 - 1)),
)
NUMBERS: Final = (
    *(0, 1, -1, 2, 127, 128, -128, -129, 2**53 + 1, 2**63, -(2**63) - 1, 10**34, 10**36, -(10**36), 10**40, 10**400),
    *(0.0, -0.0, 0.1, 2.5, -0.125, 1e18, 9.3e18, 1e300, 5e-324, math.inf, -math.inf),
    *(Decimal("0.125"), Decimal("-0.13"), Decimal("2.50000"), Decimal("1E+30"), Decimal("1E-50"), Decimal("9" * 60)),
)


@pytest.mark.parametrize("sign", COMPARE)
@pytest.mark.parametrize("column", EXACT_COLUMNS, ids=lambda column: column.id)
def test_exact_columns_compare_exactly_with_every_number(column: Numbers, sign: str) -> None:
    for number in NUMBERS:
        expected = [value for value in column.values if COMPARE[sign](exact(value), exact(number))]
        assert matching(column.kind, column.values, sign, number) == expected, number


@given(st.integers(-(10**6), 10**6), st.decimals(-1000, 1000, places=5), st.sampled_from(sorted(COMPARE)))
def test_a_decimal_compares_with_decimals_of_larger_scale(value: int, number: Decimal, sign: str) -> None:
    (given_value,) = units(3, value)
    found = matching(pa.decimal128(10, 3), [given_value], sign, number)
    assert found == ([given_value] if COMPARE[sign](given_value, number) else [])


@pytest.mark.parametrize("column", EXACT_COLUMNS, ids=lambda column: column.id)
@pytest.mark.parametrize("nan", [math.nan, Decimal("NaN"), np.float32("nan")], ids=["float", "decimal", "numpy"])
def test_nan_differs_from_every_exact_number_and_is_unordered(column: Numbers, nan: Any) -> None:
    found = {sign: matching(column.kind, column.values, sign, nan) for sign in COMPARE}
    assert found.pop("!=") == column.values
    assert not any(found.values())


FLOATS: Final = [-math.inf, -(2.0**53), -0.0, 0.1, 2.0**53, 2.0**53 + 2, 1e300, math.inf]


@pytest.mark.parametrize("sign", COMPARE)
@pytest.mark.parametrize("number", [0, 2**53, 2**53 + 1, -(2**53) - 1, 10**400, -(10**400), math.inf])
def test_doubles_compare_exactly_with_whole_numbers(number: float, sign: str) -> None:
    expected = [value for value in FLOATS if COMPARE[sign](value, number)]
    assert matching(pa.float64(), FLOATS, sign, number) == expected


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()], ids=str)
@pytest.mark.parametrize("tenth", [0.1, Decimal("0.1"), np.float64(0.1)], ids=["float", "decimal", "numpy"])
def test_the_literal_0_1_finds_the_stored_float_0_1(kind: pa.DataType, tenth: Any) -> None:
    stored = pa.array([0.1], kind).to_pylist()
    found = {sign: matching(kind, stored, sign, tenth) for sign in COMPARE}
    assert found == {"==": stored, "<=": stored, ">=": stored, "!=": [], "<": [], ">": []}


def test_a_number_beyond_float_range_is_not_infinity() -> None:
    values = [1.0, math.inf]
    assert matching(pa.float32(), values, "==", 1e39) == []
    assert matching(pa.float32(), values, "<", 1e39) == [1.0]
    assert matching(pa.float32(), values, ">", Decimal("1E+39")) == [math.inf]


def test_a_list_of_numbers_is_matched_exactly() -> None:
    rows = pa.table({"x": pa.array(units(2, 10, 12, 250), pa.decimal128(38, 2))})
    wanted = col("x").is_in([0.1, Decimal("0.125"), 10**40, 2.5, None, math.nan])
    assert rows.filter(wanted.expression(rows.schema)).column("x").to_pylist() == units(2, 10, 250)


def test_nan_is_found_by_a_condition() -> None:
    rows = pa.table({"x": pa.array([math.nan, 1.0, None])})
    assert rows.filter(col("x").is_nan().expression(rows.schema)).column("x").is_nan().to_pylist() == [True]
    assert rows.filter((~col("x").is_nan()).expression(rows.schema)).column("x").to_pylist() == [1.0]
    with pytest.raises(BadInput, match="is_nan needs a FLOAT or DOUBLE column, but 'x' is not one"):
        col("x").is_nan().expression(pa.schema([("x", pa.int32())]))


@pytest.mark.parametrize("value", ["five", object(), [1]], ids=["text", "object", "list"])
def test_values_that_are_no_numbers_are_refused_by_name(value: Any) -> None:
    with pytest.raises(BadInput, match=r"compares column 'x' \(int32\) with "):
        (col("x") == value).expression(pa.schema([("x", pa.int32())]))
