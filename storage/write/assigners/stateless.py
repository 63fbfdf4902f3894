"""Assigners that need no index: the bucket is a function of the row's bucket key, or the same for all rows.

Source: Java `table/sink/FixedBucketRowKeyExtractor.java`, `bucket/BucketFunction.java`,
`PostponeBucketRowKeyExtractor.java`, `AppendTableRowKeyExtractor.java`, `table/BucketMode.java` (BUCKET_UNAWARE).
"""

from __future__ import annotations

from typing import Final

from tidelake.storage.model.bucketing import Bucketing
from tidelake.storage.model.format import POSTPONE_BUCKET
from tidelake.storage.model.table import TableContext
from tidelake.storage.write.assigners.bucket_assigner import AssignedRows, PartitionedRows, StatelessAssigner


class FixedBucketAssigner(StatelessAssigner):
    """See `BucketAssigner`."""

    is_function_of_rows = True

    def __init__(self, context: TableContext) -> None:
        self._bucketing = Bucketing.of(context.schema, context.options)

    def assign(self, rows: PartitionedRows) -> AssignedRows:
        if self._bucketing.num_buckets == 1:
            return AssignedRows(rows, 0)
        key_columns = [rows.rows.column(name) for name in self._bucketing.key_columns]
        return AssignedRows(rows, self._bucketing.bucket_ids(key_columns))


class PostponeBucketAssigner(StatelessAssigner):
    """See `BucketAssigner`."""

    is_function_of_rows = True

    def __init__(self, context: TableContext) -> None:
        pass

    def assign(self, rows: PartitionedRows) -> AssignedRows:
        return AssignedRows(rows, POSTPONE_BUCKET)


_BUCKET: Final = 0


class UnawareBucketAssigner(StatelessAssigner):
    """See `BucketAssigner`."""

    is_function_of_rows = True

    def __init__(self, context: TableContext) -> None:
        pass

    def assign(self, rows: PartitionedRows) -> AssignedRows:
        return AssignedRows(rows, _BUCKET)
