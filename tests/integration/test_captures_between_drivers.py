"""Captures read from a real broker, by Spark alone and by alternating drivers, give the content of their databases.

All tables of a variant are one pipeline. A change of drivers is what docs/positions.md says: Spark begins where the
tables end, and the pipeline is told once to go on behind what Spark has read. Spark or drivers in turns, into tables
that are there, that the drivers make, or that they make for one entry of many tables: of these forms each capture has
one a day, the others are `long`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pytest
from msgspec import structs

import tidelake
from tests.integration.test_truth_of_evolving_tables import config_for, lines_of
from tests.support.kafka_broker import KafkaBroker
from tests.support.levels import is_of_the_day
from tests.support.recorded_truth import RECORDED_TABLES, RecordedTable, differences, format_options_for
from tests.support.recorded_wire import wire_of
from tidelake.ingest.pipeline.recovery_flags import parse_recovery_flags
from tidelake.ingest.pipeline.service import run as run_pipeline
from tidelake.ingest.settings import Config, SourceTablesSettings, TableSettings
from tidelake.ingest.source_settings import KafkaSettings, StartSettings
from tidelake.ingest.spark.batch_position import TablePosition
from tidelake.spark.pipeline_query import start_query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ASYNCIO, SPARK = "asyncio", "Spark"


def by_variant() -> dict[str, list[RecordedTable]]:
    """The smallest first: of many cases, `make test` takes the first."""
    found: dict[str, list[RecordedTable]] = {}
    for recorded in RECORDED_TABLES:
        if recorded.files:
            found.setdefault("/".join(part for part in (recorded.capture, recorded.variant) if part), []).append(
                recorded
            )
    return dict(sorted(found.items(), key=lambda item: sum(one.files[0].stat().st_size for one in item[1])))


CAPTURES: Final = by_variant()


class Tables(Enum):
    ARE_THERE = "into tables that are there"
    ARE_MADE = "into tables that they make"
    ARE_MANY = "into tables that they make for one entry"


FORMS: Final = [([SPARK], tables) for tables in Tables] + [([ASYNCIO, SPARK, ASYNCIO], tables) for tables in Tables]


def captures_in_each_form() -> Iterator[Any]:
    """A day has all forms, and another one of each capture than the day before."""
    for number, (name, tables) in enumerate(CAPTURES.items()):
        forms = [form for form in FORMS if form[1] is not Tables.ARE_MANY or of_one_entry(tables)]
        for shift, (drivers, lake) in enumerate(forms):
            marks = [] if is_of_the_day(number + shift, len(forms)) else [pytest.mark.long]
            yield pytest.param(tables, drivers, lake, id=f"{name}, {', '.join(drivers)}, {lake.value}", marks=marks)


def of_one_entry(tables: Sequence[RecordedTable]) -> list[RecordedTable]:
    """The tables that an entry of many can name, if there are two: what it can't declare must be in their records."""
    names = Counter(bare_name(recorded) for recorded in tables)
    found = [
        recorded
        for recorded in tables
        if names[bare_name(recorded)] == 1 and not recorded.source_types and wire_of(recorded.connector).has_schema
    ]
    return found if len(found) > 1 else []


