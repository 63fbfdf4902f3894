"""`format("tidelake-kafka")`: the data source that Spark creates first."""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from tidelake.spark.kafka.read_options import KafkaReadOptions
from tidelake.spark.kafka.readers import KafkaBatchReader, KafkaStreamReader
from tidelake.spark.spark_types import record_schema
from tidelake.storage.base.errors import UnsupportedFeature


class KafkaDataSource(DataSource):
    """The data source.

    Its options are in `tidelake.spark.kafka.read_options`. Spark keeps it pickled between its calls.
    """

    @classmethod
    def name(cls) -> str:
        return "tidelake-kafka"

    def schema(self) -> StructType:
        return record_schema(has_headers=KafkaReadOptions.of(self.options).has_headers)

    def reader(self, schema: StructType) -> KafkaBatchReader:
        return KafkaBatchReader(KafkaReadOptions.of(self.options), schema)

    def streamReader(self, schema: StructType) -> KafkaStreamReader:  # noqa: N802 - Spark's name
        return KafkaStreamReader(KafkaReadOptions.of(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        raise UnsupportedFeature(
            'write.format("tidelake-kafka")',
            "this data source can only read topics",
            "Write with Spark's Kafka connector",
        )

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: N802 - Spark's name
        return self.writer(schema, overwrite)
