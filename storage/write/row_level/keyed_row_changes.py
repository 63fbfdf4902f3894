"""Deletes or replaces the rows of a primary-key table that match a condition, by writing newer rows of their keys.

The rows are read at one snapshot, and the commit fails if others wrote to their buckets since. The caller then retries
from the newest snapshot. With a sequence field such a write is no conflict: the row with the greater sequence wins.

Source: Java `spark/commands/DeleteFromPaimonTableCommand.scala`, `UpdatePaimonTableCommand.scala`,
`flink/sink/SupportsRowLevelOperationFlinkTableSink.java` (which engines take deletes).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import reduce
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import BadInput, CommitConflict, UnsupportedFeature
from tidelake.storage.base.arguments import shown
from tidelake.storage.commit.commit_message import CommitMessage
from tidelake.storage.commit.manifests.snapshot_files import live_entries
from tidelake.storage.commit.table_commit import TableCommit
from tidelake.storage.files.bucket_directory import partition_directory
from tidelake.storage.merge.partial_update_options import PartialUpdateOptions
from tidelake.storage.model.bucketing import BucketMode, bucket_mode
from tidelake.storage.model.format import KIND_COLUMN, POSTPONE_BUCKET, RowKind
from tidelake.storage.model.options import ChangelogProducer, MergeEngine, TableOptions
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.storage.read.expired_snapshots import raise_if_snapshot_expired
from tidelake.storage.read.predicate import Predicate
from tidelake.storage.read.scan import TableScan, wanted_partitions
from tidelake.storage.read.snapshot_reader import SnapshotReader
from tidelake.storage.write.row_level.assignments import Assignments
from tidelake.storage.write.row_level.merging import MergeOperation, RunningMerge, WhenMatched
from tidelake.storage.write.table_writer import TableWriter

ALL_LEVELS: Final = {"deletion-vectors.merge-on-read": "true"}
"""Options of a read that also sees level 0, which readers don't see yet."""

_REMOVES_ON_DELETE: Final = {
    MergeEngine.PARTIAL_UPDATE: "partial-update.remove-record-on-delete = true",
    MergeEngine.AGGREGATION: "aggregation.remove-record-on-delete = true",
}


def check_keyed_rows_can_change(
    context: TableContext, assigned: Collection[str] | None, *, checks_nulls: bool = False
) -> None:
    """Check whether rows can be changed this way.

    assigned: the columns to change; None: the rows are deleted.
    checks_nulls: whether the caller refuses a null in place of a value where the merge engine would keep the value.

    Raises UnsupportedFeature if the merge engine would give other rows, BadInput for columns that can't be assigned.
    """
    options, engine = context.options, context.options.merge_engine
    what = f"{context.name}: {'DELETE' if assigned is None else 'UPDATE'} by a condition"
    if options.row_kind_field is not None:
        raise UnsupportedFeature(
            what, f"column {options.row_kind_field} contains the row kind (rowkind.field)", "Write the rows"
        )
    if assigned is None:
        if engine is MergeEngine.DEDUPLICATE:
            if options.ignore_delete:
                raise UnsupportedFeature(
                    what, "the table ignores deletes (ignore-delete)", "Overwrite the rows, or their partitions"
                )
        elif not _removes_rows(options):
            option = _REMOVES_ON_DELETE.get(engine)
            if engine is MergeEngine.PARTIAL_UPDATE and PartialUpdateOptions.of(context.schema, options).groups:
                option = "partial-update.remove-record-on-sequence-group = SEQUENCE_FIELD"
            remedy = "Overwrite the rows, or their partitions"
            if option is not None:
                remedy += f", or create a table with {option}, and copy the rows into it"
            raise UnsupportedFeature(what, f"merge-engine = {engine.value} does not remove a row for a delete", remedy)
        return
    if engine is not MergeEngine.DEDUPLICATE and not (checks_nulls and _keeps_only_nulls(context)):
        raise UnsupportedFeature(
            what,
            f"merge-engine = {engine.value} would merge the new row into the old one",
            "Write the rows to be merged",
        )
    for name in assigned:
        if name in context.schema.primary_keys:
            raise BadInput(f"{what} can't change {name}, of the primary key. Delete the rows, and write them again")
        if name in options.sequence_fields:
            raise BadInput(f"{what} can't change {name}: the rows of a key are ordered by it. Write the rows")


