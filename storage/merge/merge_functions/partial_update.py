"""The merge engine partial-update: columns that are null in a row keep their older values.

The columns of a sequence group follow the group's sequence fields instead of the order of rows, and may be aggregated.
Rows whose sequence fields are all null don't count. Sequences are compared field by field; nulls are smallest. Of equal
sequences the later row is the newer one.

The merge works by columns. The effects of a row on its key (`_Effects`) are the same for all columns. With these, each
column finds the row that has its value. The effects at each position in merge order, as in Java:

    adds       a +I or +U: overwrites columns with values that are not null (a sequence group: if not older, with nulls,
               too)
    retracts   a -D or -U: retracts the columns of sequence groups
    fills      sets every column, also to null. This is a retract that is the first row (Java fills the row with it), a
               delete that removes the record (so a later row is merged with the deleted values), or a row that is
               returned unchanged

With option `partial-update.remove-record-on-sequence-group`, a delete removes the record if its sequence in one of the
option's groups is not older than the record's. The record then starts again with the sequences of the delete, in all
groups. So the rows of a key must be checked one after the other: one row of every key at a time.

All arrays are in merge order: n positions, in groups of equal keys.

Source: Java `mergetree/compact/PartialUpdateMergeFunction.java`, `utils/UserDefinedSeqComparator.java`; vectors
`merge_functions.json`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.errors import BadInput
from tidelake.storage.merge.aggregate_functions import aggregator_of, keeps_retracts
from tidelake.storage.merge.aggregators.aggregator import Aggregator, Step, valid_rows
from tidelake.storage.merge.aggregators.first_last import take_positions
from tidelake.storage.merge.equal_keys import Groups
from tidelake.storage.merge.merge_functions.merge_function import shortcut_groups
from tidelake.storage.merge.normalized_keys import RowIndices, Word, normalize_column
from tidelake.storage.merge.partial_update_options import PartialUpdateOptions
from tidelake.storage.merge.sequence_groups import SequenceGroup
from tidelake.storage.model.format import KIND_COLUMN, SEQUENCE_COLUMN, RowKind
from tidelake.storage.model.options import TableOptions
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.types.row_kinds import is_retract, row_kinds


@dataclass(frozen=True, slots=True)
class Sequences:
    """The sequences of one sequence group.

    words: the words by which the sequences are compared.
    is_empty (n,): which rows have only nulls in the sequence fields.
    """

    words: tuple[Word, ...]
    is_empty: NDArray[np.bool_]

    @classmethod
    def of(cls, columns: Sequence[pa.Array], order: RowIndices) -> Sequences:
        words = tuple(word[order] for column in columns for word in normalize_column(column, nullable=True))
        is_empty = np.ones(len(order), np.bool_)
        for column in columns:
            is_empty &= column.is_null().to_numpy(zero_copy_only=False)[order]
        return cls(words, is_empty)

    def newest(self, candidates: NDArray[np.bool_], groups: Groups) -> RowIndices:
        """(m,): the position of the newest candidate of each group; -1 if it has none."""
        best = candidates
        for word in self.words:
            greatest = groups.reduce(np.maximum, np.where(best, word, np.iinfo(word.dtype).min))
            best = best & (word == groups.broadcast(greatest))
        return groups.last(best)

    def ranks(self) -> NDArray[np.int64]:
        """(n,): numbers from 0 with the order of the sequences. Equal sequences have equal ranks."""
        order = np.lexsort(tuple(reversed(self.words)))
        differs = np.zeros(len(order), np.bool_)
        for word in self.words:
            ordered = word[order]
            differs[1:] |= ordered[1:] != ordered[:-1]
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.cumsum(differs)
        return ranks


def not_older(
    ranks: NDArray[np.int64], counted: NDArray[np.bool_], segment_starts: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """(n,): which positions have a sequence at least as new as all counted ones before them in their segment.

    ranks (n,): see `Sequences.ranks`.
    counted (n,): which positions count.
    segment_starts (n,): which positions start a segment; position 0 must be one.
    """
    span = int(ranks.max(initial=0)) + 2
    levels = (np.cumsum(segment_starts) - 1) * span + np.where(counted, ranks + 1, 0)
    accepted: NDArray[np.bool_] = levels == np.maximum.accumulate(levels)
    return accepted


def record_deletes(sequences: Sequence[Sequences], deletes: NDArray[np.bool_], groups: Groups) -> NDArray[np.bool_]:
    """(n,): which positions remove the record of their key.

    sequences: the sequences of the groups whose deletes can remove the record.
    deletes (n,): the positions of -D rows, without rows that are returned unchanged.
    """
    removing = np.zeros(len(deletes), np.bool_)
    affected = np.flatnonzero(groups.any(deletes))
    by_length = affected[np.argsort(-groups.lengths[affected], kind="stable")]
    starts, lengths = groups.starts[by_length], groups.lengths[by_length]
    ranks = [s.ranks() for s in sequences]
    newest = [np.full(len(by_length), -1, np.int64) for _ in sequences]
    for step in range(int(lengths.max(initial=0))):
        active_count = int(np.searchsorted(-lengths, -step, side="left"))  # lengths > step come first
        at = starts[:active_count] + step
        accepted = [
            ~s.is_empty[at] & (r[at] >= n[:active_count]) for s, r, n in zip(sequences, ranks, newest, strict=True)
        ]
        removed = deletes[at] & np.logical_or.reduce(accepted)
        for rank, best, is_newer in zip(ranks, newest, accepted, strict=True):
            best[:active_count] = np.where(is_newer | removed, rank[at], best[:active_count])
        removing[at] = removed
    return removing


NO_RETRACTS: Final = (
    "merge-engine = partial-update does not support deletes (-D, -U) with the options of this table. Set one of the "
    "options 'ignore-delete' = 'true' (they are dropped), 'partial-update.remove-record-on-delete' = 'true' (-D "
    "removes the record), or give columns a 'fields.<column>.sequence-group' (deletes retract its columns; with "
    "'partial-update.remove-record-on-sequence-group' they remove the record)"
)


@dataclass(frozen=True)
class PartialUpdate:
    """The merge function of engine partial-update.

    columns: the table's columns without the primary key. Other columns, such as `_KEY_x`, are those of the newest row.
    options: the options of the engine.
    aggregators: column -> its aggregate function, from `options.aggregations`.
    required: the NOT NULL columns.
    """

    table_name: str
    columns: frozenset[str]
    options: PartialUpdateOptions
    aggregators: Mapping[str, Aggregator]
    required: frozenset[str]

    @classmethod
    def of(cls, table_name: str, schema: TableSchema, options: TableOptions) -> PartialUpdate:
        """Raise BadInput like `PartialUpdateOptions.of`."""
        checked = PartialUpdateOptions.of(schema, options)
        columns = frozenset(schema.names).difference(schema.primary_keys)
        aggregators = {a.field.name: aggregator_of(a) for a in checked.aggregations}
        required = frozenset(field.name for field in schema.fields if not field.type.nullable)
        return cls(table_name, columns, checked, aggregators, required)

    @property
    def merges_in_steps(self) -> bool:
        """False: a merged row does not contain the order of its values."""
        return False

    @property
    def keeps_retracts(self) -> bool:
        return self.options.ignore_delete

    @property
    def newest_wins(self) -> bool:
        return False

    def columns_needed(self, wanted: Iterable[str]) -> tuple[str, ...]:
        """See `MergeFunction`. Returns the sequence fields of groups with a wanted column, or that can remove records.

        Java does not read the latter, and returns a deleted record if none of its group's columns is read.
        """
        asked = set(wanted)
        groups = [g for g in self.options.groups if g.columns & asked or self.removes(g)]
        return tuple(name for group in groups for name in group.ordered_by if name not in asked)

    def removes(self, group: SequenceGroup) -> bool:
        """Return whether a delete that is not older than this group removes the record."""
        return not self.options.removing.isdisjoint(group.ordered_by)

    def lost_retracts(self, rows: pa.RecordBatch, groups: Groups) -> NDArray[np.bool_]:
        """See `MergeFunction`. Columns of sequence groups lose nothing: the greatest sequence decides in any order.

        A retract that comes first fills the row. Its values would overwrite older ones, and start aggregations.
        Retracts without an add become one -D, which is retracted again, and may remove the record.
        """
        kinds = row_kinds(rows)[groups.rows]
        retracts, lost = is_retract(kinds), np.zeros(len(kinds), np.bool_)
        if self.options.ignore_delete or not retracts.any():
            return lost
        adds, deletes = ~retracts, kinds == RowKind.DELETE
        first = np.zeros(len(kinds), np.bool_)
        first[groups.starts] = True
        follows_retract = np.append(False, retracts[:-1]) & ~first
        if self.options.remove_on_delete:
            is_last = np.zeros(len(kinds), np.bool_)
            is_last[groups.ends - 1] = True
            lost |= deletes & ~is_last  # one that comes last removes the record, whatever is older
            retracts = retracts & ~deletes
            lost |= retracts & follows_retract
        elif self.options.removing:
            lost |= deletes | (retracts & follows_retract)
        fills = np.zeros(len(kinds), np.bool_)  # retracts that are lost if they come first
        for name in self.columns:
            if name in self.aggregators or name not in self.group_of:
                present = valid_rows(rows.column(name), groups)
                if name in self._unkept:
                    lost |= retracts & present
                elif name in self.aggregators:
                    fills |= retracts & present
                    lost |= retracts & present & follows_retract
                else:
                    fills |= retracts & present & ~groups.precedes_last(adds & present)
        several = groups.broadcast(groups.lengths > 1)
        lost &= several
        fills &= several
        while True:
            first[1:] |= lost[:-1]  # a row after one that is kept apart comes first, too
            found = fills & first & ~lost
            if not found.any():
                return lost
            lost |= found

    def merge(self, rows: pa.RecordBatch, groups: Groups, shortcut: NDArray[np.bool_] | None = None) -> pa.RecordBatch:
        if not len(groups):
            return rows.slice(0, 0)
        merge = _Merge(self, rows, row_kinds(rows)[groups.rows], groups, shortcut_groups(groups, shortcut))
        return pa.RecordBatch.from_arrays([merge.column(name) for name in rows.schema.names], schema=rows.schema)

    @cached_property
    def _unkept(self) -> frozenset[str]:
        """The columns whose function loses a retract wherever it stands."""
        return frozenset(a.field.name for a in self.options.aggregations if not keeps_retracts(a))

    @cached_property
    def group_of(self) -> Mapping[str, SequenceGroup]:
        return {name: group for group in self.options.groups for name in group.columns}


class _Merge:
    """One call of `merge`. All arrays are in merge order, with n positions."""

    def __init__(
        self,
        engine: PartialUpdate,
        rows: pa.RecordBatch,
        kinds: NDArray[np.int8],
        groups: Groups,
        alone: NDArray[np.bool_],
    ) -> None:
        self._engine = engine
        self._rows = rows
        self._kinds = kinds
        self._groups = groups
        self._is_single = alone
        self._sequences: dict[SequenceGroup, Sequences] = {}
        self._newest: dict[SequenceGroup, RowIndices] = {}
        self._effects = self._effects_of_rows()

    def column(self, name: str) -> pa.Array:
        """Return the merged column, with one value for each group."""
        if name == KIND_COLUMN:
            return pa.array(self._result_kinds())
        if name == SEQUENCE_COLUMN:
            numbers = self._taken(name, self._groups.last(self._effects.counted))
            return numbers.fill_null(0) if numbers.null_count else numbers
        if name not in self._engine.columns:
            return self._taken(name, self._groups.ends - 1)
        if name not in self._engine.group_of:
            return self._column_without_group(name)
        if name in self._engine.aggregators:
            return self._aggregated(name)
        return self._grouped(name)

    def _taken(self, name: str, positions: RowIndices) -> pa.Array:
        return take_positions(self._rows.column(name), self._groups, positions)

    def _column_without_group(self, name: str) -> pa.Array:
        column, effects = self._rows.column(name), self._effects
        if effects.no_retracts and not column.null_count:
            return self._taken(name, self._groups.ends - 1)
        present = valid_rows(column, self._groups)
        return self._taken(name, self._groups.last(effects.fills | (effects.adds & present)))

    def _grouped(self, name: str) -> pa.Array:
        group = self._engine.group_of[name]
        newest = self._newest_of(group)
        if name in group.protected and self._effects.retracts.any():
            taken_back = self._effects.retracts[newest] & ~self._sequences_of(group).is_empty[newest]
            newest = np.where(taken_back, -1, newest)
        return self._taken(name, newest)

    def _newest_of(self, group: SequenceGroup) -> RowIndices:
        """Return for each key the position of the row with the columns of this sequence group; -1 if none exists."""
        if group not in self._newest:
            sequences, effects = self._sequences_of(group), self._effects
            candidates = effects.fills | ((effects.adds | effects.retracts) & ~sequences.is_empty)
            if effects.removals is not None:  # earlier rows don't count any more
                last_removal = self._groups.broadcast(self._groups.last(effects.removals))
                candidates &= np.arange(len(candidates)) >= last_removal
            self._newest[group] = sequences.newest(candidates, self._groups)
        return self._newest[group]

    def _aggregated(self, name: str) -> pa.Array:
        effects, groups = self._effects, self._groups
        sequences = self._sequences_of(self._engine.group_of[name])
        begins = np.zeros(len(groups.rows), np.bool_)
        begins[groups.starts] = True
        if effects.removals is not None:
            begins |= effects.removals
        has_sequence = ~sequences.is_empty
        adds, retracts = effects.adds & has_sequence, effects.retracts & has_sequence
        accepted = not_older(sequences.ranks(), effects.fills | adds | retracts, begins)
        steps = np.full(len(groups.rows), Step.SKIP, np.int8)
        steps[adds] = np.where(accepted[adds], Step.AGG, Step.AGG_REVERSED)
        steps[retracts] = Step.RETRACT
        fill_and_retract = effects.fills & retracts
        steps[effects.fills & ~fill_and_retract] = Step.SET
        if fill_and_retract.any():
            groups, steps = _with_inserted_sets(groups, steps, fill_and_retract)
        return self._engine.aggregators[name].aggregate(self._rows.column(name), groups, steps)

    def _result_kinds(self) -> NDArray[np.int8]:
        ends = self._groups.ends - 1
        has_add = self._groups.any(self._effects.adds)
        is_removed = self._effects.removals is not None and self._effects.removals[ends]
        merged = np.where(is_removed | ~has_add, RowKind.DELETE, RowKind.INSERT)
        kinds: NDArray[np.int8] = np.where(self._is_single, self._kinds[ends], merged).astype(np.int8)
        return kinds

    def _sequences_of(self, group: SequenceGroup) -> Sequences:
        if group not in self._sequences:
            columns = [self._rows.column(name) for name in group.ordered_by]
            self._sequences[group] = Sequences.of(columns, self._groups.rows)
        return self._sequences[group]

    def _effects_of_rows(self) -> _Effects:
        options, groups = self._engine.options, self._groups
        retract = is_retract(self._kinds)
        fills = groups.broadcast(self._is_single)
        adds = ~(retract | fills)
        nothing = np.zeros(len(fills), np.bool_)
        if not (retract & ~fills).any():
            return _Effects(adds, nothing, fills, counted=~nothing, no_retracts=True)
        retracts = retract & ~fills
        fills[groups.starts] |= retracts[groups.starts]
        if options.ignore_delete:
            return _Effects(adds, nothing, fills, counted=~retracts)
        deletes = retracts & (self._kinds == RowKind.DELETE)
        if options.remove_on_delete:
            return _Effects(adds, nothing, fills | deletes, counted=~nothing, removals=deletes)
        if not options.groups:
            raise BadInput(f"{self._engine.table_name}: {NO_RETRACTS}")
        removing = [group for group in options.groups if self._engine.removes(group)]
        if not removing or not deletes.any():
            return _Effects(adds, retracts, fills, counted=~nothing)
        removals = record_deletes([self._sequences_of(group) for group in removing], deletes, groups)
        return _Effects(adds, retracts & ~removals, fills | removals, counted=~nothing, removals=removals)


@dataclass(frozen=True, slots=True)
class _Effects:
    """The effects of rows, see the module.

    adds (n,): rows that add.
    retracts (n,): rows that retract.
    fills (n,): rows that fill.
    counted (n,): rows whose sequence number can become that of the result.
    removals (n,): rows that remove the record. None if no row can.
    no_retracts: whether every row is an add, or is returned unchanged.
    """

    adds: NDArray[np.bool_]
    retracts: NDArray[np.bool_]
    fills: NDArray[np.bool_]
    counted: NDArray[np.bool_]
    removals: NDArray[np.bool_] | None = None
    no_retracts: bool = False


def _with_inserted_sets(
    groups: Groups, steps: NDArray[np.int8], doubled_positions: NDArray[np.bool_]
) -> tuple[Groups, NDArray[np.int8]]:
    """Return groups and steps with an additional SET of the same row before each position in `twice`."""
    begins = np.concatenate(([0], np.cumsum(1 + doubled_positions)))
    doubled = np.repeat(steps, 1 + doubled_positions)
    doubled[begins[:-1][doubled_positions]] = Step.SET
    return Groups(np.repeat(groups.rows, 1 + doubled_positions), begins[groups.starts]), doubled
