"""JSON in Confluent's frame, as its serializers for JSON Schema write it."""

from __future__ import annotations

import pickle

import pytest

from tests.ingest.formats.debezium.changes import Record, batch_of, orders, rows_of
from tidelake.errors import BadInput, TableNotInferred
from tidelake.ingest.formats.base import FailureKind
from tidelake.ingest.formats.registry import open_format

FRAME = b"\0\0\0\0\7"
FRAMED = open_format("json", {"framing": "confluent"})


def test_records_in_the_frame_are_rows_and_others_are_failures() -> None:
    values = [FRAME + b'{"id":1,"note":"\xc3\xa4"}', b'{"id":2}', FRAME, b"\0\0", FRAME + b'{"id":3}', None]
    decoder = pickle.loads(pickle.dumps(FRAMED)).decoder(lambda _: orders())
    found = decoder.decode(batch_of([Record(None, value) for value in values]))
    assert [row[:3] for row in rows_of(found)] == [("+I", 1, "ä"), ("+I", 3, None)]
    assert [failure.row for failure in found.failures] == [1, 2, 3]
    assert {failure.kind for failure in found.failures} == {FailureKind.BAD_RECORD}
    assert "begins with 7b" in found.failures[0].reason
    assert dict(found.skipped) == {"tombstone": 1}


def test_a_table_is_derived_from_a_record_in_the_frame() -> None:
    batch = batch_of([Record(None, FRAME + b'{"id":1,"a":{}}'), Record(None, b'{"id":1}')])
    assert [f.name for f in FRAMED.infer_table(batch, 0).fields] == ["id", "a"]
    with pytest.raises(TableNotInferred, match="leave out `framing`"):
        FRAMED.infer_table(batch, 1)


def test_without_the_option_the_record_says_which_one_it_needs() -> None:
    batch = batch_of([Record(None, FRAME + b'{"id":1}')])
    (failure,) = open_format("json", {}).decoder(lambda _: orders()).decode(batch).failures
    assert "`format_options: {framing: confluent}`" in failure.reason


def test_another_frame_is_refused_by_name() -> None:
    with pytest.raises(BadInput, match="framing of json must be none or confluent, not 'glue'"):
        open_format("json", {"framing": "glue"})


def test_the_frame_of_aws_glue_is_refused_by_name() -> None:
    target = orders({"id": "BIGINT"}, ())
    decoder = open_format("json", {}).decoder(lambda source: target)
    (failure,) = decoder.decode(batch_of([Record(None, b"\3\0" + bytes(16) + b'{"id":1}')])).failures
    assert "AWS Glue Schema Registry, which is not read" in failure.reason
