"""The newest row of a key wins, a delete included.

Source: Java `mergetree/compact/DeduplicateMergeFunction.java`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from storage.merge.equal_keys import Groups
from storage.merge.merge_functions.base import shortcut_groups
from storage.merge.sort_order import RowIndices
from storage.types.row_kinds import is_retract, row_kinds


@dataclass(frozen=True, slots=True)
class Deduplicate:
    """ignore_delete: among two or more rows of a key, retracts don't count; a key that has only retracts vanishes.

    A single retract stays as it is, ignored or not: Java's reducer never shows it to the merge function.
    """

    ignore_delete: bool = False

    @property
    def merges_in_steps(self) -> bool:
        return True

    @property
    def newest_wins(self) -> bool:
        return not self.ignore_delete

    def columns_needed(self, wanted: Iterable[str]) -> tuple[str, ...]:
        return ()

    def merge(self, rows: pa.RecordBatch, groups: Groups, shortcut: NDArray[np.bool_] | None = None) -> pa.RecordBatch:
        winners = self.winners(rows, groups, shortcut)
        if rows.num_rows == len(winners) and bool((winners[1:] > winners[:-1]).all()):
            return rows  # all of them, as they are
        return rows.take(pa.array(winners))

    def winners(self, rows: pa.RecordBatch, groups: Groups, shortcut: NDArray[np.bool_] | None = None) -> RowIndices:
        """Indices of the surviving rows, in key order. Parameters as of `merge`."""
        retract = is_retract(row_kinds(rows))[groups.rows] if self.ignore_delete else None
        if retract is None or not retract.any():
            return groups.rows[groups.ends - 1]
        newest_add = groups.last(~retract)
        winners = np.where(shortcut_groups(groups, shortcut), groups.starts, newest_add)
        return groups.rows[winners[winners >= 0]]
