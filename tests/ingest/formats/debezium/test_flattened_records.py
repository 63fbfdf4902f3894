"""Records that `ExtractNewRecordState` has flattened give the table that the whole records give."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any, Final

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ingest.evolution.world import EvolvingWorld
from tests.ingest.formats.debezium.changes import Record, as_json, batch_of, change, orders, rows_of
from tests.support.levels import examples
from tests.support.schema_registry import SchemaRegistryServer, schema_registry
from tidelake.errors import BadInput
from tidelake.ingest.formats.base import DecodedBatch, Skipped, Target
from tidelake.ingest.formats.debezium.flattened_records import METADATA_FIELDS
from tidelake.ingest.formats.format_capabilities import RecordOrigin
from tidelake.ingest.formats.registry import capabilities_of, open_format

JSON: Final = "debezium-flattened-json"
AVRO: Final = "debezium-flattened-avro"
_COLUMNS: Final = {"id": "int64", "note": "string", "qty": "int32"}


def _decode(records: Sequence[Record], target: Target | None = None, **options: str) -> DecodedBatch:
    return open_format(JSON, options).decoder(lambda source: target or orders()).decode(batch_of(records))


def _key(number: int = 1) -> bytes:
    return as_json({"id": number})


def _with_schema(row: Mapping[str, Any]) -> dict[str, Any]:
    fields = [{"field": n, "type": _COLUMNS.get(n, "string"), "optional": n != "id"} for n in row]
    return {"schema": {"type": "struct", "fields": fields, "optional": False, "name": "Value"}, "payload": row}


@dataclass(frozen=True)
class Case:
    id: str
    value: Any
    rows: Sequence[tuple[Any, ...]]
    options: Mapping[str, str] = field(default_factory=dict)
    skipped: Mapping[Skipped, int] = field(default_factory=dict)


_ROW: Final = {"id": 1, "note": "a", "qty": 2}
_NEW: Final = (1, "a", 2)
_DELETED: Final = [("-D", 1, None, None)]
CASES: Final = (
    Case("only the row", _ROW, [("+U", *_NEW)]),
    Case("an insert", {**_ROW, "__op": "c"}, [("+I", *_NEW)]),
    Case("a row of a snapshot", {**_ROW, "__op": "r"}, [("+I", *_NEW)]),
    Case("an update", {**_ROW, "__op": "u"}, [("+U", *_NEW)]),
    Case("not deleted", {**_ROW, "__deleted": "false"}, [("+U", *_NEW)]),
    Case("not deleted, as a boolean", {**_ROW, "__deleted": False, "__op": "c"}, [("+I", *_NEW)]),
    Case("deleted", {**_ROW, "__deleted": "true"}, [("-D", *_NEW)]),
    Case("deleted, as a boolean", {**_ROW, "__deleted": True}, [("-D", *_NEW)]),
    Case("deleted, with an op", {**_ROW, "__deleted": "true", "__op": "d"}, [("-D", *_NEW)]),
    Case("a delete without __deleted", {**_ROW, "__op": "d"}, [("-D", *_NEW)]),
    Case("a tombstone", None, _DELETED),
    Case("a tombstone of the converter", {"schema": None, "payload": None}, _DELETED),
    Case("a tombstone to skip", None, [], {"tombstones": "skip"}, {Skipped.TOMBSTONE: 1}),
    Case("fields of the source", {**_ROW, "__source_ts_ms": 5, "__table": "t", "__lsn": 7}, [("+U", *_NEW)]),
)


@pytest.mark.parametrize("shape", ["without a schema", "with a schema"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_flattened_record_is_read_by_its_operation(case: Case, shape: str) -> None:
    has_schema = shape == "with a schema" and case.value is not None and "id" in case.value
    value = _with_schema(case.value) if has_schema else case.value
    decoded = _decode([Record(_key(), None if value is None else as_json(value))], None, **case.options)
    assert decoded.failures == ()
    assert (rows_of(decoded), dict(decoded.skipped)) == (list(case.rows), dict(case.skipped))


def test_the_fields_that_the_transformation_adds_are_columns_only_of_a_table_that_has_them() -> None:
    target = orders({"id": "BIGINT", "note": "STRING", "qty": "INT", "__op": "STRING", "__source_ts_ms": "BIGINT"})
    record = Record(_key(), as_json({**_ROW, "__op": "c", "__source_ts_ms": 5, "__db": "shop"}))
    assert rows_of(_decode([record], target)) == [("+I", *_NEW, "c", 5)]
    inferred = open_format(JSON, {}).infer_table(batch_of([record]), 0)
    assert ([column.name for column in inferred.fields], inferred.primary_key) == (["id", "note", "qty"], ("id",))


@pytest.mark.parametrize("name", ["__v", "op", "deleted"])
def test_other_members_are_columns(name: str) -> None:
    (failure,) = _decode([Record(_key(), as_json({**_ROW, name: "x"}))]).failures
    assert failure.columns == (name,)


def test_a_row_may_have_columns_named_schema_and_payload() -> None:
    target = orders({"schema": "STRING", "payload": "STRING"}, ("schema",))
    record = Record(as_json({"schema": "s"}), as_json({"schema": "s", "payload": "p"}))
    assert rows_of(_decode([record], target)) == [("+U", "s", "p")]


def test_most_records_are_read_as_columns() -> None:
    decoder: Any = open_format(JSON, {}).decoder(lambda source: orders())
    records = [Record(_key(i), as_json({"id": i, "note": "a", "qty": 1, "__op": "c"})) for i in range(300)]
    assert len(rows_of(decoder.decode(batch_of(records)))) == 300
    assert decoder._decoder.row_decoded_records == 0


def test_the_fields_that_are_added_name_the_origin() -> None:
    read = capabilities_of(JSON).origin_of
    assert read is not None
    row = {**_ROW, "__db": "shop", "__schema": "public", "__table": "orders", "__source_ts_ms": 5}
    for value in (row, _with_schema(row)):
        assert read(as_json(value)) == RecordOrigin("shop", "public", "orders", 5)


def test_every_field_that_can_be_added_is_known() -> None:
    assert {"op", "deleted", "table", "lsn", "source_ts_ms", "ts_ms", "transaction_id"} <= METADATA_FIELDS


@pytest.mark.parametrize("name", [JSON, AVRO])
def test_an_unknown_value_of_tombstones_is_refused(name: str) -> None:
    with pytest.raises(BadInput, match=f"tombstones of {name} must be delete or skip, not 'keep'"):
        open_format(name, {"tombstones": "keep", **({"schema_registry_url": "http://x"} if name == AVRO else {})})


# ---------------------------------------------------------------- as a table


_STEPS: Final = st.lists(
    st.tuples(st.sampled_from(["write", "delete"]), st.integers(0, 3), st.none() | st.text(max_size=3)), max_size=15
)


@given(steps=_STEPS, deletes=st.sampled_from(["tombstone", "rewrite", "both"]), has_op=st.booleans())
@settings(max_examples=examples(60), deadline=None)
def test_a_flattened_history_leaves_the_rows_of_the_source(
    steps: Sequence[tuple[str, int, str | None]], deletes: str, has_op: bool
) -> None:
    rows: dict[int, Any] = {}
    records: list[Record] = []
    for step, number, note in steps:
        if step == "write":
            op = {"__op": "u" if number in rows else "c"} if has_op else {}
            rows[number] = {"id": number, "note": note, "qty": None}
            deleted = {} if deletes == "tombstone" else {"__deleted": "false"}
            records.append(Record(_key(number), as_json({**rows[number], **op, **deleted})))
        elif number in rows:
            row = rows.pop(number)
            if deletes != "tombstone":
                records.append(Record(_key(number), as_json({**row, "__deleted": "true"})))
            if deletes != "rewrite":
                records.append(Record(_key(number), None))
    found: dict[int, Any] = {}
    for kind, number, note, qty in rows_of(_decode(records)):
        found.pop(number, None)
        if kind != "-D":
            found[number] = {"id": number, "note": note, "qty": qty}
    assert found == rows


def test_a_flattened_topic_becomes_a_table() -> None:
    world = EvolvingWorld("format: debezium-flattened-json")
    world.log.append("x.public.orders", None, _key(9))  # it begins with a delete, which makes no table
    for number in (1, 2, 3):
        row = {"id": number, "note": "a", "__op": "c", "__deleted": "false"}
        world.log.append("x.public.orders", as_json(_with_schema(row)), _key(number))
    world.log.append("x.public.orders", None, _key(2))
    world.run()
    assert sorted(row["id"] for row in world.rows()) == [1, 3]
    assert list(world.table.schema.names) == ["id", "note"]


# ---------------------------------------------------------------- Avro


_VALUE_SCHEMA: Final = {
    "type": "record",
    "name": "Value",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "__op", "type": ["null", "string"], "default": None},
        {"name": "__deleted", "type": ["null", "string"], "default": None},
        {"name": "__source_ts_ms", "type": ["null", "long"], "default": None},
    ],
}
_KEY_SCHEMA: Final = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}
_SCHEMAS: Final[dict[int, Any]] = {1: _KEY_SCHEMA, 2: _VALUE_SCHEMA}


@pytest.fixture
def registry() -> Iterator[SchemaRegistryServer]:
    with schema_registry() as server:
        server.schemas = {str(id_): json.dumps(schema) for id_, schema in _SCHEMAS.items()}
        yield server


def _framed(id_: int, value: Any) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, _SCHEMAS[id_], value)
    return b"\0" + id_.to_bytes(4, "big") + out.getvalue()


def _avro(number: int, **members: Any) -> Record:
    return Record(_framed(1, {"id": number}), _framed(2, {"id": number, **members}))


def test_flattened_avro_is_read_like_flattened_json(registry: SchemaRegistryServer) -> None:
    format_ = open_format(AVRO, {"schema_registry_url": registry.url})
    records = [
        _avro(1, note="a", __op="c", __source_ts_ms=5),
        _avro(1, note="b", __op="u", __deleted="false"),
        _avro(2, note="c"),
        _avro(2, __deleted="true"),
        Record(_framed(1, {"id": 1}), None),
    ]
    target = orders({"id": "BIGINT", "note": "STRING"})
    decoder: Any = format_.decoder(lambda source: target)
    decoded = decoder.decode(batch_of(records))
    assert decoded.failures == ()
    assert rows_of(decoded) == [
        ("+I", 1, "a"),
        ("+U", 1, "b"),
        ("+U", 2, "c"),
        ("-D", 2, None),
        ("-D", 1, None),
    ]
    assert decoder._decoder.row_decoded_records == 1  # the delete
    inferred = format_.infer_table(batch_of(records), 0)
    assert ([column.name for column in inferred.fields], inferred.primary_key) == (["id", "note"], ("id",))


def test_plain_avro_takes_no_envelope(registry: SchemaRegistryServer) -> None:
    fields = [*({"name": name, "type": "string"} for name in ("op", "source")), {"name": "after", "type": "string"}]
    envelope = {"type": "record", "name": "Envelope", "fields": fields}
    registry.schemas = {"3": json.dumps(envelope)}
    out = BytesIO()
    fastavro.schemaless_writer(out, envelope, {"op": "c", "source": "s", "after": "{}"})
    batch = batch_of([Record(None, b"\0\0\0\0\3" + out.getvalue())])
    format_ = open_format("avro", {"schema_registry_url": registry.url})
    (failure,) = format_.decoder(lambda source: orders()).decode(batch).failures
    assert "not a row: it looks like debezium-avro" in failure.reason
    with pytest.raises(BadInput, match="not a row: it looks like debezium-avro"):
        format_.infer_table(batch, 0)


# ---------------------------------------------------------------- records of other formats


def test_a_flattened_record_in_debezium_json_names_the_format() -> None:
    decoder = open_format("debezium-json", {}).decoder(lambda source: orders())
    (failure,) = decoder.decode(batch_of([Record(_key(), as_json(_ROW))])).failures
    assert "set `format` to debezium-flattened-json" in failure.reason


_OTHERS: Final = {
    "debezium-json": change("c", after=_ROW).value,
    "debezium-flattened-json": as_json({**_ROW, "__deleted": "true"}),
    "canal-json": as_json({"type": "INSERT", "data": [_ROW], "mysqlType": {}, "isDdl": False}),
    "maxwell-json": as_json({"type": "insert", "data": _ROW, "database": "d", "table": "t"}),
    "ogg-json": as_json({"op_type": "I", "table": "d.t", "after": _ROW}),
    "aliyun-json": as_json({"schema": {}, "payload": {}, "version": "0.0.1"}),
    "aws-dms-json": as_json({"metadata": {}, "data": _ROW}),
}


@pytest.mark.parametrize("other", _OTHERS)
@pytest.mark.parametrize("has_table", [True, False], ids=["the table exists", "a new table"])
def test_json_takes_no_record_of_another_format(other: str, has_table: bool) -> None:
    world = EvolvingWorld("format: json", "primary_key: [id]")
    if has_table:
        world.create({"id": "BIGINT", "note": "STRING"})
    world.log.append("x.public.orders", _OTHERS[other], None)
    with pytest.raises(BadInput, match=f"it looks like {other}"):
        world.run()
    if has_table:
        assert list(world.table.schema.names) == ["id", "note"]
        assert world.rows() == []


def test_json_takes_a_row_whose_members_are_all_columns_of_the_table() -> None:
    target = orders({"id": "BIGINT", "note": "STRING", "__deleted": "STRING"})
    record = Record(None, as_json({"id": 1, "note": "a", "__deleted": "true"}))
    decoder = open_format("json", {}).decoder(lambda source: target)
    assert rows_of(decoder.decode(batch_of([record]))) == [("+I", 1, "a", "true")]
