"""A record from which its table cannot be created is a bad record. The next record creates the table."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.ingest.evolution.world import TOPIC, EvolvingWorld
from tests.ingest.formats.debezium.changes import change
from tests.ingest.quarantine.world import GrowingSource, QuarantineWorld
from tests.support.memory_log import MemoryLog
from tidelake.errors import BadInput
from tidelake.ingest.formats.debezium.debezium_json_decoder import DebeziumJsonDecoder


def add(log: MemoryLog, number: int, key: bytes | None = None, topic: str = TOPIC, table: str = "orders") -> None:
    source = {"db": "shop", "schema": "public", "table": table}
    record = change("c", after={"id": number}, key={"id": number}, source=source)
    log.append(topic, record.value, record.key if key is None else key)


def ids(world: EvolvingWorld) -> list[Any]:
    return [int(row["id"]) for row in world.rows()]


@pytest.mark.parametrize("tolerance", ["all", "3"])
def test_a_record_whose_key_names_no_columns_becomes_a_dead_letter_and_the_next_makes_the_table(tolerance: str) -> None:
    world = EvolvingWorld(f"errors: {{tolerance: {tolerance}}}")
    add(world.log, 1, b"17")
    add(world.log, 2, b"Struct{id=2}")
    world.log.append(TOPIC, json.dumps({"op": "c", "after": {}, "source": {"table": "orders"}}).encode(), b"{}")
    add(world.log, 4)
    assert world.run(batch_records=10).dead_letters == 3
    assert ids(world) == [4]
    assert world.table.schema.primary_keys == ("id",)
    add(world.log, 5)
    assert world.run().dead_letters == 0
    assert ids(world) == [4, 5]


def test_more_bad_records_than_tolerated_stop_the_pipeline() -> None:
    world = EvolvingWorld("errors: {tolerance: 1}")
    for number in range(2):
        add(world.log, number, b"17")
    with pytest.raises(
        BadInput, match=r"offset 1: the primary key of shop\.orders cannot be derived .* 1 record as dead letters"
    ):
        world.run()


def test_without_tolerance_the_pipeline_stops_with_the_remedy() -> None:
    world = EvolvingWorld()
    add(world.log, 1, b"17")
    add(world.log, 2)
    with pytest.raises(BadInput, match=r"Set `primary_key` of the table.* or create the table first"):
        world.run()
    world.run(skip=[f"{TOPIC}:0:0"])
    assert ids(world) == [2]


def test_a_configured_primary_key_makes_record_keys_irrelevant() -> None:
    world = EvolvingWorld("", "primary_key: [id]")
    add(world.log, 1, b"Struct{id=1}")
    add(world.log, 2, b"Struct{id=2}")
    world.run()
    assert ids(world) == [1, 2]


def test_a_thousand_unusable_keys_in_a_batch_are_read_at_most_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    world = EvolvingWorld("errors: {tolerance: all}")
    for number in range(1000):
        add(world.log, number, b"17")
    add(world.log, 1000)
    decoded = 0

    def counted(decode: Any) -> Any:
        def count(self: Any, batch: Any) -> Any:
            nonlocal decoded
            decoded += len(batch)
            return decode(self, batch)

        return count

    monkeypatch.setattr(DebeziumJsonDecoder, "decode", counted(DebeziumJsonDecoder.decode))
    assert world.run(batch_records=2000).dead_letters == 1000
    assert decoded < 5000


def test_other_tables_continue_and_a_quarantined_one_is_created_once_tolerated() -> None:
    world = QuarantineWorld(tables=2, is_shared=True, are_created=False)
    add(world.log, 1, b"17", "all", "t0")
    add(world.log, 2, None, "all", "t0")
    add(world.log, 3, None, "all", "t1")

    def run() -> int:
        source = GrowingSource(world.log)
        source.ends.set()
        return asyncio.run(world.pipeline(source).run()).dead_letters

    with pytest.raises(BadInput, match=r"offset 0: the primary key of shop\.t0"):
        run()
    assert (world.rows("t0"), world.rows("t1")) == ([], [3])
    world.tolerance = "all"
    assert run() == 1
    assert (world.rows("t0"), world.rows("t1")) == ([2], [3])
