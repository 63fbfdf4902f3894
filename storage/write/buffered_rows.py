"""The rows of one bucket that wait in memory for a flush, and the only count of them.

Everything that decides by what is buffered reads these counts: the memory budget, spilling, flushes of small buckets.
"""

from __future__ import annotations

import pyarrow as pa

from tidelake.storage.files.formats.file_format import LARGE_ROW_BYTES


class BufferedRows:
    """Rows in order of arrival. Its owner has the lock; others may read the counts without it, slightly outdated.

    batches: the rows.
    num_rows, nbytes: their number, and their Arrow bytes.
    large_row_bytes: the size of the largest rows, if they are large; otherwise 0.
    """

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []
        self.num_rows = self.nbytes = self.large_row_bytes = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Add the rows that arrived next."""
        nbytes = rows.nbytes  # Arrow computes it again for each access
        self.batches.append(rows)
        self.num_rows += rows.num_rows
        self.nbytes += nbytes
        self.large_row_bytes = max(self.large_row_bytes, large_row_bytes(nbytes, rows.num_rows))

    def clear(self) -> None:
        """Forget the rows, which are stored elsewhere or dropped."""
        self.batches = []
        self.num_rows = self.nbytes = self.large_row_bytes = 0

    @property
    def has_large_rows(self) -> bool:
        """Whether the rows are large on average."""
        return large_row_bytes(self.nbytes, self.num_rows) > 0

    def concatenated(self) -> pa.RecordBatch:
        """Return the rows, of which there must be some, in one batch.

        It replaces the parts: otherwise they would stay in memory next to the rows that are made of them.
        """
        if len(self.batches) > 1:
            self.batches = [pa.concat_batches(self.batches)]
        return self.batches[0]


def large_row_bytes(nbytes: int, num_rows: int) -> int:
    """Return the average size of rows if it is large, otherwise 0.

    nbytes: the size of all rows.
    """
    row_bytes = nbytes // max(1, num_rows)
    return row_bytes if row_bytes >= LARGE_ROW_BYTES else 0
