"""Assigns a fixed number of buckets. The bucket is a function of the bucket key (default, mod or hive).

Source: Java `table/sink/FixedBucketRowKeyExtractor.java`, `bucket/BucketFunction.java`.
"""

from __future__ import annotations

from tidelake.storage.model.bucketing import Bucketing
from tidelake.storage.model.table import TableContext
from tidelake.storage.write.assigners.base import AssignedRows, PartitionedRows, StatelessAssigner


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
