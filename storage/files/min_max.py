"""The smallest and largest value of a column, found with Arrow's kernels."""

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
    """From the smallest to the largest value, both exact, as valid scalars of the column's in-memory type."""

    minimum: pa.Scalar
    maximum: pa.Scalar


ColumnMinMax: TypeAlias = Mapping[str, MinMax]
"""By column. One that is missing has no values, or its bounds are not known."""


def has_nan(column: pa.Array | pa.ChunkedArray) -> bool:
    return pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py() is True


def min_max_of(column: pa.Array | pa.ChunkedArray) -> MinMax | None:
    """None without values. Order is Java's: -0.0 before 0.0, NaN last. (Arrow takes both zeros for one, and no NaN.)"""
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
    """What holds all of them; None for none."""
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
    """ColumnMinMax of the rows of a file, batch by batch."""

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
