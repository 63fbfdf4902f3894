"""Reads the rows of a row-id group: joins the columns of several files.

Source: Java `operation/DataEvolutionSplitRead.java`, `reader/DataEvolutionFileReader.java`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.errors import CorruptFile, UnsupportedFeature
from tidelake.storage.files.bucket_directory import data_file_path
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.files.formats.file_format import batch_of
from tidelake.storage.files.reader import read_data_file
from tidelake.storage.merge.sections import BatchSize, batch_size
from tidelake.storage.model.deletion_vectors.vector_file import DeletionFile, read_vector
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import DataField, arrow_schema, arrow_type
from tidelake.storage.read.evolution.blob_column import blob_column, with_inline_blobs
from tidelake.storage.read.evolution.row_id_groups import (
    ColumnSource,
    RowIdGroup,
    anchor_of,
    claimed_columns,
    column_sources,
    ordinary_files,
    row_ids,
    row_ids_of,
)
from tidelake.storage.read.predicate import Predicate
from tidelake.storage.read.skipping.file_index_predicate import FileIndexPredicate


@dataclass(frozen=True)
class RowIdGroupReader:
    """Reads row-id groups of one table.

    context: its schema is used for the read.
    fields: columns of the table, `_ROW_ID`, `_SEQUENCE_NUMBER`. A column that no file of a group holds is null.
    condition: rows that don't fulfil it may be skipped, but are not always. The caller must filter again.
    """

    context: TableContext
    fields: tuple[DataField, ...]
    condition: Predicate | None = None

    def read(
        self, group: RowIdGroup, directory: str, partition: bytes, deletion_files: Mapping[str, DeletionFile]
    ) -> Iterator[pa.RecordBatch]:
        """Read the rows of a group. No batch is empty.

        deletion_files: by the name of the group's oldest ordinary file

        Raises CorruptFile.
        """
        if self._can_skip(group, directory):
            return
        sources = column_sources(self.context, group, self.fields)
        reading = _GroupInBucket(self, group, directory, partition, self.deleted(group, deletion_files))
        streams = [reading.stream(source, is_alone=len(group) == 1) for source in sources]
        found = [field for source in sources for field in source.fields]
        places = {field.id: place for place, field in enumerate(found)}
        schema = arrow_schema(self.fields)
        self._check_missing(group, places)
        for columns, rows in _join_columns(streams, group):
            yield batch_of([self._column(field, columns, places, rows) for field in self.fields], rows, schema)

    def _column(self, field: DataField, columns: Sequence[pa.Array], places: Mapping[int, int], rows: int) -> pa.Array:
        place = places.get(field.id)
        return pa.nulls(rows, arrow_type(field.type)) if place is None else columns[place]

    def _check_missing(self, group: RowIdGroup, places: Mapping[int, int]) -> None:
        for field in self.fields:
            if field.id not in places and not field.type.nullable:
                raise UnsupportedFeature(
                    f"{self.context.name}: column {field.name} {field.type} of rows {row_ids_of(group)}",
                    "none of their files has the column, and it is NOT NULL",
                    "Leave the column out, or make it nullable (ALTER)",
                )

    def deleted(self, group: RowIdGroup, deletion_files: Mapping[str, DeletionFile]) -> NDArray[np.int64] | None:
        """Return the positions of deleted rows in the group; None if it has no deletion vector."""
        anchor = anchor_of(group)
        if anchor is None or (deletion := deletion_files.get(anchor.file_name)) is None:
            return None
        return read_vector(self.context.io, deletion) + (row_ids(anchor).start - row_ids_of(group).start)

    # ------------------------------------------------------------ skipping

    @cached_property
    def _names(self) -> Mapping[int, str]:
        return {field.id: field.name for field in self.context.schema.fields}

    def _can_skip(self, group: RowIdGroup, directory: str) -> bool:
        """Return whether the index of some file shows that no row of the group fulfils the condition."""
        if self.condition is None or len(group) == 1:
            return False
        for file, columns in claimed_columns(self.context, group, names=self._names):
            index_predicate = FileIndexPredicate(self.context, self.condition.within(columns))
            selected = index_predicate.selected_rows(file, data_file_path(directory, file))
            if selected is not None and not selected:
                return True
        return False


@dataclass(frozen=True, slots=True)
class _GroupInBucket:
    """A row-id group with its bucket.

    deleted: positions in the group.
    """

    reader: RowIdGroupReader
    group: RowIdGroup
    directory: str
    partition: bytes
    deleted: NDArray[np.int64] | None

    @property
    def size(self) -> BatchSize:
        ordinary = ordinary_files(self.group)
        return batch_size([ordinary[:1] or self.group[:1]])

    def stream(self, source: ColumnSource, *, is_alone: bool) -> Iterator[pa.RecordBatch]:
        context, rows = self.reader.context, row_ids_of(self.group)
        if source.is_blob and source.fields:
            schema = arrow_schema(source.fields)
            arrays = blob_column(context, source.files, self.directory, rows, self.deleted, self.size)
            return (pa.RecordBatch.from_arrays([array], schema=schema) for array in arrays)
        batches = self._batches(source, is_alone=is_alone)
        return (with_inline_blobs(context, batch, source.fields) for batch in batches)

    def _batches(self, source: ColumnSource, *, is_alone: bool) -> Iterator[pa.RecordBatch]:
        """Read the source's files one after the other. Rows are skipped only if the group has a single file."""
        context, size = self.reader.context, self.size
        condition = self.reader.condition if is_alone else None
        for file in source.files:
            path = data_file_path(self.directory, file)
            selected = FileIndexPredicate(context, condition).selected_rows(file, path)
            if selected is not None and not selected:
                continue
            yield from read_data_file(
                context,
                file,
                path,
                source.fields,
                partition=self.partition,
                batch_rows=size.rows,
                batch_bytes=size.bytes,
                predicate=condition,
                deleted=self._deleted_of(file),
                selected=selected,
            )

    def _deleted_of(self, file: DataFileMeta) -> NDArray[np.int64] | None:
        """Return the positions of deleted rows in one file."""
        if self.deleted is None:
            return None
        positions = self.deleted + (row_ids_of(self.group).start - row_ids(file).start)
        return positions[(positions >= 0) & (positions < file.row_count)]


def _join_columns(
    streams: Sequence[Iterator[pa.RecordBatch]], group: RowIdGroup
) -> Iterator[tuple[list[pa.Array], int]]:
    """Join the columns of all streams, cut wherever a batch of any stream ends.

    Raises CorruptFile if one stream ends earlier than another.
    """
    held: list[pa.RecordBatch | None] = [None] * len(streams)
    while True:
        for i, stream in enumerate(streams):
            if held[i] is None:
                held[i] = next(stream, None)
        parts = [batch for batch in held if batch is not None]
        if not parts:
            return
        if len(parts) < len(streams):
            raise CorruptFile(group[0].file_name, "as many rows as the files of the same rows have", "fewer or more")
        rows = min(batch.num_rows for batch in parts)
        yield [column.slice(0, rows) for batch in parts for column in batch.columns], rows
        held = [batch.slice(rows) if batch.num_rows > rows else None for batch in parts]
