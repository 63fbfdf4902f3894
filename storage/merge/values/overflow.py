"""Handles whole numbers that overflow their column.

Source: Java `FieldSumAgg` and `FieldProductAgg` (exact arithmetic of integers), `DecimalUtils.java`, `Decimal.java`.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tidelake.errors import BadInput
from tidelake.storage.merge.column_aggregation import ColumnAggregation
from tidelake.storage.model.messages import alter_command, set_type
from tidelake.storage.model.types import BIGINT, MAX_DECIMAL_PRECISION, Root, decimal


@dataclass(frozen=True, slots=True)
class OverflowCheck:
    """The limits of a column. If a number exceeds them, an integer is an error, and a decimal becomes null.

    least: the smallest number that fits; for a decimal, the unscaled value.
    greatest: the greatest number that fits; for a decimal, the unscaled value.
    certain: a sum or product of magnitudes up to this size certainly fits, even if it was rounded as a float.
    """

    aggregation: ColumnAggregation
    least: int
    greatest: int
    certain: float
    is_decimal: bool

    @classmethod
    def of(cls, kind: pa.DataType, aggregation: ColumnAggregation) -> OverflowCheck:
        """kind: the type of the column, an integer or a decimal."""
        if pa.types.is_decimal(kind):
            limit = 10**kind.precision
            return cls(aggregation, 1 - limit, limit - 1, 0.999 * limit, True)
        limit = 1 << (kind.bit_width - 1)
        return cls(aggregation, -limit, limit - 1, limit - 1 if kind.bit_width < 64 else limit / 2, False)

    def checked(self, number: int, calculation: str) -> int | None:
        """Return the number, or None for a decimal that doesn't fit.

        Raises BadInput for an integer that doesn't fit.
        """
        if self.least <= number <= self.greatest:
            return number
        if self.is_decimal:
            return None
        field = self.aggregation.field
        wider = decimal(MAX_DECIMAL_PRECISION, 0) if field.type.root is Root.BIGINT else BIGINT
        command = alter_command("TABLE", "", set_type(field.name, wider))
        raise self.refused(f"overflows at {calculation}", f"change the column to a wider type: `{command}`")

    def refused(self, what: str, remedy: str) -> BadInput:
        field = self.aggregation.field
        return BadInput(
            f"column {field.name!r} {field.type}: aggregate function {self.aggregation.function} {what}; {remedy}"
        )
