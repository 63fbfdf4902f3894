"""Writes the rows of the postpone bucket as they arrive. They are not sorted, not merged and not numbered.

Source: Java `postpone/PostponeBucketWriter.java`, `postpone/PostponeBucketFileStoreWrite.java`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from tidelake.errors import UnsupportedFeature
from tidelake.storage.base import env
from tidelake.storage.files.writer import RollingFileWriter
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.format import SEQUENCE_COLUMN
from tidelake.storage.model.table import TableContext
from tidelake.storage.write.bucket_files import BucketFiles
from tidelake.storage.write.bucket_writer import AppendBucketWriter

_NO_NUMBER: Final = -1  # the sequence number in files: rows get real numbers when they get their bucket
_WRITE_ID_LIMIT: Final = 2**31 - 1
_USER: Final = "tidelake"  # for file names; the commit user may be another


class PostponeBucketWriter(AppendBucketWriter):
    """Writes rows with their kinds and without sequence numbers."""

    def __init__(self, context: TableContext, key: BucketId) -> None:
        super().__init__(context, BucketFiles(_file_context(context), key), next_sequence_number=0)
        self._table_name = context.name

    def write(self, rows: pa.RecordBatch) -> None:
        with self._lock:
            self.buffered.add(rows)

    def set_next_sequence_number(self, next_sequence_number: int) -> None:
        """Do nothing: rows have no sequence numbers."""

    def uncommitted(self) -> Iterator[pa.RecordBatch]:
        raise UnsupportedFeature(
            f"{self._table_name}: option bucket = -2 (postpone)",
            "staged rows can't be looked up by key, so missing values can't be filled in from them",
            "Set a fixed number of buckets, or let the source send whole rows",
        )

    def _write_batch(self, output: RollingFileWriter, batch: pa.RecordBatch) -> None:
        output.write(self._files.file_rows(_unnumbered(batch)))


def _unnumbered(rows: pa.RecordBatch) -> pa.RecordBatch:
    numbers = pa.repeat(pa.scalar(_NO_NUMBER, pa.int64()), rows.num_rows)
    return rows.append_column(pa.field(SEQUENCE_COLUMN, pa.int64(), nullable=False), numbers)


def _file_context(context: TableContext) -> TableContext:
    """Return the table with options for Avro files without statistics, because the files are read once, completely.

    The file name prefix differs for each writer. A reader uses it to keep the order of each writer's rows.
    """
    write_id = env.random_below(_WRITE_ID_LIMIT)
    prefix = f"{context.options.data_file_prefix}-u-{_USER}-s-{write_id}-w-"
    return context.with_options({"file.format": "avro", "metadata.stats-mode": "none", "data-file.prefix": prefix})
