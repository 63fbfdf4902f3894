"""One bucket being written: rows in, data files out.

Two kinds, one protocol: a bucket of a primary-key table sorts and merges what arrives between flushes; a bucket of an
append table only gathers it. Both may be told by the memory budget, at any moment and from any thread, to give memory
back.

Source: Java `mergetree/MergeTreeWriter.java`, `append/AppendOnlyWriter.java`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Final, Protocol

import pyarrow as pa

from storage.files.data_file import DataFileMeta
from storage.files.writer import RollingFileWriter
from storage.format import KIND_COLUMN, SEQUENCE_COLUMN
from storage.merge.kernels import merge_order
from storage.merge.merge_functions import MergeFunction
from storage.merge.merge_reader import MergeOrder
from storage.merge.order_words import aligned_words, column_words
from storage.options import ChangelogProducer
from storage.table import TableContext
from storage.write.bucket_files import BucketFiles
from storage.write.write_buffer import WriteBuffer

# A buffer this large makes a file worth having: flush it instead of writing the rows down twice.
FLUSH_RATHER_THAN_SPILL_BYTES: Final = 32 * 1024 * 1024


class BucketWriter(Protocol):
    """Thread-safe."""

    @property
    def held_bytes(self) -> int: ...

    @property
    def next_sequence_number(self) -> int:
        """Of the next row to arrive."""
        ...

    def write(self, rows: pa.RecordBatch) -> None:
        """rows: conformed, of this bucket, in arrival order."""
        ...

    def give_back(self) -> None: ...

    def prepare_commit(self) -> tuple[list[DataFileMeta], list[DataFileMeta]]:
        """Flush; hand over (data files, changelog files) finished since the last call. They are durable, and nobody's
        yet.
        """
        ...

    def committed(self) -> None:
        """What was handed over is in a snapshot."""
        ...

    def uncommitted(self) -> Iterator[pa.RecordBatch]:
        """All versions of rows that no snapshot holds, oldest first: table columns, `_SEQUENCE_NUMBER`, `_VALUE_KIND`.

        Only for primary-key tables.
        """
        ...

    def abandon(self) -> None:
        """Drop the rows, delete the files that were not handed over."""
        ...


class PrimaryKeyBucketWriter:
    """Every flush makes one sorted run on level 0."""

    def __init__(
        self,
        context: TableContext,
        files: BucketFiles,
        order: MergeOrder,
        merge_function: MergeFunction,
        next_sequence_number: int,
        spill_directory: str | None,
    ) -> None:
        self._key_columns = order.key_columns
        self._key_names = [f.name for f in context.schema.key_fields]
        self._table_columns = context.schema.names
        self._writes_changelog = context.options.changelog_producer is ChangelogProducer.INPUT
        # the changelog holds every row as it came; a segment on disk is merged
        self._may_spill = context.options.write_buffer_spillable and not self._writes_changelog
        self._thin = context.options.thin_mode
        self._files = files
        self._buffer = WriteBuffer(order, merge_function, next_sequence_number, spill_directory)
        self._new_files: list[DataFileMeta] = []
        self._changelog_files: list[DataFileMeta] = []
        self._handed_over: list[DataFileMeta] = []
        self._lock = threading.Lock()

    @property
    def held_bytes(self) -> int:
        return self._buffer.held_bytes

    @property
    def next_sequence_number(self) -> int:
        return self._buffer.next_sequence_number

    def write(self, rows: pa.RecordBatch) -> None:
        with self._lock:
            self._buffer.add(rows)

    def give_back(self) -> None:
        with self._lock:
            if self._may_spill and self._buffer.held_bytes < FLUSH_RATHER_THAN_SPILL_BYTES:
                self._buffer.spill()
            else:
                self._flush()

    def prepare_commit(self) -> tuple[list[DataFileMeta], list[DataFileMeta]]:
        with self._lock:
            self._flush()
            handed_over = self._new_files, self._changelog_files
            self._handed_over += self._new_files
            self._new_files, self._changelog_files = [], []
            return handed_over

    def committed(self) -> None:
        with self._lock:
            self._handed_over = []

    def uncommitted(self) -> Iterator[pa.RecordBatch]:
        with self._lock:
            for file in (*self._handed_over, *self._new_files):
                yield from self._files.read(file)
            yield from self._buffer.versions()

    def abandon(self) -> None:
        with self._lock:
            self._buffer.clear()
            self._files.delete(self._new_files + self._changelog_files)
            self._new_files, self._changelog_files = [], []

    def _flush(self) -> None:
        if self._buffer.is_empty:
            return
        changelog = _write_all(self._files.changelog(), self._changelog()) if self._writes_changelog else []
        try:
            data = _write_all(self._files.data(), map(self._file_columns, self._buffer.drain()))
        except BaseException:
            self._files.delete(changelog)
            raise
        self._new_files += data
        self._changelog_files += changelog

    def _changelog(self) -> Iterator[pa.RecordBatch]:
        """Every row that arrived, by key and arrival."""
        rows = self._buffer.arrived()
        words = [column_words(rows.column(n), nullable=rows.schema.field(n).nullable) for n in self._key_columns]
        order, _ = merge_order(aligned_words([words])[0])
        yield self._file_columns(rows.take(pa.array(order)))

    def _file_columns(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Columns in the order of a data file; `_KEY_x` shares the memory of `x`."""
        names = [*(() if self._thin else self._key_columns), SEQUENCE_COLUMN, KIND_COLUMN, *self._table_columns]
        picked = rows.select(names)
        if self._thin:
            return picked
        return picked.rename_columns([*self._key_names, *names[len(self._key_names) :]])


class AppendBucketWriter:
    """Rows go to files in arrival order; a file goes on over several flushes, until a commit takes it."""

    def __init__(self, context: TableContext, files: BucketFiles, next_sequence_number: int) -> None:
        self._table_columns = list(context.schema.names)
        self._files = files
        self._batches: list[pa.RecordBatch] = []
        self._open: RollingFileWriter | None = None
        self.next_sequence_number = next_sequence_number
        self._held_bytes = 0
        self._lock = threading.Lock()

    @property
    def held_bytes(self) -> int:
        return self._held_bytes

    def write(self, rows: pa.RecordBatch) -> None:
        with self._lock:
            self._batches.append(rows.select(self._table_columns))
            self._held_bytes += self._batches[-1].nbytes

    def give_back(self) -> None:
        with self._lock:
            self._flush()

    def prepare_commit(self) -> tuple[list[DataFileMeta], list[DataFileMeta]]:
        with self._lock:
            self._flush()
            finished, self._open = self._open, None
            return finished.close() if finished is not None else [], []

    def committed(self) -> None:
        """Nothing is remembered of files that were handed over."""

    def uncommitted(self) -> Iterator[pa.RecordBatch]:
        raise AssertionError("rows of an append table have no key to be looked up by")

    def abandon(self) -> None:
        with self._lock:
            self._forget_memory()
            abandoned, self._open = self._open, None
            if abandoned is not None:
                abandoned.abort()

    def _flush(self) -> None:
        if not self._batches:
            return
        if self._open is None:
            self._open = self._files.data()
        for batch in self._batches:
            self._open.write(batch, first_sequence_number=self.next_sequence_number)
            self.next_sequence_number += batch.num_rows
        self._forget_memory()

    def _forget_memory(self) -> None:
        self._batches = []
        self._held_bytes = 0


def _write_all(writer: RollingFileWriter, batches: Iterator[pa.RecordBatch]) -> list[DataFileMeta]:
    try:
        for batch in batches:
            writer.write(batch)
        return writer.close()
    except BaseException:
        writer.abort()
        raise
