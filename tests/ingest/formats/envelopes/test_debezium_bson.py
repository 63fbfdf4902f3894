"""MongoDB documents: every form of extended JSON, whole documents that replace whole rows, and deletes by key."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tidelake
from tests.ingest.formats.debezium.changes import Record, as_json, batch_of, orders, rows_of
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.formats.base import DecodedBatch, Skipped, Target
from tidelake.ingest.formats.document_ids import DocumentIds
from tidelake.ingest.formats.envelopes.extended_json import plain_json
from tidelake.ingest.formats.registry import open_format
from tidelake.ingest.formats.values.json_text import BadValue
from tidelake.ingest.pipeline.builder import build_pipeline

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


def partial_update(before: Any = None, **description: Any) -> Record:
    """Return an update without the document after it, as `capture.mode=change_streams` sends it."""
    if "updatedFields" in description:
        description["updatedFields"] = json.dumps(description["updatedFields"])
    payload = {
        "op": "u",
        "before": None if before is None else json.dumps(before),
        "after": None,
        "updateDescription": {"removedFields": None, "updatedFields": None, "truncatedArrays": None, **description},
        "source": SOURCE,
    }
    return Record(as_json({"id": json.dumps("a")}), as_json(payload))


@pytest.mark.parametrize(
    ("description", "row", "unchanged"),
    [
        ({"updatedFields": {"n": 2}}, ("+U", "a", 2, None), {"tags"}),
        ({"updatedFields": {"n": {"$numberLong": "2"}}, "removedFields": ["tags"]}, ("+U", "a", 2, None), set()),
        ({"removedFields": ["n"], "truncatedArrays": []}, ("+U", "a", None, None), {"tags"}),
        ({"updatedFields": {"tags": "ü🦊"}}, ("+U", "a", None, "ü🦊"), {"n"}),
        ({}, ("+U", "a", None, None), {"n", "tags"}),
    ],
    ids=["set", "set and removed", "removed", "unicode", "nothing"],
)
def test_an_update_without_its_document_leaves_the_other_columns_as_they_are(
    description: dict[str, Any], row: tuple[Any, ...], unchanged: set[str]
) -> None:
    decoded = decode([partial_update(**description)])
    assert not decoded.failures
    assert rows_of(decoded) == [row]
    found = decoded.tables[0].unavailable
    assert (set() if found is None else set(found.columns)) == unchanged


def test_the_document_before_an_update_completes_it() -> None:
    target = orders({"_id": "STRING", "n": "INT", "tags": "STRING"}, ("_id",), emit_update_before=True)
    before = {"_id": "a", "n": 1, "tags": ["x"]}
    decoded = decode(
        [partial_update(before, updatedFields={"n": 2}), partial_update(before, removedFields=["n"])], target
    )
    assert not decoded.failures
    assert rows_of(decoded) == [
        ("-U", "a", 1, '["x"]'),
        ("+U", "a", 2, '["x"]'),
        ("-U", "a", 1, '["x"]'),
        ("+U", "a", None, '["x"]'),
    ]
    assert decoded.tables[0].unavailable is None


@pytest.mark.parametrize(
    ("description", "what"),
    [
        ({"updatedFields": {"address.city": "Rome"}}, r"\(address.city\)"),
        ({"updatedFields": {"tags.0": "x", "n": 1}}, r"\(tags.0\)"),
        ({"removedFields": ["address.city"]}, r"\(address.city\)"),
        ({"truncatedArrays": [{"field": "tags", "size": 1}]}, r"\(elements of an array\)"),
    ],
    ids=["a member", "an element", "a removed member", "a shorter array"],
)
@pytest.mark.parametrize("before", [None, {"_id": "a"}], ids=["no document", "the document before"])
def test_an_update_of_a_part_of_a_field_needs_the_document(before: Any, description: dict[str, Any], what: str) -> None:
    (failure,) = decode([partial_update(before, **description)]).failures
    assert re.search(what, failure.reason)
    assert "capture.mode=change_streams_update_full" in failure.reason


def test_records_of_the_oplog_and_of_mongodbs_own_connector_are_refused_by_name() -> None:
    patch = {"op": "u", "patch": '{"$v":1,"$set":{"n":2}}', "filter": '{"_id":"a"}', "source": SOURCE}
    own = {"_id": {"_data": "82"}, "operationType": "update", "ns": {"db": "shop", "coll": "baskets"}}
    decoded = decode([Record(as_json({"id": '"a"'}), as_json(patch)), Record(None, as_json(own))])
    oplog, stream = (failure.reason for failure in decoded.failures)
    assert "`patch` of the oplog" in oplog
    assert "capture.mode=change_streams_update_full" in oplog
    assert "MongoDB's own Kafka connector" in stream


SAMPLE = json.loads((Path(__file__).parents[1] / "public_samples" / "mongodb_update.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("mode", "lacks"),
    [
        ("change_streams", ["before", "after"]),
        ("change_streams_update_full", ["before"]),
        ("change_streams_with_pre_image", ["after"]),
        ("change_streams_update_full_with_pre_image", []),
    ],
)
def test_all_capture_modes_of_the_connector_give_the_same_table(tmp_path: Path, mode: str, lacks: list[str]) -> None:
    """The sample of Debezium's documentation, as each mode sends it, after an insert of the document."""
    payload = SAMPLE["value"]["payload"]
    insert = {**payload, "op": "c", "before": None, "after": payload["before"], "updateDescription": None}
    update = {**payload, **dict.fromkeys(lacks)}
    (tmp_path / "in").mkdir()
    place = {"topic": "fulfillment.inventory.customers", "partition": 0, "key": json.dumps(SAMPLE["key"])}
    records = [
        {**place, "offset": offset, "value": json.dumps({"schema": None, "payload": value})}
        for offset, value in enumerate([insert, update])
    ]
    (tmp_path / "in" / "1.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    text = f"""
        warehouse: {tmp_path}/lake
        source: {{type: change-log-folder, path: {tmp_path}/in, until: end}}
        format: debezium-bson
        tables: [{{name: shop.customers, match: customers}}]
    """
    asyncio.run(build_pipeline(parse_config(text, "shop.yaml", [], {}, pipeline="shop")).run())
    rows = tidelake.open_catalog(f"{tmp_path}/lake").table("shop.customers").scan().to_arrow().to_pylist()
    assert rows == [
        {"_id": "1004", "first_name": "Anne Marie", "last_name": "Kretchmar", "email": "annek@noanswer.org"}
    ]
