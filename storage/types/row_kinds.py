"""Row kinds as a column."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from storage.format import KIND_COLUMN, RowKind


def row_kinds(rows: pa.RecordBatch) -> NDArray[np.int8]:
    """(n,): row kind of each row; +I where the column is missing."""
    if KIND_COLUMN not in rows.schema.names:
        return np.full(rows.num_rows, RowKind.INSERT, np.int8)
    kinds: NDArray[np.int8] = rows.column(KIND_COLUMN).to_numpy()
    return kinds


def is_retract(kinds: NDArray[np.int8]) -> NDArray[np.bool_]:
    """(n,): which row kinds take a row back (-U, -D)."""
    retract: NDArray[np.bool_] = (kinds == RowKind.UPDATE_BEFORE) | (kinds == RowKind.DELETE)
    return retract


def with_kind(rows: pa.RecordBatch, kind: RowKind) -> pa.RecordBatch:
    """With a column `_VALUE_KIND` behind the others: the same for all rows."""
    kinds = pa.array(np.full(rows.num_rows, kind, np.int8))
    schema = rows.schema.append(pa.field(KIND_COLUMN, pa.int8(), nullable=False))
    return pa.RecordBatch.from_arrays([*rows.columns, kinds], schema=schema)
