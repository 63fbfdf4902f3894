"""Merges in a compaction that moves rows out of level 0, with older rows above its output level.

Readers of such tables (`TableOptions.needs_lookup`) see, of each key, only the rows of level 0 and of the lowest level
above. So the rows that a compaction writes in between must include the older rows, which stay where they are. A key
without a row above level 0 in the compaction is looked up in the levels above the output, and the found row is merged
with its rows. For the changelog, that row is also the key's previous state.

The engine merges every key that has a row of level 0, even a single row: a lone retract becomes a negative sum, whereas
other compactions keep the retract. A single row above level 0 stays unchanged, whereas Java passes it to the engine: a
row would change without a write, and no changelog would record it. The same holds for all rows of a file that is only
upgraded: the changelog contains what readers see.

Source: Java `mergetree/compact/LookupChangelogMergeFunctionWrapper.java`, `LookupMergeFunction.java`,
`FirstRowMergeFunctionWrapper.java`, `LookupMergeTreeCompactRewriter.java`; vectors `lookup_changelog_wrapper.json`,
`lookup_merge_function.json`, `first_row_wrapper.json`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.compaction.merge_tree.changelog_merge import Merged, adds, merged_by_key, newest_rows
from tidelake.storage.merge.changelog_rows import KeyedRows, changes_among, row_changes
from tidelake.storage.merge.equal_keys import Groups
from tidelake.storage.merge.merge_functions import MergeFunction
from tidelake.storage.merge.merge_reader import MergeOrder
from tidelake.storage.merge.normalized_keys import RowIndices
from tidelake.storage.model.format import LEVEL_COLUMN
from tidelake.storage.write.lookup.previous_rows import not_older_than_newest, with_previous

Find = Callable[[pa.RecordBatch], KeyedRows]
"""Finds the rows above the output level, with `_LEVEL`, by the position of their keys in the batch, in key order."""


@dataclass(frozen=True, slots=True)
class LookupMerge:
    """Merges rows that leave level 0 with older rows of higher levels.

    engine: merges the rows of all levels that it gets
    produces_changelog: whether the changes by rows of level 0 are returned
    compared: see `compared_columns`
    writes_rows: if false, the rows are only read for their changes, and are not rewritten
    """

    engine: MergeFunction
    order: MergeOrder
    find: Find
    produces_changelog: bool
    compared: Sequence[str] | None = None
    writes_rows: bool = True
    needs_levels: bool = True
    newest_wins: bool = False

    def of_single_run(self, rows: pa.RecordBatch) -> Merged:
        return self(rows, Groups.singles(rows.num_rows))

    def __call__(self, rows: pa.RecordBatch, groups: Groups) -> Merged:
        levels = _levels(rows)[groups.rows]
        from_level_0 = groups.any(levels == 0)
        lowest = _lowest_above_0(groups, levels)
        previous = look_up_previous(self.find, rows, groups, levels, self.order)
        counted = _counted(groups, levels, lowest)
        if self.engine.newest_wins:
            old = np.where(from_level_0 & (lowest >= 0), groups.rows[lowest], -1)
            return self._merge_newest_wins(rows, counted, previous, old, from_level_0)
        is_alone = groups.lengths == 1
        is_alone[previous.keys] = False
        merged = self._merged(rows, counted, previous, is_alone, from_level_0)
        if not self.produces_changelog:
            return Merged(merged.rows)
        keys = np.flatnonzero(from_level_0 & (lowest >= 0))
        before = KeyedRows(rows.take(pa.array(groups.rows[lowest[keys]])), keys).joined(previous)
        after = merged.of(from_level_0)
        return Merged(merged.rows, row_changes(before.adds(), after.adds(), len(groups), self.compared))

    def _merge_newest_wins(
        self,
        rows: pa.RecordBatch,
        groups: Groups,
        previous: KeyedRows,
        old: RowIndices,
        from_level_0: NDArray[np.bool_],
    ) -> Merged:
        """Merge if the newest row wins: the new and the previous row of each key are known before rows are copied.

        groups: of the rows that count
        old (g,): the previous row of each key among these rows, -1 if none
        from_level_0 (g,): keys with a row of level 0; all keys that were looked up have one
        """
        newest = newest_rows(groups)
        if len(previous.keys):
            added = rows.num_rows + np.arange(len(previous.keys))
            old[previous.keys] = added
            stay = not_older_than_newest(rows, groups, previous, self.order)
            newest[previous.keys[stay]] = added[stay]
            rows = pa.concat_batches([rows, previous.rows.select(rows.schema.names).cast(rows.schema)])
        merged = rows.take(pa.array(newest)) if self.writes_rows else rows.slice(0, 0)
        if not self.produces_changelog:
            return Merged(merged)
        new = np.where(from_level_0, newest, -1)
        return Merged(merged, changes_among(rows, adds(rows, old), adds(rows, new), self.compared))

    def _merged(
        self,
        rows: pa.RecordBatch,
        groups: Groups,
        previous: KeyedRows,
        is_alone: NDArray[np.bool_],
        from_level_0: NDArray[np.bool_],
    ) -> KeyedRows:
        """Merge with the engine.

        is_alone (g,): keys with one row on all levels
        from_level_0 (g,): keys with a row of level 0
        """
        rows, groups = with_previous(rows, groups, previous, self.order)
        stays = is_alone & ~(from_level_0 & self.writes_rows)
        merged = merged_by_key(self.engine, rows, groups, stays)
        has_invalid_null = _has_null_in_not_null_column(merged.rows)
        if not has_invalid_null.any():
            return merged
        # no file could hold it, and Java's compaction fails; a single row stays unchanged, as in other compactions
        invalid = np.zeros(len(groups), np.bool_)
        invalid[merged.keys[has_invalid_null]] = True
        return merged_by_key(self.engine, rows, groups, stays | (invalid & (groups.lengths == 1)))


@dataclass(frozen=True, slots=True)
class FirstRowLookup:
    """Merges with merge-engine = first-row. Its readers don't merge, so a key that exists above is left out.

    produces_changelog: whether new keys are returned as changes.
    """

    engine: MergeFunction
    order: MergeOrder
    find: Find
    produces_changelog: bool
    needs_levels: bool = True
    newest_wins: bool = False

    def of_single_run(self, rows: pa.RecordBatch) -> Merged:
        return self(rows, Groups.singles(rows.num_rows))

    def __call__(self, rows: pa.RecordBatch, groups: Groups) -> Merged:
        levels = _levels(rows)[groups.rows]
        known = look_up_previous(self.find, rows, groups, levels, self.order).keys
        is_known = np.zeros(len(groups), np.bool_)
        is_known[known] = True
        merged = merged_by_key(self.engine, rows, groups, np.zeros(len(groups), np.bool_)).of(~is_known)
        if not self.produces_changelog:
            return Merged(merged.rows)
        return Merged(merged.rows, merged.of(~groups.any(levels > 0)).rows)


def look_up_previous(
    find: Find, rows: pa.RecordBatch, groups: Groups, levels: NDArray[np.int32], order: MergeOrder
) -> KeyedRows:
    """Return the previous rows, by number of the group, of keys without a row above level 0 in these rows.

    levels (n,): of `groups.rows`
    """
    asked = np.flatnonzero(~groups.any(levels > 0))
    keys = rows.select(order.key_columns).take(pa.array(groups.rows[groups.starts[asked]]))
    found = find(keys)
    return KeyedRows(found.rows, asked[found.keys])


def _levels(rows: pa.RecordBatch) -> NDArray[np.int32]:
    levels: NDArray[np.int32] = rows.column(LEVEL_COLUMN).to_numpy()
    return levels


def _lowest_above_0(groups: Groups, levels: NDArray[np.int32]) -> NDArray[np.intp]:
    """Return the position of the first row of the lowest level above 0, (g,); -1 if there is no such row."""
    is_above = levels > 0
    found = groups.last(is_above)
    if np.count_nonzero(found >= 0) == np.count_nonzero(is_above):  # no key has two such rows
        return found
    above = np.where(is_above, levels, np.iinfo(levels.dtype).max)
    return groups.first(is_above & (above == groups.broadcast(groups.reduce(np.minimum, above))))


def _counted(groups: Groups, levels: NDArray[np.int32], lowest: NDArray[np.intp]) -> Groups:
    """Return of each key the rows of level 0 and the row of the lowest level above."""
    counts = levels <= 0
    counts[lowest[lowest >= 0]] = True
    return groups if counts.all() else groups.keep(counts)


def _has_null_in_not_null_column(rows: pa.RecordBatch) -> NDArray[np.bool_]:
    found = np.zeros(rows.num_rows, np.bool_)
    for field, column in zip(rows.schema, rows.columns, strict=True):
        if not field.nullable and column.null_count:
            found |= column.is_null().to_numpy(zero_copy_only=False)
    return found
