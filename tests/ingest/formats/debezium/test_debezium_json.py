"""The result of each kind of Debezium record."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pytest

from tests.ingest.formats.debezium.changes import SOURCE, TOPIC, Record, as_json, batch_of, change, orders, raw, rows_of
from tidelake.errors import BadInput
from tidelake.ingest.formats.base import FailureKind, Skipped, Target
from tidelake.ingest.formats.debezium.debezium_envelope import OLD_KEY_HEADER
from tidelake.ingest.formats.debezium.debezium_json_decoder import CHUNK_RECORDS_MAX, DebeziumJsonDecoder
from tidelake.ingest.formats.source_table import SourceTable

pytestmark = pytest.mark.usefixtures("either_way")

_ROW: Final = {"id": 1, "note": "a", "qty": 5}
_NEW: Final = {"id": 1, "note": "b", "qty": 6}
_MOVED: Final = {"id": 2, "note": "a", "qty": 5}
_KEY_ONLY: Final = {"id": 1, "note": "", "qty": 0}
_WITH_BEFORE: Final = orders(emit_update_before=True)
_APPEND: Final = orders(primary_key=())
_BY_NOTE: Final = orders(primary_key=("id", "note"))
_ORDERED: Final = replace(orders(), is_ordered_by_columns=True)
_SUMMED: Final = replace(orders(emit_update_before=True), needs_retractions=True)
_NOT_NULL: Final = orders({"id": "BIGINT", "note": "STRING NOT NULL", "qty": "INT NOT NULL"})
_BROKEN_HEADER: Final = ((OLD_KEY_HEADER, b"Struct{id=1}"),)
_MISSING: Final = "__debezium_unavailable_value"
_MARIADB: Final = {"connector": "mariadb", "db": "shop", "table": "orders"}


@dataclass(frozen=True)
class RowsCase:
    """Records that give rows."""

    id: str
    records: tuple[Record, ...]
    rows: tuple[tuple[Any, ...], ...]
    target: Target = field(default_factory=orders)


ROWS: Final = (
    RowsCase(
        "create and snapshot read",
        (change("c", after=_ROW), change("r", after=_MOVED)),
        (("+I", 1, "a", 5), ("+I", 2, "a", 5)),
    ),
    RowsCase("an update is its after image", (change("u", _ROW, _NEW),), (("+U", 1, "b", 6),)),
    RowsCase(
        "an update with both images wanted",
        (change("u", _ROW, _NEW),),
        (("-U", 1, "a", 5), ("+U", 1, "b", 6)),
        _WITH_BEFORE,
    ),
    RowsCase("an update without before is an upsert", (change("u", None, _NEW),), (("+U", 1, "b", 6),)),
    RowsCase("an upsert has no before to give", (change("u", None, _NEW),), (("+U", 1, "b", 6),), _WITH_BEFORE),
    RowsCase("delete", (change("d", _ROW),), (("-D", 1, "a", 5),)),
    RowsCase(
        "delete, followed by its tombstone", (change("d", _ROW), Record(as_json({"id": 1}), None)), (("-D", 1, "a", 5),)
    ),
    RowsCase("a delete that knows only its key keeps what was made up", (change("d", _KEY_ONLY),), (("-D", 1, "", 0),)),
    RowsCase("a delete with only a key", (change("d", key={"id": 1}),), (("-D", 1, None, None),)),
    RowsCase(
        "where the table is NOT NULL something empty is put",
        (change("d", key={"id": 1}),),
        (("-D", 1, "", 0),),
        _NOT_NULL,
    ),
    RowsCase(
        "a key with its schema",
        (change("d", key={"schema": {"type": "struct"}, "payload": {"id": 7}}),),
        (("-D", 7, None, None),),
    ),
    RowsCase(
        "a moved row, on a connector that sends it as one update",
        (change("u", _ROW, _MOVED, source=_MARIADB),),
        (("-D", 1, "a", 5), ("+I", 2, "a", 5)),
    ),
    RowsCase(
        "the same where before images are wanted",
        (change("u", _ROW, _MOVED, source=_MARIADB),),
        (("-D", 1, "a", 5), ("+I", 2, "a", 5)),
        _WITH_BEFORE,
    ),
    RowsCase(
        "a moved row without a record key",
        (change("u", _ROW, _MOVED, key=None),),
        (("-D", 1, "a", 5), ("+I", 2, "a", 5)),
    ),
    RowsCase(
        "PostgreSQL's old key made up under a record key",
        (change("u", {"id": 0, "note": "a"}, _NEW),),
        (("+U", 1, "b", 6),),
    ),
    RowsCase(
        "an old key that is null says nothing",
        (change("u", {"id": None, "note": "a"}, _NEW, key=None),),
        (("+U", 1, "b", 6),),
    ),
    RowsCase(
        "no key at the source: all are appended", (change("c", after=_ROW, key=None),), (("+I", 1, "a", 5),), _APPEND
    ),
    RowsCase("a delete in a table without key", (change("d", _ROW, key=None),), (("-D", 1, "a", 5),), _APPEND),
    RowsCase(
        "a wider key than the source's, with old images",
        (change("u", _ROW, _NEW), change("d", _ROW)),
        (("-D", 1, "a", 5), ("+I", 1, "b", 6), ("-D", 1, "a", 5)),
        _BY_NOTE,
    ),
    RowsCase("a missing column is null", (change("c", after={"id": 1}),), (("+I", 1, None, None),)),
    RowsCase("columns in another order", (change("c", after={"qty": 5, "note": "a", "id": 1}),), (("+I", 1, "a", 5),)),
    RowsCase(
        "of members with one name the last counts",
        (raw(b'{"op":"c","after":{"id":1,"id":2,"note":null}}'),),
        (("+I", 2, None, None),),
    ),
    RowsCase("no source member at all", (change("c", after=_ROW, source=None),), (("+I", 1, "a", 5),)),
    RowsCase(
        "payload beside a null schema",
        (raw(as_json({"schema": None, "payload": {"op": "c", "after": _ROW}})),),
        (("+I", 1, "a", 5),),
    ),
    RowsCase(
        "blanks around and inside",
        (raw(b' { "op" : "c" , "after" : { "id" : 1 , "qty" : 2 } }\n '),),
        (("+I", 1, None, 2),),
    ),
    RowsCase("an empty batch", (), ()),
    RowsCase("only tombstones", (Record(b"{}", None),), ()),
)


@pytest.mark.parametrize("case", ROWS, ids=lambda case: case.id)
def test_records_become_rows(case: RowsCase) -> None:
    decoded = DebeziumJsonDecoder(lambda source: case.target).decode(batch_of(case.records))
    assert decoded.failures == ()
    assert rows_of(decoded) == list(case.rows)


@dataclass(frozen=True)
class FailureCase:
    """One record that gives none."""

    id: str
    record: Record
    reason: str
    kind: FailureKind = FailureKind.BAD_RECORD
    target: Target = field(default_factory=orders)


FAILURES: Final = (
    FailureCase("broken JSON", raw(b'{"op":"c","after":{"id":1'), "not a JSON object"),
    FailureCase("an empty value", raw(b""), "not a JSON object"),
    FailureCase("a list", raw(b"[]"), "not a JSON object"),
    FailureCase("two objects", raw(b'{"op":"c"}{"op":"c"}'), "not a JSON object"),
    FailureCase("not UTF-8", raw(b'{"op":"c","after":{"id":1,"note":"\xff"}}'), "column note: .*not readable text"),
    FailureCase("a schema without payload", raw(b'{"schema":null}'), "it has a member schema, but no payload"),
    FailureCase(
        "a schema that is none",
        raw(b'{"schema":{"type":7},"payload":{"op":"c","after":{"id":1}}}'),
        "not a Kafka Connect schema",
    ),
    FailureCase(
        "a schema of something else",
        raw(b'{"schema":{"type":"struct"},"payload":{"op":"c","after":{"id":1}}}'),
        "neither after nor before",
    ),
    FailureCase("a flattened record", raw(as_json(_ROW)), "no member op.*ExtractNewRecordState"),
    FailureCase("an unknown op", change("x", after=_ROW), "unknown op 'x'"),
    FailureCase("an op that is no text", raw(b'{"op":1,"after":{"id":1}}'), "not a Debezium payload"),
    FailureCase("a create without after", change("c", key={"id": 1}), "op c has no after image"),
    FailureCase("an update without after", change("u", _ROW), "op u has no after image"),
    FailureCase("an image that is a list", raw(b'{"op":"c","after":[1]}'), "after image: .*not a readable object"),
    FailureCase("a delete of nothing", change("d", key=None), "the delete has no before image, and its key"),
    FailureCase("a delete by a key of other columns", change("d", key={"code": 1}), "its key does not identify a row"),
    FailureCase(
        "a delete in a table without key, by key", change("d", key={"id": 1}), "does not identify a row", target=_APPEND
    ),
    FailureCase(
        "a wrong type names column, value and type",
        change("c", after={"id": 1, "qty": "many"}),
        'column qty: text "many" is not a valid INT',
    ),
    FailureCase(
        "out of range",
        change("c", after={"id": 1, "qty": 2**31}),
        "column qty of shop.orders is INT: 2147483648 is out of the range of INT. Change the column to BIGINT",
        FailureKind.NARROW_COLUMN,
    ),
    FailureCase(
        "a null key",
        change("c", after={"id": None}),
        "column id has no value, but is a column of the primary key in shop.orders",
    ),
    FailureCase("a missing key", change("c", after={"qty": 1}), "column id has no value"),
    FailureCase(
        "null in NOT NULL",
        change("c", after={"id": 1, "note": None, "qty": 1}),
        "column note has no value, but is NOT NULL",
        target=_NOT_NULL,
    ),
    FailureCase(
        "a placeholder in the key", change("c", after={"id": "__debezium_unavailable_value"}), "column id has no value"
    ),
    FailureCase(
        "an update that can't find its old row",
        change("u", None, _NEW),
        r"its key \(id\) does not have the whole primary key \(id, note\).*REPLICA IDENTITY FULL",
        target=_BY_NOTE,
    ),
    FailureCase(
        "a delete that can't find its row",
        change("d", {"id": 1, "note": "", "qty": None}),
        "REPLICA IDENTITY FULL",
        target=_BY_NOTE,
    ),
    FailureCase(
        "an update of a sum without the old values",
        change("u", None, _NEW),
        "no before image, but shop.orders aggregates.*REPLICA IDENTITY FULL",
        target=_SUMMED,
    ),
    FailureCase(
        "a delete from a sum without the old values",
        change("d", key={"id": 1}),
        "no before image, but shop.orders aggregates",
        target=_SUMMED,
    ),
    FailureCase(
        "a delete from a sum with values that the connector made up",
        change("d", {"id": 1, "note": "", "qty": 0}),
        "the before image of the delete has only columns of the key, but shop.orders aggregates",
        target=_SUMMED,
    ),
    FailureCase(
        "a delete without a before image where a column orders rows",
        change("d", key={"id": 1}),
        "the delete has no before image, but columns decide which row of shop.orders is .*REPLICA IDENTITY FULL",
        target=_ORDERED,
    ),
    FailureCase(
        "a delete that would lie before the row that it deletes",
        change("d", {"id": 1, "note": None, "qty": 0}),
        "the delete would count as the oldest row, and would not delete anything. Set REPLICA IDENTITY FULL",
        target=_ORDERED,
    ),
    FailureCase(
        "the second row of a record",
        change("u", _ROW, {**_MOVED, "note": _MISSING}, source=_MARIADB, headers=_BROKEN_HEADER),
        f"header {OLD_KEY_HEADER}, which is needed to find values",
    ),
    FailureCase(
        "an unknown column",
        change("c", after={"id": 1, "Note": "a"}),
        "column 'Note' is not in table shop.orders",
        FailureKind.UNKNOWN_COLUMN,
    ),
    *(
        FailureCase(
            f"a column {name}, which no table may have",
            change("c", after={"id": 1, name: "a", "more": 1}),
            f"is not in table shop.orders and can't be added: the name '{name}' is reserved by Paimon",
            FailureKind.UNKNOWN_COLUMN,
        )
        for name in ("rowkind", "_KEY_id", "_VALUE_KIND")
    ),
    FailureCase(
        "an unknown column that is null",
        change("c", after={"id": 1, "more": None}),
        "column 'more' is not in",
        FailureKind.UNKNOWN_COLUMN,
    ),
    FailureCase(
        "a truncate",
        change("t", key=None),
        "the source truncated shop.public.orders, but shop.orders still has its rows",
        FailureKind.TRUNCATE,
    ),
)


@pytest.mark.parametrize("case", FAILURES, ids=lambda case: case.id)
def test_a_record_that_gives_no_row_is_named_with_its_position_and_reason(case: FailureCase) -> None:
    batch = batch_of([change("c", after=_ROW), case.record, change("c", after=_ROW)])
    decoded = DebeziumJsonDecoder(lambda source: case.target).decode(batch)
    (failure,) = decoded.failures
    assert (failure.row, failure.offset, failure.kind) == (1, 101, case.kind)
    with pytest.raises(ValueError, match=rf"^topic {TOPIC}, partition 0, offset 101: .*{case.reason}"):
        raise ValueError(failure.describe(batch))
    assert len(rows_of(decoded)) == 2, "its neighbours are not lost"


def test_an_unknown_column_is_named_with_its_type() -> None:
    record = change("c", after={"id": 1, "more": 2, "much": 3})
    (failure,) = DebeziumJsonDecoder(lambda source: orders()).decode(batch_of([record])).failures
    assert failure.columns == ("more", "much")
    assert failure.source == SourceTable(TOPIC, "shop", "public", "orders")


def test_an_unknown_nested_field_counts_as_an_unknown_column() -> None:
    target = orders({"id": "INT", "spot": "ROW<x INT>"})
    (failure,) = (
        DebeziumJsonDecoder(lambda source: target)
        .decode(batch_of([change("c", after={"id": 1, "spot": {"x": 1, "y": 2}})]))
        .failures
    )
    assert (failure.kind, failure.columns) == (FailureKind.UNKNOWN_COLUMN, ("spot.y",))


def test_an_unknown_field_of_array_elements_is_named_by_its_path() -> None:
    target = orders({"id": "INT", "spots": "MAP<STRING, ARRAY<ROW<x INT>>>"})
    record = change("c", after={"id": 1, "spots": {"a": [{"x": 1, "y": 2}]}})
    (failure,) = DebeziumJsonDecoder(lambda source: target).decode(batch_of([record])).failures
    assert failure.columns == ("spots.value.element.y",)
    assert "--add-column 'spots.value.element.y STRING'" in failure.reason


def test_a_new_column_is_added_with_the_type_that_its_schema_declares() -> None:
    fields = [
        {"type": "int32", "optional": False, "field": "id"},
        {
            "type": "bytes",
            "field": "price",
            "name": "org.apache.kafka.connect.data.Decimal",
            "parameters": {"scale": "2", "connect.decimal.precision": "18"},
        },
        {"type": "int64", "field": "at", "name": "io.debezium.time.MicroTimestamp"},
    ]
    row = {"type": "struct", "fields": fields, "field": "after"}
    payload: dict[str, Any] = {"before": None, "after": {"id": 1, "price": "AQ==", "at": 1}, "op": "c"}
    payload["source"] = {"db": "shop", "schema": "public", "table": "orders", "connector": "postgresql"}
    record = raw(json.dumps({"schema": {"type": "struct", "fields": [row]}, "payload": payload}).encode())
    target = replace(orders({"id": "INT"}), location="/lake/shop.db/orders")
    (failure,) = DebeziumJsonDecoder(lambda source: target).decode(batch_of([record])).failures
    added = "--add-column 'price DECIMAL(18, 2)' --add-column 'at TIMESTAMP(6)'"
    assert f"add it with `tidelake table alter shop.orders -w /lake {added}`, or exclude it" in failure.reason


SKIPPED: Final = {
    "a tombstone": (Record(b'{"id":1}', None), Skipped.TOMBSTONE),
    "the begin of a transaction": (
        raw(b'{"status":"BEGIN","id":"7:1","event_count":null,"ts_ms":1}'),
        Skipped.TRANSACTION,
    ),
    "a schema change": (
        raw(b'{"source":{"db":""},"databaseName":"shop","ddl":"drop table t","tableChanges":[]}'),
        Skipped.SCHEMA_CHANGE,
    ),
    "a logical message": (
        change("m", source={"db": "shop", "schema": "", "table": ""}, message={"prefix": "p"}),
        Skipped.MESSAGE,
    ),
    "a heartbeat": (raw(b'{"ts_ms":1795195541183}'), Skipped.HEARTBEAT),
    "a heartbeat with a schema": (raw(b'{"schema":{"type":"struct"},"payload":{"ts_ms":1}}'), Skipped.HEARTBEAT),
    "a row of a table that nobody wants": (
        change("c", after=_ROW, source={**SOURCE, "table": "other"}),
        Skipped.UNROUTED,
    ),
}


@pytest.mark.parametrize(("record", "kind"), SKIPPED.values(), ids=SKIPPED.keys())
def test_a_record_without_a_row_is_counted(record: Record, kind: Skipped) -> None:
    decoder = DebeziumJsonDecoder(lambda source: orders() if source.table in ("orders", None) else None)
    decoded = decoder.decode(batch_of([change("c", after=_ROW), record, record]))
    assert decoded.failures == ()
    assert decoded.skipped == {kind: 2}
    assert len(rows_of(decoded)) == 1


def test_truncates_can_be_passed_over() -> None:
    decoded = DebeziumJsonDecoder(lambda source: orders(), truncates="skip").decode(batch_of([change("t", key=None)]))
    assert (decoded.failures, decoded.skipped) == ((), {Skipped.TRUNCATE: 1})


def test_unrouted_source_tables_are_returned_with_their_first_row() -> None:
    records = [change("c", after=_ROW, source={**SOURCE, "table": name}) for name in ("a", "b", "a")]
    decoded = DebeziumJsonDecoder(lambda source: None).decode(batch_of(records))
    assert decoded.unrouted == {SourceTable(TOPIC, "shop", "public", n): row for row, n in enumerate("ab")}


def test_two_tables_in_one_topic_are_separated_and_stay_in_order() -> None:
    targets = {name: Target(f"shop.{name}", orders().schema) for name in ("a", "b")}
    records = [change("c", after={"id": i}, source={**SOURCE, "table": "ab"[i % 2]}) for i in range(10)]
    decoded = DebeziumJsonDecoder(lambda source: targets[source.table or ""]).decode(batch_of(records))
    assert [row[1] for row in rows_of(decoded, "shop.a")] == [0, 2, 4, 6, 8]
    assert [row[1] for row in rows_of(decoded, "shop.b")] == [1, 3, 5, 7, 9]
    assert [found.offsets.tolist() for found in decoded.tables] == [
        [100, 102, 104, 106, 108],
        [101, 103, 105, 107, 109],
    ]


def test_two_schemas_of_one_database_are_two_tables() -> None:
    wanted = SourceTable(TOPIC, "shop", "public", "orders")
    records = [change("c", after=_ROW), change("c", after=_MOVED, source={**SOURCE, "schema": "old"})]
    decoded = DebeziumJsonDecoder(lambda source: orders() if source == wanted else None).decode(batch_of(records))
    assert rows_of(decoded) == [("+I", 1, "a", 5)]


def test_one_target_may_receive_several_source_tables_in_record_order() -> None:
    target = orders()
    records = [change("c", after={"id": i}, source={**SOURCE, "table": "ab"[i % 3 % 2]}) for i in range(20)]
    decoded = DebeziumJsonDecoder(lambda source: target).decode(batch_of(records))
    assert [row[1] for row in rows_of(decoded)] == list(range(20))


def _with_schema(row: dict[str, Any], types: dict[str, str]) -> Record:
    image = {"type": "struct", "field": "after", "fields": [{"field": n, "type": t} for n, t in types.items()]}
    schema = {"type": "struct", "fields": [image]}
    return raw(as_json({"schema": schema, "payload": {"before": None, "after": row, "op": "c"}}))


def test_a_schema_that_changes_inside_a_batch_changes_how_values_are_read() -> None:
    target = orders({"id": "BIGINT", "data": "BYTES"})
    decoder = DebeziumJsonDecoder(lambda source: target)
    records = [
        _with_schema({"id": 1, "data": "AAE="}, {"id": "int64", "data": "bytes"}),
        _with_schema({"id": 2, "data": "AAI="}, {"id": "int64", "data": "bytes"}),
        _with_schema({"id": 3}, {"id": "int64"}),
        change("c", after={"id": 4, "data": "AAM="}),
        _with_schema({"id": 5, "data": "AAQ="}, {"id": "int64", "data": "bytes"}),
    ]
    expected = [("+I", i, None if i == 3 else bytes([0, d])) for i, d in ((1, 1), (2, 2), (3, 0), (4, 3), (5, 4))]
    for _ in range(2):
        assert rows_of(decoder.decode(batch_of(records))) == expected


def test_a_target_that_changes_between_batches_takes_effect() -> None:
    targets = iter([orders(), orders({"id": "BIGINT", "note": "STRING", "qty": "STRING"})])
    decoder = DebeziumJsonDecoder(lambda source: next(targets))
    batch = batch_of([change("c", after={"id": 1, "qty": "5"})])
    assert [rows_of(decoder.decode(batch)) for _ in range(2)] == [[("+I", 1, None, 5)], [("+I", 1, None, "5")]]


def test_rows_of_one_record_share_its_offset() -> None:
    decoded = DebeziumJsonDecoder(lambda source: _WITH_BEFORE).decode(batch_of([change("u", _ROW, _NEW)] * 2))
    assert decoded.tables[0].offsets.tolist() == [100, 100, 101, 101]


def test_records_of_several_chunks_stay_in_order_around_a_bad_record() -> None:
    records = [change("c", after={"id": i}) for i in range(2 * CHUNK_RECORDS_MAX + 10)]
    records[CHUNK_RECORDS_MAX + 5] = change("c", after={"id": "x"})
    decoded = DebeziumJsonDecoder(lambda source: orders()).decode(batch_of(records, 0))
    assert [failure.offset for failure in decoded.failures] == [CHUNK_RECORDS_MAX + 5]
    wanted = [i for i in range(len(records)) if i != CHUNK_RECORDS_MAX + 5]
    assert [row[1] for row in rows_of(decoded)] == wanted
    assert decoded.tables[0].offsets.tolist() == wanted


def test_two_partial_objects_are_not_accepted_even_if_another_value_holds_two() -> None:
    """Side by side they are as many records as there are values."""
    one, two, whole = (change("c", after={"id": i, "note": "}{"}, key=None).value or b"" for i in (1, 2, 3))
    middle = whole.index(b"}{") + 1
    values = [one + two, whole[:middle], whole[middle:]]
    target = orders()
    decoder = DebeziumJsonDecoder(lambda source: target)
    assert rows_of(decoder.decode(batch_of([raw(one)]))) == [("+I", 1, "}{", None)]
    decoded = decoder.decode(batch_of([raw(value) for value in values]))
    assert (rows_of(decoded), [failure.row for failure in decoded.failures]) == ([], [0, 1, 2])


def test_slices_of_a_batch_decode_to_slices_of_its_rows() -> None:
    batch = batch_of([change("c", after={"id": i}) for i in range(10)])
    decoder = DebeziumJsonDecoder(lambda source: orders())
    assert rows_of(decoder.decode(batch.slice(3, 7))) == rows_of(decoder.decode(batch))[3:7]


def test_column_names_may_hold_anything() -> None:
    names = ['a"b', "back\\slash", "new\nline", "ünï 🦊", "class", "f1", "", "with space"]
    target = orders({"id": "INT", **dict.fromkeys(names, "STRING")})
    row = {"id": 1, **{name: name for name in names}}
    assert rows_of(DebeziumJsonDecoder(lambda source: target).decode(batch_of([change("c", after=row)]))) == [
        ("+I", 1, *names)
    ]


def test_a_source_type_for_a_column_that_is_not_there_is_refused() -> None:
    with pytest.raises(BadInput, match=r"source_types of shop\.orders: the table has no column 'nr'"):
        orders(source_types={"nr": "bigint unsigned"})


def test_an_unsigned_key_is_read_as_such_in_every_image() -> None:
    target = orders({"id": "DECIMAL(20, 0)", "note": "STRING"}, source_types={"id": "bigint unsigned"})
    records = [change("u", {"id": -1}, {"id": -1, "note": "b"}), change("d", {"id": -1}), change("d", key={"id": -1})]
    decoded = DebeziumJsonDecoder(lambda source: target).decode(batch_of(records))
    assert {int(row[1]) for row in rows_of(decoded)} == {2**64 - 1}
