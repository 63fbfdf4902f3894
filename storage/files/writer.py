"""Writes the data files of one bucket, which roll at a target size, and returns their metadata for manifests.

Source: Java `io/RollingFileWriterImpl.java`, `io/KeyValueDataFileWriter.java`, `io/RowDataFileWriter.java`,
`io/KeyValueFileWriterFactory.java`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from tidelake.errors import BadInput, CommitConflict
from tidelake.storage.base.clock import local_time_as_utc_ms
from tidelake.storage.files.bucket_directory import all_paths
from tidelake.storage.files.data_file import EMPTY_ROW, DataFileMeta
from tidelake.storage.files.file_index.file_indexer import FileIndexer
from tidelake.storage.files.file_index.index_settings import FileIndexSettings
from tidelake.storage.files.formats import format_named
from tidelake.storage.files.formats.file_format import FormatWriterSettings
from tidelake.storage.files.stats_collection import ColumnMinMax, StatsCollector, stats_modes
from tidelake.storage.model.binary_row import serialize_rows
from tidelake.storage.model.format import KIND_COLUMN, SEQUENCE_COLUMN, FileSource
from tidelake.storage.model.paths import DataFileNames, file_extension, file_index_name
from tidelake.storage.model.schema.table_schema import KIND_FIELD, SEQUENCE_FIELD
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import DataField
from tidelake.storage.model.types.row_kinds import is_retract

_FIRST_ROW: Final = pa.array([0])
_CHECK_ROWS: Final = 1_000  # Java checks the size of a file after every 1,000 rows of a writer
_PART_ROWS: Final = 65_000  # the maximum number of rows written at once; a multiple of _CHECK_ROWS
# A lookup decodes a row group for each key, and a filter skips row groups by their bounds. Row groups of this size need
# 0.03 % more disk space, and no more time to write or read.
ROW_GROUP_ROWS: Final = 130_000


def file_fields(context: TableContext) -> tuple[DataField, ...]:
    """Return the columns of a new data file. With a primary key, key, sequence number and row kind come first."""
    schema = context.schema
    if not schema.has_primary_key:
        return schema.fields
    keys = () if context.options.thin_mode else schema.key_fields
    return (*keys, SEQUENCE_FIELD, KIND_FIELD, *schema.fields)


class DedicatedFiles(Protocol):
    """A writer of files with other columns of the same rows. Each of these files belongs to one data file."""

    def write(self, rows: pa.RecordBatch) -> None: ...

    def roll(self) -> list[DataFileMeta]:
        """Close the files that belong to a data file, which is full now, and return their metadata."""
        ...

    def abort(self) -> None:
        """Delete the files that `roll` has not returned."""
        ...


def file_disappeared(path: str) -> CommitConflict:
    """Return the error for a file that somebody deleted before its commit."""
    return CommitConflict(
        f"{path} was deleted before it was committed: an orphan cleaner deletes files that are older than its "
        "`--older-than`, and this writer needed longer, or another program deleted it. Nothing of the commit was "
        "published. Open a new writer, and write the rows again; give the cleaner an age that no commit reaches"
    )


class RollingFileWriter:
    """Writes batches to one file after the other. Not thread-safe. After an exception only `abort` may be called.

    directory: the directory of the bucket.
    level: the level of the files.
    file_source: whether the rows were appended or compacted.
    changelog: whether these are changelog files, which have separate settings and only roll by size.
    names: makes the names of the files; None starts a new series.
    clock_ms: the clock for the creation times of files.
    plan: the plan of such files, if it already exists.
    dedicated: the writer of columns in dedicated files. Its files follow the data file to which they belong.
    """

    def __init__(
        self,
        context: TableContext,
        directory: str,
        *,
        level: int = 0,
        file_source: FileSource = FileSource.APPEND,
        changelog: bool = False,
        names: DataFileNames | None = None,
        clock_ms: Callable[[], int] = local_time_as_utc_ms,
        plan: FilePlan | None = None,
        dedicated: DedicatedFiles | None = None,
    ) -> None:
        options = context.options
        prefix = options.changelog_file_prefix if changelog else options.data_file_prefix
        self._context = context
        self._directory = directory
        self._plan = plan or FilePlan(context, level, file_source, changelog)
        self._names = names or DataFileNames(prefix)
        self._dedicated = dedicated
        self._clock_ms = clock_ms
        self._target_bytes = options.target_file_size_bytes(has_primary_key=context.schema.has_primary_key)
        rolls_by_rows = file_source is FileSource.APPEND and not changelog
        self._target_rows = options.target_file_row_num if rolls_by_rows else 2**63 - 1
        self._row_count = 0  # rows in all files
        self._open: _OpenFile | None = None
        self._finished: list[DataFileMeta] = []

    def write(
        self,
        batch: pa.RecordBatch,
        *,
        first_sequence_number: int | None = None,
        dedicated: pa.RecordBatch | None = None,
    ) -> None:
        """Write a batch.

        batch: the columns of `file_fields`, in order. With a primary key, the rows must be sorted by it, with different
            keys, and after all keys written before.
        first_sequence_number: the sequence number of the first row, for a table without a primary key.
        dedicated: the columns of the same rows for dedicated files.

        Raises BadInput for values that the file format can't store.
        """
        start = 0
        while start < batch.num_rows:
            if self._open is None:
                path = f"{self._directory}/{self._names.next(self._plan.extension)}"
                self._open = _OpenFile(self._context, self._plan, path)
            part = batch.slice(start, self._rows_until_size_check(self._open))
            self._open.write(part, None if first_sequence_number is None else first_sequence_number + start)
            if self._dedicated is not None and dedicated is not None:
                self._dedicated.write(dedicated.slice(start, part.num_rows))
            start += part.num_rows
            self._row_count += part.num_rows
            if self._open.row_count >= self._target_rows or self._is_full(self._open):
                self._roll()

    def _rows_until_size_check(self, file: _OpenFile) -> int:
        """Return how many rows to write before the next check of the file's size.

        That is half of the estimated remaining rows: rows differ in size, and a file must not exceed its target by more
        than a file of Java.
        """
        left = 0.0
        if file.row_count and (written := file.written_bytes) > 0:
            left = (self._target_bytes - written) / (written / file.row_count) / 2
        steps = max(1, int(min(left, _PART_ROWS)) // _CHECK_ROWS)
        return min(steps * _CHECK_ROWS - self._row_count % _CHECK_ROWS, self._target_rows - file.row_count)

    def _is_full(self, file: _OpenFile) -> bool:
        return self._row_count % _CHECK_ROWS == 0 and file.written_bytes >= self._target_bytes

    def _roll(self) -> None:
        finished, self._open = self._open, None
        if finished is not None:
            self._finished.append(finished.finish(self._clock_ms()))
            self._plan.set_stored_ratio(finished.stored_ratio)
            self._finished += self._dedicated.roll() if self._dedicated is not None else ()

    def close(self) -> list[DataFileMeta]:
        """Finish the last file. Returns all files, which are durable, in the order of their rows."""
        self._roll()
        return self._finished

    def abort(self) -> None:
        """Delete all files that were written, even after `close`. It can be called again."""
        if self._open is not None:
            self._open.abort()
            self._open = None
        if self._dedicated is not None:
            self._dedicated.abort()
        self._context.io.delete_all(path for file in self._finished for path in all_paths(self._directory, file))
        self._finished = []


class FilePlan:
    """The settings of files of one kind and level, which all files of a writer share.

    Only `set_stored_ratio` changes them.
    """

    def __init__(self, context: TableContext, level: int, file_source: FileSource, changelog: bool) -> None:
        schema, options = context.schema, context.options
        format_name = options.changelog_file_format(level) if changelog else options.file_format(level)
        self.level = level
        self.file_source = file_source
        self.fields = file_fields(context)
        self.format = format_named(format_name)
        self.extension = file_extension(
            format_name, options.file_suffix_compression, options.file_suffix_include_compression
        )
        self._columns = schema.by_name
        self._indexes = None if changelog else FileIndexSettings.of(options)
        self._thin_keys = schema.trimmed_primary_keys if options.thin_mode else ()
        self.key_stats_names = self._thin_keys or [f.name for f in schema.key_fields]
        self._modes = stats_modes(
            self.fields, options, level, format_name=format_name, changelog=changelog, thin_keys=self._thin_keys
        )
        self.settings = FormatWriterSettings(
            compression=options.changelog_file_compression(level) if changelog else options.file_compression(level),
            zstd_level=options.zstd_level,
            block_size_bytes=options.file_block_size_bytes,
            block_rows=None if changelog else ROW_GROUP_ROWS,
            options=options.format_options(format_name),
            bounds_for=self.collector().bounds_for,
            target_bytes=options.target_file_size_bytes(has_primary_key=schema.has_primary_key),
            bounds_length=self.collector().bounds_length,
        )

    def indexer(self) -> FileIndexer | None:
        """Return the indexer of a new file; None for files without indexes, such as changelog files."""
        if not self._indexes or not any(
            indexed.column in self._columns for indexed, _ in self._indexes.indexed_columns()
        ):
            return None
        return FileIndexer(self._indexes, self._columns, frozenset(self._columns))

    def set_stored_ratio(self, stored_ratio: float | None) -> None:
        """Set the ratio of stored to in-memory bytes of the last file, to estimate the size of the next one."""
        if stored_ratio is not None:
            self.settings = replace(self.settings, stored_ratio=stored_ratio)

    def collector(self) -> StatsCollector:
        return StatsCollector(self.fields, self._modes)


class _OpenFile:
    """A file that is being written. It becomes visible under its name when it is finished."""

    def __init__(self, context: TableContext, plan: FilePlan, path: str) -> None:
        self._context = context
        self._plan = plan
        self._path = path
        self._collector = plan.collector()
        self._indexer = plan.indexer()
        keys = context.schema.select(context.schema.trimmed_primary_keys)
        self._key_names = [f.name for f in keys]
        self._key_types = [f.type for f in keys]
        self._output = context.io.open_output(path)
        self._output.__enter__()
        try:
            self._writer = plan.format.open_writer(self._output.stream, plan.fields, plan.settings)
        except BaseException as e:
            self._output.__exit__(type(e), e, e.__traceback__)
            raise
        self.row_count = 0
        self._delete_row_count = 0
        self._first: pa.RecordBatch | None = None  # the first key, one row
        self._last: pa.RecordBatch | None = None
        self._min_sequence_number = 2**63 - 1
        self._max_sequence_number = -(2**63)

    @property
    def written_bytes(self) -> int:
        return self._writer.written_bytes

    @property
    def stored_ratio(self) -> float | None:
        return self._writer.stored_ratio

    def write(self, batch: pa.RecordBatch, first_sequence_number: int | None) -> None:
        self._writer.write(batch)
        self._collector.add(batch)
        if self._indexer is not None:
            self._indexer.add(batch)
        if self._key_names:
            keys = batch.select(self._key_names)  # the other columns may be large
            # copies, because slices would keep the whole batch in memory
            self._first = keys.take(_FIRST_ROW) if self._first is None else self._first
            self._last = keys.take(pa.array([len(keys) - 1]))
            sequence = batch.column(SEQUENCE_COLUMN).to_numpy()
            first, last = int(sequence.min()), int(sequence.max())
            kinds = batch.column(KIND_COLUMN).to_numpy()
            self._delete_row_count += int(np.count_nonzero(is_retract(kinds)))
        elif first_sequence_number is None:
            raise BadInput(f"{self._context.name}: rows of a table without a primary key need a first_sequence_number")
        else:
            first, last = first_sequence_number, first_sequence_number + batch.num_rows - 1
        self._min_sequence_number = min(self._min_sequence_number, first)
        self._max_sequence_number = max(self._max_sequence_number, last)
        self.row_count += batch.num_rows

    def _key_range(self) -> tuple[bytes, bytes]:
        """Return the smallest and the largest key, in the form of manifests."""
        if self._first is None or self._last is None:
            return EMPTY_ROW, EMPTY_ROW
        ends = zip(self._first.columns, self._last.columns, strict=True)
        smallest, largest = serialize_rows([pa.concat_arrays(pair) for pair in ends], self._key_types)
        return smallest, largest

    def finish(self, created_ms: int) -> DataFileMeta:
        try:
            min_max = self._writer.close()
            size = self._output.stream.tell()
            meta = self._meta(min_max, size, created_ms)
            index = None if self._indexer is None else self._indexer.container()
        except BaseException as e:
            self._writer.abort()
            self._output.__exit__(type(e), e, e.__traceback__)
            raise
        try:
            self._output.__exit__(None, None, None)
        except FileNotFoundError as error:
            raise file_disappeared(self._path) from error
        return meta if index is None else self._indexed(meta, index)

    def _indexed(self, meta: DataFileMeta, index: bytes) -> DataFileMeta:
        """Store the index in the metadata or in a file next to the data file. If this fails, deletes both files."""
        if len(index) <= self._context.options.file_index_in_manifest_threshold_bytes:
            return replace(meta, embedded_index=index)
        path = file_index_name(self._path)
        try:
            with self._context.io.open_output(path) as output:
                output.write(index)
        except BaseException:
            self._context.io.delete_all([self._path, path])
            raise
        return replace(meta, extra_files=(path.rpartition("/")[2],))

    def abort(self) -> None:
        self._writer.abort()
        reason = RuntimeError(f"{self._path} was aborted")
        self._output.__exit__(RuntimeError, reason, None)

    def _meta(self, min_max: ColumnMinMax, size: int, created_ms: int) -> DataFileMeta:
        schema = self._context.schema
        dense = self._context.options.stats_dense_store
        value_stats, columns = self._collector.of_table(schema.names, min_max, dense=dense)
        min_key, max_key = self._key_range()
        return DataFileMeta(
            file_name=self._path.rpartition("/")[2],
            file_size=size,
            row_count=self.row_count,
            min_key=min_key,
            max_key=max_key,
            key_stats=self._collector.of_columns(self._plan.key_stats_names, min_max),
            value_stats=value_stats,
            min_sequence_number=self._min_sequence_number,
            max_sequence_number=self._max_sequence_number,
            schema_id=schema.id,
            level=self._plan.level,
            creation_time_ms=created_ms,
            delete_row_count=self._delete_row_count,
            file_source=self._plan.file_source,
            value_stats_columns=columns,
        )
