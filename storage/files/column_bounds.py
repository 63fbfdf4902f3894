"""Bounds of the values of a column, in several files or in several parts of one file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True, slots=True)
class ColumnBounds:
    """The bounds of one column in n files (or row groups). Null means unknown.

    minimum (n,): lower bounds, of the column's type. They need not be values of the column (long texts are truncated).
    maximum (n,): upper bounds, likewise.
    null_count (n,): int64.
    row_count (n,): int64, never null.
    """

    minimum: pa.Array
    maximum: pa.Array
    null_count: pa.Array
    row_count: pa.Array

    @classmethod
    def unknown(cls, kind: pa.DataType, row_count: pa.Array) -> ColumnBounds:
        n = len(row_count)
        return cls(pa.nulls(n, kind), pa.nulls(n, kind), pa.nulls(n, pa.int64()), row_count)


def without_nan(bounds: pa.Array) -> pa.Array:
    """Makes NaN bounds unknown: in Java NaN is the largest value, but in Arrow no comparison with NaN is true."""
    if not pa.types.is_floating(bounds.type):
        return bounds
    return pc.if_else(pc.is_nan(bounds), pa.scalar(None, bounds.type), bounds)


Bounds: TypeAlias = Callable[[str], ColumnBounds]  # column name -> bounds
