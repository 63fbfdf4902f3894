"""MongoDB documents: every form of extended JSON, whole documents that replace whole rows, and deletes by key."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from tests.ingest.formats.debezium.changes import Record, as_json, batch_of, orders, rows_of
from tidelake.ingest.formats.base import DecodedBatch, Skipped, Target
from tidelake.ingest.formats.document_ids import DocumentIds
from tidelake.ingest.formats.envelopes.extended_json import plain_json
from tidelake.ingest.formats.registry import open_format
from tidelake.ingest.formats.values.json_text import BadValue

SOURCE = {"connector": "mongodb", "db": "shop", "collection": "baskets"}
TARGET = orders({"_id": "STRING", "n": "INT", "tags": "STRING"}, ("_id",))


@pytest.mark.parametrize(
    ("extended", "plain"),
    [
        ('{"$numberInt":"7"}', "7"),
        ('{"$numberLong":"-9007199254740993"}', "-9007199254740993"),
        ('{"$numberDouble":"1.50"}', "1.50"),
        ('{"$numberDouble":"NaN"}', '"NaN"'),
        ('{"$numberDecimal":"1E+400"}', "1E+400"),
        ('{"$date":"2024-02-29T01:02:03.456Z"}', "1709168523456"),
        ('{"$date":{"$numberLong":"-1"}}', "-1"),
        ('{"$uuid":"12345678-9abc-def0-0000-000000000001"}', '"12345678-9abc-def0-0000-000000000001"'),
        ('{"$binary":"AP+A","$type":"00"}', '"AP+A"'),
        ('{"$binary":{"base64":"AAECAwQFBgcICQoLDA0ODw==","subType":"03"}}', '"AAECAwQFBgcICQoLDA0ODw=="'),
        ('{"$regex":"a/b","$options":"i"}', r'"/a\\/b/i"'),
        ('{"$code":"f()","$scope":{"x":{"$numberInt":"1"}}}', '{"$code":"f()","$scope":{"x":1}}'),
        ('{"$maxKey":1}', '"BsonMaxKey"'),
        ('{"$ref":"c","$id":{"$oid":"00"}}', '{"$ref":"c","$id":"00"}'),
        ('{"a":[{"$undefined":true},{"$oid":"00"}],"b":1.50}', '{"a":[null,"00"],"b":1.50}'),
    ],
    ids=lambda text: text if len(text) < 40 else None,
)
def test_a_value_of_extended_json_becomes_plain_json(extended: str, plain: str) -> None:
    assert plain_json(extended.encode()).decode() == plain


@pytest.mark.parametrize(
    "extended",
    [
        '{"$numberInt":"seven"}',
        '{"$numberDouble":"0x1F"}',
        '{"$date":"yesterday"}',
        '{"$timestamp":{"i":1}}',
        '{"$binary":{"base64":"?","subType":"00"}}',
        '{"$binary":{"base64":"AAA=","subType":"04"}}',
        '{"$oid":7}',
        '{"a":' * 300 + "1" + "}" * 300,
    ],
    ids=["int", "double", "date", "timestamp", "base64", "short uuid", "oid", "nesting"],
)
def test_an_invalid_extended_json_value_raises(extended: str) -> None:
    with pytest.raises(BadValue):
        plain_json(extended.encode())


def change(op: str, before: Any = None, after: Any = None, *, id_: Any = "a") -> Record:
    payload = {
        "op": op,
        "before": None if before is None else json.dumps(before),
        "after": None if after is None else json.dumps(after),
        "source": SOURCE,
    }
    return Record(None if id_ is None else as_json({"id": json.dumps(id_)}), as_json(payload))


def decode(records: list[Record], target: Target = TARGET) -> DecodedBatch:
    new = replace(target, document_ids=DocumentIds())
    return open_format("debezium-bson", {}).decoder(lambda source: new).decode(batch_of(records))


def test_a_document_replaces_the_whole_row_and_a_delete_needs_only_the_key() -> None:
    decoded = decode(
        [
            change("c", None, {"_id": "a", "n": {"$numberLong": "1"}, "tags": ["x", {"$numberInt": "2"}]}),
            change("u", None, {"_id": "a", "n": 2}),
            change("d"),
            Record(b"any", None),
        ]
    )
    assert not decoded.failures
    assert decoded.skipped == {Skipped.TOMBSTONE: 1}
    assert rows_of(decoded) == [("+I", "a", 1, '["x",2]'), ("+U", "a", 2, None), ("-D", "a", None, None)]
    assert decoded.tables[0].unavailable is None  # a removed field is null, not unchanged


def test_documents_before_the_change_give_old_images_if_sent() -> None:
    target = orders({"_id": "STRING", "n": "INT", "tags": "STRING"}, ("_id",), emit_update_before=True)
    decoded = decode([change("u", {"_id": "a", "tags": []}, {"_id": "a", "n": 2})], target)
    assert rows_of(decoded) == [("-U", "a", None, "[]"), ("+U", "a", 2, None)]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (change("u"), "capture.mode=change_streams_update_full"),
        (change("d", id_=None), "its key has no member `id`"),
        (change("x"), "unknown op 'x'"),
        (change("c", None, {"n": 1}), "after: the document has no _id"),
        (change("c", None, {"_id": "a", "n": {"$numberInt": "x"}}), "after: .*not an integer"),
        (Record(None, as_json({"op": "c", "after": "{", "source": SOURCE})), "after: .*not extended JSON"),
        (Record(None, b'{"x":1}'), "not a valid debezium-bson record: it has no member `op`"),
        (Record(None, b"\xff"), "not a valid debezium-bson record"),
    ],
    ids=["no document", "no key", "op", "no id", "value", "text", "another format", "no JSON"],
)
def test_a_record_that_is_no_change_fails_with_a_reason(record: Record, message: str) -> None:
    (failure,) = decode([record]).failures
    assert re.search(message, failure.reason)


def test_marker_records_are_skipped() -> None:
    begin = Record(None, as_json({"status": "BEGIN", "id": "7", "ts_ms": 1}))
    records = [begin, Record(None, as_json({"ts_ms": 7})), change("m")]
    assert decode(records).skipped == {Skipped.TRANSACTION: 1, Skipped.HEARTBEAT: 1, Skipped.MESSAGE: 1}


OID: dict[str, str] = {"$oid": "65a0b1c2d3e4f5a6b7c8d9e0"}
UUID: dict[str, str] = {"$uuid": "12345678-9abc-def0-0000-000000000001"}
DATE: dict[str, Any] = {"$date": {"$numberLong": "7"}}


@pytest.mark.parametrize(
    ("ids", "refused"),
    [
        ([OID, OID["$oid"], OID], {1}),
        ([OID["$oid"], "b", OID], {2}),
        ([UUID, UUID["$uuid"]], {1}),
        ([{"$numberInt": "7"}, "7", {"$numberLong": "7"}, {"$numberDouble": "7.5"}, 8], {1}),
        ([DATE, {"$numberInt": "7"}], {1}),
        ([True, "true"], {1}),
        ([{"a": 1}, '{"a":1}'], {1}),
        ([{"$binary": {"base64": "AAEC", "subType": "00"}}, "AAEC"], {1}),
        (["AAEC", {"$binary": {"base64": "AAED", "subType": "00"}}], {1}),
        ([OID, "a text", UUID, 7, {"a": 1}], set()),
        (["7", OID["$oid"], UUID["$uuid"], "true"], set()),
    ],
    ids=lambda value: json.dumps(value) if isinstance(value, list) else None,
)
def test_ids_of_two_types_are_two_rows_or_the_second_is_refused(ids: list[Any], refused: set[int]) -> None:
    decoded = decode([change("c", None, {"_id": id_}) for id_ in ids])
    assert {failure.row for failure in decoded.failures} == refused
    assert all(re.search("could become one row.*have one type", failure.reason) for failure in decoded.failures)
    assert len(rows_of(decoded)) == len(ids) - len(refused)


def test_a_delete_by_key_is_of_the_type_of_its_id() -> None:
    (failure,) = decode([change("c", None, {"_id": OID}), change("d", id_=OID), change("d", id_=OID["$oid"])]).failures
    assert failure.row == 2


@pytest.mark.parametrize("ids", [[OID, OID["$oid"]], ["7", 7], [7, DATE], [OID, "x", 7, UUID], [True, UUID]])
def test_ids_that_were_read_apart_are_refused_as_if_they_were_read_together(ids: list[Any]) -> None:
    """So are those of another run, whose snapshot records them, and those of other tasks."""

    def read(some: list[Any], known: DocumentIds) -> tuple[DocumentIds, int]:
        target = replace(TARGET, document_ids=known)
        decoder = open_format("debezium-bson", {}).decoder(lambda source: target)
        return known, len(decoder.decode(batch_of([change("c", None, {"_id": id_}) for id_ in some])).failures)

    _, together = read(ids, DocumentIds())
    earlier, _ = read(ids[:1], DocumentIds())
    recorded = DocumentIds.of(json.loads(json.dumps(earlier.to_members())))
    assert read(ids[1:], recorded)[1] == together
    other, _ = read(ids[1:], DocumentIds())
    if together:
        with pytest.raises(BadValue, match="could become one row"):
            earlier.include("t", other)
    else:
        earlier.include("t", other)
        assert earlier.types.keys() == read(ids, DocumentIds())[0].types.keys()
