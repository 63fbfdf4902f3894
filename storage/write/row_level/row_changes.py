"""Deletes or replaces the rows that match a condition.

In an append table with deletion vectors the data files stay unchanged. The positions of the rows are added to deletion
vectors, and replacing rows are written to new files, all in one OVERWRITE snapshot. Without deletion vectors, files
with matching rows are replaced by new files with their other rows (copy-on-write). Rows that others append meanwhile
are not checked. If others replaced a file that was read, or deleted rows of it, everything is repeated on the newest
snapshot.

`tidelake.storage.write.row_level.keyed_row_changes` does this for a table with a primary key.

Source: Java `spark/commands/DeleteFromPaimonTableCommand.scala`, `UpdatePaimonTableCommand.scala`,
`deletionvectors/append/BaseAppendDeleteFileMaintainer.java`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.errors import BadInput, CommitOutcomeUnknown, UnsupportedFeature
from tidelake.storage.commit.commit_increment import CommitIncrement
from tidelake.storage.commit.commit_message import CommitBase, CommitMessage, Committable
from tidelake.storage.commit.commit_steps import retry_on_conflict, settle_writer
from tidelake.storage.commit.manifests.index_manifest import index_files_by_bucket, read_index_manifest
from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.commit.table_commit import TableCommit
from tidelake.storage.files.bucket_directory import bucket_directory, data_file_path
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.files.reader import read_data_file
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.format import BATCH_COMMIT_IDENTIFIER, POSITION_COLUMN
from tidelake.storage.model.option_support import check_supported
from tidelake.storage.model.options import Operation
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.storage.read.evolution.tracked_columns import tracked_schema
from tidelake.storage.read.expired_snapshots import newest_live_entries
from tidelake.storage.read.fallback_branch import refuse_change_of_other_branch
from tidelake.storage.read.predicate import Predicate
from tidelake.storage.read.scan import wanted_partitions
from tidelake.storage.write.compactor import CompactorFactory
from tidelake.storage.write.deletion_vector_maintainer import DeletionVectorMaintainer, write_index_changes
from tidelake.storage.write.row_level.assignments import Assignments
from tidelake.storage.write.row_level.keyed_row_changes import (
    check_keyed_rows_can_change,
    keyed_merge_messages,
    keyed_messages,
    takes_deletes,
)
from tidelake.storage.write.row_level.matching_rows import MatchingRows, matching_rows
from tidelake.storage.write.row_level.merging import MergeOperation, RunningMerge, WhenMatched
from tidelake.storage.write.table_writer import TableWriter

_ATTEMPTS_MAX: Final = 10


@dataclass(frozen=True, slots=True)
class RowLevelOperation:
    """A delete or an update of rows.

    where: the condition on the rows.
    assignments: the new values of their columns. None deletes the rows.
    """

    where: Predicate
    assignments: Assignments | None = None

    @property
    def operation(self) -> str:
        """The name of the operation in the snapshot."""
        return "DELETE" if self.assignments is None else "UPDATE"


def change_rows(
    context: TableContext,
    change: RowLevelOperation | MergeOperation,
    commit_user: str,
    identifier: int = BATCH_COMMIT_IDENTIFIER,
    compactor_factory: CompactorFactory | None = None,
) -> int | None:
    """Delete or update rows, and commit the change.

    compactor_factory: for tables with a primary key.

    Returns the new snapshot. None if (commit_user, identifier) was committed before, or if a commit without an
    identifier finds no row. A numbered commit then publishes an empty snapshot, which records that it was done.

    Raises UnsupportedFeature for a table whose rows can't be changed this way; BadInput for a condition or values that
    don't fit it; CommitConflict if other commits were first too often; CommitOutcomeUnknown.
    """
    check_rows_can_change(context, change)
    return retry_on_conflict(
        _ATTEMPTS_MAX, lambda: _attempt(context, change, commit_user, identifier, compactor_factory)
    )


def _attempt(
    context: TableContext,
    change: RowLevelOperation | MergeOperation,
    commit_user: str,
    identifier: int,
    compactor_factory: CompactorFactory | None,
) -> int | None:
    snapshot = context.snapshots.latest()
    adds_rows = isinstance(change, MergeOperation)
    context = _with_latest_schema(context)  # read after the snapshot, so that it has all columns of its files
    if change.where is not None:
        change.where.expression(tracked_schema(context))  # raises for columns that the table lacks
    if removes_partitions(context, change):
        return _without_partitions(context, change.where, commit_user, identifier)
    _refuse_other_branch(context, change, snapshot)
    writer = TableWriter(context if adds_rows else _without_defaults(context), compactor_factory=compactor_factory)
    commit = TableCommit(context, commit_user, on_lost_compaction=writer.restart_compaction)
    try:
        committable = Committable(identifier, _messages(context, change, snapshot, writer))
        try:
            published = commit.commit(committable, change.operation)
        except CommitOutcomeUnknown:
            raise
        except Exception:
            commit.abort(committable.messages)
            raise
        return settle_writer(commit, committable, published, writer)
    finally:
        writer.abort()  # deletes the files that were not handed over


def _refuse_other_branch(
    context: TableContext, change: RowLevelOperation | MergeOperation, snapshot: Snapshot | None
) -> None:
    """Raise UnsupportedFeature if a changed row is read from another branch (`scan.fallback-branch`)."""
    if isinstance(change, RowLevelOperation):
        refuse_change_of_other_branch(context, snapshot, change.where, lambda rows: rows.num_rows > 0)
    elif change.where is not None and change.when_matched is not WhenMatched.IGNORE:
        running = RunningMerge(context, change)
        refuse_change_of_other_branch(context, snapshot, change.where, lambda rows: len(running.matches(rows)[0]) > 0)


def removes_partitions(context: TableContext, change: RowLevelOperation | MergeOperation) -> bool:
    """Return whether a delete of whole partitions is done without deletes, which the merge engine does not take."""
    return (
        isinstance(change, RowLevelOperation)
        and change.assignments is None
        and context.schema.has_primary_key
        and not takes_deletes(context.options)
        and change.where.columns <= set(context.schema.partition_keys)
    )


def _without_partitions(
    context: TableContext, where: Predicate | None, commit_user: str, identifier: int
) -> int | None:
    def chosen(live: Sequence[ManifestEntry]) -> set[bytes]:
        partitions = {entry.partition for entry in live}
        return partitions if where is None else wanted_partitions(context, partitions, where)

    if identifier == BATCH_COMMIT_IDENTIFIER and not chosen(newest_live_entries(context)):
        return None
    return TableCommit(context, commit_user).remove_partitions(chosen, identifier)


def check_rows_can_change(context: TableContext, change: RowLevelOperation | MergeOperation) -> None:
    """Raise UnsupportedFeature if an option of the table prevents it, BadInput for columns that can't be assigned."""
    if isinstance(change, MergeOperation):
        if change.when_matched is WhenMatched.IGNORE:
            check_supported(context, Operation.WRITE)
            return
        updates = change.when_matched is WhenMatched.UPDATE
        # A sequence may be merged: a row with an older one leaves the table's row as it is. A key may be merged if it
        # stays the same, which the rows tell.
        fixed = {*context.options.sequence_fields, *context.schema.primary_keys}
        written = [name for name in change.assigned if name not in fixed]
        what, assigned = "MERGE", written if updates else None
    else:
        what = f"{change.operation} by a condition"
        assigned = None if change.assignments is None else list(change.assignments.values)
    if removes_partitions(context, change):
        pass
    elif context.schema.has_primary_key:
        check_keyed_rows_can_change(context, assigned, checks_nulls=True)
    elif assigned is not None and context.options.row_tracking_enabled:  # first: nothing can change it
        raise UnsupportedFeature(
            f"{context.name}: {what} on a table with row tracking",
            "rows would be moved to other files, and get other ids",
            "Read _ROW_ID of the matching rows, and write their columns again: update_columns()"
            if context.options.data_evolution_enabled
            else "Overwrite the rows, or their partitions",
        )
    elif context.options.row_tracking_enabled and not context.options.deletion_vectors_enabled:
        raise UnsupportedFeature(
            f"{context.name}: {what} on a table with row tracking, and without deletion vectors",
            "the other rows of its files would be moved to new files, and get other ids",
            "Set deletion-vectors.modifiable = true, then deletion-vectors.enabled = true",
        )
    check_supported(context, Operation.WRITE)


