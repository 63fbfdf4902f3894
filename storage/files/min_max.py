"""Finds the smallest and the largest value of a column with Arrow's kernels."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True, slots=True)
class MinMax:
    """The exact smallest and largest value of a column, as valid scalars of the column's in-memory type."""

    minimum: pa.Scalar
    maximum: pa.Scalar


ColumnMinMax: TypeAlias = Mapping[str, MinMax]
"""Column -> its smallest and largest value. A column is missing if it has no values, or if its bounds are unknown."""


def has_nan(column: pa.Array | pa.ChunkedArray) -> bool:
    return pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py() is True


def min_max_of(column: pa.Array | pa.ChunkedArray) -> MinMax | None:
    """Returns the smallest and the largest value; None if there are only nulls.

    The order is that of Java: -0.0 before 0.0, and NaN last. (Arrow treats both zeros as equal, and ignores NaN.)
    """
    if len(column) == column.null_count:
        return None
    found = pc.min_max(column)
    minimum, maximum = found["min"], found["max"]
    if pa.types.is_floating(column.type):
        minimum = pa.scalar(-0.0, column.type) if minimum.as_py() == 0 else minimum
        maximum = pa.scalar(0.0, column.type) if maximum.as_py() == 0 else maximum
        maximum = pa.scalar(math.nan, column.type) if has_nan(column) else maximum
    return MinMax(minimum, maximum)


def union_of(min_max: Iterable[MinMax]) -> MinMax | None:
    """Returns the range that includes all ranges; None if none is given."""
    return reduce(_union, min_max, None)


def _union(known: MinMax | None, more: MinMax) -> MinMax:
    if known is None:
        return more
    lower, higher = _is_less(more.minimum, known.minimum), _is_less(known.maximum, more.maximum)
    return MinMax(more.minimum if lower else known.minimum, more.maximum if higher else known.maximum)


def _is_less(one: pa.Scalar, other: pa.Scalar) -> bool:
    if pa.types.is_floating(one.type) and math.isnan(other.as_py()):
        return not math.isnan(one.as_py())
    less: bool = pc.less(one, other).as_py()
    return less


class MinMaxCollector:
    """Collects the ColumnMinMax of a file's rows, batch by batch."""

    def __init__(self, columns: Collection[str]) -> None:
        self._columns = sorted(columns)
        self._min_max: dict[str, MinMax] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        for name in self._columns:
            min_max = min_max_of(batch.column(name))
            if min_max is not None:
                self._min_max[name] = _union(self._min_max.get(name), min_max)

    def min_max(self) -> ColumnMinMax:
        return self._min_max
