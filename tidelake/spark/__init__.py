"""Tidelake in Spark.

    df.writeStream.foreachBatch(sink(table="shop.orders", warehouse="/data/lake"))

    register(spark)
    spark.read.format("tidelake").option("warehouse", "/data/lake").option("table", "shop.orders").load()

Names are imported at their first use: each Python worker of Spark imports this package, and few need the sink.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__all__ = [
    "MetricsListener",
    "SparkSink",
    "catalog",
    "delete",
    "merge",
    "read",
    "register",
    "sink",
    "sql",
    "update",
    "write",
]

if TYPE_CHECKING:
    from tidelake.ingest.spark.sink import SparkSink, sink
    from tidelake.spark.lake_views import catalog
    from tidelake.spark.metrics_listener import MetricsListener
    from tidelake.spark.registration import register
    from tidelake.spark.row_changes import delete, merge, update, write
    from tidelake.spark.sql_statements import sql
    from tidelake.spark.table_read import read
else:
    _MODULES = {
        "MetricsListener": "tidelake.spark.metrics_listener",
        "SparkSink": "tidelake.ingest.spark.sink",
        "sink": "tidelake.ingest.spark.sink",
        "catalog": "tidelake.spark.lake_views",
        "delete": "tidelake.spark.row_changes",
        "merge": "tidelake.spark.row_changes",
        "update": "tidelake.spark.row_changes",
        "write": "tidelake.spark.row_changes",
        "read": "tidelake.spark.table_read",
        "sql": "tidelake.spark.sql_statements",
        "register": "tidelake.spark.registration",
    }

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module 'tidelake.spark' has no attribute {name!r}")
        return getattr(import_module(_MODULES[name]), name)

    def __dir__() -> list[str]:
        return __all__
