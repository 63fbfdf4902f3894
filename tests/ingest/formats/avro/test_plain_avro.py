"""Avro records that are rows, framed or bare, decoded by columns or one by one."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import fastavro
import pytest

from tests.ingest.formats.conftest import NoColumnarDecoder
from tests.ingest.formats.debezium.changes import Record, batch_of, orders, rows_of
from tests.support.levels import rounds
from tests.support.schema_registry import SchemaRegistryServer, schema_registry
from tidelake.errors import BadInput
from tidelake.ingest.formats.avro import debezium_avro_decoder as decoder_module
from tidelake.ingest.formats.base import FailureKind, Skipped
from tidelake.ingest.formats.registry import open_format

_LOGICAL: Final = {
    "price": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    "day": {"type": "int", "logicalType": "date"},
    "at": {"type": "long", "logicalType": "timestamp-micros"},
    "local": {"type": "long", "logicalType": "local-timestamp-millis"},
    "opens": {"type": "int", "logicalType": "time-millis"},
    "uuid": {"type": "string", "logicalType": "uuid"},
    "kind": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]},
    "tags": {"type": "array", "items": ["null", "string"]},
    "counts": {"type": "map", "values": "int"},
    "inner": {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "double"}]},
    "either": ["null", "long", "string"],
    "f": "float",
    "raw": "bytes",
    "ok": "boolean",
}
SCHEMA: Final = {
    "type": "record",
    "name": "Row",
    "fields": [
        {"name": "id", "type": "long"},
        *({"name": n, "type": t if isinstance(t, list) else ["null", t]} for n, t in _LOGICAL.items()),
    ],
}
TYPES: Final = {
    "id": "BIGINT",
    "price": "DECIMAL(9, 2)",
    "day": "DATE",
    "at": "TIMESTAMP(6)",
    "local": "TIMESTAMP(3)",
    "opens": "TIME(3)",
    "uuid": "STRING",
    "kind": "STRING",
    "tags": "ARRAY<STRING>",
    "counts": "MAP<STRING NOT NULL, INT>",
    "inner": "STRING",
    "either": "STRING",
    "f": "FLOAT",
    "raw": "BYTES",
    "ok": "BOOLEAN",
}
ROW: Final[dict[str, Any]] = {
    "id": 7,
    "price": Decimal("-12.50"),
    "day": date(1969, 12, 31),
    "at": datetime(2024, 2, 29, 1, 2, 3, 456789, UTC),
    "local": datetime(2024, 2, 29, 1, 2, 3, 456000),
    "opens": time(23, 59, 59, 999000),
    "uuid": "12345678-9abc-def0-0000-000000000001",
    "kind": "B",
    "tags": ["a", None],
    "counts": {"x": 1},
    "inner": {"x": 0.5},
    "either": "t",
    "f": 0.1,
    "raw": b"\0\xff",
    "ok": True,
}
CELLS: Final = (
    "+I",
    7,
    Decimal("-12.50"),
    date(1969, 12, 31),
    datetime(2024, 2, 29, 1, 2, 3, 456789),
    datetime(2024, 2, 29, 1, 2, 3, 456000),
    time(23, 59, 59, 999000),
    "12345678-9abc-def0-0000-000000000001",
    "B",
    ["a", None],
    [("x", 1)],
    '{"x":0.5}',
    "t",
    0.10000000149011612,
    b"\0\xff",
    True,
)


@pytest.fixture(params=["by columns", "record by record"], autouse=True)
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "record by record":
        monkeypatch.setattr(decoder_module, "ColumnImages", NoColumnarDecoder)


@pytest.fixture
def registry() -> Iterator[SchemaRegistryServer]:
    with schema_registry() as server:
        server.schemas = {"5": json.dumps(SCHEMA)}
        yield server


def written(row: dict[str, Any]) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, SCHEMA, row)
    return out.getvalue()


def test_a_framed_record_is_a_row(registry: SchemaRegistryServer) -> None:
    target = orders(TYPES)
    format_ = open_format("avro", {"schema_registry_url": registry.url})
    framed = Record(b"any key", b"\0\0\0\0\5" + written(ROW))
    nulls = Record(None, b"\0\0\0\0\5" + written({"id": 8}))
    decoded = format_.decoder(lambda source: target).decode(batch_of([framed, nulls, Record(None, None)]))
    assert not decoded.failures
    assert decoded.skipped == {Skipped.TOMBSTONE: 1}
    assert rows_of(decoded) == [CELLS, ("+I", 8, *[None] * (len(CELLS) - 2))]


def test_a_bare_record_has_the_schema_of_the_configuration(tmp_path: Path) -> None:
    target = orders(TYPES)
    (tmp_path / "row.avsc").write_text(json.dumps(SCHEMA))
    for options in ({"schema": json.dumps(SCHEMA)}, {"schema_file": str(tmp_path / "row.avsc")}):
        decoder = open_format("avro", options).decoder(lambda source: target)
        records = [Record(None, written(ROW)), Record(None, written(ROW)[:-1]), Record(None, b"")]
        decoded = decoder.decode(batch_of(records))
        assert rows_of(decoded) == [CELLS]
        assert [failure.row for failure in decoded.failures] == [1, 2]


def test_a_new_table_has_the_types_that_the_schema_says(registry: SchemaRegistryServer) -> None:
    format_ = open_format("avro", {"schema_registry_url": registry.url})
    inferred = format_.infer_table(batch_of([Record(None, b"\0\0\0\0\5" + written(ROW))]), 0)
    assert {field.name: str(field.type) for field in inferred.fields} == TYPES
    assert inferred.primary_key == ()


def test_a_column_that_the_table_lacks_is_named(registry: SchemaRegistryServer) -> None:
    target = orders({name: type_ for name, type_ in TYPES.items() if name != "day"})
    decoder = open_format("avro", {"schema_registry_url": registry.url}).decoder(lambda source: target)
    (failure,) = decoder.decode(batch_of([Record(None, b"\0\0\0\0\5" + written(ROW))])).failures
    assert (failure.kind, failure.columns) == (FailureKind.UNKNOWN_COLUMN, ("day",))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "set `schema_registry_url`"),
        ({"schema": "{"}, "schema of avro: not a schema of Avro"),
        ({"schema": '"long"'}, "the type must be a record"),
        ({"schema_file": "none.avsc"}, "schema_file of avro: none.avsc"),
        ({"schema": json.dumps(SCHEMA), "schema_registry_url": "http://registry"}, "not both"),
        ({"shema": "{}"}, "avro has no option 'shema'; did you mean 'schema'"),
        ({"schema": "{}", "inexact_values": "cut"}, "must be fail or round, not 'cut'"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_contradictory_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        open_format("avro", options).decoder(lambda source: None)


def _record(name: str, *fields: str) -> dict[str, Any]:
    members = [{"name": field, "type": ["null", "string"], "default": None} for field in fields]
    return {"type": "record", "name": name, "namespace": "shop", "fields": members}


PAID: Final = _record("Paid", "by")
SENT: Final = _record("Sent", "by")  # the same fields: only the name tells them apart


def _written(schema: Any, value: Any) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


@pytest.mark.parametrize(
    ("union", "value", "text"),
    [
        ([PAID, SENT], ("shop.Sent", {"by": "ü🦊"}), '{"shop.Sent":{"by":"ü🦊"}}'),
        (["null", PAID, SENT], ("shop.Paid", {"by": None}), '{"shop.Paid":{"by":null}}'),
        (["null", PAID, SENT], None, None),
        (["null", PAID, SENT, "long"], 7, "7"),
        (["null", "string", PAID], {"by": "a"}, '{"by":"a"}'),
        (
            {"type": "array", "items": [PAID, SENT]},
            [("shop.Sent", {"by": "a"}), ("shop.Paid", {"by": "b"})],
            '[{"shop.Sent":{"by":"a"}},{"shop.Paid":{"by":"b"}}]',
        ),
    ],
    ids=["two records", "null and two records", "null", "a number among records", "one record", "in an array"],
)
def test_a_record_of_a_union_of_records_is_named(union: Any, value: Any, text: str | None) -> None:
    schema = {
        "type": "record",
        "name": "Event",
        "fields": [{"name": "id", "type": "long"}, {"name": "what", "type": union}],
    }
    record = Record(None, _written(schema, {"id": 1, "what": value}))
    decoder = open_format("avro", {"schema": json.dumps(schema)}).decoder(
        lambda source: orders({"id": "BIGINT", "what": "STRING"})
    )
    decoded = decoder.decode(batch_of([record]))
    assert not decoded.failures
    assert rows_of(decoded) == [("+I", 1, text)]


def test_damaged_bytes_of_a_union_of_records_give_a_row_or_a_failure() -> None:
    fields = [{"name": "id", "type": "long"}, {"name": "what", "type": ["null", PAID, SENT, "long"]}]
    schema = {"type": "record", "name": "Event", "fields": fields}
    good = [
        _written(schema, {"id": 1, "what": what})
        for what in (None, 7, ("shop.Sent", {"by": "ü🦊"}), ("shop.Paid", {"by": None}))
    ]
    choose = random.Random(7)
    damaged = []
    for _ in range(rounds(3000)):
        octets = bytearray(choose.choice(good))
        for _ in range(choose.randint(1, 3)):
            octets[choose.randrange(len(octets))] = choose.randrange(256)
        damaged.append(Record(None, bytes(octets[: choose.randint(0, len(octets) + 2)])))
    decoder = open_format("avro", {"schema": json.dumps(schema)}).decoder(
        lambda source: orders({"id": "BIGINT", "what": "STRING"})
    )
    decoded = decoder.decode(batch_of(damaged))
    assert len(rows_of(decoded)) + len(decoded.failures) == len(damaged)
    assert rows_of(decoded)
    assert decoded.failures


def test_a_row_column_can_hold_no_union_of_records() -> None:
    schema = {
        "type": "record",
        "name": "Event",
        "fields": [{"name": "id", "type": "long"}, {"name": "what", "type": [PAID, SENT]}],
    }
    record = Record(None, _written(schema, {"id": 1, "what": ("shop.Sent", {"by": "a"})}))
    decoder = open_format("avro", {"schema": json.dumps(schema)}).decoder(
        lambda source: orders({"id": "BIGINT", "what": "ROW<`by` STRING>"})
    )
    decoded = decoder.decode(batch_of([record]))
    assert [failure.columns for failure in decoded.failures] == [("what.shop.Sent",)]


def test_a_schema_that_is_a_union_is_refused_with_the_serializer_s_setting(registry: SchemaRegistryServer) -> None:
    registry.schemas = {"9": json.dumps([PAID, SENT])}
    decoder = open_format("avro", {"schema_registry_url": registry.url}).decoder(lambda source: orders(TYPES))
    (failure,) = decoder.decode(
        batch_of([Record(None, b"\0\0\0\0\x09" + _written([PAID, SENT], ("shop.Paid", {"by": "a"})))])
    ).failures
    assert failure.reason.startswith("schema 9 is a union (shop.Paid, shop.Sent)")
    assert "TopicRecordNameStrategy" in failure.reason
