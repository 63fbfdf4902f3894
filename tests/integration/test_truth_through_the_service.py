"""After the service has read the change stream of a source database, our tables equal the database."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncGenerator, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest
from msgspec import structs

import tidelake
from tests.support.cases import recorded_lines
from tests.support.kafka_broker import KafkaBroker
from tests.support.recorded_truth import RECORDED_TABLES, RecordedTable, differences, format_options_for
from tidelake.checkpoint.offsets import TopicPartition
from tidelake.ingest.config.lower_case import format_of
from tidelake.ingest.pipeline.builder import build_pipeline
from tidelake.ingest.pipeline.configured_source import build_source
from tidelake.ingest.raw_batch import RawBatch
from tidelake.ingest.settings import BootstrapSettings, Config, TableSettings
from tidelake.ingest.source_settings import FolderSettings, KafkaSettings
from tidelake.ingest.sources.source import Source
from tidelake.storage.commit.manifests.snapshot_files import live_entries

CAPTURES = pytest.mark.parametrize("recorded", RECORDED_TABLES, ids=lambda recorded: recorded.id)


@pytest.fixture
def format_options(recorded: RecordedTable) -> Iterator[dict[str, str]]:
    with format_options_for(recorded) as options:
        yield options


def table_for(recorded: RecordedTable, lake: Path) -> tidelake.Table:
    catalog = tidelake.open_catalog(str(lake))
    catalog.create_database("shop")
    options = {"bucket": "2"} if recorded.primary_key else {}
    return catalog.create_table(
        f"shop.{recorded.name}", recorded.schema, primary_key=recorded.primary_key, options=options
    )


def config_for(
    recorded: RecordedTable, lake: Path, source: FolderSettings | KafkaSettings, match: list[str], options: Any
) -> Config:
    return Config(
        pipeline="truth",
        warehouse=str(lake),
        source=source,
        format=recorded.format,
        format_options=options,
        tables=[
            TableSettings(
                name=f"shop.{recorded.name}", match=match, topics=match, source_types=dict(recorded.source_types)
            )
        ],
    )


async def run(config: Config) -> Any:
    pipeline = await asyncio.to_thread(build_pipeline, config)
    return await pipeline.run()


@pytest.mark.exhaustive(kept=9)
@CAPTURES
async def test_a_capture_read_from_a_folder_gives_the_source_tables(
    recorded: RecordedTable, format_options: dict[str, str], tmp_path: Path
) -> None:
    table = await asyncio.to_thread(table_for, recorded, tmp_path / "lake")
    await asyncio.to_thread(copy_files, recorded, tmp_path / "log")
    source = FolderSettings(path=tmp_path / "log", until="end")
    topics = await asyncio.to_thread(lambda: list(recorded.topics))
    config = await asyncio.to_thread(config_for, recorded, tmp_path / "lake", source, topics, format_options)
    progress = await run(config)
    assert progress.ended == "end of source"
    assert await asyncio.to_thread(lambda: differences(recorded, table.scan().to_arrow())) == []


@CAPTURES
async def test_a_capture_read_from_kafka_gives_the_source_tables(
    recorded: RecordedTable, format_options: dict[str, str], tmp_path: Path, kafka_broker: KafkaBroker
) -> None:
    table = await asyncio.to_thread(table_for, recorded, tmp_path / "lake")
    topics = await asyncio.to_thread(replay, recorded, kafka_broker)
    source = KafkaSettings(bootstrap_servers=kafka_broker.address, topics=topics, until="end")
    config = await asyncio.to_thread(config_for, recorded, tmp_path / "lake", source, topics, format_options)
    progress = await run(config)
    assert progress.ended == "end of source"
    assert await asyncio.to_thread(lambda: differences(recorded, table.scan().to_arrow())) == []


SORTED_CAPTURES: Final = [one for one in RECORDED_TABLES if one.primary_key and "avro" not in (one.variant or "")]


@dataclass
class InSmallBatches:
    """A source whose batches have few records: those of the captures would fit into one."""

    inner: Source

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def read(self, positions: Mapping[TopicPartition, int]) -> AsyncGenerator[RawBatch, None]:
        async for batch in self.inner.read(positions):
            for start in range(0, max(1, len(batch)), 8):
                yield batch.slice(start, start + 8)


async def run_bootstrapping(config: Config) -> None:
    config = structs.replace(config, bootstrap=BootstrapSettings(enabled=True))
    source = partial(build_source, config, format_of(config).KEPT_HEADERS)
    built = await asyncio.to_thread(build_pipeline, config, open_source=lambda: InSmallBatches(source()))
    await built.run()


def first_levels(table: tidelake.Table) -> set[int]:
    """The levels of the table's first rows."""
    first = next(one for one in table.context.snapshots.all() if one.delta_record_count)
    return {entry.file.level for entry in live_entries(table.context, first)}


def begins_with_snapshot(recorded: RecordedTable) -> bool:
    """Whether the first eight records, which are read together, are of the snapshot."""
    values = [line["value"] for path in recorded.files for line in list(recorded_lines(path))[:8]]
    return len(values) == 8 and all('"op":"r"' in (value or "") for value in values)


