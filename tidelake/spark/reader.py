"""A batch read: planned in the driver at one snapshot, read in tasks.

What Spark pickles for its tasks is the reader, before it asks for partitions; so the snapshot is chosen when the reader
is made, and each partition brings its own splits. Tasks plan nothing: they see the same snapshot under the same schema,
whatever is committed meanwhile.

Source: PySpark `sql/worker/plan_data_source_read.py`, `data_source_pushdown_filters.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from storage.read.split import BinPacking, Split
from storage.types import Root, arrow_type
from tidelake.scan import Scan
from tidelake.spark.pushed_filters import predicate_of
from tidelake.spark.read_options import ReadOptions
from tidelake.spark.spark_types import arrow_form, check_columns, in_arrow_form, spark_schema


class SplitsPartition(InputPartition):
    """What one task reads. splits: None for a read that can't be divided, of a system table or of changes."""

    def __init__(self, splits: Sequence[Split] | None) -> None:
        super().__init__(None)
        self.splits = splits


class SnapshotBatchReader(DataSourceReader):
    """Rows of one table at one snapshot, the columns of `schema` only."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        scan = options.scan()
        check_columns(schema, schema_of(scan), options.table)
        self._scan = scan.select(schema.names)
        self._schema = schema
        self._min_partitions = options.min_partitions

    def partitions(self) -> Sequence[InputPartition]:
        if not self._scan.has_splits:
            return [SplitsPartition(None)]
        return [SplitsPartition(group) for group in self._packed(self._scan.splits())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Spark makes up a partition of its own where there is none: an empty table."""
        if not isinstance(partition, SplitsPartition):
            return
        form = arrow_form(self._schema)
        for rows in self._scan.to_batches(partition.splits):
            yield in_arrow_form(rows, form)

    def _packed(self, splits: Sequence[Split]) -> list[list[Split]]:
        """Small splits together, up to the size a split may have; less, where there would be too few tasks."""
        table_options = self._scan.context.options
        cost, largest = table_options.split_open_file_cost_bytes, table_options.split_target_size_bytes
        sizes = {id(split): sum(file.file_size for file in split.files) for split in splits}
        share = sum(max(size, cost) for size in sizes.values()) // self._min_partitions
        packing = BinPacking(min(largest, max(cost, share)), cost)
        return packing.pack(splits, lambda split: sizes[id(split)])


class FilteringBatchReader(SnapshotBatchReader):
    """With Spark's filters. A class of its own: Spark refuses a reader that can take filters when its session has
    `spark.sql.python.filterPushdown.enabled` off, as it is by default.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        left = []
        for pushed in filters:
            condition = predicate_of(pushed, self._scan.schema)
            if condition is None:
                left.append(pushed)
            else:
                self._scan = self._scan.where(condition)
        return left


def schema_of(scan: Scan) -> StructType:
    """The columns that come out, in Spark's types."""
    fields = scan.context.schema.by_name
    variants = [
        column.name
        for column in scan.schema
        if column.name in fields
        and fields[column.name].type.root is Root.VARIANT
        and column.type == arrow_type(fields[column.name].type)  # a system table may show it in another form
    ]
    return spark_schema(scan.schema, variants)
