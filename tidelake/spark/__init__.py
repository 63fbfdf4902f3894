"""Tidelake in Spark: `df.writeStream.foreachBatch(sink(table="shop.orders", warehouse="/data/lake"))`."""

from ingest.spark.sink import TableSink, sink

__all__ = ["TableSink", "sink"]
