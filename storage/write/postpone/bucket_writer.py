"""Rows that wait for their bucket: written as they come, neither sorted nor merged nor numbered.

Source: Java `postpone/PostponeBucketWriter.java`, `postpone/PostponeBucketFileStoreWrite.java`.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from storage.errors import UnsupportedFeature
from storage.files.data_file import DataFileMeta
from storage.files.writer import RollingFileWriter
from storage.format import SEQUENCE_COLUMN
from storage.table import TableContext
from storage.write.bucket_files import BucketFiles
from storage.write.bucket_router import BucketKey
from storage.write.compactor import CompactResult, RestoredBucket
from storage.write.increment import Increment

_NO_NUMBER: Final = -1  # as a sequence number: rows get theirs with their bucket
_WRITE_ID_LIMIT: Final = 2**31 - 1
_USER: Final = "tidelake"  # in the names of files; who commits them may be another


class PostponeBucketWriter:
    """See `BucketWriter`. A file goes on over several flushes, until a commit takes it."""

    def __init__(self, context: TableContext, key: BucketKey) -> None:
        self._context = context
        self._files = BucketFiles(_file_context(context), key)
        self._batches: list[pa.RecordBatch] = []
        self._held_bytes = 0
        self._open: RollingFileWriter | None = None
        self._new_files: list[DataFileMeta] = []
        self._lock = threading.Lock()

    @property
    def held_bytes(self) -> int:
        return self._held_bytes

    @property
    def next_sequence_number(self) -> int:
        return 0

    def write(self, rows: pa.RecordBatch) -> None:
        with self._lock:
            self._batches.append(rows)
            self._held_bytes += rows.nbytes

    def flush_memory(self) -> None:
        with self._lock:
            self._flush()

    def prepare_commit(self, *, wait_compaction: bool = False, full_compaction: bool = False) -> None:
        with self._lock:
            self._flush()
            if self._open is not None:
                self._new_files += self._open.close()
                self._open = None

    def take_increment(self) -> Increment:
        with self._lock:
            increment = Increment(tuple(self._new_files))
            self._new_files = []
            return increment

    def committed(self) -> None:
        """Nothing is remembered of files that were handed over."""

    def set_next_sequence_number(self, next_sequence_number: int) -> None:
        """Rows have none."""

    @property
    def is_idle(self) -> bool:
        return not self._batches and self._open is None and not self._new_files

    def cancel_compaction(self) -> None:
        """Nothing compacts beside it."""

    @property
    def is_compaction_stale(self) -> bool:
        return False

    def reset_compaction(self, bucket: RestoredBucket) -> None:
        """The same."""

    def compact_left(self) -> CompactResult:
        return CompactResult()

    def uncommitted(self) -> Iterator[pa.RecordBatch]:
        raise UnsupportedFeature(
            f"{self._context.name}: option bucket = -2 (postpone)",
            "rows that wait for their bucket can't be looked up by key, and so nothing can be filled in from them",
            "Give the table a number of buckets, or have the source send whole rows",
        )

    def abort(self) -> None:
        with self._lock:
            self._batches, self._held_bytes = [], 0
            open_file, self._open = self._open, None
            new_files, self._new_files = self._new_files, []
            if open_file is not None:
                open_file.abort()
            self._files.delete(new_files)

    def _flush(self) -> None:
        if self._batches and self._open is None:
            self._open = self._files.data()
        for batch in self._batches:
            assert self._open is not None
            self._open.write(self._files.file_rows(_unnumbered(batch)))
        self._batches, self._held_bytes = [], 0


def _unnumbered(rows: pa.RecordBatch) -> pa.RecordBatch:
    numbers = pa.repeat(pa.scalar(_NO_NUMBER, pa.int64()), rows.num_rows)
    return rows.append_column(pa.field(SEQUENCE_COLUMN, pa.int64(), nullable=False), numbers)


def _file_context(context: TableContext) -> TableContext:
    """Avro without statistics: the files are read once, from begin to end. Their names tell one writer's from
    another's: rows of one keep their order.
    """
    write_id = random.randrange(_WRITE_ID_LIMIT)
    prefix = f"{context.options.data_file_prefix}-u-{_USER}-s-{write_id}-w-"
    return context.with_options({"file.format": "avro", "metadata.stats-mode": "none", "data-file.prefix": prefix})
