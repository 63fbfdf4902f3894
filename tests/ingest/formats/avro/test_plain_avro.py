"""Avro records that are rows, framed or bare, decoded by columns or one by one."""

from __future__ import annotations

import json
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
