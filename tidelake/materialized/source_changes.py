"""The changes of a source between two refreshes: the deleted rows and the inserted rows.

| Table | Where the changes are read |
|---|---|
| append | from the files of the commits since, if these only added rows |
| primary key, `lookup` or `full-compaction`, compacted at both ends | from the changelogs since |
| primary key | from the difference of both states, which needs both snapshots |
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.errors import BadInput, SnapshotExpired, UnsupportedFeature
from tidelake.materialized.source_state import QueriedState
from tidelake.storage.merge.normalized_keys import align_keys, normalize_column
from tidelake.storage.model.bucketing import BucketMode, bucket_mode
from tidelake.storage.model.format import KIND_COLUMN, CommitKind
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types.row_kinds import is_retract, row_kinds
from tidelake.storage.read.changes.change_reader import ChangeBatch, ChangeReader, ChangeSource
from tidelake.storage.read.changes.subtask import ALL
from tidelake.storage.read.incremental_read import difference_batches
from tidelake.storage.read.snapshot_diff import SnapshotDiff
from tidelake.storage.read.state_files import StateFiles

_ROWS_MAX: Final = 5_000_000  # changed rows are held in memory


class NoChanges(Exception):
    """The changes can't be read. str() is the reason, as the continuation of `because`."""


@dataclass(frozen=True, slots=True)
class RowsChanged:
    """Rows that were deleted and rows that were inserted, with the requested columns.

    With a primary key, each key occurs at most once on either side.
    """

    deleted: pa.RecordBatch
    inserted: pa.RecordBatch


def changes_since(context: TableContext, before: QueriedState, after: Snapshot, columns: Sequence[str]) -> RowsChanged:
    """Return the changes of a table between two states.

    context: under the schema that both were read with
    columns: in addition to those of the primary key

    Raises NoChanges.
    """
    if context.options.data_evolution_enabled:
        raise NoChanges(f"columns of {context.name} may have been rewritten (data evolution)")
    if context.options.record_level_expire_time_s is not None:
        raise NoChanges(f"rows of {context.name} expire by their age")
    wanted = {*columns, *context.schema.primary_keys}
    names = [name for name in context.schema.names if name in wanted]
    try:
        if not context.schema.has_primary_key:
            added = _collect_rows(_added(context, before, after), names, context)
            return RowsChanged(added.slice(0, 0), added)
        return _of_keys(context, before, after, names)
    except SnapshotExpired:
        raise NoChanges(f"snapshots of {context.name} since the last refresh have expired") from None


# ---------------------------------------------------------------- append tables


def _added(context: TableContext, before: QueriedState, after: Snapshot) -> Iterator[ChangeBatch]:
    reader = ChangeReader(context, ALL, files=ChangeSource.DELTA)
    known = _find_snapshot(context, before)
    for snapshot_id in range(before.snapshot_id + 1, after.id + 1):
        snapshot = reader.get(snapshot_id)
        if snapshot.commit_kind is CommitKind.OVERWRITE or snapshot.index_manifest != known.index_manifest:
            raise NoChanges(f"snapshot {snapshot_id} of {context.name} replaced or deleted rows")
        known = snapshot
        yield from reader.read(snapshot)


def _find_snapshot(context: TableContext, state: QueriedState) -> Snapshot:
    found = context.history.find(state.snapshot_id)
    if found is None:
        raise NoChanges(f"snapshot {state.snapshot_id} of {context.name}, which the last refresh read, has expired")
    if not state.matches_snapshot(found):
        raise NoChanges(f"{context.name} was rolled back or created again since the last refresh")
    return found


# ---------------------------------------------------------------- tables with a key


def _of_keys(context: TableContext, before: QueriedState, after: Snapshot, names: Sequence[str]) -> RowsChanged:
    moves = bucket_mode(context.schema, context.options) is BucketMode.CROSS_PARTITION
    is_settled = before.is_settled and QueriedState.of(context, after).is_settled
    if is_settled and not moves:
        _find_snapshot(context, before)
        try:
            return _net_changes(context, _changelog(context, before, after), names)
        except (_ChangelogBreak, SnapshotExpired):  # the two states may still exist
            pass
    known = context.snapshots.find(before.snapshot_id)
    if not before.matches_snapshot(known):
        _find_snapshot(context, before)  # raises with the reason
        raise NoChanges(f"snapshot {before.snapshot_id} of {context.name}, which the last refresh read, has expired")
    try:
        difference = SnapshotDiff(context, known, after, columns=names, files=StateFiles.VISIBLE)
        rows = _collect_rows(difference_batches(after, difference.rows()), [*names, KIND_COLUMN], context)
    except (BadInput, UnsupportedFeature) as error:
        raise NoChanges(str(error)) from None
    retracts = pa.array(is_retract(row_kinds(rows)))
    rows = rows.select(names)
    return RowsChanged(rows.filter(retracts), rows.filter(pa.compute.invert(retracts)))


class _ChangelogBreak(Exception):
    """A snapshot replaced rows without recording which."""


def _changelog(context: TableContext, before: QueriedState, after: Snapshot) -> Iterator[ChangeBatch]:
    reader = ChangeReader(context, ALL, files=ChangeSource.CHANGELOG)
    for change in reader.read_range(before.snapshot_id + 1, after.id):
        if change.is_break:
            raise _ChangelogBreak
        yield change


def _net_changes(context: TableContext, changes: Iterable[ChangeBatch], names: Sequence[str]) -> RowsChanged:
    """Return the net changes: the first change of each key has its old row, the last one its new row."""
    rows = _collect_rows(changes, [*names, KIND_COLUMN], context)
    retracts = is_retract(row_kinds(rows))
    rows = rows.select(names)
    (codes,) = key_codes([rows.select(context.schema.primary_keys)])
    order = np.argsort(codes, kind="stable")  # a key is in one bucket, whose changes are in their order
    edges = np.flatnonzero(np.diff(codes[order], prepend=-1))
    first = order[edges]
    last = order[np.append(edges[1:], len(order)) - 1] if len(order) else first
    return RowsChanged(rows.take(pa.array(first[retracts[first]])), rows.take(pa.array(last[~retracts[last]])))


def key_codes(batches: Sequence[pa.RecordBatch]) -> list[NDArray[np.int64]]:
    """Return for each row of each batch the number of its key, dense from 0 on. Equal keys have equal numbers.

    batches: the columns of the key, of the same types.
    """
    words = align_keys([[normalize_column(column, nullable=True) for column in b.columns] for b in batches])
    stacked = [np.stack([word.astype(np.uint64) for word in of_batch], axis=1) for of_batch in words]
    _, codes = np.unique(np.concatenate(stacked), axis=0, return_inverse=True)
    return np.split(codes.reshape(-1).astype(np.int64), np.cumsum([len(part) for part in stacked])[:-1])


def _collect_rows(changes: Iterable[ChangeBatch], names: Sequence[str], context: TableContext) -> pa.RecordBatch:
    """Return all rows in one batch. Raises NoChanges for too many."""
    held: list[pa.RecordBatch] = []
    count = 0
    for change in changes:
        count += change.rows.num_rows
        if count > _ROWS_MAX:
            raise NoChanges(f"more than {_ROWS_MAX:,} rows of {context.name} changed")
        held.append(change.rows.select(names))
    if held:
        return pa.concat_batches(held)
    schema = context.schema.arrow.append(pa.field(KIND_COLUMN, pa.int8(), nullable=False))
    return pa.RecordBatch.from_pylist([], pa.schema([schema.field(name) for name in names]))
