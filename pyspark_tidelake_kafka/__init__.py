"""Where Spark looks for data sources by itself: `format("tidelake-kafka")` works without `tidelake.spark.register`.

Source: PySpark `sql/worker/lookup_data_sources.py`: one `DefaultSource` a package named `pyspark_…`.
"""

from tidelake.spark.kafka.kafka_data_source import KafkaDataSource as DefaultSource

__all__ = ["DefaultSource"]
