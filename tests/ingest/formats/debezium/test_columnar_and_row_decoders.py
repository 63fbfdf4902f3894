"""The columnar decoder gives the result of the row decoder, and is used."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ingest.formats.conftest import NoColumnarDecoder
from tests.ingest.formats.debezium.changes import (
    SOURCE,
    Record,
    as_json,
    assert_same,
    batch_of,
    change,
    orders,
    rows_of,
)
from tests.support.cases import recorded_topics
from tests.support.change_replay import recorded_batches, target_of
from tests.support.recorded_truth import RECORDED_TABLES, RecordedTable, own_recorded, own_tables
from tidelake.ingest.formats.base import DecodedBatch, Target
from tidelake.ingest.formats.connect_schema import ConnectorSettings
from tidelake.ingest.formats.debezium import debezium_json_decoder as decoder_module
from tidelake.ingest.formats.debezium.debezium_json_decoder import DebeziumJsonDecoder, InexactValues
from tidelake.ingest.raw_batch import RawBatch


def _carefully(decoder: DebeziumJsonDecoder, batch: RawBatch) -> DecodedBatch:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoder_module, "ColumnarDecoder", NoColumnarDecoder)
        return decoder.decode(batch)


def _decoders(recorded: RecordedTable, target: Target) -> tuple[DebeziumJsonDecoder, DebeziumJsonDecoder]:
    settings = ConnectorSettings(**recorded.connector_settings)
    one, other = (
        DebeziumJsonDecoder(lambda source: target, settings, "skip" if recorded.truncates else "fail") for _ in range(2)
    )
    return one, other


@pytest.mark.exhaustive(kept=15)
@pytest.mark.parametrize("emit_update_before", [False, True], ids=["after images", "both images"])
@pytest.mark.parametrize(
    "recorded",
    [r for r in RECORDED_TABLES if not r.is_large and r.schemas is None],
    ids=lambda recorded: recorded.id,
)
def test_both_decoders_read_a_recording_identically(recorded: RecordedTable, emit_update_before: bool) -> None:
    fast, careful = _decoders(recorded, target_of(recorded, emit_update_before))
    for path in recorded.files:
        for batch in recorded_batches(path, 150):
            assert_same(fast.decode(batch), _carefully(careful, batch))
    assert careful.row_decoded_records >= fast.row_decoded_records


@pytest.mark.interop
def test_both_decoders_read_the_orders_identically_and_all_use_the_columnar_path() -> None:
    recorded = own_recorded("orders-100k/orders")
    fast, careful = _decoders(recorded, target_of(recorded))
    batches = list(recorded_batches(recorded.files[0], 20_000))
    for batch in batches[::6]:
        for part in (batch.slice(0, 1_000), batch.slice(len(batch) - 1_000, len(batch))):
            assert_same(fast.decode(part), _carefully(careful, part))
    for batch in batches:
        fast.decode(batch)
    assert fast.row_decoded_records == 0


@pytest.mark.parametrize(
    ("capture", "variant"),
    [("pg-shop", "json-schema"), ("pg-shop", "json-plain"), ("mysql-shop", "json-schema-numeric")],
)
def test_tables_of_many_types_use_the_columnar_path_after_the_first_batches(capture: str, variant: str) -> None:
    """What a kernel refuses is learnt: later batches go fast, with the columns at fault cell by cell."""
    for recorded in own_tables(capture, variant):
        fast, _ = _decoders(recorded, target_of(recorded))
        batches = [batch for path in recorded.files for batch in recorded_batches(path, 50)]
        for batch in batches:
            fast.decode(batch)
        before = fast.row_decoded_records
        for batch in batches:
            fast.decode(batch)
        again = fast.row_decoded_records - before
        if recorded.name == "inventory":  # moved rows with missing values go one by one, and their neighbours with them
            assert again < sum(map(len, batches)) / 3
        else:
            assert again <= 1, "at most the truncate"


def _merged(paths: Mapping[str, Path]) -> list[RawBatch]:
    """Topics of one prefix as a router at the connector would merge them: in turns, in one partition."""
    queues = [
        [batch.slice(i, i + 1) for batch in recorded_batches(path, 40) for i in range(len(batch))][:120]
        for path in paths.values()
    ]
    records: list[Record] = []
    for turn in range(120):
        for queue in queues:
            if turn < len(queue):
                one = queue[turn]
                records.append(Record(one.keys[0].as_py(), one.values[0].as_py(), one.headers.get(0, ())))
    return [batch_of(records[i : i + 300], i, topic="merged") for i in range(0, len(records), 300)]


@pytest.mark.parametrize("variant", ["json-plain", "json-schema"])
def test_both_decoders_read_a_topic_of_several_tables_identically(variant: str) -> None:
    """The topic also contains transaction markers and records of unrouted tables."""
    targets = {r.name: target_of(r) for r in own_tables("pg-shop", variant)}
    targets.pop("orders")
    fast, careful = (DebeziumJsonDecoder(lambda source: targets.get(source.table or "")) for _ in range(2))
    skipped = set()
    for batch in _merged(recorded_topics("pg-shop", variant)):
        decoded = fast.decode(batch)
        assert_same(decoded, _carefully(careful, batch))
        assert {found.target.name for found in decoded.tables} == {
            "shop.customers",
            "shop.order_items",
            "shop.inventory",
        }
        skipped |= set(decoded.skipped)
    assert len(skipped) == (3 if variant == "json-plain" else 2)
    assert fast.row_decoded_records < careful.row_decoded_records


# ---------------------------------------------------------------- anything at all

_COLUMNS: Final = {
    "id": "INT",
    "t": "STRING",
    "n": "DECIMAL(6, 2)",
    "x": "DOUBLE",
    "d": "DATE",
    "at": "TIMESTAMP(6)",
    "ms": "TIMESTAMP(3)",
    "f": "FLOAT",
    "b": "BYTES",
    "l": "ARRAY<INT>",
    "ok": "BOOLEAN",
}
_CELLS: Final = {
    "id": st.integers(-3, 3),
    "t": st.one_of(st.text(max_size=3), st.just("__debezium_unavailable_value")),
    "n": st.one_of(st.integers(-9999, 9999), st.sampled_from(["1.5", "-0.05", "9999.999", "1e2"])),
    "x": st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.sampled_from(["NaN", "Infinity", "1.5"])),
    "d": st.one_of(st.integers(-800_000, 3_000_000), st.dates().map(str)),
    "ms": st.one_of(st.integers(-(10**12), 10**12), st.datetimes().map(str)),
    "f": st.one_of(st.floats(allow_nan=False, allow_infinity=False, width=32), st.sampled_from([0.1, 1e-45, 16777217])),
    "at": st.one_of(st.integers(-(10**17), 10**17), st.datetimes().map(str)),
    "b": st.sampled_from(["", "AAE=", "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="]),
    "l": st.one_of(st.lists(st.integers(-5, 5), max_size=2), st.just(list(b"__debezium_unavailable_value"))),
    "ok": st.booleans(),
}
_ODD_CELLS: Final = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=2), st.just([]), st.just({}))
_IMAGES: Final = st.one_of(
    st.fixed_dictionaries(_CELLS),
    st.fixed_dictionaries(_CELLS),
    st.fixed_dictionaries({}, optional=_CELLS),
    st.fixed_dictionaries({"id": _CELLS["id"]}, optional=dict.fromkeys(("t", "n", "x", "d", "more"), _ODD_CELLS)),
    st.none(),
)
_SOURCES: Final = st.sampled_from(
    [SOURCE, SOURCE, SOURCE, {**SOURCE, "connector": "mysql"}, {**SOURCE, "table": "other"}, {"db": "shop"}, None]
)
_KEYS: Final = st.sampled_from([None, {"id": 1}, {"id": 2}, {"code": "a"}])
_CHANGES: Final = st.builds(
    lambda op, before, after, source, key: change(op, before, after, source=source, key=key),
    st.sampled_from(["c", "u", "u", "d", "r", "t", "m", "x"]),
    _IMAGES,
    _IMAGES,
    _SOURCES,
    _KEYS,
)
_LIKELY_CHANGES: Final = st.builds(
    lambda op, image: change(op, image if op == "d" else None, None if op == "d" else image),
    st.sampled_from("crud"),
    st.fixed_dictionaries(_CELLS),
)


def _damaged(record: Record, at: float, octet: int) -> Record:
    value = bytearray(record.value or b"{}")
    value[int(at * (len(value) - 1))] = octet
    return replace(record, value=bytes(value))


_RECORDS: Final = st.one_of(
    _LIKELY_CHANGES,
    _LIKELY_CHANGES,
    _CHANGES,
    st.builds(_damaged, _LIKELY_CHANGES, st.floats(0, 1), st.sampled_from(b'{}[]",:0tn \xff\\')),
    st.just(Record(b"{}", None)),
    st.builds(lambda row: Record(None, as_json({"schema": None, "payload": {"op": "c", "after": row}})), _IMAGES),
)


@given(
    st.lists(_RECORDS, max_size=6),
    st.booleans(),
    st.sampled_from([(), ("id",), ("id", "d"), ("t",)]),
    st.sampled_from(get_args(InexactValues)),
)
def test_both_decoders_read_random_records_identically(
    records: list[Record], emit_update_before: bool, primary_key: tuple[str, ...], inexact: InexactValues
) -> None:
    target = orders(_COLUMNS, primary_key, emit_update_before)
    fast, careful = (
        DebeziumJsonDecoder(lambda source: None if source.table == "other" else target, inexact_values=inexact)
        for _ in range(2)
    )
    batch = batch_of(records)
    expected = _carefully(careful, batch)
    for _ in range(3):  # with what was learnt, too
        assert_same(fast.decode(batch), expected)
    rows = sum(len(found.rows) for found in expected.tables)
    accounted = len(expected.failures) + sum(expected.skipped.values())
    with_rows = {int(offset) for found in expected.tables for offset in found.offsets}
    assert accounted + len(with_rows) == len(records)
    assert rows >= len(with_rows)


def test_neighbouring_records_are_never_mixed_up() -> None:
    """They are parsed with nothing in between; halves must not make a whole, nor two in one make up for none."""
    whole = change("c", after={"id": 1}).value
    assert whole is not None
    for records in (
        [whole[:20], whole[20:]],
        [whole + whole, b""],
        [whole + b"{", b"}"],
        [whole[:-1] + b',"a":[{}', b"{}]}"],
        [whole + b" " + whole, b"  "],
    ):
        decoded = DebeziumJsonDecoder(lambda source: orders()).decode(batch_of([Record(None, r) for r in records]))
        assert [failure.row for failure in decoded.failures] == [0, 1], records
        assert rows_of(decoded) == []


def test_the_columns_of_each_key_count_not_only_those_of_the_first() -> None:
    target = orders({"id": "INT", "d": "DATE"}, ("id", "d"))
    update = change("u", None, {"id": 1, "d": 5})
    for first in (
        change("c", after={"id": 2, "d": 5}, key=None),
        change("c", after={"id": 2, "d": 5}, key={"id": 2, "d": 5}),
    ):
        batch = batch_of([first, update])
        fast, careful = (DebeziumJsonDecoder(lambda source: target) for _ in range(2))
        assert_same(fast.decode(batch), _carefully(careful, batch))
        assert [failure.row for failure in fast.decode(batch).failures] == [1]


def test_a_good_record_is_not_slowed_down_by_a_bad_neighbour() -> None:
    decoder = DebeziumJsonDecoder(lambda source: orders())
    good = [change("c", after={"id": i}) for i in range(50)]
    broken = Record(None, b"{")
    assert len(rows_of(decoder.decode(batch_of([*good, broken, *good])))) == 100
    assert decoder.row_decoded_records == 1


def test_the_columnar_decoder_adapts_to_unusual_values() -> None:
    target = orders({"id": "INT", "t": "STRING", "n": "DECIMAL(9, 2)"})
    decoder = DebeziumJsonDecoder(lambda source: target, inexact_values="round")
    batch = batch_of([change("c", after={"id": 1, "t": {"a": json.loads("1.50")}, "n": "1.005"})] * 3)
    first = decoder.decode(batch)
    assert decoder.row_decoded_records == 3
    assert_same(decoder.decode(batch), first)
    assert decoder.row_decoded_records == 3
