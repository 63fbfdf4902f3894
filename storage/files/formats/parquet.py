"""Reads Parquet data files. `parquet_writer` writes them.

Source: Java `format/parquet/*`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, groupby, islice
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tidelake.storage.fileio.range_reader import RemoteInput, pieces_of
from tidelake.storage.files.formats.arrow_conversion import (
    in_column,
    to_arrow_type,
)
from tidelake.storage.files.formats.file_field_ids import leaf_numbers
from tidelake.storage.files.formats.file_format import (
    BATCH_BYTES_MAX,
    LARGE_ROW_BYTES,
    ChunkFilter,
    Edges,
    FormatWriterSettings,
    WantedRows,
    batch_of,
    corruption,
    one_large_row_group,
)
from tidelake.storage.files.formats.parquet_bounds import row_group_bounds
from tidelake.storage.files.formats.parquet_footer import MAGIC, framed, int96_as_binary
from tidelake.storage.files.formats.parquet_pages import WantedPages
from tidelake.storage.files.formats.parquet_writer import ParquetWriter, SmallParquetFiles
from tidelake.storage.files.stats_collection import Bounds, ColumnBounds
from tidelake.storage.model.types import DataField, arrow_schema

# The size of rows is unknown before the first batch. That batch has as many rows as would fit if they had this size,
# and is small enough to take little time.
_INITIAL_ROW_BYTES: Final = 64 * 1024
_FIRST_BATCH_ROWS_MAX: Final = 1024

# Read-ahead of each column chunk. A small buffer is enough for local files, and for parts that were fetched ahead. In
# object stores a request costs more than its bytes.
_LOCAL_BUFFER_BYTES: Final = 64 * 1024
_BUFFER_BYTES_AHEAD: Final = 128 * 1024
_REMOTE_BYTES: Final = 16 * 1024 * 1024  # for all columns together
_REMOTE_BUFFER_BYTES_MIN: Final = 256 * 1024
_REMOTE_BUFFER_BYTES_MAX: Final = 4 * 1024 * 1024

_LOCAL: Final = (pa.OSFile, pa.MemoryMappedFile, pa.BufferReader)
_EXPECTED: Final = "a Parquet file with the columns of its schema"


class ParquetFormat:
    """See `FileFormat`."""

    def open_writer(
        self, stream: pa.NativeFile, fields: Sequence[DataField], settings: FormatWriterSettings
    ) -> ParquetWriter:
        return ParquetWriter(stream, fields, settings)

    def small_files(
        self, rows: pa.RecordBatch, fields: Sequence[DataField], settings: FormatWriterSettings, edges: Edges
    ) -> SmallParquetFiles:
        return SmallParquetFiles(rows, fields, settings, edges)

    def read(
        self,
        source: pa.NativeFile,
        path: str,
        wanted: Sequence[DataField],
        *,
        batch_rows: int,
        batch_bytes: int = BATCH_BYTES_MAX,
        chunk_filter: ChunkFilter | None = None,
        wanted_rows: WantedRows | None = None,
        use_threads: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        with source:
            with corruption(path, _EXPECTED):
                is_parallel = use_threads and isinstance(source, _LOCAL)
                stored_batches = _stored_batches(
                    source, wanted, batch_rows, batch_bytes, chunk_filter, wanted_rows, use_threads=is_parallel
                )
            schema = arrow_schema(wanted)

            def in_memory(stored: pa.RecordBatch) -> pa.RecordBatch:
                columns = [_column(stored, f, schema.field(i).type) for i, f in enumerate(wanted)]
                return batch_of(columns, stored.num_rows, schema)

            batches = map(in_memory, stored_batches)
            while True:
                with corruption(path, _EXPECTED):
                    found = list(islice(batches, 1))
                if not found:
                    return
                yield found.pop()  # no reference is kept, because rows may be large

    def chunk_bounds(self, source: pa.NativeFile, path: str, wanted: Sequence[DataField]) -> Bounds | None:
        with source, corruption(path, _EXPECTED):
            return _Contents.of(source, wanted).bounds(wanted)


def _column(stored: pa.RecordBatch, field: DataField, kind: pa.DataType) -> pa.Array:
    position = stored.schema.get_field_index(field.name)
    if position < 0:
        return pa.nulls(stored.num_rows, kind)
    column = stored.column(position)
    if column.type == kind:
        return column
    with in_column(field.name):
        return to_arrow_type(column, field.type)


def _stored_batches(
    source: pa.NativeFile,
    wanted: Sequence[DataField],
    batch_rows: int,
    batch_bytes: int,
    chunk_filter: ChunkFilter | None,
    wanted_rows: WantedRows | None,
    *,
    use_threads: bool,
) -> Iterator[pa.RecordBatch]:
    contents = _Contents.of(source, wanted)
    metadata, chosen = contents.metadata, contents.leaves_of(wanted)
    row_groups = contents.row_groups(wanted, chunk_filter)
    if not chosen:
        return _batches_without_columns(metadata, row_groups, batch_rows)
    columns = sorted(chosen)
    row_bytes = {number: _mean_row_bytes(metadata, number) for number in row_groups}
    pages = _wanted_pages(source, contents, wanted, row_groups, wanted_rows, batch_rows)
    reads_ahead = isinstance(source, RemoteInput) and max(row_bytes.values(), default=0) < LARGE_ROW_BYTES
    if reads_ahead:
        source.read_ahead(pieces_of([_chunks(metadata, group, columns) for group in row_groups], _REMOTE_BYTES))
    file = pq.ParquetFile(
        source,
        metadata=metadata,
        pre_buffer=False,  # otherwise a whole row group would be in memory
        buffer_size=_BUFFER_BYTES_AHEAD if reads_ahead else _buffer_bytes(source, len(chosen)),
        page_checksum_verification=True,
    )

    def is_read_whole(row_group: int) -> bool:
        rows = metadata.row_group(row_group).num_rows
        return row_bytes[row_group] >= LARGE_ROW_BYTES and (rows == 1 or rows * row_bytes[row_group] <= batch_bytes)

    def way(row_group: int) -> str:
        return "pages" if row_group in pages else "whole" if is_read_whole(row_group) else "streamed"

    def batches() -> Iterator[pa.RecordBatch]:
        for found, together in groupby(row_groups, way):
            if found == "pages":
                yield from (_rows_of_pages(source, pages[number], batch_rows, batch_bytes) for number in together)
                continue
            if found == "whole":
                yield from chain.from_iterable(map(partial(_row_group, file.reader, columns), together))
                continue
            numbers = list(together)
            most_bytes = max(row_bytes[number] for number in numbers)
            yield from _streamed(
                file.reader, numbers, columns, most_bytes, batch_rows, batch_bytes, use_threads=use_threads
            )

    return batches()


def _wanted_pages(
    source: pa.NativeFile,
    contents: _Contents,
    wanted: Sequence[DataField],
    row_groups: Sequence[int],
    wanted_rows: WantedRows | None,
    batch_rows: int,
) -> dict[int, WantedPages]:
    """Return the row groups of which only pages are read, and tell `wanted_rows` which rows that leaves out.

    The wanted rows of each become one batch.
    """
    rows = None if wanted_rows is None else wanted_rows.of_parts()
    leaves = contents.flat_leaves_of(wanted)
    if wanted_rows is None or rows is None or leaves is None or not isinstance(source, _LOCAL):
        return {}
    found: dict[int, WantedPages] = {}
    returned = np.ones(len(rows), np.bool_)
    end = 0
    for number in row_groups:
        begin, end = end, end + contents.metadata.row_group(number).num_rows
        of_group = rows[begin:end]
        if np.count_nonzero(of_group) > batch_rows:
            continue
        if (pages := WantedPages.of(source, contents.metadata, number, leaves, of_group)) is not None:
            found[number] = pages
            returned[begin:end] = of_group
    if found:
        wanted_rows.returned(returned)
    return found


def _rows_of_pages(source: pa.NativeFile, pages: WantedPages, batch_rows: int, batch_bytes: int) -> pa.RecordBatch:
    """Return the wanted rows of a row group. Each column is streamed, like a file of its own."""
    columns: dict[str, pa.Array] = {}
    for name, content, wanted in pages.files(source):
        file = pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True)
        end = 0
        parts: list[pa.Array] = []
        row_bytes = _mean_row_bytes(file.metadata, 0)
        for batch in _streamed(file.reader, [0], [0], row_bytes, batch_rows, batch_bytes):
            begin, end = end, end + batch.num_rows
            parts.append(batch.column(0).filter(pa.array(wanted[begin:end])))
        columns[name] = pa.concat_arrays(parts)
    return pa.RecordBatch.from_pydict(columns)


def _chunks(metadata: pq.FileMetaData, row_group: int, columns: Sequence[int]) -> list[range]:
    """Return where the column chunks of a row group are in the file."""
    group = metadata.row_group(row_group)
    chunks = []
    for number in columns:
        chunk = group.column(number)
        start = chunk.data_page_offset
        if chunk.has_dictionary_page:
            start = min(start, chunk.dictionary_page_offset)
        chunks.append(range(start, start + chunk.total_compressed_size))
    return chunks


def _mean_row_bytes(metadata: pq.FileMetaData, row_group: int) -> int:
    """Return the mean size of a row with all columns, before compression.

    The result is too small if values repeat, because a dictionary stores them once. The size of single columns can't be
    used: for a damaged footer Arrow would end the process.
    """
    group = metadata.row_group(row_group)
    size_bytes: int = group.total_byte_size
    return size_bytes // max(1, int(group.num_rows))


def _row_group(reader: pq.core.ParquetReader, columns: Sequence[int], number: int) -> Iterator[pa.RecordBatch]:
    """Read a row group of large rows as a whole.

    No reference to it is kept. A stream would keep its pages and the previous batch.
    """
    with one_large_row_group:
        parts = reader.read_row_group(number, columns, use_threads=False).to_batches()
    while parts:
        yield parts.pop(0)


def _streamed(
    reader: pq.core.ParquetReader,
    row_groups: Sequence[int],
    columns: Sequence[int],
    most_row_bytes: int,
    batch_rows: int,
    batch_bytes: int,
    *,
    use_threads: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Read row groups page by page. A batch may contain rows of several row groups.

    The size of a batch decides how many rows the next one may have.

    most_row_bytes: the mean row size of the row group with the largest rows, by the footer. Used for the first batch.
    """

    def note_size(batch: pa.RecordBatch) -> pa.RecordBatch:
        size_bytes = batch.get_total_buffer_size()  # it was just decoded, so its buffers contain nothing else
        reader.set_batch_size(max(1, min(batch_rows, batch_bytes * batch.num_rows // max(1, size_bytes))))
        return batch

    guess = min(batch_bytes // max(_INITIAL_ROW_BYTES, most_row_bytes), _FIRST_BATCH_ROWS_MAX)
    first_rows = max(1, min(batch_rows, guess))
    batches = reader.iter_batches(first_rows, row_groups=row_groups, column_indices=columns, use_threads=use_threads)
    return map(note_size, batches)


def _without_int96(source: pa.NativeFile) -> pq.FileMetaData:
    """Read the file's metadata with INT96 columns as 12-byte binaries."""
    end = source.size()
    source.seek(end - 8)
    size = int.from_bytes(source.read(4), "little")
    source.seek(end - 8 - size)
    try:
        footer = int96_as_binary(source.read(size))
    except ValueError as e:
        raise pa.ArrowInvalid(str(e)) from None
    return pq.read_metadata(pa.BufferReader(MAGIC + framed(footer)))


@dataclass(frozen=True, slots=True)
class _Contents:
    """The contents of a file, by its footer. If a wanted column is INT96, all INT96 columns are binaries.

    metadata: the footer.
    schema: its Arrow schema.
    leaves: column -> the numbers of its leaves.
    """

    metadata: pq.FileMetaData
    schema: pa.Schema
    leaves: Mapping[str, range]

    @classmethod
    def of(cls, source: pa.NativeFile, wanted: Sequence[DataField]) -> _Contents:
        metadata = pq.read_metadata(source)
        schema = metadata.schema.to_arrow_schema()
        found = cls(metadata, schema, leaf_numbers(schema))
        if all(metadata.schema.column(leaf).physical_type != "INT96" for leaf in found.leaves_of(wanted)):
            return found
        metadata = _without_int96(source)
        return cls(metadata, metadata.schema.to_arrow_schema(), found.leaves)

    def flat_leaves_of(self, wanted: Sequence[DataField]) -> dict[str, int] | None:
        """Return the number of each stored column; None if one is nested."""
        stored = [f.name for f in wanted if f.name in self.leaves]
        if any(pa.types.is_nested(self.schema.field(name).type) for name in stored):
            return None
        return {name: self.leaves[name][0] for name in stored}

    def leaves_of(self, wanted: Sequence[DataField]) -> list[int]:
        return [leaf for f in wanted for leaf in self.leaves.get(f.name, ())]

    def row_groups(self, wanted: Sequence[DataField], chunk_filter: ChunkFilter | None) -> list[int]:
        """Return the numbers of the row groups to read."""
        maybe = None if chunk_filter is None else chunk_filter(self.bounds(wanted))
        return list(range(self.metadata.num_row_groups)) if maybe is None else [int(i) for i in np.flatnonzero(maybe)]

    def bounds(self, wanted: Sequence[DataField]) -> Bounds:
        metadata = self.metadata
        types = {f.name: f.type for f in wanted}
        rows = pa.array([metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)], pa.int64())

        def bounds(name: str) -> ColumnBounds:
            of_column = self.leaves.get(name, range(0))
            if len(of_column) != 1 or name not in types:
                return ColumnBounds.unknown(pa.null(), rows)
            return row_group_bounds(metadata, of_column[0], self.schema.field(name).type, types[name])

        return bounds


def _batches_without_columns(
    metadata: pq.FileMetaData, row_groups: Sequence[int], batch_rows: int
) -> Iterator[pa.RecordBatch]:
    for row_group in row_groups:
        rows = metadata.row_group(row_group).num_rows
        for start in range(0, rows, batch_rows):
            yield batch_of([], min(batch_rows, rows - start), pa.schema([]))


def _buffer_bytes(source: pa.NativeFile, columns: int) -> int:
    if isinstance(source, _LOCAL):
        return _LOCAL_BUFFER_BYTES
    share = _REMOTE_BYTES // columns
    return max(_REMOTE_BUFFER_BYTES_MIN, min(_REMOTE_BUFFER_BYTES_MAX, share))
