"""Registers the data sources in a session, on releases of PySpark that have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelake.ingest.spark.release import HAS_DATA_SOURCES, check_data_sources, check_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

if HAS_DATA_SOURCES:
    from tidelake.spark.changelog_folder.folder_data_source import ChangeLogFolderDataSource
    from tidelake.spark.kafka.kafka_data_source import KafkaDataSource
    from tidelake.spark.table_data_source import TidelakeDataSource, register_source


def register(spark: SparkSession) -> None:
    """Register formats `tidelake`, `tidelake-kafka` and `tidelake-changelog-folder` in a session.

    Its Python workers need this package, too. The first two need no registration if Spark found them by itself
    (`pyspark_tidelake`).

    Raises UnsupportedFeature for PySpark before 4.1, and for workers with another Python or without this package.
    """
    check_data_sources("tidelake.spark.register")
    check_session(spark)
    for source in (TidelakeDataSource, KafkaDataSource, ChangeLogFolderDataSource):
        register_source(spark, source)
