"""How records of each format show that they are of their source's initial snapshot, and which one is its last."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Final

import fastavro
import pyarrow as pa
import pytest

from tests.ingest.pipeline.test_bootstraps import ORDERS, Waiting, World
from tests.support.memory_log import MemoryLogSource
from tests.support.schema_registry import SchemaRegistryServer, schema_registry
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.formats.format_capabilities import SnapshotMarks
from tidelake.ingest.formats.registry import FORMATS, capabilities_of
from tidelake.ingest.pipeline.builder import build_pipeline

KEY: Final = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}
ROW: Final = {
    "type": "record",
    "name": "Value",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"]}],
}
SOURCE: Final = {
    "type": "record",
    "name": "Source",
    "fields": [
        *({"name": name, "type": ["null", "string"]} for name in ("connector", "db", "schema", "table")),
        {"name": "snapshot", "type": ["null", "string"]},
    ],
}
ENVELOPE: Final = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {"name": "before", "type": ["null", ROW]},
        {"name": "after", "type": ["null", "Value"]},
        {"name": "source", "type": SOURCE},
        {"name": "op", "type": "string"},
    ],
}
FLATTENED: Final = {
    **ROW,
    "fields": [
        *ROW["fields"],
        *({"name": name, "type": ["null", "string"]} for name in ("__op", "__source_snapshot", "__table", "__db")),
    ],
}
SCHEMAS: Final[Mapping[int, Any]] = {1: KEY, 2: ENVELOPE, 3: FLATTENED}


@pytest.fixture
def registry() -> Iterator[SchemaRegistryServer]:
    with schema_registry() as server:
        server.schemas = {str(id_): json.dumps(schema) for id_, schema in SCHEMAS.items()}
        yield server


def avro(id_: int, value: Mapping[str, Any]) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, SCHEMAS[id_], value)
    return b"\0" + id_.to_bytes(4, "big") + out.getvalue()


def row(number: int, note: str | None = "ä") -> dict[str, Any]:
    return {"id": number, "note": note}


def enveloped(op: str, number: int, snapshot: str) -> dict[str, Any]:
    source = {"connector": "postgresql", "db": "shop", "schema": "public", "table": "orders", "snapshot": snapshot}
    before, after = (row(number), None) if op == "d" else (None, row(number))
    return {"before": before, "after": after, "source": source, "op": op}


def flattened(op: str, number: int, snapshot: str) -> dict[str, Any]:
    return {**row(number), "__op": op, "__source_snapshot": snapshot, "__table": "orders", "__db": "shop"}


def as_json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value).encode()


def bson(op: str, number: int, snapshot: str) -> bytes:
    source = {"connector": "mongodb", "db": "shop", "collection": "orders", "snapshot": snapshot}
    return as_json({"after": json.dumps({"_id": number, "op": "u"}), "source": source, "op": op})


@dataclass(frozen=True)
class Producer:
    """record: makes a record's value from its operation, its key, and its place in the snapshot."""

    format: str
    record: Callable[[str, int, str], bytes]
    key: Callable[[int], bytes] = lambda number: as_json({"id": number})

    def options(self, registry: SchemaRegistryServer) -> dict[str, str]:
        return {"schema_registry_url": registry.url} if "avro" in self.format else {}


def avro_key(number: int) -> bytes:
    return avro(1, {"id": number})


PRODUCERS: Final = (
    Producer("debezium-json", lambda *parts: as_json(enveloped(*parts))),
    Producer("debezium-avro", lambda *parts: avro(2, enveloped(*parts)), avro_key),
    Producer("debezium-bson", bson),
    Producer("debezium-flattened-json", lambda *parts: as_json(flattened(*parts))),
    Producer("debezium-flattened-avro", lambda *parts: avro(3, flattened(*parts)), avro_key),
)
EACH: Final = pytest.mark.parametrize("producer", PRODUCERS, ids=lambda one: one.format)


def marks_of(producer: Producer, registry: SchemaRegistryServer) -> SnapshotMarks:
    marks = capabilities_of(producer.format).snapshot_marks_of
    assert marks is not None
    return marks(producer.options(registry))


