"""`spark.read.format("tidelake")` and `spark.readStream.format("tidelake")`: a table as a DataFrame."""

from __future__ import annotations

from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from tidelake.errors import UnsupportedFeature
from tidelake.ingest.spark.release import error_condition
from tidelake.spark.batch_reader import FilteringBatchReader, SnapshotBatchReader
from tidelake.spark.batch_writer import AppendWriter
from tidelake.spark.data_source_options import FORMAT, ReadOptions
from tidelake.spark.spark_types import schema_of
from tidelake.spark.stream_reader import TableStreamReader

_ALREADY_REGISTERED: Final = "DATA_SOURCE_ALREADY_EXISTS"


def register_source(spark: SparkSession, source: type[DataSource]) -> None:
    """Register a data source, unless Spark found it by itself (`pyspark_tidelake`)."""
    try:
        spark.dataSource.register(source)
    except PySparkException as error:
        if error_condition(error) != _ALREADY_REGISTERED:
            raise


class TidelakeDataSource(DataSource):
    """The data source. Its options are in `data_source_options.py`. Spark keeps it pickled between its calls."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return schema_of(ReadOptions.of(self.options).scan())

    def reader(self, schema: StructType) -> SnapshotBatchReader:
        options = ReadOptions.of(self.options)
        options.check_batch_read()
        return (FilteringBatchReader if options.push_filters else SnapshotBatchReader)(options, schema)

    def streamReader(self, schema: StructType) -> TableStreamReader:  # noqa: N802 - Spark's name
        return TableStreamReader(ReadOptions.of(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> AppendWriter:
        return AppendWriter(ReadOptions.of(self.options).write_context(), overwrites=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: N802 - Spark's name
        raise UnsupportedFeature(
            'writeStream.format("tidelake")',
            "the writer of a stream doesn't know which batch it writes, so a repeated batch would be written twice",
            "Write with tidelake.spark.sink, in foreachBatch",
        )