def _with_latest_schema(context: TableContext) -> TableContext:
    newest = context.schemas.latest()
    if newest is None:
        raise BadInput(f"{context.name} no longer exists: the table was dropped")
    return context if newest.id == context.schema.id else context.with_schema(newest)


def _messages(
    context: TableContext, change: RowLevelOperation | MergeOperation, snapshot: Snapshot | None, writer: TableWriter
) -> Sequence[CommitMessage]:
    """Write durable files that no snapshot names yet. After an exception and the writer's abort, no file is left."""
    if isinstance(change, MergeOperation):
        running = RunningMerge(context, change)
        if context.schema.has_primary_key:
            return keyed_merge_messages(context, change, running, snapshot, writer)
        found = () if change.where is None else matching_rows(context, snapshot, change.where, context.schema.names)
        merged = _merged(iter(found), change, running, writer)
        if not context.options.deletion_vectors_enabled:
            return _copied(context, change.operation, merged, None, snapshot, writer)
        return _with_new_files(context, snapshot, writer, merged)
    if context.schema.has_primary_key:
        return keyed_messages(context, change.where, change.assignments, snapshot, writer)
    if not context.options.deletion_vectors_enabled:
        assign = None if change.assignments is None else change.assignments.for_table(context)
        found = matching_rows(context, snapshot, change.where)
        return _copied(context, change.operation, found, assign, snapshot, writer)
    if change.assignments is None:
        return _marked(context, snapshot, _positions(matching_rows(context, snapshot, change.where)))
    assign = change.assignments.for_table(context)
    found = matching_rows(context, snapshot, change.where, context.schema.names)
    return _with_new_files(context, snapshot, writer, _written(found, assign, writer))


