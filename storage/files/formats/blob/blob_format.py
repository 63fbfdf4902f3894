"""Blob files as a format of data files with a single column.

A placeholder is read as null: `tidelake.storage.read.evolution` finds the file that has the value of a row.

Source: Java `format/blob/BlobFileFormat.java`, `BlobFormatReader.java`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from tidelake.errors import UnsupportedFeature
from tidelake.storage.files.formats.blob.blob_file import BlobFile, BlobFileWriter, pieces
from tidelake.storage.files.formats.file_format import (
    BATCH_BYTES_MAX,
    ChunkFilter,
    Edges,
    FormatWriterSettings,
    SmallFiles,
    WantedRows,
    batch_of,
    corruption,
)
from tidelake.storage.files.stats_collection import Bounds, ColumnMinMax
from tidelake.storage.model.types import DataField, Root, arrow_schema


class BlobFormat:
    def open_writer(
        self, stream: pa.NativeFile, fields: Sequence[DataField], settings: FormatWriterSettings
    ) -> _BlobWriter:
        _check(fields)
        return _BlobWriter(stream)

    def small_files(
        self, rows: pa.RecordBatch, fields: Sequence[DataField], settings: FormatWriterSettings, edges: Edges
    ) -> SmallFiles | None:
        return None

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
        with source, corruption(path, "a blob file"):
            file = BlobFile(source, path)
            _check(wanted)
            schema = arrow_schema(wanted)
            sizes = np.maximum(file.lengths, 0) if wanted else np.zeros_like(file.lengths)
            for start, stop in pieces(sizes, batch_rows, batch_bytes):
                columns = [pa.array([file.value(row) for row in range(start, stop)], pa.binary()) for _ in wanted]
                yield batch_of(columns, stop - start, schema)

    def chunk_bounds(self, source: pa.NativeFile, path: str, wanted: Sequence[DataField]) -> Bounds | None:
        source.close()
        return None


class _BlobWriter:
    stored_ratio: float | None = 1.0

    def __init__(self, stream: pa.NativeFile) -> None:
        self._file = BlobFileWriter(stream)

    @property
    def written_bytes(self) -> int:
        return self._file.written_bytes

    def write(self, batch: pa.RecordBatch) -> None:
        for scalar in batch.column(0):
            buffer = scalar.as_buffer()
            self._file.add(None if buffer is None else memoryview(buffer))

    def close(self) -> ColumnMinMax:
        self._file.close()
        return {}

    def abort(self) -> None:
        pass


def _check(fields: Sequence[DataField]) -> None:
    for f in fields:
        if f.type.root is not Root.BLOB:
            raise UnsupportedFeature(
                f"column {f.name} {f.type} in blob files",
                "this release supports blob files of BLOB columns, but not of arrays and maps of them",
                "Use Java Paimon for it, or leave the column out",
            )
