"""Compaction out of level 0 where a row that goes up must know of older rows above the output.

Readers of such tables (`TableOptions.needs_lookup`) see, of each key, only the rows of level 0 and of the lowest level
above. So what a compaction writes between takes the older rows into account, which stay where they are. Java looks each
key up in them; here the files above take part in the merge as runs of their own, and keys that only they have are left
out again.

Source: Java `mergetree/compact/LookupChangelogMergeFunctionWrapper.java`, `FirstRowMergeFunctionWrapper.java`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from compaction.compact_unit import CompactUnit
from compaction.levels import Levels
from storage.files.data_file import DataFileMeta
from storage.format import LEVEL_COLUMN
from storage.merge.aggregators.base import Groups
from storage.merge.kernels import RowIndices
from storage.merge.merge_functions import MergeFunction
from storage.merge.merge_functions.base import shortcut_groups
from storage.merge.sorted_run import Section, interval_partition, key_ranges
from storage.options import MergeEngine, TableOptions


def must_look_up(options: TableOptions, levels: Levels, unit: CompactUnit) -> bool:
    """Whether rows of the unit leave level 0 and pass below others that their result depends on."""
    newest_wins = options.merge_engine is MergeEngine.DEDUPLICATE and not options.sequence_fields
    leaves_level_0 = any(file.level == 0 for file in unit.files)
    is_below = unit.output_level < levels.highest_level
    return options.needs_lookup and leaves_level_0 and is_below and not newest_wins


def with_files_above(files: Sequence[DataFileMeta], levels: Levels, output_level: int) -> list[Section]:
    """Sections of the files to compact, with the files above the output level that overlap them."""
    above = [file for run in levels.runs if run.level > output_level for file in run.files]
    sections = interval_partition(key_ranges([*files, *above], levels.key_types))
    wanted = {file.file_name for file in files}
    return [section for section in sections if any(file.file_name in wanted for run in section for file in run)]


@dataclass(frozen=True, slots=True)
class LookedUp:
    """Merges rows of the unit with those above output_level; keys that no row of the unit has are left out.

    hides_known: keys that lie above already are left out too (merge-engine = first-row: readers don't merge there).
    """

    engine: MergeFunction
    output_level: int
    hides_known: bool = False

    @property
    def merges_in_steps(self) -> bool:
        return self.engine.merges_in_steps

    def columns_needed(self, wanted: Iterable[str]) -> tuple[str, ...]:
        needed = self.engine.columns_needed(wanted)
        return needed if LEVEL_COLUMN in needed else (*needed, LEVEL_COLUMN)

    def merge(
        self,
        rows: pa.RecordBatch,
        kinds: NDArray[np.int8],
        order: RowIndices,
        is_last: NDArray[np.bool_],
        shortcut: NDArray[np.bool_] | None = None,
    ) -> pa.RecordBatch:
        if not len(order):
            return self.engine.merge(rows, kinds, order, is_last, shortcut)
        groups = Groups.of(order, is_last)
        is_above = rows.column(LEVEL_COLUMN).to_numpy()[order] > self.output_level
        kept = ~np.logical_and.reduceat(is_above, groups.starts)
        if self.hides_known:
            kept &= ~np.logical_or.reduceat(is_above, groups.starts)
        rows_kept = groups.spread(kept)
        return self.engine.merge(
            rows, kinds, order[rows_kept], is_last[rows_kept], shortcut_groups(groups, shortcut)[kept]
        )
