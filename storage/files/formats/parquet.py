"""Parquet data files: how they are read. How they are written: `parquet_writer`.

Source: Java `format/parquet/*`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from storage.files.column_bounds import ColumnBounds
from storage.files.formats.arrow_conversion import (
    in_column,
    to_arrow_type,
)
from storage.files.formats.base import (
    BATCH_BYTES_MAX,
    ChunkFilter,
    FormatWriterSettings,
    batch_of,
    corruption,
)
from storage.files.formats.leaf_columns import leaf_numbers
from storage.files.formats.parquet_bounds import row_group_bounds
from storage.files.formats.parquet_footer import MAGIC, framed, int96_as_binary
from storage.files.formats.parquet_writer import ParquetWriter
from storage.types import DataField, arrow_schema

# Until a batch tells how large rows are: as many as fit if they are this large, in a batch that hardly costs time.
_FIRST_GUESS_ROW_BYTES: Final = 64 * 1024
_FIRST_BATCH_ROWS_MAX: Final = 1024

# Read ahead of each column chunk. Local: enough to make reads cheap. Elsewhere a request costs more than bytes do.
_LOCAL_BUFFER_BYTES: Final = 64 * 1024
_REMOTE_BUFFERS_BYTES: Final = 16 * 1024 * 1024  # of all columns together
_REMOTE_BUFFER_BYTES_MIN: Final = 256 * 1024
_REMOTE_BUFFER_BYTES_MAX: Final = 4 * 1024 * 1024

_EXPECTED: Final = "a Parquet file with the columns of its schema"


class ParquetFormat:
    """See `FileFormat`."""

    def open_writer(
        self, stream: pa.NativeFile, fields: Sequence[DataField], settings: FormatWriterSettings
    ) -> ParquetWriter:
        return ParquetWriter(stream, fields, settings)

    def read(
        self,
        source: pa.NativeFile,
        path: str,
        wanted: Sequence[DataField],
        *,
        batch_rows: int,
        batch_bytes: int = BATCH_BYTES_MAX,
        chunk_filter: ChunkFilter | None = None,
    ) -> Iterator[pa.RecordBatch]:
        with source:
            with corruption(path, _EXPECTED):
                stored_batches = _stored_batches(source, wanted, batch_rows, batch_bytes, chunk_filter)
            schema = arrow_schema(wanted)
            while True:
                with corruption(path, _EXPECTED):
                    stored = next(stored_batches, None)
                    if stored is None:
                        return
                    columns = [_column(stored, f, schema.field(i).type) for i, f in enumerate(wanted)]
                yield batch_of(columns, stored.num_rows, schema)


def _column(stored: pa.RecordBatch, field: DataField, kind: pa.DataType) -> pa.Array:
    position = stored.schema.get_field_index(field.name)
    if position < 0:
        return pa.nulls(stored.num_rows, kind)
    with in_column(field.name):
        return to_arrow_type(stored.column(position), field.type)


def _stored_batches(
    source: pa.NativeFile,
    wanted: Sequence[DataField],
    batch_rows: int,
    batch_bytes: int,
    chunk_filter: ChunkFilter | None,
) -> Iterator[pa.RecordBatch]:
    metadata = pq.read_metadata(source)
    stored_schema = metadata.schema.to_arrow_schema()
    leaves = leaf_numbers(stored_schema)
    chosen = [leaf for f in wanted for leaf in leaves.get(f.name, ())]
    if any(metadata.schema.column(leaf).physical_type == "INT96" for leaf in chosen):
        metadata = _without_int96(source)
        stored_schema = metadata.schema.to_arrow_schema()
    row_groups = _row_groups(metadata, stored_schema, wanted, leaves, chunk_filter)
    if not chosen:
        return _batches_without_columns(metadata, row_groups, batch_rows)
    file = pq.ParquetFile(
        source,
        metadata=metadata,
        pre_buffer=False,  # it would hold a row group as a whole
        buffer_size=_buffer_bytes(source, len(chosen)),
        page_checksum_verification=True,
    )
    first_rows = min(batch_rows, _FIRST_BATCH_ROWS_MAX, max(1, batch_bytes // _FIRST_GUESS_ROW_BYTES))
    batches: Iterator[pa.RecordBatch] = file.reader.iter_batches(
        first_rows, row_groups=row_groups, column_indices=sorted(chosen), use_threads=False
    )
    return _batches_in_bounds(file.reader, batches, batch_rows, batch_bytes)


def _batches_in_bounds(
    reader: pq.core.ParquetReader, batches: Iterator[pa.RecordBatch], batch_rows: int, batch_bytes: int
) -> Iterator[pa.RecordBatch]:
    """The size of a batch decides how many rows the next may have; sizes in the file are no help, as a dictionary hides
    them.
    """
    for batch in batches:
        allowed_rows = batch_bytes * batch.num_rows // max(1, batch.nbytes)
        reader.set_batch_size(max(1, min(batch_rows, allowed_rows)))
        yield batch


def _without_int96(source: pa.NativeFile) -> pq.FileMetaData:
    """The file's metadata with INT96 columns as 12-byte binaries."""
    end = source.size()
    source.seek(end - 8)
    size = int.from_bytes(source.read(4), "little")
    source.seek(end - 8 - size)
    try:
        footer = int96_as_binary(source.read(size))
    except ValueError as e:
        raise pa.ArrowInvalid(str(e)) from None
    return pq.read_metadata(pa.BufferReader(MAGIC + framed(footer)))


def _row_groups(
    metadata: pq.FileMetaData,
    stored_schema: pa.Schema,
    wanted: Sequence[DataField],
    leaves: Mapping[str, range],
    chunk_filter: ChunkFilter | None,
) -> list[int]:
    if chunk_filter is None:
        return list(range(metadata.num_row_groups))
    types = {f.name: f.type for f in wanted}
    rows = pa.array([metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)], pa.int64())

    def bounds(name: str) -> ColumnBounds:
        of_column = leaves.get(name, range(0))
        if len(of_column) != 1 or name not in types:
            return ColumnBounds.unknown(pa.null(), rows)
        return row_group_bounds(metadata, of_column[0], stored_schema.field(name).type, types[name])

    maybe = chunk_filter(bounds)
    return list(range(len(rows))) if maybe is None else [int(i) for i in np.flatnonzero(maybe)]


def _batches_without_columns(
    metadata: pq.FileMetaData, row_groups: Sequence[int], batch_rows: int
) -> Iterator[pa.RecordBatch]:
    for row_group in row_groups:
        rows = metadata.row_group(row_group).num_rows
        for start in range(0, rows, batch_rows):
            yield batch_of([], min(batch_rows, rows - start), pa.schema([]))


def _buffer_bytes(source: pa.NativeFile, columns: int) -> int:
    if isinstance(source, pa.OSFile | pa.MemoryMappedFile | pa.BufferReader):
        return _LOCAL_BUFFER_BYTES
    share = _REMOTE_BUFFERS_BYTES // columns
    return max(_REMOTE_BUFFER_BYTES_MIN, min(_REMOTE_BUFFER_BYTES_MAX, share))
