"""A scan as a DataFrame without a data source, and the division of splits into tasks.

`mapInArrow` reads the splits. It works on releases of PySpark that have no Python data sources, but knows neither
filters nor limits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from tidelake.ingest.spark.task_start import begin_task, package_version
from tidelake.scan import Scan
from tidelake.spark.spark_types import arrow_form, in_arrow_form
from tidelake.storage.model.options import TableOptions
from tidelake.storage.read.split import BinPacking, Split

T = TypeVar("T")


def scan_frame(
    spark: SparkSession, scan: Scan, splits: Sequence[Split] | None, schema: StructType, min_partitions: int
) -> DataFrame:
    """Return the rows of a scan.

    splits: those to read; None for a read that can't be split
    schema: the scan's columns in Spark's types
    min_partitions: the number of tasks of a small table, if it has as many splits
    """
    groups: list[Sequence[Split] | None] = [None]
    if splits is not None:
        groups = list(packed(splits, size_bytes, scan.context.options, min_partitions))
    if not groups:
        return spark.createDataFrame([], schema)
    numbers = spark.range(0, len(groups), 1, len(groups))
    return numbers.mapInArrow(_ReadTask(scan, groups, schema), schema)


@dataclass(frozen=True)
class _ReadTask:
    """The task for `mapInArrow`. Its rows are the numbers of the groups to read.

    version: of this package in the driver
    """

    scan: Scan
    groups: Sequence[Sequence[Split] | None]
    schema: StructType
    version: str = field(default_factory=package_version)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begin_task(self.version)
        form = arrow_form(self.schema)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for rows in self.scan.to_batches(self.groups[number]):
                    yield in_arrow_form(rows, form)


def size_bytes(split: Split) -> int:
    return sum(file.file_size for file in split.files)


def packed(pieces: Sequence[T], size_bytes: Callable[[T], int], options: TableOptions, min_tasks: int) -> list[list[T]]:
    """Return the pieces of each task, in order, up to the target size of a split, as Spark packs small files.

    Tasks are smaller if there would be fewer than `min_tasks`.
    """
    cost, largest = options.split_open_file_cost_bytes, options.split_target_size_bytes
    sizes = {id(piece): size_bytes(piece) for piece in pieces}
    share = sum(max(size, cost) for size in sizes.values()) // min_tasks
    return BinPacking(min(largest, max(cost, share)), cost).pack(pieces, lambda piece: sizes[id(piece)])
