"""A batch read: planned in the driver at one snapshot, read in tasks.

Spark pickles the reader for its tasks before it asks for partitions. So the snapshot is chosen when the reader is
created, and each partition contains its splits. Tasks don't plan: they all see the same snapshot under the same schema,
whatever is committed meanwhile.

Source: PySpark `sql/worker/plan_data_source_read.py`, `data_source_pushdown_filters.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from tidelake.ingest.spark.task_start import log_as_configured
from tidelake.spark.data_source_options import ReadOptions
from tidelake.spark.pushed_filters import predicate_of
from tidelake.spark.scan_frame import packed, size_bytes
from tidelake.spark.spark_types import arrow_form, check_columns, in_arrow_form, schema_of
from tidelake.storage.read.split import Split


class SplitsPartition(InputPartition):
    """The splits that one task reads.

    splits: None for a read that can't be split, of a system table or of changes
    """

    def __init__(self, splits: Sequence[Split] | None) -> None:
        super().__init__(None)
        self.splits = splits


class SnapshotBatchReader(DataSourceReader):
    """Reads the rows of one table at one snapshot, with the columns of `schema`."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        scan = options.scan()
        check_columns(schema, schema_of(scan), options.table)
        self._scan = scan.select(schema.names)
        self._schema = schema
        self._min_partitions = options.min_partitions
        self._pinned = options.pinned

    def partitions(self) -> Sequence[InputPartition]:
        if not self._scan.has_splits:
            return [SplitsPartition(None)]
        splits = self._scan.splits()
        if self._pinned is not None:
            splits = self._pinned.rest(self._scan.context, splits)
        groups = packed(splits, size_bytes, self._scan.context.options, self._min_partitions)
        return [SplitsPartition(group) for group in groups]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition. For an empty table Spark passes its own partition, which has no rows."""
        if not isinstance(partition, SplitsPartition):
            return
        log_as_configured()
        form = arrow_form(self._schema)
        for rows in self._scan.to_batches(partition.splits):
            yield in_arrow_form(rows, form)


class FilteringBatchReader(SnapshotBatchReader):
    """A reader that accepts Spark's filters.

    It is a separate class because Spark refuses a reader that can accept filters if the session's option
    `spark.sql.python.filterPushdown.enabled` is off, as it is by default.
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
