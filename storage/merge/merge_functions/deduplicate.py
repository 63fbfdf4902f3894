"""The merge engine deduplicate: the newest row of a key wins, also if it is a delete.

Source: Java `mergetree/compact/DeduplicateMergeFunction.java`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.storage.merge.equal_keys import Groups
from tidelake.storage.merge.merge_functions.merge_function import shortcut_groups
from tidelake.storage.merge.normalized_keys import RowIndices
from tidelake.storage.model.types.row_kinds import is_retract, row_kinds


@dataclass(frozen=True, slots=True)
class Deduplicate:
    """The merge function of engine deduplicate.

    A single retract is returned unchanged, even with ignore_delete: Java's reducer does not pass it to the merge
    function.

    ignore_delete: whether retracts are ignored if a key has two or more rows. A key with only retracts is removed then.
    """

    ignore_delete: bool = False

    @property
    def merges_in_steps(self) -> bool:
        return True

    @property
    def keeps_retracts(self) -> bool:
        return True

    @property
    def newest_wins(self) -> bool:
        return not self.ignore_delete

    def columns_needed(self, wanted: Iterable[str]) -> tuple[str, ...]:
        return ()

    def lost_retracts(self, rows: pa.RecordBatch, groups: Groups) -> NDArray[np.bool_]:
        return np.zeros(len(groups.rows), np.bool_)

    def merge(self, rows: pa.RecordBatch, groups: Groups, shortcut: NDArray[np.bool_] | None = None) -> pa.RecordBatch:
        winners = self.winners(rows, groups, shortcut)
        if rows.num_rows == len(winners) and bool((winners[1:] > winners[:-1]).all()):
            return rows  # all rows win, and are in order
        return rows.take(pa.array(winners))

    def winners(self, rows: pa.RecordBatch, groups: Groups, shortcut: NDArray[np.bool_] | None = None) -> RowIndices:
        """Return the indices of the winning rows, in key order. The parameters are those of `merge`."""
        retract = is_retract(row_kinds(rows))[groups.rows] if self.ignore_delete else None
        if retract is None or not retract.any():
            return groups.rows[groups.ends - 1]
        newest_add = groups.last(~retract)
        winners = np.where(shortcut_groups(groups, shortcut), groups.starts, newest_add)
        return groups.rows[winners[winners >= 0]]
