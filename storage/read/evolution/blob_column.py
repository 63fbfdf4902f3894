"""Reads a BLOB column of a row-id group, from blob files or from descriptors in ordinary files.

If several blob files have a value for a row, the newest file's value is used. Descriptors (`blob-descriptor-field`)
name other files, which have the bytes.

Source: Java `operation/BlobFallbackRecordReader.java`, `data/Blob.java` (fromBytes), `data/columnar/ColumnarRow.java`
(getBlob).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.errors import CorruptFile, UnsupportedFeature
from tidelake.storage.files.bucket_directory import data_file_path
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.files.formats.blob.blob_file import BlobFile, pieces
from tidelake.storage.files.formats.blob.descriptor import BlobDescriptor
from tidelake.storage.files.reader import open_data_file
from tidelake.storage.merge.sections import BatchSize
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import DataField, Root
from tidelake.storage.read.evolution.row_id_groups import row_ids


def blob_column(
    context: TableContext,
    files: Sequence[DataFileMeta],
    directory: str,
    rows: range,
    deleted: NDArray[np.int64] | None,
    size: BatchSize,
) -> Iterator[pa.Array]:
    """Yield the values of these row ids as bytes, or as descriptors if the table's options say so.

    deleted: positions in `rows` that are left out.
    Raises CorruptFile.
    """
    newest_first = sorted(files, key=lambda file: -file.max_sequence_number)
    paths = [data_file_path(directory, file) for file in newest_first]
    with ExitStack() as opened:
        blobs = [BlobFile(opened.enter_context(open_data_file(context.io, path)), path) for path in paths]
        file_of_row, row = _file_of_each_row(newest_first, blobs, paths, rows)
        if deleted is not None:
            file_of_row, row = np.delete(file_of_row, deleted), np.delete(row, deleted)
        as_descriptor = context.options.is_on("blob-as-descriptor")

        def value(which: int, position: int) -> memoryview | bytes | None:
            if which < 0 or blobs[which].lengths[position] < 0:
                return None
            if as_descriptor:
                return BlobDescriptor(paths[which], *blobs[which].place(position)).to_bytes()
            return blobs[which].value(position)

        sizes = np.zeros(len(file_of_row), np.int64)
        for which, blob in enumerate(blobs if not as_descriptor else ()):
            sizes[file_of_row == which] = np.maximum(blob.lengths[row[file_of_row == which]], 0)
        for start, stop in pieces(sizes, size.rows, size.bytes):
            places = zip(file_of_row[start:stop].tolist(), row[start:stop].tolist(), strict=True)
            yield pa.array([value(which, position) for which, position in places], pa.binary())


def _file_of_each_row(
    files: Sequence[DataFileMeta], blobs: Sequence[BlobFile], paths: Sequence[str], rows: range
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return for each row the number of the file that has its value (-1: no file), and the position in that file."""
    file_of_row = np.full(len(rows), -1, np.int64)
    position = np.zeros(len(rows), np.int64)
    is_covered = np.zeros(len(rows), np.bool_)
    for which, (file, blob) in enumerate(zip(files, blobs, strict=True)):
        ids = row_ids(file)
        if len(blob.lengths) != file.row_count:
            raise CorruptFile(paths[which], f"{file.row_count} rows, as its manifest says", f"{len(blob.lengths)}")
        if ids.start < rows.start or ids.stop > rows.stop:
            raise CorruptFile(paths[which], f"values of rows {rows}, as the other files of the group", f"of rows {ids}")
        part = slice(ids.start - rows.start, ids.stop - rows.start)
        is_taken = (file_of_row[part] < 0) & ~blob.is_placeholder
        file_of_row[part][is_taken] = which
        position[part][is_taken] = np.flatnonzero(is_taken)
        is_covered[part] = True
    if not is_covered.all():
        missing = rows.start + int(np.argmin(is_covered))
        raise CorruptFile(
            paths[0], f"values of rows {rows}, together with the other files of the group", f"none of {missing}"
        )
    return file_of_row, position


def with_inline_blobs(context: TableContext, batch: pa.RecordBatch, fields: Sequence[DataField]) -> pa.RecordBatch:
    """Replace the descriptors of BLOB columns by the bytes they refer to, unless the options ask for descriptors.

    fields: the fields of the batch

    Raises CorruptFile with the path that a descriptor names.
    """
    blobs = [i for i, field in enumerate(fields) if field.type.root is Root.BLOB]
    if not blobs or context.options.is_on("blob-as-descriptor"):
        return batch
    columns = list(batch.columns)
    for i in blobs:
        values = [None if value is None else _bytes_of(context, fields[i], value) for value in columns[i].to_pylist()]
        columns[i] = pa.array(values, pa.binary())
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _bytes_of(context: TableContext, field: DataField, value: bytes) -> bytes:
    try:
        descriptor = BlobDescriptor.from_bytes(value)
    except ValueError as e:
        raise UnsupportedFeature(
            f"{context.name}: a value of column {field.name} BLOB in an ordinary file",
            f"it is not a descriptor: {e}",
            "Set blob-as-descriptor = true to see its bytes",
        ) from None
    try:
        with context.io.open_input(descriptor.uri) as source:
            left = source.size() - descriptor.offset
            length = left if descriptor.length < 0 else descriptor.length
            if descriptor.offset < 0 or not 0 <= length <= left:
                raise CorruptFile(descriptor.uri, f"{length} bytes at {descriptor.offset}", f"{left}")
            return bytes(source.read_at(length, descriptor.offset))
    except FileNotFoundError:
        raise CorruptFile(descriptor.uri, f"a file that column {field.name} refers to", "none") from None
