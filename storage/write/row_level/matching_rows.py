"""Finds the rows that match a condition, with their positions in data files, for changes of single rows.

Source: Java `spark/commands/PaimonRowLevelCommand.scala` (`collectDeletionVectors`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import CorruptFile
from tidelake.storage.files.bucket_directory import bucket_directory, data_file_path
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.files.reader import read_data_file
from tidelake.storage.model.deletion_vectors.vector_file import read_vector
from tidelake.storage.model.schema.table_schema import POSITION_FIELD, ROW_ID_FIELD, SEQUENCE_FIELD
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import DataField
from tidelake.storage.read.evolution.row_id_group_reader import RowIdGroupReader
from tidelake.storage.read.evolution.row_id_groups import anchor_of, row_ids
from tidelake.storage.read.evolution.tracked_columns import has_row_ids
from tidelake.storage.read.expired_snapshots import raise_if_snapshot_expired
from tidelake.storage.read.predicate import Predicate
from tidelake.storage.read.scan import TableScan
from tidelake.storage.read.skipping.file_index_predicate import FileIndexPredicate
from tidelake.storage.read.snapshot_reader import filtered


@dataclass(frozen=True, slots=True)
class MatchingRows:
    """Matching rows of one file, at least one.

    partition: serialized BinaryRow.
    rows: the requested columns, then `_POSITION`.
    """

    partition: bytes
    bucket: int
    file: DataFileMeta
    rows: pa.RecordBatch


def matching_rows(
    context: TableContext, snapshot: Snapshot | None, predicate: Predicate, columns: Sequence[str] = ()
) -> Iterator[MatchingRows]:
    """Yield the matching rows of an append table, batch by batch, file by file. Deleted rows are left out.

    columns: columns to read in addition to the position.

    Files, and parts of files, that can't contain matching rows are not read. Raises SnapshotExpired.
    """
    if context.options.data_evolution_enabled:
        yield from _of_row_id_groups(context, snapshot, predicate, columns)
        return
    fields = [*_fields(context, [*columns, *sorted(predicate.columns)]), POSITION_FIELD]
    stored = predicate.within(frozenset(context.schema.names))  # `_ROW_ID` is in no statistics of a file
    index_predicate = FileIndexPredicate(context, stored)
    for split in TableScan(context, predicate).plan(snapshot):
        directory = bucket_directory(context, split.partition, split.bucket)
        for file in split.files:
            deletion = split.deletion_files.get(file.file_name)
            path = data_file_path(directory, file)
            with raise_if_snapshot_expired(context, split.snapshot_id):
                selected = index_predicate.selected_rows(file, path)
                if selected is not None and not selected:
                    continue
                batches = read_data_file(
                    context,
                    file,
                    path,
                    fields,
                    partition=split.partition,
                    predicate=stored,
                    deleted=None if deletion is None else read_vector(context.io, deletion),
                    selected=selected,
                )
                for rows in filtered(context, batches, predicate):
                    if rows.num_rows:
                        wanted = rows.select([*columns, POSITION_FIELD.name])
                        yield MatchingRows(split.partition, split.bucket, file, wanted)


def _fields(context: TableContext, names: Sequence[str]) -> tuple[DataField, ...]:
    """Return the fields of these columns, each once. Tables with row ids also have `_ROW_ID` and `_SEQUENCE_NUMBER`."""
    tracked = {field.name: field for field in (ROW_ID_FIELD, SEQUENCE_FIELD)} if has_row_ids(context) else {}
    asked = tuple(dict.fromkeys(names))
    own = context.schema.select([name for name in asked if name not in tracked])
    return (*own, *(tracked[name] for name in asked if name in tracked))


def _of_row_id_groups(
    context: TableContext, snapshot: Snapshot | None, predicate: Predicate, columns: Sequence[str]
) -> Iterator[MatchingRows]:
    """Yield the rows of row-id groups. The anchor, a group's oldest file of ordinary columns, represents its files."""
    fields = _fields(context, [*columns, *sorted(predicate.columns), ROW_ID_FIELD.name])
    reader = RowIdGroupReader(context, fields, predicate.within(frozenset(context.schema.names)))
    for split in TableScan(context, predicate).plan(snapshot):
        directory = bucket_directory(context, split.partition, split.bucket)
        for section in split.sections:
            group = [file for run in section for file in run]
            anchor = anchor_of(group)
            if anchor is None:
                raise CorruptFile(group[0].file_name, "ordinary columns of its rows in another file", "none")
            with raise_if_snapshot_expired(context, split.snapshot_id):
                batches = reader.read(group, directory, split.partition, split.deletion_files)
                for rows in filtered(context, batches, predicate):
                    if rows.num_rows:
                        positions = pc.subtract(rows.column(ROW_ID_FIELD.name), row_ids(anchor).start)
                        wanted = rows.select(columns).append_column(POSITION_FIELD.name, positions)
                        yield MatchingRows(split.partition, split.bucket, anchor, wanted)
