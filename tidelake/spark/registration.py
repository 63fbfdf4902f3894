"""Registers data sources that a session may know already."""

from __future__ import annotations

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

_KNOWN = "DATA_SOURCE_ALREADY_EXISTS"


def register_source(spark: SparkSession, source: type[DataSource]) -> None:
    """Register a data source, unless Spark found it by itself (`pyspark_tidelake`)."""
    try:
        spark.dataSource.register(source)
    except PySparkException as error:
        if error.getCondition() != _KNOWN:
            raise
