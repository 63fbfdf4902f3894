"""sum: computes whole numbers exactly, and floats in the order and width of Java.

Source: Java `FieldSumAgg.java`, `DecimalUtils.java`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from tidelake.storage.merge.aggregators.aggregator import Step, Steps, since_last_set, valid_rows
from tidelake.storage.merge.aggregators.row_aggregator import SimpleRowAggregator
from tidelake.storage.merge.column_aggregation import ColumnAggregation
from tidelake.storage.merge.equal_keys import Groups, Mask
from tidelake.storage.merge.values.overflow import OverflowCheck
from tidelake.storage.merge.values.wide_ints import from_wide_ints, to_wide_ints
from tidelake.storage.model.types.arrow_buffers import fixed_width_values


@dataclass(frozen=True, slots=True)
class Sum:
    """The function sum. Nulls don't count, and a group of nulls is null. A retract of x adds -x, also to null.

    Integers: raises BadInput if a partial sum overflows the type.

    Decimals of more than 18 digits: a partial sum with too many digits becomes null, and later rows are added to that.
    Shorter decimals may exceed their declared digits, while 64 bits are enough.

    Rows that a later SET undoes are skipped. So their overflow is not noticed, which would be an error in Java.
    """

    aggregation: ColumnAggregation

    def aggregate(self, values: pa.Array, groups: Groups, steps: Steps | None = None) -> pa.Array:
        steps = since_last_set(groups, steps)
        counted = valid_rows(values, groups)
        taken_back: Mask | None = None
        if steps is not None:
            counted &= steps != Step.SKIP
            taken_back = steps == Step.RETRACT
        if not len(groups):
            return values.slice(0, 0)
        valid = groups.any(counted)
        if pa.types.is_floating(values.type):
            return _float_sums(values, groups, counted, taken_back, valid)
        return self._whole_sums(values, groups, counted, taken_back, valid)

    def _whole_sums(
        self, values: pa.Array, groups: Groups, counted: Mask, taken_back: Mask | None, valid: Mask
    ) -> pa.Array:
        exact = OverflowCheck.of(values.type, self.aggregation)
        numbers = to_wide_ints(values)[groups.rows]
        if not counted.all():
            numbers = numbers.or_zero(counted)
        # Partial sums are at most the sum of the magnitudes. If that fits, no row can overflow.
        certain = np.ones(len(groups), np.bool_)
        if numbers.greatest_magnitude() * groups.lengths.max() > exact.certain:
            certain = groups.reduce(np.add, numbers.magnitudes()) <= exact.certain
        signed = numbers if taken_back is None else numbers.negated_where(taken_back)
        sums = signed.sums(groups)
        if not certain.all():
            uncertain, at = groups.select(~certain)
            items = [n if c else None for n, c in zip(numbers[at].to_ints(), counted[at].tolist(), strict=True)]
            steps = None if taken_back is None else np.where(taken_back[at], np.int8(Step.RETRACT), np.int8(Step.AGG))
            aggregated = _ExactSum(exact).aggregate(items, uncertain, steps)
            sums.put(~certain, [0 if number is None else number for number in aggregated])
            valid[~certain] = [number is not None for number in aggregated]
        return from_wide_ints(sums, valid, values.type)


def _float_sums(values: pa.Array, groups: Groups, counted: Mask, taken_back: Mask | None, valid: Mask) -> pa.Array:
    numbers = fixed_width_values(values, values.type.to_pandas_dtype())[groups.rows]
    if taken_back is not None:
        numbers = np.where(taken_back, -numbers, numbers)
    numbers = np.where(counted, numbers, numbers.dtype.type(-0.0))  # x + -0.0 is x, also for x = -0.0
    return pa.array(groups.reduce_in_order(np.add, numbers), values.type, mask=~valid)


class _ExactSum(SimpleRowAggregator[int]):
    """The sum of groups in which a partial sum may overflow."""

    def __init__(self, exact: OverflowCheck) -> None:
        self._negated = exact
        # Java adds decimals of up to 18 digits in 64 bits, and checks the digits only if these overflow.
        is_compact = exact.is_decimal and exact.greatest < 10**18
        self._partial = replace(exact, least=-(2**63), greatest=2**63 - 1) if is_compact else exact

    def agg(self, acc: int | None, item: int | None) -> int | None:
        if acc is None or item is None:
            return item if acc is None else acc
        return self._partial.checked(acc + item, f"{acc} + {item}")

    def retract(self, acc: int | None, item: int | None) -> int | None:
        if item is None:
            return acc
        if acc is None:
            return self._negated.checked(-item, f"-({item})")
        return self._partial.checked(acc - item, f"{acc} - {item}")
