"""Merging after lookup compaction: a row above level 0 already contains everything below it.

Such a compaction (changelog-producer `lookup`, `force-lookup`) merges level-0 rows with the row of the lowest level
above 0, and writes the result to a level in between. The older row stays in its level. A merge of the result with the
older row would count that row twice.

Source: Java `mergetree/compact/LookupMergeFunction.java`; vectors `lookup_merge_function.json`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.storage.merge.equal_keys import Groups
from tidelake.storage.merge.merge_functions.merge_function import MergeFunction, shortcut_groups
from tidelake.storage.model.format import LEVEL_COLUMN


@dataclass(frozen=True, slots=True)
class LookupMergeFunction:
    """A merge function that merges the rows of level 0, and of memory, with the row of the lowest level above."""

    engine: MergeFunction

    @property
    def merges_in_steps(self) -> bool:
        return self.engine.merges_in_steps

    @property
    def keeps_retracts(self) -> bool:
        return self.engine.keeps_retracts

    @property
    def newest_wins(self) -> bool:
        return False  # above level 0 the row of the lowest level counts

    def columns_needed(self, wanted: Iterable[str]) -> tuple[str, ...]:
        return (*self.engine.columns_needed(wanted), LEVEL_COLUMN)

    def lost_retracts(self, rows: pa.RecordBatch, groups: Groups) -> NDArray[np.bool_]:
        return self.engine.lost_retracts(rows, groups)

    def merge(self, rows: pa.RecordBatch, groups: Groups, shortcut: NDArray[np.bool_] | None = None) -> pa.RecordBatch:
        if LEVEL_COLUMN not in rows.schema.names or not len(groups):
            return self.engine.merge(rows, groups, shortcut)
        levels = rows.column(LEVEL_COLUMN).to_numpy()[groups.rows]
        above_0 = levels > 0
        lowest = groups.reduce(np.minimum, np.where(above_0, levels, np.iinfo(levels.dtype).max))
        kept = ~above_0 | (levels == groups.broadcast(lowest))
        # The engine still merges a row that is the only one left, unlike a row that was the only one before.
        return self.engine.merge(rows, groups.keep(kept), shortcut_groups(groups, shortcut))
