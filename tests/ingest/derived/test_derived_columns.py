"""Derived columns in a pipeline: computed columns as partitions and keys, metadata columns, and bad records."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.ingest.evolution.world import TOPIC, EvolvingWorld
from tidelake.errors import BadInput


def with_table(settings: str, more: str = "") -> EvolvingWorld:
    return EvolvingWorld(more, table_settings=settings)


def test_a_computed_column_may_be_the_partition_column() -> None:
    world = with_table(
        "primary_key: [id, dt], partition_by: [dt], computed_columns: {dt: 'date_format(at, yyyy-MM-dd)'}, "
        "columns: {id: INT, at: TIMESTAMP(3)}"
    )
    world.add({"id": 1, "at": 1_709_999_107_000})
    world.add({"id": 2, "at": 1_700_000_000_000})
    world.add({"id": 1, "at": 1_709_999_107_000}, op="d")
    world.run()
    assert world.columns == {"id": "INT", "at": "TIMESTAMP(3)", "dt": "STRING"}
    assert world.table.schema.partition_keys == ("dt",)
    assert [(row["id"], row["dt"]) for row in world.rows()] == [(2, "2023-11-14")]


def test_a_computed_column_follows_updates_and_new_columns_may_be_added() -> None:
    world = with_table("computed_columns: {short: 'substring(v, 0, 2)', loud: upper(short)}")
    world.add({"id": 1, "v": "abc"})
    world.add({"id": 1, "v": "xyz", "n": 1}, op="u")
    world.run()
    assert world.rows() == [{"id": "1", "v": "xyz", "short": "xy", "loud": "XY", "n": "1"}]


def test_an_unavailable_value_keeps_its_computed_column() -> None:
    world = with_table("computed_columns: {loud: upper(v)}")
    world.add({"id": 1, "v": "abc", "w": "a"})
    world.add({"id": 1, "v": "__debezium_unavailable_value", "w": "b"}, op="u")
    world.run()
    assert world.rows() == [{"id": "1", "v": "abc", "w": "b", "loud": "ABC"}]


def test_a_value_that_a_function_rejects_makes_only_its_record_bad() -> None:
    world = with_table("computed_columns: {y: year(v)}", "errors: {tolerance: all}")
    for number, text in enumerate(["2024-01-01", "never", "2023-01-01", None]):
        world.add({"id": number, "v": text})
    world.run(batch_records=10)
    assert [(row["id"], row["y"]) for row in world.rows()] == [("0", 2024), ("2", 2023), ("3", None)]
    assert len(world.dead_letters()) == 1


def test_a_key_that_can_t_be_computed_makes_a_bad_record() -> None:
    world = with_table("primary_key: [id, y], computed_columns: {y: year(v)}", "errors: {tolerance: all}")
    world.add({"id": 1, "v": "2024-01-01"})
    world.add({"id": 2, "v": None})
    world.run()
    assert ([row["id"] for row in world.rows()], len(world.dead_letters())) == (["1"], 1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            "computed_columns: {y: year(v)}",
            "lacks the derived column y: add it with `tidelake table alter",
        ),
        ("computed_columns: {v: year(id)}, metadata_columns: [v]", "metadata column 'v' does not exist"),
        ("metadata_columns: [timestamp_typ]", "timestamp_typ' does not exist; did you mean 'timestamp_type'"),
    ],
)
def test_an_unsuitable_table_is_refused_at_the_start(settings: str, message: str) -> None:
    world = with_table(settings)
    world.create({"id": "INT", "v": "STRING"})
    with pytest.raises(BadInput, match=message):
        world.run()


def test_now_cannot_be_part_of_a_key() -> None:
    world = with_table("primary_key: [id, at], computed_columns: {at: now()}")
    world.add({"id": 1})
    with pytest.raises(BadInput, match=r"column at is part of a key, so it can't be computed with now\(\)"):
        world.run()


def test_metadata_columns_hold_the_origin_of_a_row() -> None:
    world = with_table(
        "metadata_columns: [topic, partition, offset, timestamp, timestamp_type, database_name, schema_name, "
        "table_name, op_ts], metadata_column_prefix: meta_"
    )
    world.log.timestamp_types = ["LogAppendTime"]
    world.add({"id": 1})
    world.add({"id": 2}, {"id": "INT"}, partition=1)
    world.run()
    found = [{k.removeprefix("meta_"): v for k, v in row.items()} for row in world.rows()]
    common: dict[str, Any] = {"topic": TOPIC, "timestamp_type": "LogAppendTime"}
    common |= {"database_name": "shop", "schema_name": "public", "table_name": "orders", "op_ts": None}
    at = datetime.fromtimestamp(0, UTC)
    assert found == [
        {"id": "1", "partition": 0, "offset": 0, "timestamp": at, **common},
        {"id": "2", "partition": 1, "offset": 0, "timestamp": at, **common},
    ]
    assert world.columns["meta_op_ts"] == "TIMESTAMP(3) WITH LOCAL TIME ZONE"
    assert world.columns["meta_timestamp_type"] == "STRING"


@pytest.mark.parametrize("batch_records", [1, 2, 9])
def test_the_timestamp_type_column_holds_the_type_of_each_record(batch_records: int) -> None:
    """A topic's `message.timestamp.type` may change; a record of the first format has none at all."""
    world = with_table("metadata_columns: [timestamp_type]")
    world.log.timestamp_types = names = ["CreateTime", "LogAppendTime", "NoTimestampType", None]
    for number in range(6):
        world.add({"id": number})
    world.add({"id": 0, "v": "1"}, op="u")  # the seventh: of none
    world.run(batch_records=batch_records)
    expected = {str(number): names[number % 4] for number in range(6)} | {"0": names[6 % 4]}
    assert {row["id"]: row["timestamp_type"] for row in world.rows()} == expected


