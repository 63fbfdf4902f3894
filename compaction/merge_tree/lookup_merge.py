"""Lookup compaction: rows that leave level 0 are merged with older rows of the levels above the output.

Readers of such tables (`TableOptions.needs_lookup`) see, of each key, only the rows of level 0 and of the lowest level
above. So what a compaction writes between takes the older rows into account, which stay where they are. Java looks each
key up in them; here the files above take part in the merge as runs of their own, and keys that only they have are left
out again.

The engine is shown every key, that of a single row too: a lone retract becomes a negative sum, where other compactions
leave it a retract.

Source: Java `mergetree/compact/LookupChangelogMergeFunctionWrapper.java`, `LookupMergeFunction.java`,
`FirstRowMergeFunctionWrapper.java`, `LookupMergeTreeCompactRewriter.java`, `ChangelogMergeTreeRewriter.java`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from compaction.merge_tree.levels import Levels
from storage.files.data_file import DataFileMeta
from storage.format import LEVEL_COLUMN
from storage.merge.key_groups import Groups
from storage.merge.merge_functions import MergeFunction
from storage.merge.sorted_run import Section, interval_partition, key_ranges
from storage.options import MergeEngine, TableOptions


def rewrite_needs_lookup(
    options: TableOptions, levels: Levels, files: Iterable[DataFileMeta], output_level: int
) -> bool:
    """Whether rewriting the files together takes rows out of level 0 to where their result is not what the engine makes
    of the files alone, leaving single rows as they are.
    """
    if not options.needs_lookup or output_level == 0 or all(file.level > 0 for file in files):
        return False
    match options.merge_engine:
        case MergeEngine.PARTIAL_UPDATE | MergeEngine.AGGREGATION:
            return True
        case MergeEngine.DEDUPLICATE if not options.sequence_fields:
            return False  # the newest wins, whatever lies above
        case _:
            return output_level < levels.highest_level


def sections_with_higher_levels(files: Sequence[DataFileMeta], levels: Levels, output_level: int) -> list[Section]:
    """Sections of the files to compact, with the files above the output level that overlap them."""
    above = [file for run in levels.runs if run.level > output_level for file in run.files]
    sections = interval_partition(key_ranges([*files, *above], levels.key_types))
    wanted = {file.file_name for file in files}
    return [section for section in sections if any(file.file_name in wanted for run in section for file in run)]


@dataclass(frozen=True, slots=True)
class LookupMerge:
    """Merges rows of the unit with rows above output_level; keys that only lie above are left out.

    No key skips the engine, whatever `shortcut` says, unless that leaves null where none may be.

    drops_existing_keys: keys that lie above are left out too (first-row: readers don't merge there).
    """

    engine: MergeFunction
    output_level: int
    drops_existing_keys: bool = False

    @property
    def merges_in_steps(self) -> bool:
        return self.engine.merges_in_steps

    def columns_needed(self, wanted: Iterable[str]) -> tuple[str, ...]:
        needed = self.engine.columns_needed(wanted)
        return needed if LEVEL_COLUMN in needed else (*needed, LEVEL_COLUMN)

    def merge(
        self,
        rows: pa.RecordBatch,
        groups: Groups,
        shortcut: NDArray[np.bool_] | None = None,
    ) -> pa.RecordBatch:
        if not len(groups):
            return self.engine.merge(rows, groups, shortcut)
        is_above = rows.column(LEVEL_COLUMN).to_numpy()[groups.rows] > self.output_level
        kept = ~groups.reduce(np.logical_and, is_above)
        if self.drops_existing_keys:
            kept &= ~groups.any(is_above)
        chosen = groups.keep(groups.spread(kept))
        merged = self.engine.merge(rows, chosen, np.zeros(len(chosen), np.bool_))
        has_invalid_null = _has_null_in_not_null_column(merged)
        if not has_invalid_null.any():
            return merged
        # no file could hold it, and Java's compaction fails: a single row stays as it is, as in other compactions
        return self.engine.merge(rows, chosen, has_invalid_null & (chosen.lengths == 1))


def _has_null_in_not_null_column(rows: pa.RecordBatch) -> NDArray[np.bool_]:
    found = np.zeros(rows.num_rows, np.bool_)
    for field, column in zip(rows.schema, rows.columns, strict=True):
        if not field.nullable and column.null_count:
            found |= column.is_null().to_numpy(zero_copy_only=False)
    return found
