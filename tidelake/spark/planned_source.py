"""The source of a pipeline's query: all partitions that Spark has planned, and records that are read again."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from tidelake.checkpoint.offsets import TopicPartition
from tidelake.errors import UnsupportedFeature
from tidelake.ingest.config.lower_case import format_of
from tidelake.ingest.pipeline.configured_source import build_source
from tidelake.ingest.settings import Config
from tidelake.ingest.source_settings import KafkaSettings
from tidelake.ingest.sources.source import Source
from tidelake.spark.kafka.connector_offsets import from_members


@dataclass(frozen=True)
class PlannedSource:
    """The source of a query.

    checkpoint: Spark's checkpoint directory.
    """

    config: Config
    checkpoint: str

    def partitions(self, spark: SparkSession, batch_id: int) -> frozenset[TopicPartition]:
        """Return all partitions of Kafka's topics, from the offsets that Spark has logged for the batch.

        The partitions of a folder appear with their records, so none is returned.
        """
        if not isinstance(self.config.source, KafkaSettings):
            return frozenset()
        path = f"{self.checkpoint.rstrip('/')}/offsets/{batch_id}"
        found = {partition for line in _read_text(spark, path).splitlines() for partition in _partitions_in(line)}
        if not found:
            raise UnsupportedFeature(
                f"a truncate, with the log of this release of Spark in {path}",
                "it names no partitions of the topic, so it is unknown whether rows from before it may follow",
                "Let `tidelake ingest run … --until latest` read on, and start with a new checkpoint directory",
            )
        return frozenset(found)

    def open(self) -> Source:
        """Open the source in the driver, outside of Spark."""
        return build_source(self.config, format_of(self.config).KEPT_HEADERS)


def files_of(spark: SparkSession, path: str) -> tuple[Any, Any]:
    """Return Hadoop's file system of a path, and the path in it."""
    jvm: Any = spark.sparkContext._jvm
    found = jvm.org.apache.hadoop.fs.Path(path)
    return found.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()), found


def _read_text(spark: SparkSession, path: str) -> str:
    files, at = files_of(spark, path)
    stream = files.open(at)
    try:
        jvm: Any = spark.sparkContext._jvm
        return str(jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
    finally:
        stream.close()


def _partitions_in(line: str) -> list[TopicPartition]:
    """Return the partitions in a line of the log; none for its version and metadata.

    Source: Spark `OffsetSeqLog.serialize`: a line for the version, for the metadata, and for each source.
    """
    try:
        return list(from_members(json.loads(line)))
    except (ValueError, AttributeError, TypeError):
        return []
