"""Creates, reads and deletes the files of one bucket that is being written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Final

import pyarrow as pa

from tidelake.storage.commit.commit_increment import CompactResult
from tidelake.storage.files.bucket_directory import all_paths, bucket_directory, data_file_path
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.files.formats.file_format import BATCH_BYTES_MAX
from tidelake.storage.files.reader import Chunks, chunk_bounds, read_data_file
from tidelake.storage.files.stats_collection import ColumnBounds
from tidelake.storage.files.writer import DedicatedFiles, FilePlan, RollingFileWriter
from tidelake.storage.merge.merge_functions import check_no_nulls
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.deletion_vectors.vector_file import DeletionFile, read_vector
from tidelake.storage.model.format import FileSource
from tidelake.storage.model.paths import DataFileNames
from tidelake.storage.model.schema.table_schema import KIND_FIELD, SEQUENCE_FIELD
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import DataField, arrow_schema
from tidelake.storage.write.deletion_vector_maintainer import discard_index_files

_BATCH_ROWS: Final = 65_536


class BucketFiles:
    """The files of one bucket. As in Java, data files share one uuid in their names, changelog files another."""

    def __init__(self, context: TableContext, key: BucketId) -> None:
        self._context = context
        self._key = key
        self._partition = key.partition
        self.directory = bucket_directory(context, key.partition, key.bucket)
        self.data_names = DataFileNames(context.options.data_file_prefix)
        self._changelog_names = DataFileNames(context.options.changelog_file_prefix)
        self._plans: dict[tuple[int, FileSource, bool], FilePlan] = {}  # a plan costs more than writing a small file

    def data(self, level: int = 0, file_source: FileSource = FileSource.APPEND) -> RollingFileWriter:
        """Return a writer of data files, for a sorted run of this level or rows of an append table."""
        return self._writer(level, file_source, self.data_names, changelog=False)

    def changelog(self, level: int = 0) -> RollingFileWriter:
        """Return a writer of changelog files.

        level: the level of the data files that the changes belong to.
        """
        return self._writer(level, FileSource.APPEND, self._changelog_names, changelog=True)

    def with_dedicated_files(self, context: TableContext, dedicated: DedicatedFiles) -> RollingFileWriter:
        """Return a writer of data files, for an append table that stores some columns in separate files.

        context: with a schema of only the other columns.
        """
        return RollingFileWriter(context, self.directory, names=self.data_names, dedicated=dedicated)

    def _writer(
        self, level: int, file_source: FileSource, names: DataFileNames, *, changelog: bool
    ) -> RollingFileWriter:
        kind = level, file_source, changelog
        if kind not in self._plans:
            self._plans[kind] = FilePlan(self._context, *kind)
        return RollingFileWriter(
            self._context,
            self.directory,
            level=level,
            file_source=file_source,
            changelog=changelog,
            names=names,
            plan=self._plans[kind],
        )

    def delete(self, files: Iterable[DataFileMeta]) -> None:
        """Delete files that no snapshot names."""
        self._context.io.delete_all(path for file in files for path in all_paths(self.directory, file))

    def discard(self, result: CompactResult) -> None:
        """Delete the files of a compaction that no snapshot names."""
        self.delete(result.new_files)
        discard_index_files(self._context, self._key, result.new_index_files)

    @cached_property
    def row_fields(self) -> tuple[DataField, ...]:
        """The table columns, `_SEQUENCE_NUMBER` and `_VALUE_KIND`: the complete content of a row."""
        return (*self._context.schema.fields, SEQUENCE_FIELD, KIND_FIELD)

    @cached_property
    def row_schema(self) -> pa.Schema:
        return arrow_schema(self.row_fields)

    def path(self, file: DataFileMeta) -> str:
        return data_file_path(self.directory, file)

    def read(
        self,
        file: DataFileMeta,
        fields: Sequence[DataField] | None = None,
        *,
        batch_rows: int = _BATCH_ROWS,
        batch_bytes: int = BATCH_BYTES_MAX,
        deletion: DeletionFile | None = None,
        chunks: Chunks | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Read rows as they are stored in the file.

        fields: None: `row_fields`.
        deletion: the deletion vector whose rows are left out.
        chunks: parts of the file to read; None: the whole file.
        """
        yield from read_data_file(
            self._context,
            file,
            self.path(file),
            self.row_fields if fields is None else fields,
            partition=self._partition,
            batch_rows=batch_rows,
            batch_bytes=batch_bytes,
            predicate=chunks,
            deleted=None if deletion is None else read_vector(self._context.io, deletion),
        )

    def chunk_bounds(self, file: DataFileMeta, field: DataField) -> ColumnBounds | None:
        """See `tidelake.storage.files.reader`."""
        return chunk_bounds(self._context, file, self.path(file), field, partition=self._partition)

    @cached_property
    def _file_columns(self) -> tuple[list[str], list[str]]:
        """Returns the source and the name of each column of a data file."""
        schema = self._context.schema
        rest = [SEQUENCE_FIELD.name, KIND_FIELD.name, *schema.names]
        if self._context.options.thin_mode:
            return rest, rest
        return [*schema.trimmed_primary_keys, *rest], [*(f.name for f in schema.key_fields), *rest]

    def file_rows(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Convert table columns, `_SEQUENCE_NUMBER` and `_VALUE_KIND` to columns of a primary-key file, in file order.

        `_KEY_x` shares the memory of `x`. Raises BadInput if merging produced null in a NOT NULL column.
        """
        check_no_nulls(rows, self._context.schema, self._context.name)
        sources, names = self._file_columns
        return rows.select(sources).rename_columns(names)
