"""What every merge engine can do.

Source: Java `mergetree/compact/MergeFunction.java`, `ReducerMergeFunctionWrapper.java`, `MergeFunctionFactory.java`
(`adjustReadType`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from storage.merge.equal_keys import Groups


class MergeFunction(Protocol):
    """Get one from `merge_function_of`. Immutable, thread-safe."""

    @property
    def merges_in_steps(self) -> bool:
        """Whether merging the rows of a key in parts, and then the results, gives what merging all of them gives.

        Where it does not, rows that leave a write buffer for a while must stay unmerged.
        """
        ...

    @property
    def newest_wins(self) -> bool:
        """Whether the newest row of a key is the result, whatever older ones it has."""
        ...

    def columns_needed(self, wanted: Iterable[str]) -> tuple[str, ...]:
        """Columns that merging needs in addition to `wanted`, to get their values right.

        Names of table columns and, last, maybe `_LEVEL` (the level of the file that a row comes from, int32: field
        `table_schema.LEVEL_FIELD` of `read_data_file`); none that is wanted already. Key columns, `sequence.field`,
        `_SEQUENCE_NUMBER` and `_VALUE_KIND` are not among them: merge order asks for those, whatever the engine.
        """
        ...

    def merge(self, rows: pa.RecordBatch, groups: Groups, shortcut: NDArray[np.bool_] | None = None) -> pa.RecordBatch:
        """One row, at most, for each key.

        rows: any column order, with what `columns_needed` asks for. `_LEVEL` may be missing where no row comes from a
            file.
        groups: the rows of each key, oldest first, keys in order. Not every row need be in one.
        shortcut (m,): which of the groups, each of one row, come out as they are, without a look at them; None is all
            groups of one row (as Java's reducer).
        Returns rows in key order with the same columns; retracts that survive are still there. Columns that are not the
        table's are those of some row of the key. `_VALUE_KIND` and `_SEQUENCE_NUMBER`, where rows have them, are those
        of Java's result. Raises BadInput for rows that the engine does not take.
        """
        ...


def shortcut_groups(groups: Groups, shortcut: NDArray[np.bool_] | None) -> NDArray[np.bool_]:
    """(m,): `shortcut` as given to `MergeFunction.merge`, or what its None stands for."""
    return groups.lengths == 1 if shortcut is None else shortcut
