"""The newest row of a key wins, a delete included.

Source: Java `mergetree/compact/DeduplicateMergeFunction.java`; merge-engines notes 1.1 and 3.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from storage.format import RowKind
from storage.merge.kernels import RowIndices


def is_retract(kinds: NDArray[np.int8]) -> NDArray[np.bool_]:
    """Which row kinds take a row back (-U, -D)."""
    retract: NDArray[np.bool_] = (kinds == RowKind.UPDATE_BEFORE) | (kinds == RowKind.DELETE)
    return retract


@dataclass(frozen=True, slots=True)
class Deduplicate:
    """ignore_delete: among two or more rows of a key, retracts don't count; a key of retracts only vanishes.

    A single retract stays as it is, ignored or not: Java's reducer never shows it to the merge function.
    """

    ignore_delete: bool = False

    def merge(
        self, rows: pa.RecordBatch, kinds: NDArray[np.int8], order: RowIndices, is_last: NDArray[np.bool_]
    ) -> pa.RecordBatch:
        return rows.take(pa.array(self.winners(kinds, order, is_last)))

    def winners(self, kinds: NDArray[np.int8], order: RowIndices, is_last: NDArray[np.bool_]) -> RowIndices:
        """Indices of the surviving rows, in key order."""
        retract = is_retract(kinds)[order] if self.ignore_delete else None
        if retract is None or not retract.any():
            return order[is_last]
        ends = np.flatnonzero(is_last)
        starts = np.concatenate(([0], ends[:-1] + 1))
        newest_add = np.maximum.reduceat(np.where(retract, -1, np.arange(len(order))), starts)
        alone = ends == starts
        winners = np.where(alone, ends, newest_add)
        return order[winners[winners >= 0]]
