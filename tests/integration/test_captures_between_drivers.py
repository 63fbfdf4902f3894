"""A capture read from a real broker, by Spark alone and by drivers that take turns, leaves what its database held.

A change of drivers is what docs/positions.md says: Spark begins at the table's position, and the pipeline is told once
to go on behind what Spark has read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from msgspec import structs

import tidelake
from ingest.pipeline.builder import run as run_pipeline
from ingest.pipeline.recovery_flags import parse_recovery_flags
from ingest.settings import Config, KafkaSettings, StartSettings
from ingest.spark.batch_position import TablePosition
from tests.integration.test_truth_through_the_service import config_for, table_for
from tests.support.cases import recorded_lines
from tests.support.kafka_broker import KafkaBroker
from tests.support.recorded_truth import RECORDED_TABLES, RecordedTable, differences, format_options_for
from tidelake.spark.pipeline_query import start_query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ASYNCIO, SPARK = "asyncio", "Spark"


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "drivers",
    [pytest.param([SPARK], id="Spark"), pytest.param([ASYNCIO, SPARK, ASYNCIO], id="asyncio, Spark, asyncio")],
)
@pytest.mark.parametrize("recorded", RECORDED_TABLES, ids=lambda recorded: recorded.id)
def test_a_capture_ends_as_its_database_whoever_drives(
    recorded: RecordedTable, drivers: Sequence[str], spark: SparkSession, tmp_path: Path, kafka_broker: KafkaBroker
) -> None:
    table = table_for(recorded, tmp_path / "lake")
    lines = [line for path in recorded.files for line in recorded_lines(path)]
    partitions = 1 + max(line["partition"] for line in lines)
    topic = kafka_broker.create_topic(f"captured-{uuid4().hex[:8]}", partitions=partitions)
    source = KafkaSettings(bootstrap_servers=kafka_broker.address, topics=[topic], until="end")
    share = -(-len(lines) // len(drivers))
    with format_options_for(recorded) as options:
        config = config_for(recorded, tmp_path / "lake", source, [topic], {**options, "truncates": "skip"})
        for number, driver in enumerate(drivers):
            kafka_broker.send(lines[number * share : (number + 1) * share], topic)
            if driver == SPARK:
                run_on_spark(spark, beginning_at_the_table(config, table, topic, partitions), tmp_path / "checkpoint")
            else:
                name = table.context.name
                flags = parse_recovery_flags([name] if number else [], [], [], [name])
                asyncio.run(run_pipeline(config, recovery_flags=flags))
    assert differences(recorded, table.scan().to_arrow(), are_truncates_skipped=True) == []


def beginning_at_the_table(config: Config, table: tidelake.Table, topic: str, partitions: int) -> Config:
    held = TablePosition.of(table.context.name, table.context.snapshots, None).position.ends
    ends: dict[int, Any] = {p.partition: end for p, end in held.items()}
    offsets = {topic: {partition: ends.get(partition, 0) for partition in range(partitions)}}
    assert isinstance(config.source, KafkaSettings)
    return structs.replace(config, source=structs.replace(config.source, start=StartSettings(offsets=offsets)))


def run_on_spark(spark: SparkSession, config: Config, checkpoint: Path) -> None:
    running = start_query(spark, config, str(checkpoint))
    with suppress(Exception):  # `has_ended` raises it in our words
        running.query.awaitTermination()
    assert running.has_ended()
