"""Merges in a compaction that produces a changelog: the rows to write, and the changes.

Source: Java `mergetree/compact/FullChangelogMergeFunctionWrapper.java`, `LookupChangelogMergeFunctionWrapper.java`,
`FirstRowMergeFunctionWrapper.java`; vectors `full_changelog_wrapper.json`, `lookup_changelog_wrapper.json`,
`first_row_wrapper.json`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from tidelake.storage.merge.changelog_rows import KeyedRows, changes_among, row_changes
from tidelake.storage.merge.equal_keys import Groups
from tidelake.storage.merge.merge_functions import MergeFunction
from tidelake.storage.merge.normalized_keys import RowIndices
from tidelake.storage.model.format import LEVEL_COLUMN
from tidelake.storage.model.options import TableOptions
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.types.row_kinds import is_retract, row_kinds

_KEY_NUMBER: Final = "_KEY_NUMBER"  # the group of a merged row; internal to the merge


@dataclass(frozen=True, slots=True)
class Merged:
    """The result of merging rows of equal keys.

    rows: the merged row of each key, retracts included
    changes: rows for the changelog of these keys; None without changes
    """

    rows: pa.RecordBatch
    changes: pa.RecordBatch | None = None


class CompactionMerge(Protocol):
    """Merges rows of equal keys in a compaction. The rows have all columns, and `_LEVEL` if it is needed."""

    @property
    def needs_levels(self) -> bool: ...
    @property
    def newest_wins(self) -> bool:
        """Whether only the newest row of a key matters."""
        ...

    def __call__(self, rows: pa.RecordBatch, groups: Groups) -> Merged: ...

    def of_single_run(self, rows: pa.RecordBatch) -> Merged:
        """Merge rows whose keys have no other row."""
        ...


@dataclass(frozen=True, slots=True)
class PlainMerge:
    """Merges for tables without a changelog from tidelake.compaction. The rows of a single run are kept as they are."""

    engine: MergeFunction

    @property
    def needs_levels(self) -> bool:
        return LEVEL_COLUMN in self.engine.columns_needed(())

    @property
    def newest_wins(self) -> bool:
        return self.engine.newest_wins

    def __call__(self, rows: pa.RecordBatch, groups: Groups) -> Merged:
        return Merged(self.engine.merge(rows, groups))

    def of_single_run(self, rows: pa.RecordBatch) -> Merged:
        return Merged(rows)


class OlderRowsNeeded(Exception):
    """A retract would be lost, as the rows that it retracts are not among the merged ones."""


@dataclass(frozen=True, slots=True)
class PartialMerge(PlainMerge):
    """Merges rows whose keys may have older rows elsewhere.

    Raises OlderRowsNeeded if a retract would be lost (`MergeFunction.lost_retracts`).
    """

    def __call__(self, rows: pa.RecordBatch, groups: Groups) -> Merged:
        if not self.engine.keeps_retracts and self.engine.lost_retracts(rows, groups).any():
            raise OlderRowsNeeded
        return Merged(self.engine.merge(rows, groups))


def compared_columns(schema: TableSchema, options: TableOptions) -> Sequence[str] | None:
    """Return the columns to compare: an update that changes none of them is no change.

    None: every update is a change.
    """
    if not options.changelog_row_deduplicate:
        return None
    ignored = options.changelog_row_deduplicate_ignore_fields
    return [name for name in schema.names if name not in ignored and name not in schema.primary_keys]


@dataclass(frozen=True, slots=True)
class FullCompactionMerge:
    """Merges into the highest level. The previous row of a key is its row on that level.

    compared: see `compared_columns`.
    """

    engine: MergeFunction
    max_level: int
    compared: Sequence[str] | None = None
    needs_levels: bool = True
    newest_wins: bool = False

    def of_single_run(self, rows: pa.RecordBatch) -> Merged:
        return self(rows, Groups.singles(rows.num_rows))

    def __call__(self, rows: pa.RecordBatch, groups: Groups) -> Merged:
        is_old = rows.column(LEVEL_COLUMN).to_numpy()[groups.rows] == self.max_level
        if is_old.all():
            return Merged(rows if len(groups) == rows.num_rows else self.engine.merge(rows, groups))
        old = groups.last(is_old)
        is_touched = (old < 0) | (groups.lengths > 1)
        if self.engine.newest_wins:
            touched = np.flatnonzero(is_touched)
            before = np.where(old[touched] >= 0, groups.rows[old[touched]], -1)
            after = newest_rows(groups)[touched]
            changes = changes_among(rows, adds(rows, before), adds(rows, after), self.compared)
            return Merged(self.engine.merge(rows, groups), changes)
        merged = merged_by_key(self.engine, rows, groups)
        touched_old = np.flatnonzero((old >= 0) & is_touched)
        before_rows = KeyedRows(rows.take(pa.array(groups.rows[old[touched_old]])), touched_old)
        after_rows = merged.of(is_touched).adds()
        return Merged(merged.rows, row_changes(before_rows.adds(), after_rows, len(groups), self.compared))


def newest_rows(groups: Groups) -> RowIndices:
    """Return the newest row of each group, (g,), for engines in which it wins (`MergeFunction.newest_wins`)."""
    return groups.rows[groups.ends - 1]


def adds(rows: pa.RecordBatch, places: RowIndices) -> RowIndices:
    """Return places, with -1 for retracts.

    places (m,): positions in rows; -1 if there is no row.
    """
    retract = is_retract(row_kinds(rows))
    return np.where(retract[places], -1, places) if retract.any() else places


def merged_by_key(
    engine: MergeFunction, rows: pa.RecordBatch, groups: Groups, shortcut: np.ndarray | None = None
) -> KeyedRows:
    """Return the merged row of each group. A group may have none."""
    numbers = np.zeros(rows.num_rows, np.int64)
    numbers[groups.rows] = groups.numbers
    merged = engine.merge(rows.append_column(_KEY_NUMBER, pa.array(numbers)), groups, shortcut)
    keys: RowIndices = merged.column(_KEY_NUMBER).to_numpy()
    return KeyedRows(merged.select(rows.schema.names), keys)
