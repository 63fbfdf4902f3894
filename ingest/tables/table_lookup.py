"""Old rows of a table, for values that a record left out because they did not change."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from storage.lookup.row_lookup import lookup_newest_rows
from storage.snapshots.snapshot import Snapshot
from storage.table import TableContext


def _nothing() -> Iterable[pa.RecordBatch]:
    return ()


@dataclass(frozen=True, slots=True)
class TableLookup:
    """An `ingest.tables.unavailable_values.RowLookup` over a snapshot, and over what a writer holds beyond it.

    uncommitted: `TableWriter.uncommitted`.
    """

    context: TableContext
    snapshot: Snapshot | None
    uncommitted: Callable[[], Iterable[pa.RecordBatch]] = _nothing

    def newest(self, keys: pa.RecordBatch) -> tuple[NDArray[np.bool_], pa.RecordBatch]:
        return lookup_newest_rows(self.context, self.snapshot, keys, self.uncommitted())
