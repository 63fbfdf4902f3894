"""Tombstones of the converter, keys with a column `schema`, deletes before the first row, cells, changed types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pytest

from tests.ingest.evolution.world import TOPIC, EvolvingWorld
from tests.ingest.formats.debezium.changes import SOURCE, Record, as_json, batch_of, change, orders, raw, rows_of
from tests.ingest.formats.envelopes.test_records import canal, maxwell
from tidelake.errors import BadInput
from tidelake.ingest.formats.base import DecodedBatch, FailureKind, Skipped, Target
from tidelake.ingest.formats.registry import open_format
from tidelake.storage.model.types import parse_type


def _decode(records: Sequence[Record], target: Target | None = None, format_: str = "debezium-json") -> DecodedBatch:
    return open_format(format_, {}).decoder(lambda source: target or orders()).decode(batch_of(records))


# ---------------------------------------------------------------- tombstones and keys


@pytest.mark.parametrize("value", [b'{"schema":null,"payload":null}', b'{ "schema": null, "payload": null }', b"null"])
def test_a_null_of_the_converter_is_a_tombstone(value: bytes) -> None:
    decoded = _decode([change("c", after={"id": 1}), raw(value, b'{"id":1}')])
    assert (decoded.failures, dict(decoded.skipped)) == ((), {Skipped.TOMBSTONE: 1})
    assert len(rows_of(decoded)) == 1


@pytest.mark.parametrize(
    "key",
    [{"schema": "pub", "id": 1}, {"schema": {"a": 1}, "id": 1}, {"schema": "pub", "payload": "x"}],
    ids=["a column schema", "a JSON column schema", "columns schema and payload"],
)
@pytest.mark.parametrize("is_wrapped", [False, True], ids=["without a schema", "with a schema"])
def test_a_key_may_have_a_column_named_schema(key: dict[str, Any], is_wrapped: bool) -> None:
    target = orders(dict.fromkeys(key, "STRING"), tuple(key))
    given = {"schema": None, "payload": key} if is_wrapped else key
    batch = batch_of([change("c", after=key, key=given), change("d", key=given)])
    decoded = open_format("debezium-json", {}).decoder(lambda source: target).decode(batch)
    assert decoded.failures == ()
    assert [row[0] for row in rows_of(decoded)] == ["+I", "-D"]
    assert open_format("debezium-json", {}).infer_table(batch, 0).primary_key == tuple(key)


# ---------------------------------------------------------------- deletes before the first row


_DELETES: Final = {
    "debezium-json": change("d", key={"id": 1}),
    "maxwell-json": Record(None, as_json(maxwell("delete", {"id": 1}))),
    "ogg-json": Record(None, as_json({"op_type": "D", "table": "public.orders", "before": {"id": 1}})),
}
_ROWS: Final = {
    "debezium-json": change("c", after={"id": 2, "note": "a"}),
    "maxwell-json": Record(None, as_json({**maxwell("insert", {"id": 2, "note": "a"}), "primary_key_columns": ["id"]})),
    "ogg-json": Record(
        None,
        as_json({"op_type": "I", "table": "public.orders", "primary_keys": ["id"], "after": {"id": 2, "note": "a"}}),
    ),
}


@pytest.mark.parametrize("format_", _DELETES)
@pytest.mark.parametrize("batch_records", [1, 10], ids=["in a batch of its own", "with the next row"])
def test_a_topic_may_begin_with_a_delete_that_has_only_the_key(format_: str, batch_records: int) -> None:
    world = EvolvingWorld(f"format: {format_}")
    for record in (_DELETES[format_], _ROWS[format_], _DELETES[format_]):
        world.log.append(TOPIC, record.value, record.key)
    world.run(batch_records=batch_records)
    assert [(int(row["id"]), row["note"]) for row in world.rows()] == [(2, "a")]


# ---------------------------------------------------------------- cells


def _cell(value: Any) -> dict[str, Any]:
    return {"value": value, "set": True}


_YUGABYTE: Final = {**SOURCE, "connector": "yugabytedb"}


def test_a_cell_that_is_not_set_did_not_change() -> None:
    key = {"id": _cell(1)}
    whole = {"id": _cell(1), "note": _cell("a"), "qty": _cell(2)}
    records = [
        change("c", after=whole, key=key, source=_YUGABYTE),
        change("u", after={"id": _cell(1), "note": None, "qty": _cell(None)}, key=key, source=_YUGABYTE),
        change("u", after={**whole, "note": {"value": None, "set": False}}, key=key, source=_YUGABYTE),
        change("d", key=key, source=_YUGABYTE),
    ]
    decoded = _decode(records)
    (found,) = decoded.tables
    assert decoded.failures == ()
    assert rows_of(decoded) == [("+I", 1, "a", 2), ("+U", 1, None, None), ("+U", 1, None, 2), ("-D", 1, None, None)]
    assert found.unavailable is not None
    flags = {name: flags.tolist() for name, flags in found.unavailable.columns.items()}
    assert (found.unavailable.rows.tolist(), flags) == ([1, 2], {"note": [True, True]})


def test_the_value_in_a_cell_has_the_type_of_the_column() -> None:
    cell = {"type": "struct", "fields": [{"field": "value", "type": "int64"}, {"field": "set", "type": "boolean"}]}
    images = [
        {"type": "struct", "field": name, "fields": [{**cell, "field": "id"}, {**cell, "field": "qty"}]}
        for name in ("before", "after")
    ]
    payload = {"op": "c", "after": {"id": _cell(1), "qty": _cell(2)}, "source": _YUGABYTE}
    value = as_json({"schema": {"type": "struct", "fields": images}, "payload": payload})
    inferred = open_format("debezium-json", {}).infer_table(batch_of([raw(value, as_json({"id": _cell(1)}))]), 0)
    assert [str(column.type) for column in inferred.fields] == ["BIGINT NOT NULL", "BIGINT"]
    assert rows_of(_decode([raw(value)])) == [("+I", 1, None, 2)]


def test_a_value_that_is_no_cell_is_refused() -> None:
    (failure,) = _decode([change("c", after={"id": 1}, source=_YUGABYTE)]).failures
    assert "after image: column id is no cell with value and set: 1" in failure.reason


def test_objects_of_other_connectors_are_no_cells() -> None:
    assert rows_of(_decode([change("c", after={"id": 1, "note": _cell("a")})])) == [
        ("+I", 1, '{"value":"a","set":true}', None)
    ]


@pytest.mark.parametrize("op", ["c", "i", "u", "r", "d"])
def test_records_of_cassandra_are_refused_by_name(op: str) -> None:
    record = change(op, after={"id": _cell(1)}, key={"id": 1}, source={**SOURCE, "connector": "cassandra"})
    (failure,) = _decode([record]).failures
    assert "records of the connector cassandra can't be read" in failure.reason


# ---------------------------------------------------------------- types that change at the source


_CHANGED: Final = [
    ("INT", "STRING", "a"),
    ("BIGINT", "STRING", "a"),
    ("DOUBLE", "STRING", "a"),
    ("BOOLEAN", "STRING", "maybe"),
    ("DATE", "STRING", "soon"),
    ("TIMESTAMP(3)", "STRING", "soon"),
    ("BOOLEAN", "INT", 7),
]


@pytest.mark.parametrize(("column", "declared", "value"), _CHANGED, ids=[f"{one} to {to}" for one, to, _ in _CHANGED])
def test_a_type_that_changed_at_the_source_makes_no_dead_letter(column: str, declared: str, value: Any) -> None:
    world = EvolvingWorld("errors: {tolerance: all}")
    world.create({"id": "BIGINT", "c": column})
    world.add({"id": 1, "c": None}, {"id": "BIGINT", "c": declared})
    world.run()
    world.add({"id": 2, "c": value}, {"id": "BIGINT", "c": declared})
    with pytest.raises(
        BadInput, match=rf"column c of shop\.orders is {column.split('(', maxsplit=1)[0]}.*the records declare"
    ):
        world.run()
    assert [row["id"] for row in world.rows()] == [1]


def test_a_value_that_does_not_fit_its_own_declared_type_is_a_bad_record() -> None:
    value = canal("INSERT", {"id": "1", "qty": "x"}, mysqlType={"id": "bigint", "qty": "int"})
    (failure,) = _decode([Record(None, as_json(value))], format_="canal-json").failures
    assert failure.kind is FailureKind.BAD_RECORD
    text = canal("INSERT", {"id": "1", "qty": "x"}, mysqlType={"id": "bigint", "qty": "varchar(9)"})
    (failure,) = _decode([Record(None, as_json(text))], format_="canal-json").failures
    assert failure.kind is FailureKind.NARROW_COLUMN
    assert failure.needed[0].type == parse_type("VARCHAR(9)")


# ---------------------------------------------------------------- zero dates


_ZERO: Final = ["0000-00-00", "0000-00-00 00:00:00", "0000-00-00 00:00:00.000000", "2024-00-01", "2024-01-00 01:02:03"]


@pytest.mark.parametrize("text", _ZERO)
@pytest.mark.parametrize("column", ["DATE", "TIMESTAMP(3)", "TIMESTAMP(3) WITH LOCAL TIME ZONE"])
@pytest.mark.parametrize("name", ["canal-json", "maxwell-json"])
def test_a_zero_date_is_refused_or_null_on_request(text: str, column: str, name: str) -> None:
    target = orders({"id": "BIGINT", "day": column, "note": "STRING"})
    row = {"id": "1", "day": text, "note": text}
    record = Record(None, as_json(canal("INSERT", row) if name == "canal-json" else maxwell("insert", row)))
    batch = batch_of([record] * 2)
    refused = open_format(name, {}).decoder(lambda source: target).decode(batch)
    assert [failure.kind for failure in refused.failures] == [FailureKind.BAD_RECORD] * 2
    decoder = open_format(name, {"zero_dates": "null"}).decoder(lambda source: target)
    for _ in range(2):  # also by the readers that were chosen for these values
        assert rows_of(decoder.decode(batch)) == [("+I", 1, None, text)] * 2


def test_other_dates_are_read_as_always_beside_zero_dates() -> None:
    target = orders({"id": "BIGINT", "day": "DATE"})
    rows = [canal("INSERT", {"id": str(i), "day": "0000-00-00" if i % 2 else "2024-01-02"}) for i in range(300)]
    decoder = open_format("canal-json", {"zero_dates": "null"}).decoder(lambda source: target)
    found = rows_of(decoder.decode(batch_of([Record(None, as_json(row)) for row in rows])))
    assert [str(day) for _, _, day in found] == [("None" if i % 2 else "2024-01-02") for i in range(300)]
