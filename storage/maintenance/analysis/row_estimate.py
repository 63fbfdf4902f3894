"""Estimates how many rows satisfy a condition from the last analysis, as SQL planners do.

It assumes that all values of a column are equally frequent and evenly spread between its bounds, and that columns are
independent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidelake.storage.maintenance.analysis.analyze import TableStatistics
from tidelake.storage.read.predicate import And, Compare, IsIn, IsNull, Not, Or, Predicate

_REVERSED = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


def estimated_rows(statistics: TableStatistics, condition: Predicate | None, schema: pa.Schema) -> int | None:
    """Return the estimated number of rows. None if the statistics don't contain enough.

    schema: of the columns as they are read.
    """
    rows = statistics.merged_record_count
    if rows is None:
        return None
    share = 1.0 if condition is None else _Selectivity(statistics, rows, schema).of(condition)
    return None if share is None else round(rows * share)


@dataclass(frozen=True, slots=True)
class _Selectivity:
    """Computes the share of the rows that satisfy a condition. None: unknown."""

    statistics: TableStatistics
    rows: int
    schema: pa.Schema

    def of(self, condition: Predicate) -> float | None:
        match condition:
            case And(parts=parts):
                return self._joined(parts, all_of=True)
            case Or(parts=parts):
                return self._joined(parts, all_of=False)
            case Not(inner=inner):
                return self._negated(inner)
            case Compare(key=None):
                operator, value = condition.in_type_of_column(self.schema)
                return self._compared(condition.column, operator, value)
            case IsIn(key=None):
                values = condition.value_set(self.schema).unique()
                found = [self._compared(condition.column, "==", value) for value in values]
                return None if None in found else min(1.0, sum(one for one in found if one is not None))
            case IsNull(key=None):
                return self._nulls(condition.column)
        return None

    def _joined(self, parts: tuple[Predicate, ...], *, all_of: bool) -> float | None:
        left = 1.0  # share of the rows that satisfy all parts, or none
        for part in parts:
            share = self.of(part)
            if share is None:
                return None
            left *= share if all_of else 1 - share
        return left if all_of else 1 - left

    def _negated(self, inner: Predicate) -> float | None:
        """Return the share of a negated condition. A null satisfies neither a comparison nor its opposite."""
        if isinstance(inner, Compare) and not inner.is_of_part:
            operator, value = inner.in_type_of_column(self.schema)
            return self._compared(inner.column, _REVERSED[operator], value)
        share = self.of(inner)
        if share is None:
            return None
        nulls = self._nulls(inner.column) if isinstance(inner, IsIn) else 0.0
        return None if nulls is None else max(0.0, 1 - share - nulls)

    def _compared(self, column: str, operator: str, value: pa.Scalar) -> float | None:
        held, nulls = self.statistics.columns.get(column), self._nulls(column)
        if held is None or nulls is None or not held.get("distinctCount"):
            return None
        below = _place(held, value)
        each = (1 - nulls) / float(held["distinctCount"])
        match operator:
            case "==":
                return each if below is None or 0 <= below <= 1 else 0.0
            case "!=":
                return max(0.0, 1 - nulls - each)
        if below is None:
            return None
        inside = min(max(below, 0.0), 1.0)
        return (1 - nulls) * (inside if operator in ("<", "<=") else 1 - inside)

    def _nulls(self, column: str) -> float | None:
        held = self.statistics.columns.get(column)
        if held is None or held.get("nullCount") is None:
            return None
        return float(held["nullCount"]) / self.rows if self.rows else 0.0


def _place(held: dict[str, Any], value: pa.Scalar) -> float | None:
    """Return the position of a value between the bounds: 0 at the minimum, 1 at the maximum. None if it is unknown."""
    bounds = [_number(held.get(name), value.type) for name in ("min", "max")]
    own = _number(value, value.type)
    low, high = bounds
    if low is None or high is None or own is None:
        return None
    if low == high:
        return 0.0 if own == low else -1.0 if own < low else 2.0
    return (own - low) / (high - low)


def _number(bound: str | pa.Scalar | None, kind: pa.DataType) -> float | None:
    """Return a bound as a number.

    bound: a value, or its text in statistics, where days and times are numbers.
    """
    if bound is None:
        return None
    try:
        if isinstance(bound, str) and not pa.types.is_timestamp(kind):
            return float(bound)
        value = pa.scalar(bound).cast(pa.timestamp(kind.unit)).cast(kind) if isinstance(bound, str) else bound
        if pa.types.is_temporal(kind):
            value = value.cast(pa.int64() if kind.bit_width == 64 else pa.int32())
        return float(value.as_py())
    except (pa.ArrowException, ValueError, TypeError):  # for example a text
        return None
