"""`spark.read.format("tidelake")` and `spark.readStream.format("tidelake")`: a table as a DataFrame."""

from __future__ import annotations

from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from tidelake.errors import BadInput
from tidelake.ingest.spark.release import error_condition
from tidelake.spark.batch_reader import FilteringBatchReader, SnapshotBatchReader
from tidelake.spark.batch_writer import AppendWriter
from tidelake.spark.data_source_options import FORMAT, OVERWRITE_MODE, ReadOptions
from tidelake.spark.spark_types import schema_of
from tidelake.spark.stream_reader import TableStreamReader
from tidelake.spark.stream_writer import StreamWriter

_ALREADY_REGISTERED: Final = "DATA_SOURCE_ALREADY_EXISTS"
_OF_QUERIES: Final = frozenset({"checkpointlocation", "queryname"})  # options that Spark also passes to the writer


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

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802 - Spark's name
        options = {key: text for key, text in self.options.items() if key.lower() not in _OF_QUERIES}
        if OVERWRITE_MODE in map(str.lower, options):
            raise BadInput(
                "option partitionOverwriteMode is only for batch writes: in output mode complete each batch replaces "
                "all rows of the table, in the others none. Leave it out"
            )
        return StreamWriter(ReadOptions.of(options).write_context(), replaces=overwrite)
