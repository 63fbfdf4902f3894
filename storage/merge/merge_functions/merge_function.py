"""The interface of all merge engines.

Source: Java `mergetree/compact/MergeFunction.java`, `ReducerMergeFunctionWrapper.java`, `MergeFunctionFactory.java`
(`adjustReadType`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.storage.merge.equal_keys import Groups


class MergeFunction(Protocol):
    """Merges the rows of each key, see `merge_function_of`. Immutable and thread-safe."""

    @property
    def merges_in_steps(self) -> bool:
        """Whether the rows of a key can be merged in parts, and the results merged again, with the same result.

        If not, rows that are spilled from a write buffer must stay unmerged.
        """
        ...

    @property
    def keeps_retracts(self) -> bool:
        """Whether no -U or -D needs the older rows of its key: `lost_retracts` never finds one."""
        ...

    @property
    def newest_wins(self) -> bool:
        """Whether the result is always the newest row of a key, regardless of its older rows."""
        ...

    def columns_needed(self, wanted: Iterable[str]) -> tuple[str, ...]:
        """Return the columns that the merge needs in addition to `wanted`, to compute their values.

        The result contains names of table columns. The last one may be `_LEVEL`, the level of a row's file (int32,
        field `table_schema.LEVEL_FIELD` of `read_data_file`). Key columns, `sequence.field`, `_SEQUENCE_NUMBER` and
        `_VALUE_KIND` are not included: every merge reads these, with any engine.
        """
        ...

    def lost_retracts(self, rows: pa.RecordBatch, groups: Groups) -> NDArray[np.bool_]:
        """(n,): the positions of -U and -D rows whose effect on older rows would be lost if these rows were merged.

        Older rows of the keys may exist, and are not among these. Such a row must be kept apart, until it is merged
        with all older ones. A row that is alone in its group is never lost: it is returned unchanged.

        rows, groups: as in `merge`.
        """
        ...

    def merge(self, rows: pa.RecordBatch, groups: Groups, shortcut: NDArray[np.bool_] | None = None) -> pa.RecordBatch:
        """Merge the rows of each key into at most one row.

        rows: the rows, with the columns of `columns_needed`, in any column order. `_LEVEL` may be missing if no row
            comes from a file.
        groups: the rows of each key, oldest first, with the keys in order. Rows outside of all groups are ignored.
        shortcut (m,): which groups are returned unchanged; each of these has one row. None means all groups of one row
            (as in Java's reducer).

        Returns rows in key order with the same columns. Retracts that win are included. Columns that are not the
        table's are those of any row of the key. `_VALUE_KIND` and `_SEQUENCE_NUMBER`, if present, are those of Java's
        result.

        Raises BadInput for rows that the engine does not accept.
        """
        ...


def shortcut_groups(groups: Groups, shortcut: NDArray[np.bool_] | None) -> NDArray[np.bool_]:
    """(m,): the argument `shortcut` of `MergeFunction.merge`, with None resolved."""
    return groups.lengths == 1 if shortcut is None else shortcut