def _with_new_files(
    context: TableContext, snapshot: Snapshot | None, writer: TableWriter, replaced: Iterator[MatchingRows]
) -> Sequence[CommitMessage]:
    """Return the messages of what the writer got while `replaced` was read, and of the deletion of those rows."""
    positions = _positions(replaced)
    new = writer.prepare_commit()
    try:
        return [*_marked(context, snapshot, positions), *new]
    except BaseException:
        TableCommit(context, "").abort(new)
        raise


def _copied(
    context: TableContext,
    operation: str,
    found: Iterator[MatchingRows],
    assign: Callable[[pa.RecordBatch], pa.RecordBatch] | None,
    snapshot: Snapshot | None,
    writer: TableWriter,
) -> list[CommitMessage]:
    """Write the other rows of files with these rows to new files. `assign` replaces these rows in their places."""
    index = index_files_by_bucket(read_index_manifest(context, snapshot.index_manifest if snapshot else None))
    marked = {vector.data_file for files in index.values() for file in files for vector in file.vectors}
    replaced: dict[BucketId, list[DataFileMeta]] = defaultdict(list)
    for (partition, bucket, _), of_file in groupby(found, lambda m: (m.partition, m.bucket, m.file.file_name)):
        parts = list(of_file)
        file = parts[0].file
        if file.file_name in marked:
            raise UnsupportedFeature(
                f"{context.name}: {operation} of rows in a file with deleted rows",
                "deletion vectors were switched off, and its deleted rows would come back",
                "Set deletion-vectors.enabled = true again, or compact the table first",
            )
        key = BucketId(partition, bucket)
        replaced[key].append(file)
        positions = np.concatenate([part.rows.column(POSITION_COLUMN).to_numpy() for part in parts])
        if assign is not None or len(positions) < file.row_count:
            for rows in _with_changed_rows(_rows_of(context, key, file), positions, assign):
                writer.write(rows)
    new = writer.prepare_commit()
    base = CommitBase(snapshot_id=None if snapshot is None else snapshot.id)
    return [*(CommitMessage(key, CommitIncrement(deleted_files=tuple(f)), base) for key, f in replaced.items()), *new]


