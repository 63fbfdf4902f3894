"""Writes new files of visits into a table, and prints the visits of each page: `python visits.py`."""

from __future__ import annotations

import os
import sys

import pyarrow as pa

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # the workers' Python; needs to be set before Spark starts

from pyspark.sql import SparkSession

import tidelake
from tidelake.spark import register, sink

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("page", pa.string()), ("seconds", pa.int64())])

catalog = tidelake.open_catalog("lake")
catalog.create_database("web", if_not_exists=True)
table = catalog.create_table("web.visits", COLUMNS, primary_key=["id"], options={"bucket": "1"}, if_not_exists=True)
before = table.scan(columns=["id"]).to_arrow().num_rows

spark = (
    SparkSession.builder.master("local[2]")
    .appName("visits")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .getOrCreate()
)
visits = spark.readStream.schema("id long, page string, seconds long").json("visits", pathGlobFilter="*.json")
query = (
    visits.writeStream.foreachBatch(sink("web.visits", warehouse="lake"))
    .option("checkpointLocation", "checkpoint")  # which files were read; keep it as long as the table
    .trigger(availableNow=True)  # what is there now, then stop
    .start()
)
query.awaitTermination()

register(spark)
rows = spark.read.format("tidelake").options(warehouse="lake", table="web.visits").load()
total = rows.count()
print(f"{total} visits in the table, of which {total - before} are new")
for page in rows.groupBy("page").agg({"id": "count", "seconds": "sum"}).orderBy("page").collect():
    print(f"{page['page']}: {page['count(id)']} visits, {page['sum(seconds)']} s")
spark.stop()