SAID: list[tuple[str, dict[str, Any], tuple[str | None, str | None, str | None]]] = [
    (
        "debezium-bson",
        {
            "before": None,
            "after": '{"_id": 1, "id": 1}',
            "op": "c",
            "source": {"db": "d", "collection": "t", "ts_ms": 1_700_000_000_123},
        },
        ("d", None, "t"),
    ),
    (
        "canal-json",
        {"type": "INSERT", "database": "d", "table": "t", "es": 1_700_000_000_123, "data": [{"id": "1"}]},
        ("d", None, "t"),
    ),
    (
        "maxwell-json",
        {"type": "insert", "database": "d", "table": "t", "ts": 1_700_000_000, "data": {"id": 1}},
        ("d", None, "t"),
    ),
    (
        "ogg-json",
        {"op_type": "I", "table": "D.T", "op_ts": "2023-11-14 22:13:20.000000", "after": {"id": 1}},
        ("D", "D", "T"),
    ),
    (
        "aws-dms-json",
        {
            "data": {"id": 1},
            "metadata": {
                "record-type": "data",
                "operation": "insert",
                "schema-name": "d",
                "table-name": "t",
                "timestamp": "2023-11-14T22:13:20.000000Z",
            },
        },
        ("d", "d", "t"),
    ),
]


@pytest.mark.parametrize(("format_name", "record", "names"), SAID, ids=[name for name, _, _ in SAID])
def test_every_format_fills_the_metadata_columns_it_supports(
    format_name: str, record: dict[str, Any], names: tuple[str | None, str | None, str | None]
) -> None:
    world = with_table(  # MongoDB's key is _id
        "primary_key: [id], key_from_records: false, "
        "metadata_columns: [database_name, schema_name, table_name, op_ts, timestamp_type]",
        f"format: {format_name}",
    )
    world.log.timestamp_types = ["LogAppendTime"]
    world.log.append(TOPIC, json.dumps(record).encode(), b'{"id": "1"}')
    world.run()
    (row,) = world.rows()
    assert tuple(row[name] for name in ("database_name", "schema_name", "table_name")) == names
    assert int(row["op_ts"].timestamp()) == 1_700_000_000
    assert row["timestamp_type"] == "LogAppendTime"


def test_a_format_without_the_metadata_is_refused() -> None:
    world = with_table("metadata_columns: [op_ts]", "format: json")
    with pytest.raises(BadInput, match="metadata column op_ts is not available for records of json"):
        world.run()
