"""Finds the row before a row of a batch: in the batch, or in the table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


class RowLookup(Protocol):
    """Looks up the newest rows of one table, including rows in its write buffer."""

    def newest(self, keys: pa.RecordBatch) -> tuple[NDArray[np.bool_], pa.RecordBatch]:
        """Return the row of each key, merged by the table's merge engine.

        keys: (m,) columns of the primary key.

        Returns found (m,), and m rows with the table's columns. Rows of missing or deleted keys only have nulls.
        """
        ...


def key_codes(columns: Sequence[pa.Array]) -> NDArray[np.int64]:
    """Return one number per row. Numbers are equal if all columns are equal."""
    codes = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        inner = column.dictionary_encode(null_encoding="encode").indices.to_numpy().astype(np.int64)
        codes = np.unique(codes * len(column) + inner, return_inverse=True)[1]
    return codes


def newest_before(
    codes: NDArray[np.int64], candidates: NDArray[np.int64], rows: NDArray[np.int64], wanted: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return for each of `rows` the nearest earlier candidate with the wanted code; -1 if none exists.

    codes: (n,) the codes of all rows.
    candidates: row numbers.
    rows: (m,) row numbers.
    wanted: (m,) a code for each of `rows`.
    """
    width = len(codes) + 1
    ordered = np.sort(codes[candidates] * width + candidates)
    at = np.searchsorted(ordered, wanted * width + rows) - 1
    nearest = ordered[np.maximum(at, 0)] if len(ordered) else np.full(len(rows), -1)
    return np.where((at >= 0) & (nearest // width == wanted), nearest % width, -1)


def resolve_sources(size: int, flagged: NDArray[np.int64], sources: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the row from which each row's cell of one column is taken; -1 if its value was not found.

    A source may lack the value itself; then its own source is used. Flagged rows rise and their sources come before
    them, so one pass is enough.
    """
    take = np.arange(size)
    for row, source in zip(flagged.tolist(), sources.tolist(), strict=True):
        take[row] = take[source] if source >= 0 else -1
    return take
