"""product: computes whole numbers exactly, and floats in the order and width of Java.

Source: Java `FieldProductAgg.java`, `Decimal.fromBigDecimal`, `BigDecimal.divide`.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from tidelake.storage.merge.aggregators.aggregator import Step, Steps, since_last_set, valid_rows
from tidelake.storage.merge.aggregators.row_aggregator import SimpleRowAggregator
from tidelake.storage.merge.column_aggregation import ColumnAggregation
from tidelake.storage.merge.equal_keys import Groups, Mask
from tidelake.storage.merge.values.overflow import OverflowCheck
from tidelake.storage.merge.values.wide_ints import WideInts, from_wide_ints, to_wide_ints
from tidelake.storage.model.types.arrow_buffers import fixed_width_values


@dataclass(frozen=True, slots=True)
class Product:
    """The function product. Nulls don't count, and a group of nulls is null. A retract divides; null stays null.

    Integers: raises BadInput if a partial product overflows the type, or if the divisor is 0. Quotients are truncated
    towards zero.

    Decimals: each step is rounded half up to the scale, and becomes null if it exceeds the digits. Raises BadInput if a
    quotient has infinitely many digits.

    Rows that a later SET undoes are skipped.
    """

    aggregation: ColumnAggregation

    def aggregate(self, values: pa.Array, groups: Groups, steps: Steps | None = None) -> pa.Array:
        steps = since_last_set(groups, steps)
        counted = valid_rows(values, groups)
        divided = np.zeros(len(groups), np.bool_)
        if steps is not None:
            counted &= steps != Step.SKIP
            if len(groups):
                divided = groups.any(steps == Step.RETRACT)
        if not len(groups):
            return values.slice(0, 0)
        if pa.types.is_floating(values.type):
            return _float_products(values, groups, steps, counted, divided)
        return self._whole_products(values, groups, steps, counted, divided)

    def _whole_products(
        self, values: pa.Array, groups: Groups, steps: Steps | None, counted: Mask, divided: Mask
    ) -> pa.Array:
        exact = OverflowCheck.of(values.type, self.aggregation)
        numbers = to_wide_ints(values)[groups.rows]
        valid = groups.any(counted)
        if exact.is_decimal:
            by_row, products = np.ones(len(groups), np.bool_), numbers[groups.starts]
            aggregator: SimpleRowAggregator[int] = _DecimalProduct(exact, values.type.scale)
        else:
            factors = np.where(counted, numbers.low, 1)
            with np.errstate(over="ignore"):  # infinity counts as not certain
                sizes = groups.reduce(np.multiply, np.maximum(np.abs(factors.astype(np.float64)), 1))
                products = WideInts(groups.reduce(np.multiply, factors))
            by_row, aggregator = divided | ~(sizes <= exact.certain), _IntegerProduct(exact)
        if by_row.any():
            chosen, at = groups.select(by_row)
            items = [n if c else None for n, c in zip(numbers[at].to_ints(), counted[at].tolist(), strict=True)]
            aggregated = aggregator.aggregate(items, chosen, None if steps is None else steps[at])
            products.put(by_row, [0 if number is None else number for number in aggregated])
            valid[by_row] = [number is not None for number in aggregated]
        return from_wide_ints(products, valid, values.type)


def _float_products(values: pa.Array, groups: Groups, steps: Steps | None, counted: Mask, divided: Mask) -> pa.Array:
    numbers = fixed_width_values(values, values.type.to_pandas_dtype())[groups.rows]
    valid = groups.any(counted)
    products = groups.reduce_in_order(np.multiply, np.where(counted, numbers, numbers.dtype.type(1)))
    if divided.any() and steps is not None:
        chosen, at = groups.select(divided)
        items = [numbers[p] if counted[p] else None for p in at.tolist()]  # NumPy's scalars keep width and infinities
        with np.errstate(all="ignore"):
            aggregated = _FloatProduct().aggregate(items, chosen, steps[at])
        products[divided] = [0 if number is None else number for number in aggregated]
        valid[divided] = [number is not None for number in aggregated]
    return pa.array(products, values.type, mask=~valid)


class _FloatProduct(SimpleRowAggregator[Any]):
    def agg(self, acc: Any, item: Any) -> Any:
        if acc is None or item is None:
            return item if acc is None else acc
        return acc * item

    def retract(self, acc: Any, item: Any) -> Any:
        return acc if acc is None or item is None else acc / item


class _IntegerProduct(SimpleRowAggregator[int]):
    def __init__(self, exact: OverflowCheck) -> None:
        self._exact = exact

    def agg(self, acc: int | None, item: int | None) -> int | None:
        if acc is None or item is None:
            return item if acc is None else acc
        return self._exact.checked(acc * item, f"{acc} * {item}")

    def retract(self, acc: int | None, item: int | None) -> int | None:
        if acc is None or item is None:
            return acc
        if item == 0:
            raise self._exact.refused(f"can't retract 0 from {acc}", "send no -U or -D with 0, or ignore them")
        quotient = abs(acc) // abs(item)
        return self._exact.checked(quotient if (acc < 0) == (item < 0) else -quotient, f"{acc} / {item}")


class _DecimalProduct(SimpleRowAggregator[int]):
    """The product of unscaled values."""

    def __init__(self, exact: OverflowCheck, scale: int) -> None:
        self._exact = exact
        self._one = 10**scale

    def agg(self, acc: int | None, item: int | None) -> int | None:
        if acc is None or item is None:
            return item if acc is None else acc
        return self._exact.checked(_half_up(Fraction(acc * item, self._one)), "")

    def retract(self, acc: int | None, item: int | None) -> int | None:
        if acc is None or item is None:
            return acc
        quotient = None if item == 0 else Fraction(acc, item)
        if quotient is None or not _ends(quotient):
            raise self._exact.refused(
                f"can't divide {acc} by {item} (both times {self._one}) exactly",
                f"set fields.{self._exact.aggregation.field.name}.ignore-retract = true, or send no -U or -D",
            )
        return self._exact.checked(_half_up(quotient * self._one), "")


def _half_up(number: Fraction) -> int:
    rounded = (2 * abs(number.numerator) + number.denominator) // (2 * number.denominator)
    return -rounded if number < 0 else rounded


def _ends(number: Fraction) -> bool:
    """Return whether the number has finitely many decimal digits."""
    rest = number.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    return rest == 1
