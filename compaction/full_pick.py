"""What a forced full compaction takes.

Source: Java `mergetree/compact/CompactStrategy.pickFullCompaction`; vectors `pick_full_compaction.json`.
"""

from __future__ import annotations

from collections.abc import Callable

from compaction.compact_unit import CompactUnit, PickReason
from compaction.levels import Levels
from compaction.picker import everything
from storage.files.data_file import DataFileMeta


def pick_full(levels: Levels, *, must_rewrite: Callable[[DataFileMeta], bool]) -> CompactUnit | None:
    """All files, to the highest level. Where they lie there already, only those that must be written again, one by one.

    must_rewrite: whether a file of the highest level holds rows that should go (expired, marked as deleted), or all
    files are to be rewritten.
    """
    if not levels.runs:
        return None
    if levels.runs[0].level != levels.max_level:
        return everything(levels.runs, levels.max_level, PickReason.FULL)
    picked = tuple(file for file in levels.files if must_rewrite(file))
    return CompactUnit(levels.max_level, picked, PickReason.FULL, rewrites_each_file=True) if picked else None
