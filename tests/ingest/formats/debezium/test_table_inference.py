from __future__ import annotations

from typing import Final

import pytest

from tests.ingest.formats.debezium.changes import Record, batch_of, change, raw
from tests.ingest.formats.values.value_case import declared
from tests.support.cases import recorded_topics
from tests.support.change_replay import recorded_batches
from tidelake.errors import BadInput
from tidelake.ingest.formats.base import Target
from tidelake.ingest.formats.connect_schema import SourceType, parse_connect_schema, source_type
from tidelake.ingest.formats.debezium.debezium_json_decoder import DebeziumJsonDecoder
from tidelake.ingest.formats.debezium.table_inference import infer_table
from tidelake.ingest.formats.types.inferred_types import inferred_type
from tidelake.storage.model.schema.table_schema import TableSchema

_DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
TYPES: Final = (
    (declared("int8"), "TINYINT"),
    (declared("int16"), "SMALLINT"),
    (declared("int32", "io.debezium.time.Year"), "INT"),
    (declared("int64", "io.debezium.time.MicroDuration"), "BIGINT"),
    (declared("int64", None, {"__debezium.source.column.type": "BIGINT UNSIGNED"}), "DECIMAL(20, 0)"),
    (declared("float"), "FLOAT"),
    (declared("float64"), "DOUBLE"),
    (declared("boolean"), "BOOLEAN"),
    (declared("string", "io.debezium.data.Json"), "STRING"),
    (declared("bytes"), "BYTES"),
    (declared("bytes", "io.debezium.data.Bits", {"length": "12"}), "BINARY(2)"),
    (declared("bytes", "io.debezium.data.Bits", {"length": "2147483647"}), "BYTES"),
    (declared("bytes", _DECIMAL, {"scale": "2", "connect.decimal.precision": "12"}), "DECIMAL(12, 2)"),
    (declared("bytes", _DECIMAL, {"scale": "2"}), "DECIMAL(38, 2)"),
    (declared("bytes", _DECIMAL, {"scale": "2", "connect.decimal.precision": "39"}), "STRING"),
    (declared("bytes", _DECIMAL, {"scale": "-2", "connect.decimal.precision": "12"}), "STRING"),
    (declared("struct", "io.debezium.data.VariableScaleDecimal"), "STRING"),
    (declared("struct", "io.debezium.data.geometry.Point"), "STRING"),
    (declared("int32", "io.debezium.time.Date"), "DATE"),
    (declared("int32", "org.apache.kafka.connect.data.Time"), "TIME(3)"),
    (declared("int64", "io.debezium.time.MicroTime"), "STRING"),
    (declared("int64", "io.debezium.time.Timestamp"), "TIMESTAMP(3)"),
    (declared("int64", "io.debezium.time.MicroTimestamp"), "TIMESTAMP(6)"),
    (declared("int64", "io.debezium.time.NanoTimestamp"), "TIMESTAMP(9)"),
    (declared("string", "io.debezium.time.ZonedTimestamp"), "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
    (declared("string", "io.debezium.time.ZonedTime"), "STRING"),
    (source_type(parse_connect_schema(b'{"type":"array","items":{"type":"int32"}}')), "ARRAY<INT>"),
    (
        source_type(parse_connect_schema(b'{"type":"map","keys":{"type":"string"},"values":{"type":"boolean"}}')),
        "MAP<STRING NOT NULL, BOOLEAN>",
    ),
    (SourceType("string"), "STRING"),
)


@pytest.mark.parametrize(("source", "column_type"), TYPES, ids=lambda value: getattr(value, "name", None) or str(value))
def test_a_source_type_becomes_a_column_type(source: SourceType, column_type: str) -> None:
    assert str(inferred_type(source)) == column_type


def test_without_a_schema_every_column_is_text_and_the_key_comes_from_the_records_key() -> None:
    record = change("c", after={"b": 1, "a": None, "id": 2}, key={"id": 2, "shard": 7})
    table = infer_table(batch_of([record]), 0)
    assert [(f.id, f.name, str(f.type)) for f in table.fields] == [
        (0, "b", "STRING"),
        (1, "a", "STRING"),
        (2, "id", "STRING NOT NULL"),
    ]
    assert table.primary_key == ("id",)


def test_a_delete_defines_the_columns_of_a_new_table() -> None:
    assert [f.name for f in infer_table(batch_of([change("d", {"id": 1, "a": 2})]), 0).fields] == ["id", "a"]


def test_without_a_key_there_is_no_primary_key() -> None:
    assert infer_table(batch_of([change("c", after={"id": 1}, key=None)]), 0).primary_key == ()


def test_an_unreadable_record_key_is_returned_as_a_key_error() -> None:
    table = infer_table(batch_of([raw(b'{"op":"c","after":{"id":1}}', key=b"7")]), 0)
    assert [field.name for field in table.fields] == ["id"]
    assert (table.primary_key, table.key_error) == ((), "7 is not a readable object (Expected `object`, got `int`)")


@pytest.mark.parametrize(
    "record",
    [
        raw(b"{"),
        Record(b"{}", None),
        change("t", key=None),
        raw(b'{"ts_ms":1}'),
        raw(b'{"schema":{"type":"struct"},"payload":{"op":"c","after":{"id":1}}}'),
    ],
)
def test_a_record_without_table_information_is_named(record: Record) -> None:
    with pytest.raises(BadInput, match="partition 0, offset 101: no table can be derived from this record: "):
        infer_table(batch_of([change("c", after={"id": 1}), record]), 1)


@pytest.mark.parametrize(
    ("capture", "variant"),
    [
        ("pg-shop", "json-schema"),
        ("pg-shop", "json-schema-connect"),
        ("pg-shop", "json-plain"),
        ("mysql-shop", "json-plain"),
    ],
)
def test_a_recorded_topic_fits_the_table_inferred_from_its_first_record(capture: str, variant: str) -> None:
    for topic, path in recorded_topics(capture, variant).items():
        if topic.count(".") != 2:  # transactions, schema changes
            continue
        batches = list(recorded_batches(path))
        table = infer_table(batches[0], 0)
        target = Target(topic, TableSchema(0, table.fields, len(table.fields) - 1, (), table.primary_key))
        decoder = DebeziumJsonDecoder(lambda source, target=target: target)  # type: ignore[misc]
        decoded = decoder.decode(batches[0])
        unknown = {name for failure in decoded.failures for name in failure.columns}
        assert not decoded.failures or unknown, decoded.failures[0].reason
        assert unknown <= {"note", "channel", "gold_member"}, "columns added while the records were recorded"
