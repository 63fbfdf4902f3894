"""Events of Debezium's outbox event router: headers, key and value are the columns of a row again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.ingest.formats.debezium.changes import Record, batch_of, orders, rows_of
from tidelake.errors import BadInput, TableNotInferred
from tidelake.ingest.formats.base import DecodedBatch, Skipped
from tidelake.ingest.formats.registry import open_format

COLUMNS = {"id": "STRING", "aggregateid": "STRING", "type": "STRING", "payload": "STRING"}
ID = ("id", b"4d47e190")
SAMPLE = json.loads((Path(__file__).parents[1] / "public_samples" / "outbox_event.json").read_text(encoding="utf-8"))


def decode(records: list[Record], **options: Any) -> DecodedBatch:
    target = orders(COLUMNS, ("id",))
    return open_format("debezium-outbox", options).decoder(lambda source: target).decode(batch_of(records))


def test_the_event_of_debeziums_documentation_is_a_row() -> None:
    headers = tuple((name, value.encode()) for name, value in SAMPLE["headers"].items())
    decoded = decode([Record(SAMPLE["key"].encode(), SAMPLE["value"].encode(), headers)])
    assert not decoded.failures
    ((kind, id_, aggregate, type_, payload),) = rows_of(decoded)
    assert (kind, id_, aggregate, type_) == ("+I", SAMPLE["headers"]["id"], "1", None)
    assert json.loads(payload)["lineItems"][0]["item"] == "Debezium in Action"


@pytest.mark.parametrize(
    ("options", "key", "value", "expected"),
    [
        ({}, b'"1"', b'"{\\"n\\": 1}"', ("1", '{"n": 1}')),
        ({}, b"7", b'{"n": 1}', ("7", '{"n": 1}')),
        (
            {},
            b'{"schema":{"type":"string"},"payload":"1"}',
            b'{"schema":{"type":"string"},"payload":"{}"}',
            ("1", "{}"),
        ),
        ({}, b'{"schema":null,"payload":1}', b'{"schema":null,"payload":{"n":1.50}}', ("1", '{"n":1.50}')),
        ({}, None, b'{"schema":"mine","payload":1}', (None, '{"schema":"mine","payload":1}')),
        ({}, None, b"null", (None, None)),
        ({}, None, b'{"schema":null,"payload":null}', (None, None)),
        ({}, None, b'"null"', (None, "null")),
        ({}, None, b'""', (None, "")),
        ({}, None, None, (None, None)),
        ({"key_converter": "string"}, b"007", b"[1]", ("007", "[1]")),
        ({"value_converter": "string"}, b"1", b'"quoted"', ("1", '"quoted"')),
        ({"value_converter": "string"}, b"1", "no JSON: ü🦊".encode(), ("1", "no JSON: ü🦊")),
        ({"value_converter": "string"}, b"1", b"null", ("1", "null")),
    ],
)
def test_key_and_payload_are_read_as_the_converter_wrote_them(
    options: dict[str, Any], key: bytes | None, value: bytes | None, expected: tuple[Any, Any]
) -> None:
    decoded = decode([Record(key, value, (ID, ("eventType", "Bestellt ü".encode())))], **options)
    assert not decoded.failures
    assert rows_of(decoded) == [("+I", "4d47e190", expected[0], "Bestellt ü", expected[1])]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (Record(b'"1"', b"{}"), "has no header `id`.*format: debezium-json"),
        (Record(b"order-1", b"{}", (ID,)), r"key of the event is not JSON.*`format_options: {key_converter: string}`"),
        (Record(b"1", b"text", (ID,)), r"value of the event is not JSON.*`format_options: {value_converter: string}`"),
        (Record(b"1", b"\xff\xfe", (ID,)), "value of the event is not UTF-8. Set `value.converter`"),
        (Record(b"1", b"{}", (("id", b"\xff"),)), "the header id of the event is no text"),
    ],
    ids=["no id", "a key in plain text", "a value in plain text", "Avro", "a broken header"],
)
def test_a_record_that_is_no_event_fails_with_a_remedy(record: Record, message: str) -> None:
    good = Record(b"1", b"{}", (ID,))
    decoded = decode([good, record, Record(b"1", None)])
    assert rows_of(decoded) == [("+I", "4d47e190", "1", None, "{}")]
    assert decoded.skipped == {Skipped.TOMBSTONE: 1}
    (failure,) = decoded.failures
    assert failure.row == 1
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(failure.reason)


def test_a_new_table_has_the_columns_of_the_outbox_table() -> None:
    format_ = open_format("debezium-outbox", {})
    inferred = format_.infer_table(batch_of([Record(b"1", b"{}", (ID,))]), 0)
    assert [field.name for field in inferred.fields] == list(COLUMNS)
    assert inferred.primary_key == ("id",)
    with pytest.raises(TableNotInferred, match="has no header `id`"):
        format_.infer_table(batch_of([Record(b"1", b"{}")]), 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"key_convertor": "json"}, "did you mean 'key_converter'"),
        ({"value_converter": "avro"}, "must be json or string, not 'avro'"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        open_format("debezium-outbox", options)
