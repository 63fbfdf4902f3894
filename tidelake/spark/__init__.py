"""Tidelake in Spark: `df.writeStream.foreachBatch(sink(table="shop.orders", warehouse="/data/lake"))`."""

from ingest.spark.sink import SparkSink, sink

__all__ = ["SparkSink", "sink"]
