"""Debezium in Avro is decoded like the same changes in JSON, by columns and record by record."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from io import BytesIO
from typing import Any, Final

import fastavro
import numpy as np
import pyarrow as pa
import pytest

from tests.ingest.formats.conftest import NoColumnarDecoder
from tests.ingest.formats.debezium.changes import Record, assert_same, batch_of, orders, rows_of
from tests.support.change_replay import recorded_batches, target_of
from tests.support.recorded_truth import RECORDED_TABLES, RecordedTable
from tests.support.schema_registry import SchemaRegistryServer, schema_registry
from tidelake.errors import BadInput, RegistryUnavailable
from tidelake.ingest.derived.derived_columns import DerivedColumns
from tidelake.ingest.derived.deriving_decoder import DerivingDecoder
from tidelake.ingest.formats.avro import debezium_avro_decoder as decoder_module
from tidelake.ingest.formats.base import DecodedBatch, FailureKind, OpenedFormat, Skipped, Target
from tidelake.ingest.formats.case_insensitive.lower_case import LowerCaseFormat
from tidelake.ingest.formats.debezium.debezium_envelope import NEW_KEY_HEADER, OLD_KEY_HEADER
from tidelake.ingest.formats.registry import open_format
from tidelake.ingest.raw_batch import RawBatch
from tidelake.ingest.settings import TableSettings

_KEY: Final = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}
_COLUMNS: Final = {"id": "long", "note": ["null", "string"], "qty": ["null", "int"]}
SOURCE: Final = {"connector": "postgresql", "db": "shop", "schema": "public", "table": "orders"}


def envelope(columns: Mapping[str, Any], *, has_time: bool = False) -> dict[str, Any]:
    value = {
        "type": "record",
        "name": "Value",
        "fields": [{"name": name, "type": type_} for name, type_ in columns.items()],
    }
    source = {
        "type": "record",
        "name": "Source",
        "fields": [
            *({"name": name, "type": ["null", "string"]} for name in SOURCE),
            *([{"name": "ts_ms", "type": "long"}] if has_time else []),
        ],
    }
    return {
        "type": "record",
        "name": "Envelope",
        "fields": [
            {"name": "before", "type": ["null", value]},
            {"name": "after", "type": ["null", "Value"]},
            {"name": "source", "type": source},
            {"name": "op", "type": "string"},
        ],
    }


_TRANSACTION: Final = {
    "type": "record",
    "name": "TransactionMetadataValue",
    "fields": [{"name": "status", "type": "string"}, {"name": "id", "type": "string"}],
}
_SCHEMAS: Final = {
    1: _KEY,
    2: envelope(_COLUMNS),
    3: envelope({**_COLUMNS, "added": ["null", "double"]}),
    4: _TRANSACTION,
    5: envelope({**_COLUMNS, "amount": ["null", "string"]}),
    6: envelope(_COLUMNS, has_time=True),
}


@pytest.fixture
def registry() -> Iterator[SchemaRegistryServer]:
    with schema_registry() as server:
        server.schemas = {str(id_): json.dumps(schema) for id_, schema in _SCHEMAS.items()}
        yield server


@pytest.fixture(params=["by columns", "record by record"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "record by record":
        monkeypatch.setattr(decoder_module, "ColumnImages", NoColumnarDecoder)


def framed(id_: int, value: Any) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, _SCHEMAS[id_], value)
    return b"\0" + id_.to_bytes(4, "big") + out.getvalue()


def change(
    op: str, before: Any = None, after: Any = None, *, schema: int = 2, source: Any = SOURCE, headers: Any = ()
) -> Record:
    image = after or before or {}
    key = framed(1, {"id": image["id"]}) if "id" in image else None
    return Record(key, framed(schema, {"before": before, "after": after, "source": source, "op": op}), headers)


def decode(
    registry: SchemaRegistryServer, records: Sequence[Record], target: Target | None, **options: str
) -> DecodedBatch:
    options = {"schema_registry_url": registry.url, "schema_registry_timeout_s": "0.3", **options}
    return open_format("debezium-avro", options).decoder(lambda source: target).decode(batch_of(records))


ROW: Final = {"id": 1, "note": "a", "qty": 5}


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("is_lower_case", [False, True])
def test_metadata_columns_hold_the_source_table_and_its_time(
    registry: SchemaRegistryServer, is_lower_case: bool
) -> None:
    names = {"database_name": "STRING", "schema_name": "STRING", "table_name": "STRING", "op_ts": "TIMESTAMP_LTZ(3)"}
    names["timestamp_type"] = "STRING"
    target = orders({"id": "BIGINT", "note": "STRING", "qty": "INT", **names})
    table = TableSettings(name=target.name, metadata_columns=list(names))
    format_: OpenedFormat = open_format("debezium-avro", {"schema_registry_url": registry.url})
    if is_lower_case:
        format_ = LowerCaseFormat(open_format("debezium-avro", {"schema_registry_url": registry.url}))
    derived = {target.name: DerivedColumns.of(table, "debezium-avro")}
    decoder = DerivingDecoder(format_, lambda source: target, derived)
    batch = batch_of([change("c", after=ROW, schema=6, source={**SOURCE, "ts_ms": 1_700_000_000_123})])
    (part,) = decoder.decode(replace(batch, timestamp_types=np.array([1], np.int8))).tables
    (row,) = part.rows.select(list(names)).to_pylist()
    at = datetime.fromtimestamp(1_700_000_000.123, UTC)
    assert [row[name] for name in names] == ["shop", "public", "orders", at, "LogAppendTime"]


@pytest.mark.usefixtures("either_way")
def test_changes_of_every_kind_give_their_rows(registry: SchemaRegistryServer) -> None:
    records = [
        change("r", None, ROW),
        change("u", ROW, {**ROW, "qty": None}),
        change("u", None, {**ROW, "note": None}),
        change("u", ROW, {**ROW, "id": 2}),
        change("d", {**ROW, "id": 2}),
        Record(framed(1, {"id": 2}), None),
    ]
    decoded = decode(registry, records, orders(emit_update_before=True))
    assert not decoded.failures
    assert decoded.skipped == {Skipped.TOMBSTONE: 1}
    assert rows_of(decoded) == [
        ("+I", 1, "a", 5),
        ("-U", 1, "a", 5),
        ("+U", 1, "a", None),
        ("+U", 1, None, 5),
        ("-U", 1, "a", 5),
        ("+U", 2, "a", 5),
        ("-D", 2, "a", 5),
    ]


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("odd", ["1e2", "1.555", "12345678901.00", " 1", "", "none", "+1"])
def test_decimals_sent_as_strings_keep_their_digits(registry: SchemaRegistryServer, odd: str) -> None:
    """`decimal.handling.mode=string`. What no DECIMAL(10, 2) holds is the row decoder's to refuse."""
    target = orders({"id": "BIGINT", "note": "STRING", "qty": "INT", "amount": "DECIMAL(10, 2)"})
    texts = ["0.10", "-99999999.99", None, "7", ".5"]
    records = [change("c", None, {**ROW, "id": n, "amount": text}, schema=5) for n, text in enumerate([*texts, odd])]
    decoded = decode(registry, records, target)
    amounts = [row[-1] for row in rows_of(decoded)]
    assert amounts[:5] == [Decimal("0.10"), Decimal("-99999999.99"), None, Decimal("7.00"), Decimal("0.50")]
    assert amounts[5:] == {"1e2": [Decimal("100.00")], "+1": [Decimal("1.00")]}.get(odd, [])
    assert len(decoded.failures) == 6 - len(amounts)


