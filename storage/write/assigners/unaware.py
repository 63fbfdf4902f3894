"""Assigns bucket 0 to all rows of append tables without buckets. The number has no meaning.

Source: Java `table/sink/AppendTableRowKeyExtractor.java`, `table/BucketMode.java` (BUCKET_UNAWARE).
"""

from __future__ import annotations

from typing import Final

from tidelake.storage.model.table import TableContext
from tidelake.storage.write.assigners.base import AssignedRows, PartitionedRows, StatelessAssigner

_BUCKET: Final = 0


class UnawareBucketAssigner(StatelessAssigner):
    """See `BucketAssigner`."""

    is_function_of_rows = True

    def __init__(self, context: TableContext) -> None:
        pass

    def assign(self, rows: PartitionedRows) -> AssignedRows:
        return AssignedRows(rows, _BUCKET)
