"""Row kinds as a column of a batch."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.storage.model.format import KIND_COLUMN, RowKind


def row_kinds(rows: pa.RecordBatch) -> NDArray[np.int8]:
    """Return the row kind of each row, (n,); +I if the column is missing."""
    if KIND_COLUMN not in rows.schema.names:
        return np.full(rows.num_rows, RowKind.INSERT, np.int8)
    kinds: NDArray[np.int8] = rows.column(KIND_COLUMN).to_numpy()
    return kinds


def is_retract(kinds: NDArray[np.int8]) -> NDArray[np.bool_]:
    """Return which row kinds are retractions (-U, -D), (n,)."""
    retract: NDArray[np.bool_] = (kinds == RowKind.UPDATE_BEFORE) | (kinds == RowKind.DELETE)
    return retract


def with_kind(rows: pa.RecordBatch, kind: RowKind) -> pa.RecordBatch:
    """Return the rows with a column `_VALUE_KIND` at the end, which has the same kind in all rows."""
    kinds = pa.array(np.full(rows.num_rows, kind, np.int8))
    schema = rows.schema.append(pa.field(KIND_COLUMN, pa.int8(), nullable=False))
    return pa.RecordBatch.from_arrays([*rows.columns, kinds], schema=schema)
