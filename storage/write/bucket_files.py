"""The files of one bucket that is being written: where new ones go, and how they are read back or taken away."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa

from storage.files.bucket_directory import all_paths, bucket_directory, data_file_path
from storage.files.data_file import DataFileMeta
from storage.files.reader import read_data_file
from storage.files.writer import RollingFileWriter
from storage.paths import DataFileNames
from storage.schema import KIND_FIELD, SEQUENCE_FIELD
from storage.table import TableContext
from storage.write.router import BucketKey

_BATCH_ROWS: Final = 65_536


class BucketFiles:
    """One uuid for all data files of a writer's bucket, as Java has it; another for its changelog files."""

    def __init__(self, context: TableContext, key: BucketKey) -> None:
        self._context = context
        self._partition = key.partition
        self._directory = bucket_directory(context, key.partition, key.bucket)
        self._data_names = DataFileNames(context.options.data_file_prefix)
        self._changelog_names = DataFileNames(context.options.changelog_file_prefix)

    def data(self) -> RollingFileWriter:
        """For a run of rows on level 0, or for rows of an append table."""
        return RollingFileWriter(self._context, self._directory, names=self._data_names)

    def changelog(self) -> RollingFileWriter:
        return RollingFileWriter(self._context, self._directory, changelog=True, names=self._changelog_names)

    def delete(self, files: Iterable[DataFileMeta]) -> None:
        """Files that no snapshot holds."""
        self._context.io.delete_all(path for file in files for path in all_paths(self._directory, file))

    def read(self, file: DataFileMeta) -> Iterator[pa.RecordBatch]:
        """Table columns, `_SEQUENCE_NUMBER`, `_VALUE_KIND`, as they lie in the file."""
        fields = [*self._context.schema.fields, SEQUENCE_FIELD, KIND_FIELD]
        path = data_file_path(self._directory, file)
        yield from read_data_file(self._context, file, path, fields, partition=self._partition, batch_rows=_BATCH_ROWS)
