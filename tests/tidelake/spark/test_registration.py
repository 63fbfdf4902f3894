"""Spark finds our data sources without registration."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import pyspark_tidelake
import pyspark_tidelake_kafka
import tidelake
from tidelake.spark import register
from tidelake.spark.kafka.kafka_data_source import KafkaDataSource
from tidelake.spark.table_data_source import TidelakeDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.interop
def test_a_session_finds_the_data_source_without_registration(spark: SparkSession, tmp_path: Path) -> None:
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("x")
    table = catalog.create_table("x.t", pa.schema([("id", pa.int64())]))
    with table.writer() as writer:
        writer.write(pa.table({"id": [1]}))
        writer.commit()
    session = spark.newSession()
    read = session.read.format("tidelake").option("warehouse", str(tmp_path)).option("table", "x.t")
    assert [row.id for row in read.load().collect()] == [1]
    register(session)  # harmless
    register(session)
    assert [row.id for row in read.load().collect()] == [1]


def test_each_package_contains_the_data_source_of_its_name() -> None:
    assert pyspark_tidelake.DefaultSource is TidelakeDataSource
    assert pyspark_tidelake_kafka.DefaultSource is KafkaDataSource