def takes_deletes(options: TableOptions) -> bool:
    """Return whether a -D removes the row of its key."""
    if options.row_kind_field is not None:
        return False
    if options.merge_engine is MergeEngine.DEDUPLICATE:
        return not options.ignore_delete
    return _removes_rows(options)


def _keeps_only_nulls(context: TableContext) -> bool:
    """Return whether a newer row replaces all values of a row but those that are null in it."""
    if context.options.merge_engine is not MergeEngine.PARTIAL_UPDATE:
        return False
    found = PartialUpdateOptions.of(context.schema, context.options)
    return not found.groups and not found.aggregations


def value_is_kept(context: TableContext, column: str) -> UnsupportedFeature:
    """Return the error for an update to NULL in an engine that keeps the value."""
    return UnsupportedFeature(
        f"{context.name}: UPDATE by a condition can't set {column} to NULL",
        "merge-engine = partial-update keeps the value that a column had before a null",
        "Overwrite the rows, or their partitions",
    )


def _check_no_value_is_kept(context: TableContext, old: pa.RecordBatch, new: pa.RecordBatch) -> None:
    """Raise UnsupportedFeature for a null in place of a value that the merge engine would keep."""
    if context.options.merge_engine is MergeEngine.PARTIAL_UPDATE:
        for name in context.schema.names:
            if pc.any(pc.and_(new.column(name).is_null(), old.column(name).is_valid())).as_py():
                raise value_is_kept(context, name)


def _removes_rows(options: TableOptions) -> bool:
    """Return whether a -D removes the row of its key, in an engine that merges."""
    match options.merge_engine:
        case MergeEngine.AGGREGATION:
            return options.aggregation_removes_on_delete
        case MergeEngine.PARTIAL_UPDATE:
            return options.partial_update_removes_on_delete or bool(options.partial_update_removes_on_sequences)
    return False


def check_no_row_waits(context: TableContext, where: Predicate | None, snapshot: Snapshot | None) -> None:
    """Raise BadInput if rows that may match wait for their buckets: a change by a condition would not see them.

    where: None for any row.
    """
    if snapshot is None or bucket_mode(context.schema, context.options) is not BucketMode.POSTPONE:
        return
    with raise_if_snapshot_expired(context, snapshot.id):
        live = live_entries(context, snapshot)
    waiting = {entry.partition for entry in live if entry.bucket == POSTPONE_BUCKET}
    if where is not None:
        waiting = wanted_partitions(context, waiting, where)
    if waiting:
        directory = partition_directory(context, min(waiting))
        raise BadInput(
            f"{context.name}{f', partition {directory}' if directory else ''}: rows wait for their buckets, and a "
            "change by a condition would not see them. Compact the table, and change the rows then"
        )


def keyed_messages(
    context: TableContext,
    where: Predicate,
    assignments: Assignments | None,
    snapshot: Snapshot | None,
    writer: TableWriter,
) -> Sequence[CommitMessage]:
    """Write durable files that no snapshot names yet. After an exception no file is left.

    Raises CommitConflict if the writer found a newer snapshot than the one that is read.
    """
    return _written_messages(context, _changed_rows(context, where, assignments, snapshot), snapshot, writer)


def keyed_merge_messages(
    context: TableContext,
    change: MergeOperation,
    running: RunningMerge,
    snapshot: Snapshot | None,
    writer: TableWriter,
) -> Sequence[CommitMessage]:
    """Do the same as `keyed_messages` for a merge."""
    return _written_messages(context, _merged_rows(context, change, running, snapshot), snapshot, writer)


def _written_messages(
    context: TableContext, changed: Iterator[pa.RecordBatch | pa.Table], snapshot: Snapshot | None, writer: TableWriter
) -> Sequence[CommitMessage]:
    for rows in changed:
        writer.write(rows)
    messages = writer.prepare_commit()
    read_id = None if snapshot is None else snapshot.id
    if any(message.base.snapshot_id != read_id for message in messages if message.increment.new_files):
        TableCommit(context, "").abort(messages)
        raise CommitConflict(f"{context.name}: other writers committed while the matching rows were read")
    return messages


