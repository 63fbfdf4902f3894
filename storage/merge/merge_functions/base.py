"""What every merge engine can do.

Source: Java `mergetree/compact/MergeFunction.java`, `ReducerMergeFunctionWrapper.java`; merge-engines notes section 1.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from storage.merge.kernels import RowIndices


class MergeFunction(Protocol):
    def merge(
        self, rows: pa.RecordBatch, kinds: NDArray[np.int8], order: RowIndices, is_last: NDArray[np.bool_]
    ) -> pa.RecordBatch:
        """One row, at most, for each key.

        rows: whole groups of equal keys, any column order. kinds (n,): row kind of each row.
        order, is_last (n,): rows in merge order (oldest first within a key), as from `kernels.merge_order`.
        Returns rows in key order with the same columns; retracts that survive are still there.
        """
        ...