@pytest.mark.usefixtures("either_way")
def test_an_unknown_column_is_named_with_the_type_of_its_schema(
    registry: SchemaRegistryServer,
) -> None:
    decoded = decode(registry, [change("c", None, ROW), change("c", None, {**ROW, "added": 0.5}, schema=3)], orders())
    (failure,) = decoded.failures
    assert (failure.row, failure.kind, failure.columns) == (1, FailureKind.UNKNOWN_COLUMN, ("added",))
    assert "added DOUBLE" in failure.reason.replace("=", " ")
    assert rows_of(decoded) == [("+I", 1, "a", 5)]


@pytest.mark.usefixtures("either_way")
def test_one_bad_record_affects_no_other_record(registry: SchemaRegistryServer) -> None:
    good = [change("c", None, {**ROW, "id": number}) for number in range(300)]
    cut = change("c", None, ROW)
    records = [*good]
    records[100] = Record(cut.key, (cut.value or b"")[:-3])
    records[200] = Record(None, b"\0\0\0\0\x09" + b"?")
    records[201] = Record(None, b'{"op": "c"}')
    decoded = decode(registry, records, orders())
    events = [(failure.row, failure.reason) for failure in decoded.failures]
    assert [row for row, _ in events] == [100, 200, 201]
    assert "schema 2: " in events[0][1]
    assert "does not know schema 9" in events[1][1]
    assert "not Avro in Confluent's wire format" in events[2][1]
    assert [row[1] for row in rows_of(decoded)] == [n for n in range(300) if n not in (100, 200, 201)]


