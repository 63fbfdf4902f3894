"""Tidelake in Spark.

df.writeStream.foreachBatch(sink(table="shop.orders", warehouse="/data/lake"))

register(spark)
spark.read.format("tidelake").option("warehouse", "/data/lake").option("table", "shop.orders").load()
"""

from ingest.spark.sink import SparkSink, sink
from tidelake.spark.actions.row_changes import delete, merge, update, write
from tidelake.spark.data_source import register

__all__ = ["SparkSink", "delete", "merge", "register", "sink", "update", "write"]
