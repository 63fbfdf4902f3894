"""Tables that are created from the first record and follow the source schema equal the source database at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.integration.test_truth_through_the_service import VARIANTS, replay, replay_merged
from tests.support.cases import is_overridden, recorded_bytes, recorded_lines
from tests.support.kafka_broker import KafkaBroker
from tests.support.levels import examples
from tests.support.memory_log import MemoryLog, MemoryLogSource
from tests.support.recorded_truth import RECORDED_TABLES, RecordedTable, differences, format_options_for
from tests.support.recorded_wire import wire_of
from tidelake.ingest.pipeline.builder import build_pipeline
from tidelake.ingest.settings import CheckpointSettings, Config, SchemaEvolutionSettings, TableSettings
from tidelake.ingest.source_settings import FolderSettings, KafkaSettings
from tidelake.storage.catalog.filesystem import FileSystemCatalog
from tidelake.storage.fileio.base import FileIO
from tidelake.storage.fileio.local import LocalFileIO
from tidelake.storage.fileio.memory import MemoryFileIO
from tidelake.storage.model.types import nullable, type_from_arrow
from tidelake.table import Table

CASES: Final = [recorded for recorded in RECORDED_TABLES if not recorded.is_large]
A_FEW_CASES_THE_REST_LONG: Final = [
    pytest.param(
        recorded,
        id=recorded.id,
        marks=[] if number % 26 == 0 or is_overridden("TIDELAKE_RECORDED") else pytest.mark.long,
    )
    for number, recorded in enumerate(CASES)
]


def settings_of(recorded: RecordedTable, topics: Sequence[str]) -> TableSettings:
    """Types are declared where the records say none, or another."""
    types = declared(recorded)
    if wire_of(recorded.connector).has_schema:
        types = {name: type_ for name, type_ in types.items() if name in recorded.source_types}
    return TableSettings(
        name=f"shop.{recorded.name}",
        match=[recorded.source_name, f"*.{recorded.source_name}"],
        topics=list(topics),
        columns=types,
        source_types=recorded.source_types,
        options={"bucket": 1} if recorded.primary_key else {},
    )


def declared(recorded: RecordedTable) -> dict[str, str]:
    """SQL types of the columns that records have."""
    ids = iter(range(1_000, 2_000))
    types = {f.name: type_from_arrow(f.type, lambda: next(ids), column=f.name) for f in recorded.schema}
    return {name: str(nullable(type_)) for name, type_ in types.items() if name in recorded.seen.columns}


def config_for(
    tables: Mapping[RecordedTable, Sequence[str]],
    warehouse: str,
    source: FolderSettings | KafkaSettings,
    options: Mapping[str, Any],
    checkpoint: CheckpointSettings | None = None,
) -> Config:
    """tables: to the topics that feed them."""
    return Config(
        pipeline="evolving",
        warehouse=warehouse,
        source=source,
        format=next(iter(tables)).format,
        format_options=options,
        checkpoint=checkpoint or CheckpointSettings(),
        schema_evolution=SchemaEvolutionSettings(mode="evolve"),
        tables=[settings_of(recorded, topics) for recorded, topics in tables.items()],
    )


def lines_of(recorded: RecordedTable) -> list[Mapping[str, Any]]:
    return [line for path in recorded.files for line in recorded_lines(path)]


def log_of(lines: Sequence[Mapping[str, Any]]) -> MemoryLog:
    log = MemoryLog()
    for line in lines:
        headers = tuple((name, text.encode()) for name, text in line.get("headers", ()))
        key, value = (recorded_bytes(line, part) for part in ("key", "value"))
        log.append(line["topic"], value, key, line["partition"], headers)
    return log


def read(recorded: RecordedTable, options: Mapping[str, str], lake: str, log: MemoryLog, batch_records: int) -> None:
    """One process, from where the last one was to the log's end; it commits after each batch."""
    config = config_for(
        {recorded: recorded.topics},
        lake,
        FolderSettings(path=Path("unused"), until="end"),
        options,
        CheckpointSettings(bytes_max=1, interval_ms=3_600_000),
    )
    asyncio.run(
        build_pipeline(config, io=MemoryFileIO(), open_source=lambda: MemoryLogSource(log, batch_records)).run()
    )


def wrong(recorded: RecordedTable, io: FileIO, lake: str) -> list[str]:
    held = Table(FileSystemCatalog(io, lake).load(f"shop.{recorded.name}")).scan().to_arrow()
    return differences(recorded, held)


@pytest.mark.exhaustive(kept=8)
@pytest.mark.parametrize("recorded", CASES, ids=lambda recorded: recorded.id)
def test_a_table_created_from_its_first_record_equals_the_source(recorded: RecordedTable) -> None:
    lake = f"memory://{uuid4()}/lake"
    with format_options_for(recorded) as options:
        read(recorded, options, lake, log_of(lines_of(recorded)), 100)
    assert wrong(recorded, MemoryFileIO(), lake) == []


@pytest.mark.parametrize("recorded", A_FEW_CASES_THE_REST_LONG)
def test_after_a_crash_anywhere_the_next_process_gives_the_same_table(recorded: RecordedTable) -> None:
    lines = lines_of(recorded)

    @settings(max_examples=examples(10))
    @given(ends=st.lists(st.integers(1, len(lines)), min_size=1, max_size=3), batch_records=st.integers(20, 200))
    def ends_as_the_source(ends: list[int], batch_records: int) -> None:
        lake = f"memory://{uuid4()}/lake"
        for end in [*sorted(ends), len(lines)]:
            read(recorded, options, lake, log_of(lines[:end]), batch_records)
        assert wrong(recorded, MemoryFileIO(), lake) == []

    with format_options_for(recorded) as options:
        ends_as_the_source()


@pytest.fixture
def options_of_variant(tables: list[RecordedTable]) -> Iterator[dict[str, str]]:
    with format_options_for(tables[0]) as options:
        yield options


@pytest.mark.parametrize(
    "is_merged",
    [pytest.param(False, id="a topic each"), pytest.param(True, id="one topic", marks=pytest.mark.long)],
)
@pytest.mark.parametrize("tables", VARIANTS.values(), ids=VARIANTS.keys())
async def test_tables_that_follow_their_source_through_kafka_equal_it(
    tables: list[RecordedTable],
    is_merged: bool,
    options_of_variant: dict[str, str],
    tmp_path: Path,
    kafka_broker: KafkaBroker,
) -> None:
    """In one pipeline."""
    if is_merged:
        topic = await asyncio.to_thread(replay_merged, tables[0], kafka_broker)
        topics = {recorded: [topic] for recorded in tables}
    else:
        topics = {recorded: await asyncio.to_thread(replay, recorded, kafka_broker) for recorded in tables}
    source = KafkaSettings(
        bootstrap_servers=kafka_broker.address,
        topics=sorted({t for some in topics.values() for t in some}),
        until="end",
    )
    config = await asyncio.to_thread(config_for, topics, str(tmp_path / "lake"), source, options_of_variant)
    pipeline = await asyncio.to_thread(build_pipeline, config)
    assert (await pipeline.run()).ended == "end of source"
    for recorded in tables:
        assert await asyncio.to_thread(wrong, recorded, LocalFileIO(), str(tmp_path / "lake")) == []