def test_one_record_outside_the_columnar_path_leaves_the_others_on_it(registry: SchemaRegistryServer) -> None:
    records = [change("c", None, {**ROW, "id": number, "qty": number}) for number in range(2_000)]
    target = orders({"id": "BIGINT", "note": "STRING", "qty": "SMALLINT"})
    records[777] = change("c", None, {**ROW, "id": 777, "qty": 70_000})
    decoder = open_format("debezium-avro", {"schema_registry_url": registry.url}).decoder(lambda source: target)
    decoded = decoder.decode(batch_of(records))
    assert [failure.kind for failure in decoded.failures] == [FailureKind.NARROW_COLUMN]
    assert len(rows_of(decoded)) == 1_999
    assert decoder.row_decoded_records <= 64  # type: ignore[attr-defined]


def test_records_of_several_tables_and_other_shapes_in_one_topic(registry: SchemaRegistryServer) -> None:
    other = {**SOURCE, "table": "others"}
    records = [
        change("c", None, ROW),
        change("c", None, ROW, source=other),
        Record(None, framed(4, {"status": "BEGIN", "id": "7"})),
        change("t"),
        change("m"),
        change("c", None, {**ROW, "id": 2}),
    ]
    format_ = open_format("debezium-avro", {"schema_registry_url": registry.url, "truncates": "skip"})
    target = orders()
    batch = batch_of(records)
    decoded = format_.decoder(lambda source: target if source.table == "orders" else None).decode(batch)
    assert not decoded.failures
    assert [row[1] for row in rows_of(decoded)] == [1, 2]
    assert decoded.skipped == {
        Skipped.UNROUTED: 1,
        Skipped.TRANSACTION: 1,
        Skipped.TRUNCATE: 1,
        Skipped.MESSAGE: 1,
    }
    assert {source.table: row for source, row in decoded.unrouted.items()} == {"others": 1}
    (failure,) = decode(registry, records[3:4], target).failures
    assert failure.kind is FailureKind.TRUNCATE


@pytest.mark.usefixtures("either_way")
def test_both_records_of_a_key_change_are_returned(registry: SchemaRegistryServer) -> None:
    moved = {**ROW, "id": 2}
    records = [
        change("d", ROW, headers=((NEW_KEY_HEADER, b'{"id":2}'),)),
        change("c", None, moved, headers=((OLD_KEY_HEADER, framed(1, {"id": 1})),)),
    ]
    (part,) = decode(registry, records, orders()).tables
    assert part.key_changes is not None
    assert [(c.old_key, c.new_key) for c in part.key_changes.changes] == [('{"id":1}', '{"id":2}')] * 2


def test_a_record_of_another_format_is_reported_with_the_likely_format(registry: SchemaRegistryServer) -> None:
    as_json = Record(None, b'{"op":"c","after":{},"source":{}}')
    (failure,) = decode(registry, [as_json], orders()).failures
    assert "It looks like debezium-json: set `format`" in failure.reason
    other = open_format("canal-json", {}).decoder(lambda source: orders())
    (failure,) = other.decode(batch_of([change("c", None, ROW)])).failures
    assert "It looks like Avro in Confluent's wire format" in failure.reason


def test_keys_of_another_converter_are_understood(registry: SchemaRegistryServer) -> None:
    records = [Record(b'{"id":1}', change("d", ROW).value), Record(b"?", change("c", None, ROW).value)]
    assert rows_of(decode(registry, records, orders())) == [("-D", 1, "a", 5), ("+I", 1, "a", 5)]


