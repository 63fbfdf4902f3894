"""Writes some columns of existing rows again, by row id. The other columns stay unchanged in their files.

Each row-id group with a changed row gets one new file with these columns of all its rows; unchanged values are copied.
Values of BLOB columns are not copied: the new file has placeholders for unchanged rows, and nulls for rows that have no
value yet, as the column was added after them. If others wrote the same
columns of these rows meanwhile, or moved their files, everything is repeated on the newest snapshot.

Source: Java `flink/dataevolution/DataEvolutionPartialWriteOperator.java`; pypaimon `write/table_update_by_row_id.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.errors import BadInput, CommitOutcomeUnknown, UnsupportedFeature
from tidelake.storage.base.clock import local_time_as_utc_ms
from tidelake.storage.commit.commit_increment import CommitIncrement
from tidelake.storage.commit.commit_message import CommitBase, CommitMessage, Committable
from tidelake.storage.commit.commit_steps import retry_on_conflict
from tidelake.storage.commit.table_commit import TableCommit
from tidelake.storage.files.bucket_directory import bucket_directory
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.files.writer import RollingFileWriter
from tidelake.storage.model.format import BATCH_COMMIT_IDENTIFIER, BLOB_FORMAT, ROW_ID_COLUMN
from tidelake.storage.model.option_support import check_supported
from tidelake.storage.model.options import Operation
from tidelake.storage.model.paths import DataFileNames
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.storage.read.evolution.row_id_group_reader import RowIdGroupReader
from tidelake.storage.read.evolution.row_id_groups import RowIdGroup, column_sources, row_ids, row_ids_of
from tidelake.storage.read.scan import TableScan
from tidelake.storage.read.split import Split
from tidelake.storage.write.evolution.blob_files import OpenBlobFile
from tidelake.storage.write.evolution.file_columns import blob_columns, with_columns
from tidelake.storage.write.row_converter import RowConverter

_ATTEMPTS_MAX: Final = 10
_OPERATION: Final = "UPDATE"
# The written columns of a row-id group must be in one file.
_ONE_FILE: Final = {"target-file-size": f"{2**60} b", "target-file-row-num": str(2**62)}


def update_columns(
    context: TableContext,
    rows: pa.Table,
    commit_user: str,
    identifier: int = BATCH_COMMIT_IDENTIFIER,
) -> int | None:
    """Write columns of rows again, and commit them.

    rows: `_ROW_ID`, and the columns to write. They are in memory at once, and so are these columns of a row-id group.

    Returns the new snapshot. None if (commit_user, identifier) was committed before, or if there are no rows.
    Raises UnsupportedFeature for a table without data evolution; BadInput for rows that don't fit the table or don't
    exist in it; CommitConflict if other commits were first too often; CommitOutcomeUnknown.
    """
    if not context.options.data_evolution_enabled:
        raise UnsupportedFeature(
            f"{context.name}: columns written again by row id",
            "all columns of a row are in one file",
            "Create the table with row-tracking.enabled and data-evolution.enabled = true",
        )
    check_supported(context, Operation.WRITE)

    def attempt() -> int | None:
        newest = context.schemas.latest()
        current = context if newest is None or newest.id == context.schema.id else context.with_schema(newest)
        return _Update.of(current, rows).commit(commit_user, identifier)

    return retry_on_conflict(_ATTEMPTS_MAX, attempt)


@dataclass(frozen=True, slots=True)
class _Update:
    """The columns to write, converted to the table's types.

    rows: the columns in the order of the table, sorted by row id.
    ids (n,): ascending and unique.
    """

    context: TableContext
    rows: pa.Table
    ids: NDArray[np.int64]

    @classmethod
    def of(cls, context: TableContext, rows: pa.Table) -> _Update:
        names = [name for name in rows.column_names if name != ROW_ID_COLUMN]
        if ROW_ID_COLUMN not in rows.column_names or not names:
            raise BadInput(f"{context.name}: rows to update need {ROW_ID_COLUMN}, and the columns to write")
        if partition := [name for name in names if name in context.schema.partition_keys]:
            raise BadInput(f"{context.name}: column {partition[0]!r} is a partition column, which can't be updated")
        ids = rows.column(ROW_ID_COLUMN)
        if not pa.types.is_integer(ids.type) or ids.null_count:
            raise BadInput(f"{context.name}: column {ROW_ID_COLUMN} must be a whole number, and not null")
        numbers = ids.to_numpy().astype(np.int64)
        order = np.argsort(numbers, kind="stable")
        if len(duplicates := np.flatnonzero(np.diff(numbers[order]) == 0)):
            raise BadInput(f"{context.name}: row {numbers[order][duplicates[0]]} occurs twice; pass each row once")
        context.schema.select(names)  # raises for columns that the table lacks
        wanted = with_columns(_without_defaults(context), names)
        converter = RowConverter(wanted.schema, wanted.options, context.name, location=context.location)
        converted = [converter.to_table_schema(batch) for batch in rows.select(names).combine_chunks().to_batches()]
        table = pa.Table.from_batches(converted, None if converted else wanted.schema.arrow)
        return cls(context, table.select(wanted.schema.names).take(pa.array(order)), numbers[order])

    def commit(self, commit_user: str, identifier: int) -> int | None:
        if not len(self.ids) and identifier == BATCH_COMMIT_IDENTIFIER:
            return None
        snapshot = self.context.snapshots.latest()
        commit = TableCommit(self.context, commit_user)
        messages: list[CommitMessage] = []
        try:
            messages += self._messages(snapshot)
            published = commit.commit(Committable(identifier, messages), _OPERATION)
        except CommitOutcomeUnknown:
            raise
        except Exception:
            commit.abort(messages)
            raise
        if published is None:
            commit.discard_already_committed(Committable(identifier, messages))
        return published

    def _messages(self, snapshot: Snapshot | None) -> list[CommitMessage]:
        found: list[CommitMessage] = []
        left = np.ones(len(self.ids), np.bool_)
        try:
            for split, group in _groups(self.context, snapshot):
                ids = row_ids_of(group)
                here = (self.ids >= ids.start) & (self.ids < ids.stop)
                if not here.any():
                    continue
                left &= ~here
                rows = self.rows.filter(pa.array(here))
                files = _GroupUpdate(self.context, split, group, rows, self.ids[here]).write()
                base = None if snapshot is None else snapshot.id
                found.append(CommitMessage(split.bucket_id, CommitIncrement(new_files=files), CommitBase(row_ids=base)))
            if left.any():
                raise BadInput(f"{self.context.name} has no row {self.ids[left][0]}; nothing was written")
        except BaseException:
            TableCommit(self.context, "").abort(found)
            raise
        return found


def _groups(context: TableContext, snapshot: Snapshot | None) -> Iterator[tuple[Split, RowIdGroup]]:
    for split in TableScan(context).plan(snapshot):
        for section in split.sections:
            yield split, [file for run in section for file in run]


@dataclass(frozen=True, slots=True)
class _GroupUpdate:
    """The changes of one row-id group.

    ids: of `rows`, ascending.
    """

    context: TableContext
    split: Split
    group: RowIdGroup
    rows: pa.Table
    ids: NDArray[np.int64]

    def write(self) -> tuple[DataFileMeta, ...]:
        """Write durable files that no snapshot names yet. After an exception no file is left."""
        directory = bucket_directory(self.context, self.split.partition, self.split.bucket)
        blobs = [name for name in blob_columns(self.context) if name in self.rows.column_names]
        plain = [name for name in self.rows.column_names if name not in blobs]
        names = DataFileNames(self.context.options.data_file_prefix)
        self._check_not_deleted(directory)
        files: list[DataFileMeta] = []
        try:
            if plain:
                files.append(self._plain_file(directory, plain, names))
            files += [self._blob_file(directory, name, names) for name in blobs]
        except BaseException:
            self.context.io.delete_all(f"{directory}/{file.file_name}" for file in files)
            raise
        return tuple(files)

    @property
    def _positions(self) -> NDArray[np.int64]:
        positions: NDArray[np.int64] = self.ids - row_ids_of(self.group).start
        return positions

    def _check_not_deleted(self, directory: str) -> None:
        deleted = RowIdGroupReader(self.context, ()).deleted(self.group, self.split.deletion_files)
        if deleted is not None and len(deleted_rows := np.intersect1d(deleted, self._positions)):
            deleted_row_id = row_ids_of(self.group).start + int(deleted_rows[0])
            raise BadInput(f"{self.context.name}: row {deleted_row_id} was deleted; nothing was written")

    def _plain_file(self, directory: str, names: Sequence[str], file_names: DataFileNames) -> DataFileMeta:
        ids = row_ids_of(self.group)
        wanted = with_columns(self.context, names)
        new = self.rows.select(wanted.schema.names)
        if len(self.ids) < len(ids):
            # deleted rows are kept, so that all files of the group have the same rows
            reader = RowIdGroupReader(self.context, wanted.schema.fields)
            batches = reader.read(self.group, directory, self.split.partition, {})
            old = pa.Table.from_batches(batches, wanted.schema.arrow)
            places = np.arange(len(ids))
            places[self._positions] = len(ids) + np.arange(len(self.ids))
            new = pa.concat_tables([old, new.cast(old.schema)]).take(pa.array(places))
        writer = RollingFileWriter(wanted.with_options(_ONE_FILE), directory, names=file_names)
        try:
            for batch in new.combine_chunks().to_batches():
                writer.write(batch, first_sequence_number=0)
            (file,) = writer.close()
        except BaseException:
            writer.abort()
            raise
        columns = tuple(wanted.schema.names)
        tracked = replace(file, min_sequence_number=0, max_sequence_number=0, first_row_id=ids.start)
        return replace(tracked, write_columns=columns)

    def _blob_file(self, directory: str, name: str, file_names: DataFileNames) -> DataFileMeta:
        ids = row_ids_of(self.group)
        file = OpenBlobFile(self.context, f"{directory}/{file_names.next('.' + BLOB_FORMAT)}", name)
        try:
            values = dict(zip(self._positions.tolist(), self.rows.column(name), strict=True))
            has_older_value = self._has_older_value(name).tolist()
            for position in range(len(ids)):
                if (value := values.get(position)) is None:
                    if has_older_value[position]:
                        file.add_placeholder()
                    else:
                        file.add(None)
                else:
                    buffer = value.as_buffer()
                    file.add(None if buffer is None else memoryview(buffer))
        except BaseException:
            file.abort()
            raise
        return file.finish(local_time_as_utc_ms(), first_row_id=ids.start)

    def _has_older_value(self, name: str) -> NDArray[np.bool_]:
        """(n,): which rows have an entry in a blob file of this column. A row older than the column has none.

        Java can't read a placeholder that refers to no older file.
        """
        ids = row_ids_of(self.group)
        has_entry = np.zeros(len(ids), np.bool_)
        for source in column_sources(self.context, self.group, [self.context.schema.by_name[name]]):
            for file in source.files if source.fields and source.is_blob else ():
                held = row_ids(file)
                has_entry[held.start - ids.start : held.stop - ids.start] = True
        return has_entry


def _without_defaults(context: TableContext) -> TableContext:
    """Return the context without default values: a null that is written stays null."""
    fields = tuple(replace(field, default=None) for field in context.schema.fields)
    return replace(context, schema=replace(context.schema, fields=fields))
