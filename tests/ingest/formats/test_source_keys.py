"""A record whose key has a column outside of the table's primary key is refused, in every format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pytest

from tests.ingest.evolution.world import TOPIC, EvolvingWorld
from tests.ingest.formats.debezium.changes import Record, as_json, batch_of, change, orders, rows_of
from tests.ingest.formats.envelopes.test_records import canal, maxwell
from tidelake.errors import BadInput
from tidelake.ingest.formats.base import DecodedBatch, FailureKind, Target
from tidelake.ingest.formats.registry import open_format
from tidelake.ingest.formats.source_keys import columns_outside

_ROW: Final = {"id": 1, "region": "eu", "note": "a"}
_COLUMNS: Final = {"id": "BIGINT", "region": "STRING", "note": "STRING"}


def _target(primary_key: Sequence[str] = ("id",), **others: Any) -> Target:
    return replace(orders(_COLUMNS, primary_key), **{"compares_keys": True, **others})


def _decode(format_: str, records: Sequence[Record], target: Target) -> DecodedBatch:
    return open_format(format_, {}).decoder(lambda source: target).decode(batch_of(records))


def _debezium(key: Mapping[str, Any] | None) -> Record:
    return change("c", after=_ROW, key=key)


def _debezium_with_schema(key: Mapping[str, Any] | None) -> Record:
    fields = [{"field": name, "type": "string"} for name in key or {}]
    wrapped = None if key is None else {"schema": {"type": "struct", "fields": fields}, "payload": key}
    return change("c", after=_ROW, key=wrapped)


def _flattened(key: Mapping[str, Any] | None) -> Record:
    return Record(None if key is None else as_json(key), as_json(_ROW))


def _canal(key: Mapping[str, Any] | None) -> Record:
    return Record(None, as_json(canal("INSERT", {**_ROW, "id": "1"}, pkNames=None if key is None else list(key))))


def _maxwell(key: Mapping[str, Any] | None) -> Record:
    return Record(None, as_json(maxwell("insert", _ROW, primary_key_columns=None if key is None else list(key))))


def _maxwell_by_key(key: Mapping[str, Any] | None) -> Record:
    named = None if key is None else as_json({f"pk.{name}": value for name, value in key.items()})
    return Record(named, as_json(maxwell("insert", _ROW)))


def _ogg(key: Mapping[str, Any] | None) -> Record:
    names = None if key is None else list(key)
    return Record(None, as_json({"op_type": "I", "table": "shop.orders", "primary_keys": names, "after": _ROW}))


def _aliyun(key: Mapping[str, Any] | None) -> Record:
    schema = {"source": {"dbName": "shop", "tableName": "orders"}, "primaryKey": None if key is None else list(key)}
    payload = {"op": "INSERT", "before": None, "after": {"dataColumn": _ROW}}
    return Record(None, as_json({"schema": schema, "payload": payload, "version": "0.0.1"}))


@dataclass(frozen=True)
class Producer:
    id: str
    format: str
    record: Any


PRODUCERS: Final = (
    Producer("debezium, without schemas", "debezium-json", _debezium),
    Producer("debezium, with schemas", "debezium-json", _debezium_with_schema),
    Producer("flattened", "debezium-flattened-json", _flattened),
    Producer("canal", "canal-json", _canal),
    Producer("maxwell, with key columns", "maxwell-json", _maxwell),
    Producer("maxwell, by the record's key", "maxwell-json", _maxwell_by_key),
    Producer("ogg", "ogg-json", _ogg),
    Producer("aliyun", "aliyun-json", _aliyun),
)
each_producer = pytest.mark.parametrize("producer", PRODUCERS, ids=lambda producer: producer.id)
_WIDER: Final = {"id": 1, "region": "eu"}


@each_producer
def test_a_wider_key_is_refused_with_both_keys(producer: Producer) -> None:
    (failure, *_) = _decode(producer.format, [producer.record(_WIDER)] * 3, _target()).failures
    assert failure.kind is FailureKind.WIDER_KEY
    assert not failure.kind.is_tolerable
    assert "the key of the record is (id, region), but the primary key of shop.orders is (id)" in failure.reason


@each_producer
@pytest.mark.parametrize("begin", [0, 1, 299])
def test_one_wider_key_among_many_records_is_found(producer: Producer, begin: int) -> None:
    records = [producer.record({"id": 1})] * 300
    records[begin] = producer.record(_WIDER)
    decoder = open_format(producer.format, {}).decoder(lambda source: target)
    target = _target()
    assert len(rows_of(decoder.decode(batch_of([producer.record({"id": 1})] * 300)))) == 300
    decoded = decoder.decode(batch_of(records))
    assert [failure.row for failure in decoded.failures] == [begin]
    assert len(rows_of(decoded)) == 299


@each_producer
@pytest.mark.parametrize("key", [{"id": 1}, None, {"ID": 1}], ids=["the same key", "no key", "another case"])
def test_other_keys_are_accepted(producer: Producer, key: Mapping[str, Any] | None) -> None:
    decoded = _decode(producer.format, [producer.record(key)] * 3, _target())
    # An update without its old row, as which a flattened row counts, needs the key in the table's spelling.
    is_refused = producer.id == "flattened" and key is not None and "ID" in key
    assert FailureKind.WIDER_KEY not in [failure.kind for failure in decoded.failures]
    assert len(rows_of(decoded)) == (0 if is_refused else 3)


@each_producer
def test_a_key_inside_of_the_tables_key_is_accepted(producer: Producer) -> None:
    decoded = _decode(producer.format, [producer.record({"id": 1})], _target(("id", "region")))
    if producer.id == "flattened":  # it is unknown whether the row is new
        assert "Set REPLICA IDENTITY FULL" in decoded.failures[0].reason
    else:
        assert len(rows_of(decoded)) == 1


@each_producer
def test_keys_are_not_compared_on_request(producer: Producer) -> None:
    assert len(rows_of(_decode(producer.format, [producer.record(_WIDER)], _target(compares_keys=False)))) == 1


@pytest.mark.parametrize(
    ("key", "primary_key", "outside"),
    [
        (["id"], ["id"], ()),
        (["id"], ["day", "id"], ()),
        (["id", "region"], ["id"], ("region",)),
        (["ID"], ["id"], ()),
        (["id"], ["_id"], ()),
        ([], ["id"], ()),
    ],
    ids=["equal", "inside", "wider", "another case", "a document of MongoDB", "no key"],
)
def test_columns_outside_of_a_key(key: list[str], primary_key: list[str], outside: tuple[str, ...]) -> None:
    assert columns_outside(key, primary_key) == outside


# ---------------------------------------------------------------- a pipeline


_SHARD: Final = "__dbz__physicalTableIdentifier"


def _add(world: EvolvingWorld, key: Mapping[str, Any], row: Mapping[str, Any], op: str = "c") -> None:
    record = change(op, **{"before" if op == "d" else "after": row}, key=key)  # type: ignore[arg-type]
    world.log.append(TOPIC, record.value, record.key)


def test_shards_in_one_topic_are_refused_before_the_table_is_created() -> None:
    world = EvolvingWorld()
    _add(world, {_SHARD: "t_1", "id": 1}, {"id": 1, "v": "a"})
    with pytest.raises(BadInput, match=rf"rows that differ only in {_SHARD} would become one row.*`key_columns: \["):
        world.run()
    assert not world.catalog.table_exists("shop.orders")


def test_the_shard_can_become_a_part_of_the_key() -> None:
    world = EvolvingWorld("", f"key_columns: [{_SHARD}]")
    for shard, value in (("t_1", "a"), ("t_2", "b"), ("t_3", "c")):
        _add(world, {_SHARD: shard, "id": 1}, {"id": 1, "v": value})
    _add(world, {_SHARD: "t_2", "id": 1}, {"id": 1, "v": "d"}, "u")
    _add(world, {_SHARD: "t_3", "id": 1}, {"id": 1, "v": "c"}, "d")
    world.run()
    assert sorted((row[_SHARD], row["v"]) for row in world.rows()) == [("t_1", "a"), ("t_2", "d")]
    assert world.table.schema.primary_keys == (_SHARD, "id")


def test_a_key_that_gets_wider_stops_the_pipeline_and_no_dead_letter_is_written() -> None:
    world = EvolvingWorld("errors: {tolerance: all}")
    _add(world, {"id": 1}, {"id": 1, "region": "eu"})
    world.run()
    _add(world, {"id": 1, "region": "us"}, {"id": 1, "region": "us"})
    with pytest.raises(BadInput, match=r"the key of the record is \(id, region\), but the primary key of shop\.orders"):
        world.run()
    assert [row["region"] for row in world.rows()] == ["eu"]


def test_a_table_whose_rows_are_not_those_of_the_source_may_have_another_key() -> None:
    world = EvolvingWorld("", "primary_key: [region], key_from_records: false")
    _add(world, {"id": 1}, {"id": 1, "region": "eu"})
    _add(world, {"id": 2}, {"id": 2, "region": "eu"})
    world.run()
    assert [(row["id"], row["region"]) for row in world.rows()] == [("2", "eu")]