def bare_name(recorded: RecordedTable) -> str:
    return recorded.source_name.rpartition(".")[2]


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("tables", "drivers", "lake"), list(captures_in_each_form()))
def test_captures_equal_their_databases_with_any_driver(
    tables: Sequence[RecordedTable],
    drivers: Sequence[str],
    lake: Tables,
    spark: SparkSession,
    tmp_path: Path,
    kafka_broker: KafkaBroker,
) -> None:
    catalog = tidelake.open_catalog(str(tmp_path / "lake"))
    catalog.create_database("shop")
    lines = {recorded: lines_of(recorded) for recorded in tables}
    topics = {recorded: f"captured-{uuid4().hex[:8]}" for recorded in tables}
    partitions = {topic: 1 + max(line["partition"] for line in lines[recorded]) for recorded, topic in topics.items()}
    for topic, count in partitions.items():
        kafka_broker.create_topic(topic, partitions=count)
    source = KafkaSettings(bootstrap_servers=kafka_broker.address, topics=[*partitions], until="end")
    are_ordered = all(partitions[topic] == 1 for recorded, topic in topics.items() if recorded.truncates)
    truncates = {} if are_ordered else {"truncates": "skip"}  # a source without places in its log has no order of them
    with format_options_for(tables[0]) as options:
        fed_by = {recorded: [topic] for recorded, topic in topics.items()}
        config = config_for(fed_by, str(tmp_path / "lake"), source, options | truncates)
        if lake is Tables.ARE_THERE:
            config = of_tables_that_are_there(config, tables, catalog)
        elif lake is Tables.ARE_MANY:
            config = with_one_entry(config, of_one_entry(tables))
        for number, driver in enumerate(drivers):
            for recorded in tables:
                share = -(-len(lines[recorded]) // len(drivers))
                kafka_broker.send(lines[recorded][number * share : (number + 1) * share], topics[recorded])
            if driver == SPARK:
                run_on_spark(spark, beginning_at_the_tables(config, catalog, partitions), tmp_path / "checkpoint")
            else:
                names = [f"shop.{name}" for name in catalog.list_tables("shop")] if number else []
                flags = parse_recovery_flags(names, [], [], names)
                asyncio.run(run_pipeline(config, recovery_flags=flags))
    for recorded in tables:
        held = catalog.table(f"shop.{recorded.name}").scan().to_arrow()
        assert differences(recorded, held, are_truncates_skipped=bool(truncates)) == [], recorded.id


def of_tables_that_are_there(config: Config, tables: Sequence[RecordedTable], catalog: tidelake.Catalog) -> Config:
    """With the columns that the sources had at the end."""
    for recorded in tables:
        options = {"bucket": "2"} if recorded.primary_key else {}
        name = f"shop.{recorded.name}"
        catalog.create_table(name, recorded.schema, primary_key=recorded.primary_key, options=options)
    settings = [
        TableSettings(name=one.name, match=one.match, topics=one.topics, source_types=one.source_types)
        for one in config.tables
    ]
    return structs.replace(config, tables=settings)


def with_one_entry(config: Config, tables: Sequence[RecordedTable]) -> Config:
    """With one entry for these tables, and one for each of the others."""
    names = {f"shop.{recorded.name}" for recorded in tables}
    entry = TableSettings(
        name="shop.{table}",
        source_tables=SourceTablesSettings(mapping={bare_name(recorded): recorded.name for recorded in tables}),
        options={} if any(not recorded.primary_key for recorded in tables) else {"bucket": 2},
    )
    return structs.replace(config, tables=[*(one for one in config.tables if one.name not in names), entry])


def beginning_at_the_tables(config: Config, catalog: tidelake.Catalog, partitions: Mapping[str, int]) -> Config:
    """partitions: of each topic. A topic whose table does not exist yet is read from its first record."""
    offsets: dict[str, dict[int, Any]] = {topic: dict.fromkeys(range(n), 0) for topic, n in partitions.items()}
    for name in catalog.list_tables("shop"):
        context = catalog.table(f"shop.{name}").context
        for partition, end in TablePosition.of(context.name, context.snapshots, None, {}).position.ends.items():
            offsets[partition.topic][partition.partition] = end
    assert isinstance(config.source, KafkaSettings)
    return structs.replace(config, source=structs.replace(config.source, start=StartSettings(offsets=offsets)))


def run_on_spark(spark: SparkSession, config: Config, checkpoint: Path) -> None:
    running = start_query(spark, config, str(checkpoint))
    with suppress(Exception):  # `has_ended` raises it in our words
        running.query.awaitTermination()
    assert running.has_ended()
