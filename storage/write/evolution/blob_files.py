"""The blob files of one bucket's writer. Each BLOB column has its own files. A blob file belongs to one data file.

Source: Java `append/MultipleBlobFileWriter.java`.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tidelake.storage.base.clock import local_time_as_utc_ms
from tidelake.storage.files.data_file import EMPTY_ROW, EMPTY_STATS, DataFileMeta
from tidelake.storage.files.formats.blob.blob_file import BlobFileWriter
from tidelake.storage.model.format import BLOB_FORMAT, FileSource
from tidelake.storage.model.paths import DataFileNames
from tidelake.storage.model.table import TableContext


class BlobFiles:
    """See `DedicatedFiles`. Sequence numbers and row ids are set when the files are committed.

    names: makes the names of the writer's files.
    """

    def __init__(
        self,
        context: TableContext,
        directory: str,
        names: DataFileNames,
        columns: Sequence[str],
    ) -> None:
        self._context = context
        self._directory = directory
        self._names = names
        self._target_bytes = context.options.blob_target_file_size_bytes
        self._open: dict[str, OpenBlobFile | None] = dict.fromkeys(columns)
        self._finished: dict[str, list[DataFileMeta]] = {name: [] for name in columns}

    def write(self, rows: pa.RecordBatch) -> None:
        """rows: only the BLOB columns."""
        for name in self._open:
            for value in rows.column(name):
                buffer = value.as_buffer()
                file = self._open[name] or self._next(name)
                file.add(None if buffer is None else memoryview(buffer))
                if file.written_bytes >= self._target_bytes:
                    self._finish(name)

    def roll(self) -> list[DataFileMeta]:
        for name in self._open:
            self._finish(name)
        files = [file for of_column in self._finished.values() for file in of_column]
        self._finished = {name: [] for name in self._open}
        return files

    def abort(self) -> None:
        for name, file in self._open.items():
            if file is not None:
                file.abort()
            self._open[name] = None
        files = [file for of_column in self._finished.values() for file in of_column]
        self._context.io.delete_all(f"{self._directory}/{file.file_name}" for file in files)
        self._finished = {name: [] for name in self._open}

    def _next(self, name: str) -> OpenBlobFile:
        path = f"{self._directory}/{self._names.next('.' + BLOB_FORMAT)}"
        file = self._open[name] = OpenBlobFile(self._context, path, name)
        return file

    def _finish(self, name: str) -> None:
        file, self._open[name] = self._open[name], None
        if file is not None:
            self._finished[name].append(file.finish(local_time_as_utc_ms()))


class OpenBlobFile:
    """An open file of one BLOB column. It gets its final name when it is finished."""

    def __init__(self, context: TableContext, path: str, column: str) -> None:
        self._schema_id = context.schema.id
        self._path = path
        self._column = column
        self._output = context.io.open_output(path)
        self._output.__enter__()
        self._writer = BlobFileWriter(self._output.stream)
        self._row_count = 0

    @property
    def written_bytes(self) -> int:
        return self._writer.written_bytes

    def add(self, value: memoryview | bytes | None) -> None:
        self._writer.add(value)
        self._row_count += 1

    def add_placeholder(self) -> None:
        """Add an entry for a row whose value stays in an older file."""
        self._writer.add_placeholder()
        self._row_count += 1

    def finish(self, created_ms: int, *, first_row_id: int | None = None) -> DataFileMeta:
        try:
            self._writer.close()
        except BaseException as e:
            self._output.__exit__(type(e), e, e.__traceback__)
            raise
        self._output.__exit__(None, None, None)
        return DataFileMeta(
            file_name=self._path.rpartition("/")[2],
            file_size=self._writer.written_bytes,
            row_count=self._row_count,
            min_key=EMPTY_ROW,
            max_key=EMPTY_ROW,
            key_stats=EMPTY_STATS,
            value_stats=EMPTY_STATS,
            min_sequence_number=0,
            max_sequence_number=0,
            schema_id=self._schema_id,
            level=0,
            creation_time_ms=created_ms,
            delete_row_count=0,
            file_source=FileSource.APPEND,
            value_stats_columns=(),
            first_row_id=first_row_id,
            write_columns=(self._column,),
        )

    def abort(self) -> None:
        reason = RuntimeError(f"{self._path} was aborted")
        self._output.__exit__(RuntimeError, reason, None)
