"""Rows whose primary key changes keep their values: with a real source, through a broker, and across kills."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

import tidelake
from tests.crash.table_life import COMPACT_AT_TWO
from tests.support.cases import recorded_lines
from tests.support.kafka_broker import KafkaBroker
from tests.support.memory_log import MemoryLog, MemoryLogSource
from tests.support.recorded_truth import differences, own_recorded
from tests.support.service import Service
from tidelake.checkpoint.moved_rows_state import moved_rows_of
from tidelake.ingest.pipeline.builder import build_pipeline
from tidelake.ingest.settings import CheckpointSettings, Config, TableSettings
from tidelake.ingest.source_settings import FolderSettings

INVENTORY = own_recorded("pg-shop/json-plain/inventory")


@pytest.mark.exhaustive
@pytest.mark.parametrize("ahead", [(), (0,) * 500, (1,) * 500], ids=["in turns", "one ahead", "another ahead"])
def test_a_table_equals_its_source_although_one_partition_is_far_ahead(ahead: Sequence[int], tmp_path: Path) -> None:
    log = MemoryLog()
    for record in [line for path in INVENTORY.files for line in recorded_lines(path)]:
        value, key = (None if record[part] is None else record[part].encode() for part in ("value", "key"))
        headers = tuple((name, text.encode()) for name, text in record["headers"])
        log.append(record["topic"], value, key, record["partition"], headers)
    assert len(log.records) == 3
    catalog = tidelake.open_catalog(f"memory://{uuid4()}/lake")
    catalog.create_database("shop")
    table = catalog.create_table(
        "shop.inventory", INVENTORY.schema, primary_key=INVENTORY.primary_key, options={"bucket": "1", **COMPACT_AT_TWO}
    )
    config = Config(
        pipeline="truth",
        warehouse=table.context.location.rpartition("/shop.db")[0],
        source=FolderSettings(path=tmp_path),
        tables=[TableSettings(name="shop.inventory", source_types=dict(INVENTORY.source_types))],
        checkpoint=CheckpointSettings(bytes_max=1),
    )
    source = MemoryLogSource(log, batch_records=20, first=ahead)
    progress = asyncio.run(build_pipeline(config, open_source=lambda: source).run())
    assert progress.checkpoints > 20
    assert differences(INVENTORY, table.scan().to_arrow()) == []


def record(partition: int, id_: int, value: Mapping[str, Any] | None, **headers: int) -> Mapping[str, Any]:
    """A line of a change log."""
    return {
        "partition": partition,
        "key": json.dumps({"id": id_}),
        "value": None if value is None else json.dumps(value),
        "timestamp_ms": 1,
        "headers": [[f"__debezium.{name}", json.dumps({"id": key})] for name, key in headers.items()],
    }


def change(op: str, lsn: int, before: Any = None, after: Any = None) -> Mapping[str, Any]:
    source = {"connector": "postgresql", "db": "x", "schema": "public", "table": "docs", "lsn": lsn}
    return {"op": op, "before": before, "after": after, "source": source, "ts_ms": 1}


@pytest.fixture
def service(kafka_broker: KafkaBroker, tmp_path: Path) -> Iterator[Service]:
    topic = kafka_broker.create_topic(partitions=2)
    source = {"type": "kafka", "bootstrap_servers": kafka_broker.address, "topics": topic}
    configuration = {
        "pipeline": "docs",
        "warehouse": str(tmp_path / "lake"),
        "source": source,
        "tables": [{"name": "x.docs", "match": "docs"}],
        "checkpoint": {"interval_ms": 30},
    }
    with Service(tmp_path, ["ingest", "run"], configuration) as service:
        service.topic = topic  # type: ignore[attr-defined]
        yield service


@pytest.mark.interop
def test_a_moved_row_keeps_its_values_when_the_service_is_killed(
    service: Service, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    topic: str = service.topic  # type: ignore[attr-defined]
    catalog = tidelake.open_catalog(str(tmp_path / "lake"))
    catalog.create_database("x")
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int32()), ("doc", pa.string())])
    table = catalog.create_table("x.docs", schema, primary_key=["id"], options=COMPACT_AT_TWO)

    def on_its_way() -> int:
        snapshots = table.snapshots()
        return moved_rows_of(snapshots[-1].properties, "here").rows if snapshots else 0

    service.start()
    kafka_broker.send([record(0, 1, change("c", 1, after={"id": 1, "v": 1, "doc": "A"}))], topic)
    service.wait_until(lambda: len(table.snapshots()) > 1 and table.scan().to_arrow().num_rows == 1)
    kafka_broker.send(
        [
            record(0, 1, change("u", 2, after={"id": 1, "v": 2, "doc": "B"})),
            record(0, 1, change("d", 3, before={"id": 1, "v": 0, "doc": None}), newkey=2),
            record(0, 1, None, newkey=2),
        ],
        topic,
    )
    service.wait_until(lambda: on_its_way() == 1)
    service.kill()
    come = change("c", 3, after={"id": 2, "v": 2, "doc": "__debezium_unavailable_value"})
    kafka_broker.send([record(1, 2, come, oldkey=1)], topic)
    service.run_to_the_end()
    assert table.scan().to_arrow().to_pylist() == [{"id": 2, "v": 2, "doc": "B"}]
    assert on_its_way() == 0
