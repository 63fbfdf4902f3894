"""Assigns the postpone bucket (-2) to all rows. They get their real buckets later.

Source: Java `table/sink/PostponeBucketRowKeyExtractor.java`.
"""

from __future__ import annotations

from tidelake.storage.model.format import POSTPONE_BUCKET
from tidelake.storage.model.table import TableContext
from tidelake.storage.write.assigners.base import AssignedRows, PartitionedRows, StatelessAssigner


class PostponeBucketAssigner(StatelessAssigner):
    """See `BucketAssigner`."""

    is_function_of_rows = True

    def __init__(self, context: TableContext) -> None:
        pass

    def assign(self, rows: PartitionedRows) -> AssignedRows:
        return AssignedRows(rows, POSTPONE_BUCKET)