def _rows_of(context: TableContext, key: BucketId, file: DataFileMeta) -> Iterator[pa.RecordBatch]:
    path = data_file_path(bucket_directory(context, *key), file)
    return read_data_file(context, file, path, context.schema.fields, partition=key.partition)


def _with_changed_rows(
    batches: Iterator[pa.RecordBatch],
    positions: NDArray[np.int64],
    assign: Callable[[pa.RecordBatch], pa.RecordBatch] | None,
) -> Iterator[pa.RecordBatch]:
    """Yield all rows of a file, in their order, without those at the positions, or with these changed by `assign`."""
    start = 0
    for rows in batches:
        chosen = np.zeros(rows.num_rows, np.bool_)
        inside = (positions >= start) & (positions < start + rows.num_rows)
        chosen[positions[inside] - start] = True
        start += rows.num_rows
        if assign is None or not chosen.any():
            yield rows.filter(pa.array(~chosen))
            continue
        changed = assign(rows.filter(pa.array(chosen)))
        changed = pa.RecordBatch.from_arrays(changed.columns, schema=rows.schema)
        places = np.arange(rows.num_rows)
        places[chosen] = rows.num_rows + np.arange(changed.num_rows)
        yield pa.concat_batches([rows, changed]).take(pa.array(places))


def _written(
    found: Iterator[MatchingRows], assign: Callable[[pa.RecordBatch], pa.RecordBatch], writer: TableWriter
) -> Iterator[MatchingRows]:
    """Yield the same rows, after their replacements were passed to the writer."""
    for matching in found:
        writer.write(assign(matching.rows.drop_columns([POSITION_COLUMN])))
        yield matching


def _merged(
    found: Iterator[MatchingRows], change: MergeOperation, running: RunningMerge, writer: TableWriter
) -> Iterator[MatchingRows]:
    """Yield the rows that are replaced or deleted, after the rows to write were passed to the writer."""
    for matching in found:
        own, given = running.matches(matching.rows)
        if not len(own) or change.when_matched is WhenMatched.IGNORE:
            continue
        rows = matching.rows.take(pa.array(own))
        if change.when_matched is WhenMatched.UPDATE:
            writer.write(running.updated(rows, given))
        yield replace(matching, rows=rows)
    writer.write(running.new_rows())


def _positions(found: Iterator[MatchingRows]) -> dict[BucketId, dict[str, NDArray[np.int64]]]:
    """Return the positions of rows by bucket and data file."""
    parts: dict[BucketId, dict[str, list[NDArray[np.int64]]]] = defaultdict(lambda: defaultdict(list))
    for matching in found:
        of_file = parts[BucketId(matching.partition, matching.bucket)][matching.file.file_name]
        of_file.append(matching.rows.column(POSITION_COLUMN).to_numpy())
    return {key: {name: np.concatenate(rows) for name, rows in files.items()} for key, files in parts.items()}


def _marked(
    context: TableContext, snapshot: Snapshot | None, positions: Mapping[BucketId, Mapping[str, NDArray[np.int64]]]
) -> list[CommitMessage]:
    """Write index files in which these rows are deleted, too."""
    index = index_files_by_bucket(read_index_manifest(context, snapshot.index_manifest if snapshot else None))
    maintainers: dict[BucketId, DeletionVectorMaintainer] = {}
    for key, of_files in positions.items():
        maintainers[key] = DeletionVectorMaintainer(context, key, index.get(key, ()))
        for data_file, rows in of_files.items():
            maintainers[key].delete(data_file, rows)
    return write_index_changes(context, maintainers)


def _without_defaults(context: TableContext) -> TableContext:
    """Return the context without default values: rows are rewritten, so an existing null stays null."""
    fields = tuple(replace(field, default=None) for field in context.schema.fields)
    return context.with_schema(replace(context.schema, fields=fields))