def _changed_rows(
    context: TableContext, where: Predicate, assignments: Assignments | None, snapshot: Snapshot | None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows to write, with their row kinds."""
    assign = None if assignments is None else assignments.for_table(context)
    for rows in _read(context, where, snapshot):
        if assign is None:
            _check_sequences(context, rows)
            yield _with_kind(rows, RowKind.DELETE)
            continue
        yield from _replaced(context, rows, assign(rows))


def _merged_rows(
    context: TableContext, change: MergeOperation, running: RunningMerge, snapshot: Snapshot | None
) -> Iterator[pa.RecordBatch | pa.Table]:
    """Yield the rows to write, with their row kinds."""
    for rows in () if change.where is None else _read(context, change.where, snapshot):
        own, given = running.matches(rows)
        if not len(own) or change.when_matched is WhenMatched.IGNORE:
            continue
        old = rows.take(pa.array(own))
        if change.when_matched is WhenMatched.DELETE:
            _check_sequences(context, old)
            yield _with_kind(old, RowKind.DELETE)
            continue
        new = running.updated(old, given)
        _check_keys_stay(context, change, old, new)
        yield from _replaced(context, old, new)
    yield running.new_rows()


def _check_keys_stay(context: TableContext, change: MergeOperation, old: pa.RecordBatch, new: pa.RecordBatch) -> None:
    """Raise BadInput for a row that would get another primary key: the row with the old one would stay."""
    for name in context.schema.primary_keys:
        if name not in change.assigned:
            continue
        differs = pc.fill_null(pc.not_equal(old.column(name), new.column(name)), False)
        differs = pc.or_(differs, pc.xor(old.column(name).is_null(), new.column(name).is_null()))
        at = pc.index(differs, True).as_py()
        if at >= 0:
            keys = {column: old.column(column)[at].as_py() for column in change.on}
            before, after = (shown(rows.column(name)[at].as_py()) for rows in (old, new))
            raise BadInput(
                f"{context.name}: merge(on={list(change.on)}) would change {name}, of the primary key, from {before} "
                f"to {after} in the row with {keys}. "
                f"Leave such rows out, or merge on {', '.join(context.schema.primary_keys)}"
            )


def _replaced(context: TableContext, old: pa.RecordBatch, new: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield what is written to replace rows. In a changelog of the input, the old rows come first."""
    _check_no_value_is_kept(context, old, new)
    if (
        context.options.changelog_producer is ChangelogProducer.INPUT
        and context.options.merge_engine is MergeEngine.DEDUPLICATE
    ):
        yield _with_kind(old, RowKind.UPDATE_BEFORE)
    yield _with_kind(new, RowKind.UPDATE_AFTER)


def _read(context: TableContext, where: Predicate, snapshot: Snapshot | None) -> Iterator[pa.RecordBatch]:
    check_no_row_waits(context, where, snapshot)
    reading = context.with_options(ALL_LEVELS)
    reader = SnapshotReader(reading, tuple(context.schema.names), where)
    return reader.read(TableScan(reading, where).plan(snapshot))


def _check_sequences(context: TableContext, rows: pa.RecordBatch) -> None:
    """Raise UnsupportedFeature for a row that its own -D would not remove, because it has no sequence."""
    removing = context.options.partial_update_removes_on_sequences
    if context.options.merge_engine is not MergeEngine.PARTIAL_UPDATE or not removing:
        return
    groups = [
        g for g in PartialUpdateOptions.of(context.schema, context.options).groups if {*g.ordered_by} & {*removing}
    ]
    fields = sorted({name for group in groups for name in group.ordered_by})
    if pc.any(reduce(pc.and_, [rows.column(name).is_null() for name in fields])).as_py():
        raise UnsupportedFeature(
            f"{context.name}: DELETE by a condition",
            f"a matching row is null in {', '.join(fields)}, and a delete without a sequence removes no row",
            "Write the sequence of these rows first, or exclude them in the condition",
        )


def _with_kind(rows: pa.RecordBatch, kind: RowKind) -> pa.RecordBatch:
    return rows.append_column(KIND_COLUMN, pa.array(np.full(rows.num_rows, kind, np.int8)))
