"""One history of rows gives the same table in every format."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings

from tests.ingest.formats.conftest import NoColumnarDecoder
from tests.ingest.formats.debezium.changes import Record, assert_same, batch_of, rows_of
from tests.ingest.formats.envelopes.histories import RENDERED, SCHEMA, Change, debezium, histories, plain_json
from tests.support.levels import examples
from tidelake.ingest.formats.base import DecodedBatch, Target
from tidelake.ingest.formats.envelopes import envelope_decoder as decoder_module
from tidelake.ingest.formats.envelopes.envelope_decoder import EnvelopeDecoder
from tidelake.ingest.formats.registry import FORMATS, open_format

DEBEZIUM = ("debezium-json",)
# Whose records are no envelopes of JSON with typed rows: they have tests of their own.
OTHERS = (
    "debezium-avro",
    "debezium-flattened-json",
    "debezium-flattened-avro",
    "debezium-bson",
    "debezium-cloudevents",
    "debezium-outbox",
    "avro",
    "protobuf",
    "csv",
)


def test_every_format_takes_part_in_the_comparison() -> None:
    absent = FORMATS.keys() - {*RENDERED, *DEBEZIUM, *OTHERS, "json"}
    assert not absent, f"write a function for RENDERED of histories.py that writes a history in the format {absent}"
    assert {*RENDERED, *DEBEZIUM, *OTHERS, "json"} == FORMATS.keys()


@pytest.mark.parametrize("name", RENDERED)
@pytest.mark.parametrize("emit_update_before", [False, True], ids=["new rows", "old rows, too"])
@given(history=histories())
@settings(max_examples=examples(25), deadline=None)
def test_a_history_gives_the_rows_that_debezium_gives(
    name: str, emit_update_before: bool, history: Sequence[Change]
) -> None:
    target = Target("shop.orders", SCHEMA, emit_update_before)
    records = list(RENDERED[name](history))
    expected = _decode("debezium-json", target, list(debezium(history)))
    assert not expected.failures
    found = _decode(name, target, records)
    assert not found.failures
    assert rows_of(found) == rows_of(expected)
    assert_same(found, _by_record(name, target, records))


def _decode(name: str, target: Target, records: Sequence[Record]) -> DecodedBatch:
    """As a decoder reads them that has seen their like."""
    decoder = open_format(name, {}).decoder(lambda source: target)
    decoder.decode(batch_of(records))
    return decoder.decode(batch_of(records))


def _by_record(name: str, target: Target, records: Sequence[Record]) -> DecodedBatch:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoder_module, "ColumnarImages", NoColumnarDecoder)
        decoder: Any = open_format(name, {}).decoder(lambda source: target)
        assert isinstance(decoder, EnvelopeDecoder)
        decoded = decoder.decode(batch_of(records))
        assert decoder.row_decoded_records == len(records)
        return decoded


@given(history=histories())
@settings(max_examples=examples(30), deadline=None)
def test_plain_rows_are_read_as_those_of_an_insert(history: Sequence[Change]) -> None:
    target = Target("shop.orders", SCHEMA)
    rows = [change.after for change in history if change.after is not None]
    expected = _decode("debezium-json", target, list(debezium([Change(None, row) for row in rows])))
    found = _decode("json", target, plain_json(rows))
    assert not found.failures
    assert rows_of(found) == rows_of(expected)
    assert_same(found, _by_record("json", target, plain_json(rows)))


@pytest.mark.parametrize("name", RENDERED)
@pytest.mark.parametrize("emit_update_before", [False, True], ids=["new rows", "old rows, too"])
def test_ordinary_records_are_read_as_columns(name: str, emit_update_before: bool) -> None:
    one = {"id": 1, "note": "a", "price": None, "qty": 7, "ratio": 0.5, "flag": True, "at": None, "day": None}
    row = {**one, "data": b"\xff\0"}
    history = [Change(None, row), Change(row, {**row, "note": "b"}), Change({**row, "note": "b"}, None)] * 50
    decoder: Any = open_format(name, {}).decoder(lambda source: Target("shop.orders", SCHEMA, emit_update_before))
    decoded = decoder.decode(batch_of(list(RENDERED[name](history))))
    assert len(rows_of(decoded)) == (200 if emit_update_before else 150)
    assert decoder.row_decoded_records == 0


@pytest.mark.parametrize("emit_update_before", [False, True], ids=["new rows", "old rows, too"])
def test_rows_without_a_column_use_the_columnar_path_after_rows_with_all_columns(
    emit_update_before: bool,
) -> None:
    row = {"id": 1, "note": "a", "price": None, "qty": 7, "ratio": 0.5, "flag": True, "at": None, "day": None}
    whole = {**row, "data": b"\xff\0"}
    reported = [
        list(RENDERED["canal-json"]([Change(None, of), Change(of, {**of, "note": "b"}), Change(of, None)] * 20))
        for of in (whole, row, whole)
    ]
    target = Target("shop.orders", SCHEMA, emit_update_before)
    decoder: Any = open_format("canal-json", {}).decoder(lambda source: target)
    for records in (*reported, [record for some in reported for record in some]):
        decoded = decoder.decode(batch_of(records))
        assert_same(decoded, _by_record("canal-json", target, records))
    if not emit_update_before:  # of old rows that lack a column each record decides
        assert decoder.row_decoded_records == 0