def test_an_unavailable_registry_stops_the_decoder_without_loss(registry: SchemaRegistryServer) -> None:
    registry.failing = 10_000
    options = {"schema_registry_url": registry.url, "schema_registry_timeout_s": "0.3"}
    target = orders()
    decoder = open_format("debezium-avro", options).decoder(lambda source: target)
    batch = batch_of([change("c", None, ROW)])
    with pytest.raises(RegistryUnavailable):
        decoder.decode(batch)
    registry.failing = 0
    assert rows_of(decoder.decode(batch)) == [("+I", 1, "a", 5)]


def test_a_missing_registry_is_refused_before_reading() -> None:
    with pytest.raises(BadInput, match="set `schema_registry_url`"):
        open_format("debezium-avro", {}).decoder(lambda source: None)


def test_paimons_name_of_the_url_option_is_accepted_and_unknown_options_are_refused(
    registry: SchemaRegistryServer,
) -> None:
    open_format("debezium-avro", {"schema.registry.url": registry.url}).decoder(lambda source: None)
    with pytest.raises(BadInput, match=r"debezium-avro has no option 'schema_registry_ur'; did you mean"):
        open_format("debezium-avro", {"schema_registry_ur": registry.url})


TYPES_OF_NEW_TABLES: Final[Mapping[str, Mapping[str, str]]] = {
    "customers": {"born": "DATE", "balance": "DECIMAL(12, 2)", "tags": "ARRAY<STRING>"},
    "orders": {"id": "BIGINT NOT NULL", "total": "DECIMAL(14, 4)", "placed_at": "TIMESTAMP(6) WITH LOCAL TIME ZONE"},
    "goods": {"tiny": "TINYINT", "flag": "SMALLINT", "price": "DECIMAL(10, 2)"},
    "carts": {"client_no": "DECIMAL(20, 0)"},
}
AVRO: Final = [recorded for recorded in RECORDED_TABLES if recorded.schemas is not None]


@pytest.mark.exhaustive(kept=8)
@pytest.mark.parametrize("recorded", AVRO, ids=lambda recorded: recorded.id)
@pytest.mark.parametrize("emit_update_before", [False, True], ids=["upserts", "with old images"])
@pytest.mark.sampled
def test_the_columnar_and_the_row_decoder_agree(
    recorded: RecordedTable, emit_update_before: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = target_of(recorded, emit_update_before)
    batches = [batch for path in recorded.files for batch in recorded_batches(path)]
    with schema_registry(recorded.schemas) as server:
        format_ = open_format("debezium-avro", {"schema_registry_url": server.url, **recorded.connector_settings})
        decoder = format_.decoder(lambda source: target)
        fast = [decoder.decode(batch) for batch in batches]
        records = sum(map(len, batches))
        assert decoder.row_decoded_records < records / 3  # type: ignore[attr-defined]
        monkeypatch.setattr(decoder_module, "ColumnImages", NoColumnarDecoder)
        alone = [format_.decoder(lambda source: target).decode(batch) for batch in batches]
    for one, other in zip(fast, alone, strict=True):
        assert_same(one, other)


@pytest.mark.parametrize("recorded", AVRO, ids=lambda recorded: recorded.id)
def test_a_new_table_has_the_types_that_the_schema_says(recorded: RecordedTable) -> None:
    batch = next(recorded_batches(recorded.files[0]))
    with schema_registry(recorded.schemas) as server:
        format_ = open_format("debezium-avro", {"schema_registry_url": server.url})
        inferred = format_.infer_table(batch, 0)
    assert inferred.primary_key == recorded.primary_key
    types = {field.name: str(field.type) for field in inferred.fields}
    assert types.items() >= TYPES_OF_NEW_TABLES.get(recorded.name, {}).items()


def test_a_batch_without_records_gives_nothing(registry: SchemaRegistryServer) -> None:
    none = np.empty(0, np.int64)
    empty = RawBatch("t", 0, none, none, pa.array([], pa.binary()), pa.array([], pa.binary()), 7)
    decoder = open_format("debezium-avro", {"schema_registry_url": registry.url}).decoder(lambda source: orders())
    assert decoder.decode(empty).tables == ()
