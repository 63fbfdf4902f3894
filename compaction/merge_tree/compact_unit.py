"""The files of one compaction, its output level, and the reason of the pick.

Source: Java `compact/CompactUnit.java`, `mergetree/compact/MergeTreeCompactManager.triggerCompaction`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tidelake.storage.files.data_file import DataFileMeta


class PickReason(StrEnum):
    """The reason of a pick, shown to users in log lines, by `table compact` and by `table show`."""

    FULL = "full compaction"
    OPTIMIZATION_INTERVAL = "optimization interval"
    TOTAL_SIZE = "total size"
    INCREMENTAL_SIZE = "incremental size"
    SIZE_AMPLIFICATION = "size amplification"
    SIZE_RATIO = "size ratio"
    RUN_COUNT = "number of sorted runs"
    RETRACTS = "retracts need the rows that they retract"
    FORCED_LEVEL_0 = "level 0 must go up"
    SMALL_FILES = "small files"  # of append tables
    DELETED_ROWS = "deleted rows"  # of append tables: files with deletion vectors


@dataclass(frozen=True, slots=True)
class CompactUnit:
    """Files to compact together.

    files: newest run first
    rewrites_each_file: rewrite files of the highest level one by one, without merging
    """

    output_level: int
    files: tuple[DataFileMeta, ...]
    reason: PickReason
    rewrites_each_file: bool = False

    @property
    def changes_nothing(self) -> bool:
        """Whether the unit is empty, or has one file that is on the output level already.

        It needs no task unless it is forced.
        """
        return not self.files or (len(self.files) == 1 and self.files[0].level == self.output_level)
