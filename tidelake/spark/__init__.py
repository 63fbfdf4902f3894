"""Tidelake in Spark.

df.writeStream.foreachBatch(sink(table="shop.orders", warehouse="/data/lake"))

register(spark)
spark.read.format("tidelake").option("warehouse", "/data/lake").option("table", "shop.orders").load()
"""

from ingest.spark.sink import SparkSink, sink
from tidelake.spark.data_source import register

__all__ = ["SparkSink", "register", "sink"]
