"""The merge engine first-row: the oldest row of a key wins.

Source: Java `mergetree/compact/FirstRowMergeFunction.java`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.errors import BadInput
from tidelake.storage.merge.equal_keys import Groups
from tidelake.storage.merge.merge_functions.merge_function import shortcut_groups
from tidelake.storage.model.types.row_kinds import is_retract, row_kinds

NO_RETRACTS: Final = (
    "merge-engine = first-row does not support deletes (-D, -U), as it keeps the first row. Set the option "
    "'ignore-delete' = 'true' (they are dropped), or use another merge engine"
)


@dataclass(frozen=True, slots=True)
class FirstRow:
    """The merge function of engine first-row.

    A single row is returned unchanged, even if it is a retract: Java's reducer does not pass it to the merge function.

    ignore_delete: whether retracts are ignored. A key with two or more retracts and no other row is removed then. If
        False, retracts are errors.
    """

    table_name: str
    ignore_delete: bool = False

    @property
    def merges_in_steps(self) -> bool:
        return True

    @property
    def keeps_retracts(self) -> bool:
        return True

    @property
    def newest_wins(self) -> bool:
        return False

    def columns_needed(self, wanted: Iterable[str]) -> tuple[str, ...]:
        return ()

    def lost_retracts(self, rows: pa.RecordBatch, groups: Groups) -> NDArray[np.bool_]:
        return np.zeros(len(groups.rows), np.bool_)

    def merge(self, rows: pa.RecordBatch, groups: Groups, shortcut: NDArray[np.bool_] | None = None) -> pa.RecordBatch:
        retract = is_retract(row_kinds(rows))[groups.rows]
        oldest = groups.starts
        if retract.any():
            alone = shortcut_groups(groups, shortcut)
            if not self.ignore_delete and (retract & ~groups.broadcast(alone)).any():
                raise BadInput(f"{self.table_name}: {NO_RETRACTS}")
            oldest = np.where(alone, oldest, groups.first(~retract))
            oldest = oldest[oldest >= 0]
        return rows.take(pa.array(groups.rows[oldest]))
