"""Events of Debezium's CloudEvents converter give the rows that Connect's JSON converter would have given.

`cloud_events.json` has what the real converter sent, with and without schemas.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, settings

from tests.ingest.formats.debezium.changes import Record, assert_same, batch_of, orders, rows_of
from tests.ingest.formats.envelopes.histories import SCHEMA, Change, debezium, histories
from tests.support.levels import examples
from tidelake.errors import TableNotInferred
from tidelake.ingest.formats.base import DecodedBatch, FailureKind, JsonView, Target
from tidelake.ingest.formats.debezium.origin import origin_of
from tidelake.ingest.formats.registry import open_format

RECORDED: Final = json.loads((Path(__file__).parent / "cloud_events.json").read_text(encoding="utf-8"))


def cloud_event(value: bytes) -> bytes:
    """A record of `debezium-json` as an event, as far as the converter keeps it."""
    whole = json.loads(value)
    payload = whole["payload"] if "schema" in whole else whole
    source = payload.get("source") or {}
    images = {name: payload[name] for name in ("before", "after") if name in payload}
    named = {name: source[name] for name in ("connector", "db", "schema", "table") if source.get(name) is not None}
    event = {
        "id": "name:s;lsn:1;txId:2",
        "source": "/debezium/postgresql/s",
        "specversion": "1.0",
        "type": "io.debezium.connector.postgresql.DataChangeEvent",
        "datacontenttype": "application/json",
        "data": {"schema": whole["schema"], "payload": images} if "schema" in whole else images,
        "iodebeziumop": payload.get("op"),
        **{f"iodebezium{name}": one for name, one in named.items()},
    }
    return json.dumps(event, ensure_ascii=False).encode()


def decoded(format_: str, target: Target, records: Sequence[Record], **options: str) -> DecodedBatch:
    return open_format(format_, options).decoder(lambda _: target).decode(batch_of(records))


@pytest.mark.parametrize("emit_update_before", [False, True], ids=["new rows", "old rows, too"])
@given(history=histories())
@settings(max_examples=examples(50), deadline=None)
def test_a_history_gives_the_rows_that_debezium_json_gives(emit_update_before: bool, history: Sequence[Change]) -> None:
    target = Target("shop.orders", SCHEMA, emit_update_before)
    records = list(debezium(history))
    events = [Record(record.key, record.value and cloud_event(record.value)) for record in records]
    assert_same(decoded("debezium-cloudevents", target, events), decoded("debezium-json", target, records))


def recorded(variant: str) -> list[Record]:
    texts = [(line["key"], line["value"]) for line in RECORDED[variant]]
    return [Record(key and key.encode(), value and value.encode()) for key, value in texts]


TYPED: Final = {
    "id": "BIGINT NOT NULL",
    "note": "STRING",
    "price": "DECIMAL(9, 2)",
    "at": "TIMESTAMP(6) WITH LOCAL TIME ZONE",
    "day": "DATE",
}


def test_a_table_is_derived_from_an_event_with_a_schema() -> None:
    found = open_format("debezium-cloudevents", {}).infer_table(batch_of(recorded("typed")), 0)
    assert {f.name: str(f.type) for f in found.fields} == TYPED
    assert found.primary_key == ("id",)


@pytest.mark.parametrize("variant", ["plain", "typed"])
def test_events_of_the_real_converter_are_read(variant: str) -> None:
    columns = {name: text.removesuffix(" NOT NULL") for name, text in TYPED.items()}
    unsaid = {"decimal_handling_mode": "precise"} if variant == "plain" else {}  # the connector's default
    found = decoded("debezium-cloudevents", orders(columns), recorded(variant), **unsaid)
    assert not found.failures
    assert dict(found.skipped) == {"tombstone": 1}
    rows = [(kind, id_, note, price and str(price)) for kind, id_, note, price, *_ in rows_of(found)]
    assert rows == [
        ("+I", 1, "ä 😀", "12.50"),
        ("+I", 2, None, None),
        ("+U", 1, "ä 😀", "1.25"),
        ("-D", 2, None, None),
        ("+I", 3, None, None),
    ]
    times = [(str(at), str(day)) for _, _, _, _, at, day in rows_of(found)[:1]]
    assert times == [("2026-01-02 03:04:05.678901+00:00", "2026-02-03")]


def test_the_origin_of_an_event_is_that_of_its_attributes() -> None:
    batch = batch_of(recorded("plain"))
    decoder: Any = open_format("debezium-cloudevents", {}).decoder(lambda _: None)
    assert isinstance(decoder, JsonView)
    origin = origin_of(decoder.value_as_json(batch, 0))
    assert (origin.schema_name, origin.table_name) == ("public", "orders")
    assert origin.op_ts is not None
    assert origin.op_ts > 1_700_000_000_000


_EVENT: Final = json.loads(
    cloud_event(b'{"op":"c","after":{"id":1},"before":null,"source":{"connector":"postgresql"}}')
)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        pytest.param({"datacontenttype": "application/avro"}, "application/avro, not JSON", id="Avro"),
        pytest.param({"data_base64": "AA=="}, "not JSON", id="bytes"),
        pytest.param({"iodebeziumop": None}, "no attribute iodebeziumop", id="no operation"),
        pytest.param({"iodebeziumop": "x"}, "unknown op 'x'", id="an unknown operation"),
        pytest.param({"data": None}, "not an event of Debezium", id="no data"),
        pytest.param({"data": [1]}, "not an event of Debezium", id="a list"),
        pytest.param({"iodebeziumop": 5}, "not an event of Debezium", id="a number as operation"),
    ],
)
def test_an_event_that_can_not_be_read_is_a_failure(change: dict[str, Any], reason: str) -> None:
    good, bad = (Record(None, json.dumps({**_EVENT, **more}).encode()) for more in ({}, change))
    found = decoded("debezium-cloudevents", orders({"id": "BIGINT"}), [good, bad, good])
    assert len(rows_of(found)) == 2
    (failure,) = found.failures
    assert (failure.row, failure.kind) == (1, FailureKind.BAD_RECORD)
    assert reason in failure.reason
    assert not found.skipped


def test_a_record_of_debezium_json_is_named_and_gives_no_table() -> None:
    value = b'{"op":"c","after":{"id":1},"before":null,"source":{}}'
    (failure,) = decoded("debezium-cloudevents", orders({"id": "BIGINT"}), [Record(None, value)]).failures
    assert "It looks like debezium-json" in failure.reason
    with pytest.raises(TableNotInferred, match="debezium-json"):
        open_format("debezium-cloudevents", {}).infer_table(batch_of([Record(None, value)]), 0)


def test_records_that_the_converter_leaves_as_they_are_are_skipped() -> None:
    markers = [b'{"status":"BEGIN","id":"1"}', b'{"ts_ms":1}', b'{"databaseName":"d","ddl":"x"}']
    records = [*(Record(None, value) for value in markers), Record(b'{"id":1}', None)]
    found = decoded("debezium-cloudevents", orders({"id": "BIGINT"}), records)
    assert not found.failures
    assert sum(found.skipped.values()) == 4