@EACH
def test_rows_of_a_snapshot_are_told_from_those_of_the_stream(
    producer: Producer, registry: SchemaRegistryServer
) -> None:
    marks = marks_of(producer, registry)
    first, last = producer.record("r", 1, "first"), producer.record("r", 2, "true")
    assert marks.are_rows(pa.array([first, last]))
    for op in ("c", "u", "d"):
        assert not marks.are_rows(pa.array([first, producer.record(op, 2, "false")]))
    assert not marks.are_rows(pa.array([first, b"no record"]))
    assert not marks.are_rows(pa.array([first, b""]))


@EACH
def test_the_last_row_of_a_snapshot_is_known(producer: Producer, registry: SchemaRegistryServer) -> None:
    marks = marks_of(producer, registry)
    places = ("true", "first", "first_in_data_collection", "last_in_data_collection", "last", "incremental", "false")
    found = [place for place in places if marks.is_last(producer.record("r", 1, place))]
    assert found == ["last_in_data_collection", "last"]
    assert not marks.is_last(b"")


def test_a_registry_that_does_not_answer_shows_no_snapshot(registry: SchemaRegistryServer) -> None:
    producer = PRODUCERS[1]
    marks = marks_of(producer, registry)
    registry.schemas = {}
    assert not marks.are_rows(pa.array([producer.record("r", 1, "true")]))
    assert not marks.is_last(producer.record("r", 1, "last"))


def test_formats_without_a_mark_are_known() -> None:
    without = {name for name in FORMATS if capabilities_of(name).snapshot_marks_of is None}
    assert without == {
        *("aliyun-json", "avro", "canal-json", "csv", "debezium-outbox", "json", "ogg-json"),
        "protobuf",
    }


# ---------------------------------------------------------------- in a pipeline


CONFIG: Final = """
warehouse: {warehouse}
pipeline: shop
source: {{type: change-log-folder, path: /unused}}
format: {format}
format_options: {options}
checkpoint: {{bytes_max: 200, interval_ms: 3600000}}
bootstrap: {{enabled: true, idle_ms: 3600000}}
tables: [{{name: shop.events}}, {{name: shop.orders}}]
"""
IN_PIPELINES: Final = [producer for producer in PRODUCERS if producer.format != "debezium-bson"]  # another key


def of(producer: Producer, registry: SchemaRegistryServer, world: World, source: Any) -> Any:
    options = json.dumps(producer.options(registry))
    text = CONFIG.format(warehouse=world.warehouse, format=producer.format, options=options)
    return build_pipeline(parse_config(text, "shop.yaml", (), {}, "shop"), io=world.store, open_source=lambda: source)


@pytest.mark.parametrize("producer", IN_PIPELINES, ids=lambda one: one.format)
def test_its_rows_go_to_the_highest_level_and_the_stream_follows(
    producer: Producer, registry: SchemaRegistryServer
) -> None:
    world = World()
    for number in range(20):
        world.log.append("shop.public.orders", producer.record("r", number, "true"), producer.key(number))
    for op, number in (("c", 50), ("u", 3), ("d", 4)):
        world.log.append("shop.public.orders", producer.record(op, number, "false"), producer.key(number))
    asyncio.run(of(producer, registry, world, MemoryLogSource(world.log, batch_records=4)).run())
    assert [one[0] for one in world.rows()] == [number for number in (*range(20), 50) if number != 4]
    assert world.has_spilled_to_top()
    world.check_sound()


@pytest.mark.parametrize("producer", IN_PIPELINES, ids=lambda one: one.format)
def test_after_the_last_row_it_does_not_wait_for_more(producer: Producer, registry: SchemaRegistryServer) -> None:
    """Without it, an hour would pass."""
    world = World()
    for number in range(20):
        place = "true" if number < 19 else "last_in_data_collection"
        world.log.append("shop.public.orders", producer.record("r", number, place), producer.key(number))

    async def run() -> None:
        source = Waiting(MemoryLogSource(world.log, batch_records=4))
        running = asyncio.create_task(of(producer, registry, world, source).run())
        while not await asyncio.to_thread(world.with_rows, ORDERS):  # noqa: ASYNC110 - the table tells nobody
            await asyncio.sleep(0.02)
        source.end.set()
        await running

    asyncio.run(asyncio.wait_for(run(), 60))
    assert len(world.rows()) == 20
    assert world.has_spilled_to_top()
