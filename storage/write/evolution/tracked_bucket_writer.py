"""Writes append tables whose rows get ids when they are committed. BLOB columns are written to separate files.

Source: Java `append/AppendOnlyWriter.java`, `append/DedicatedFormatRollingFileWriter.java`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.files.writer import RollingFileWriter
from tidelake.storage.model.table import TableContext
from tidelake.storage.write.bucket_files import BucketFiles
from tidelake.storage.write.bucket_writer import AppendBucketWriter
from tidelake.storage.write.evolution.blob_files import BlobFiles
from tidelake.storage.write.evolution.file_columns import blob_columns, plain_columns, with_columns


def append_bucket_writer(context: TableContext, files: BucketFiles, next_sequence_number: int) -> AppendBucketWriter:
    """Return the writer that the table's options require."""
    if context.options.row_tracking_enabled:
        return TrackedBucketWriter(context, files)
    return AppendBucketWriter(context, files, next_sequence_number)


class TrackedBucketWriter(AppendBucketWriter):
    """Writes rows without own sequence numbers: the sequence number of a file is the snapshot that commits it."""

    def __init__(self, context: TableContext, files: BucketFiles) -> None:
        super().__init__(context, files, next_sequence_number=0)
        self._context = context
        self._blobs = blob_columns(context)
        self._plain = plain_columns(context)

    def _new_file_writer(self) -> RollingFileWriter:
        if not self._blobs:
            return super()._new_file_writer()
        blob_files = BlobFiles(self._context, self._files.directory, self._files.data_names, self._blobs)
        return self._files.with_dedicated_files(with_columns(self._context, self._plain), blob_files)

    def _write_batch(self, output: RollingFileWriter, batch: pa.RecordBatch) -> None:
        if not self._blobs:
            super()._write_batch(output, batch)
            return
        output.write(batch.select(self._plain), first_sequence_number=0, dedicated=batch.select(self._blobs))

    def _closed(self, output: RollingFileWriter) -> Sequence[DataFileMeta]:
        return [self._as_committed(file) for file in output.close()]

    def _as_committed(self, file: DataFileMeta) -> DataFileMeta:
        if file.write_columns is None and self._blobs:
            file = replace(file, write_columns=tuple(self._plain))
        return replace(file, min_sequence_number=0, max_sequence_number=0)