@pytest.mark.exhaustive(kept=4)
@pytest.mark.parametrize("recorded", SORTED_CAPTURES, ids=lambda recorded: recorded.id)
async def test_a_capture_whose_snapshot_goes_to_the_highest_level_gives_the_source_tables(
    recorded: RecordedTable, format_options: dict[str, str], tmp_path: Path
) -> None:
    table = await asyncio.to_thread(table_for, recorded, tmp_path / "lake")
    await asyncio.to_thread(copy_files, recorded, tmp_path / "log")
    source = FolderSettings(path=tmp_path / "log", until="end")
    topics = await asyncio.to_thread(lambda: list(recorded.topics))
    config = await asyncio.to_thread(config_for, recorded, tmp_path / "lake", source, topics, format_options)
    await run_bootstrapping(config)
    assert await asyncio.to_thread(lambda: differences(recorded, table.scan().to_arrow())) == []
    if await asyncio.to_thread(begins_with_snapshot, recorded):
        assert await asyncio.to_thread(first_levels, table) == {table.context.options.num_levels - 1}


@pytest.mark.parametrize("name", ["customers", "order_items"])
async def test_a_snapshot_read_from_kafka_goes_to_the_highest_level_and_the_stream_continues(
    name: str, tmp_path: Path, kafka_broker: KafkaBroker
) -> None:
    recorded = next(one for one in SORTED_CAPTURES if one.id == f"pg-shop/json-schema/{name}")
    table = await asyncio.to_thread(table_for, recorded, tmp_path / "lake")
    topics = await asyncio.to_thread(replay, recorded, kafka_broker)
    source = KafkaSettings(bootstrap_servers=kafka_broker.address, topics=topics, until="end")
    config = await asyncio.to_thread(config_for, recorded, tmp_path / "lake", source, topics, {})
    await run_bootstrapping(config)
    assert await asyncio.to_thread(lambda: differences(recorded, table.scan().to_arrow())) == []
    assert await asyncio.to_thread(first_levels, table) == {table.context.options.num_levels - 1}


def tables_by_variant() -> dict[str, list[RecordedTable]]:
    found: dict[str, list[RecordedTable]] = {}
    for recorded in RECORDED_TABLES:
        if recorded.variant is not None:
            found.setdefault(f"{recorded.capture}/{recorded.variant}", []).append(recorded)
    return found


VARIANTS: Final = tables_by_variant()


@pytest.fixture
def options_of_variant(tables: list[RecordedTable]) -> Iterator[dict[str, str]]:
    with format_options_for(tables[0]) as options:
        yield options


@pytest.mark.long
@pytest.mark.parametrize("tables", VARIANTS.values(), ids=VARIANTS.keys())
async def test_all_topics_of_a_capture_merged_into_one_give_the_source_tables(
    tables: list[RecordedTable], options_of_variant: dict[str, str], tmp_path: Path, kafka_broker: KafkaBroker
) -> None:
    """As a router at the connector merges them, with the records that are no rows among them."""
    catalog = tidelake.open_catalog(str(tmp_path / "lake"))
    await asyncio.to_thread(catalog.create_database, "shop")
    for recorded in tables:
        await asyncio.to_thread(
            catalog.create_table,
            f"shop.{recorded.name}",
            recorded.schema,
            primary_key=recorded.primary_key,
            options={"bucket": "1"} if recorded.primary_key else {},
        )
    topic = await asyncio.to_thread(replay_merged, tables[0], kafka_broker)
    format_ = await asyncio.to_thread(lambda: tables[0].format)
    config = Config(
        pipeline="merged",
        warehouse=str(tmp_path / "lake"),
        source=KafkaSettings(bootstrap_servers=kafka_broker.address, topics=[topic], until="end"),
        format=format_,
        format_options=options_of_variant,
        tables=[
            TableSettings(
                name=f"shop.{r.name}",
                match=[r.source_name, f"*.{r.source_name}"],
                topics=[topic],
                source_types=dict(r.source_types),
            )
            for r in tables
        ],
    )
    assert (await run(config)).ended == "end of source"
    for recorded in tables:
        scan = await asyncio.to_thread(lambda name: catalog.table(name).scan(), f"shop.{recorded.name}")
        held = await asyncio.to_thread(scan.to_arrow)
        assert await asyncio.to_thread(differences, recorded, held) == []


def replay_merged(recorded: RecordedTable, broker: KafkaBroker) -> str:
    """Every topic of a variant in one, in the order of time; each record in the partition it came from."""
    lines = [line for path in sorted(recorded.variant_folder.glob("*.jsonl.zst")) for line in recorded_lines(path)]
    topic = f"merged-{uuid4().hex[:8]}"
    broker.create_topic(topic, partitions=1 + max(line["partition"] for line in lines))
    broker.send(sorted(lines, key=lambda line: line["timestamp_ms"]), topic)
    return topic


def copy_files(recorded: RecordedTable, log: Path) -> None:
    log.mkdir()
    for path in recorded.files:
        shutil.copyfile(path, log / path.name)


def replay(recorded: RecordedTable, broker: KafkaBroker) -> list[str]:
    """The records, each in the partition it came from, under topics of this test's own."""
    topics = []
    for path in recorded.files:
        topic = f"{path.name.split('.jsonl')[0]}-{uuid4().hex[:8]}"
        lines = list(recorded_lines(path))
        broker.create_topic(topic, partitions=1 + max(line["partition"] for line in lines))
        broker.send(lines, topic)
        topics.append(topic)
    return topics
