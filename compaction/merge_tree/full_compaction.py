"""Picks the files of a forced full compaction.

Source: Java `mergetree/compact/CompactStrategy.pickFullCompaction`; vectors `pick_full_compaction.json`.
"""

from __future__ import annotations

from collections.abc import Callable

from tidelake.compaction.merge_tree.compact_unit import CompactUnit, PickReason
from tidelake.compaction.merge_tree.levels import Levels
from tidelake.compaction.merge_tree.universal_compaction import pick_all_runs
from tidelake.storage.files.data_file import DataFileMeta


def pick_full_compaction(levels: Levels, *, must_rewrite: Callable[[DataFileMeta], bool]) -> CompactUnit | None:
    """Pick all files, to the highest level. If all are there already, only files that must be rewritten, one by one.

    must_rewrite: whether a file of the highest level has rows to drop (expired, marked as deleted), or all files are to
        be rewritten.
    """
    if not levels.runs:
        return None
    if levels.runs[0].level != levels.max_level:
        return pick_all_runs(levels.runs, levels.max_level, PickReason.FULL)
    picked = tuple(file for file in levels.files if must_rewrite(file))
    return CompactUnit(levels.max_level, picked, PickReason.FULL, rewrites_each_file=True) if picked else None
