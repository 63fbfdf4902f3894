"""Compares a column of numbers with any number exactly, as a comparison with a value of the column's own type.

    DECIMAL(10, 2) > 0.125   is   DECIMAL(10, 2) > 0.12         INT < 10**36   is   INT <= 2147483647

Arrow alone can't do this: it finds no common type of 10**36 and DECIMAL(38, 4), and it rounds 2**53 + 1 to 2**53 for a
comparison with a double.
"""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

Number: TypeAlias = int | float | Decimal

_EXPONENT_MAX: Final = 400  # decimal exponent; doubles end at 308 and -324
_TRUE_ABOVE: Final = frozenset(
    [">", ">=", "!="]
)  # operators that hold for all values if the number is below all values


def as_number(value: Any) -> Number | None:
    """Return the value as a number; None if it is not a number. A boolean is not a number."""
    plain = value.as_py() if isinstance(value, pa.Scalar) else value
    match plain:
        case bool():
            return None
        case int() | float() | Decimal():
            return plain
        case np.integer() | np.floating():
            number: Number = plain.item()
            return number
        case _:
            return None


def is_number_type(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def same_comparison(operator: str, number: Number, kind: pa.DataType) -> tuple[str, pa.Scalar]:
    """Return (operator, value of type `kind`) that holds for the same values of that type as `operator number`.

    A float means its shortest decimal (0.1 is a tenth). Compared with a FLOAT or DOUBLE column, any fraction means the
    float nearest to it. A comparison that is true for all values, or for none, becomes a comparison with the end of the
    type's range.
    """
    if isinstance(number, Decimal) and not number.is_finite():
        number = math.nan if number.is_nan() else math.inf if number > 0 else -math.inf
    number = _with_modest_exponent(number)
    if pa.types.is_floating(kind):
        return _with_float(operator, number, kind)
    lowest, highest, scale = _range(kind)
    if isinstance(number, float) and not math.isfinite(number):
        return _between(operator, highest if number > 0 else lowest - 1, kind, is_nan=math.isnan(number))
    exact = Fraction(repr(number) if isinstance(number, float) else number) * 10**scale
    below = math.floor(exact)
    if below == exact and lowest <= below <= highest:
        return operator, _scalar(below, kind)
    return _between(operator, min(below, highest), kind)


def _with_modest_exponent(number: Number) -> Number:
    """Return a number with a smaller exponent that compares in the same way with all values of the number types.

    1E+999999999 as an integer would not fit into memory. The replacement is also beyond every type's values, or between
    the same two values.
    """
    if not isinstance(number, Decimal) or not number.is_finite() or abs(number.adjusted()) <= _EXPONENT_MAX:
        return number
    if not number:
        return 0
    return Decimal(1).scaleb(_EXPONENT_MAX if number.adjusted() > 0 else -_EXPONENT_MAX).copy_sign(number)


def _between(operator: str, below: int, kind: pa.DataType, *, is_nan: bool = False) -> tuple[str, pa.Scalar]:
    """Return the comparison for a number that is between two values of the type.

    below: the largest value of the type below the number; less than all values if no such value exists.
    """
    operator, units = nearest_comparison(operator, below, _range(kind)[0], is_nan=is_nan)
    return operator, _scalar(units, kind)


def nearest_comparison(operator: str, below: int, lowest: int, *, is_nan: bool = False) -> tuple[str, int]:
    """Return (operator, whole number) that holds for the same whole numbers from `lowest` on as a fraction does.

    below: the largest whole number below the fraction; less than `lowest` if the fraction is less than all of them.
    """
    is_true_of_all = operator == "!=" or (operator in _TRUE_ABOVE and below < lowest and not is_nan)
    if is_true_of_all or operator == "==" or below < lowest or is_nan:
        return (">=" if is_true_of_all else "<"), lowest
    return ("<=" if operator in ("<", "<=") else ">"), below


def _with_float(operator: str, number: Number, kind: pa.DataType) -> tuple[str, pa.Scalar]:
    try:
        nearest = float(number)
    except OverflowError:
        nearest = math.inf if number > 0 else -math.inf
    if pa.types.is_float32(kind):
        with np.errstate(over="ignore"):
            nearest = float(np.float32(nearest))
    is_taken_for = not isinstance(number, int) and (math.isfinite(nearest) or not math.isfinite(number))
    if is_taken_for or nearest == number:
        return operator, pa.scalar(nearest, kind)
    if operator in ("==", "!="):
        return operator, pa.scalar(math.nan, kind)  # NaN equals no value and differs from every value
    if nearest < number:
        return ("<=" if operator in ("<", "<=") else ">"), pa.scalar(nearest, kind)
    return ("<" if operator in ("<", "<=") else ">="), pa.scalar(nearest, kind)


def _range(kind: pa.DataType) -> tuple[int, int, int]:
    """Return the smallest and the largest value in units of 10**-scale, and the scale."""
    if pa.types.is_decimal(kind):
        return 1 - 10**kind.precision, 10**kind.precision - 1, kind.scale
    return -(1 << kind.bit_width - 1), (1 << kind.bit_width - 1) - 1, 0


def _scalar(units: int, kind: pa.DataType) -> pa.Scalar:
    if not pa.types.is_decimal(kind):
        return pa.scalar(units, kind)
    digits = tuple(map(int, str(abs(units))))
    return pa.scalar(Decimal((int(units < 0), digits, -kind.scale)), kind)
