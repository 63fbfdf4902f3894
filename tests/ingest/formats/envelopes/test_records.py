"""Records that are not plain row changes, and records with missing information."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date, time
from typing import Any

import pytest

from tests.ingest.formats.debezium.changes import Record, as_json, batch_of, change, orders, rows_of
from tidelake.errors import BadInput
from tidelake.ingest.formats.base import DecodedBatch, FailureKind, Skipped, Target
from tidelake.ingest.formats.registry import open_format


def _decode(format_: str, *values: Any, target: Target | None = None, **options: str) -> DecodedBatch:
    decoder = open_format(format_, options).decoder(lambda source: target or orders())
    records = [Record(None, value if value is None or isinstance(value, bytes) else as_json(value)) for value in values]
    return decoder.decode(batch_of(records))


def canal(type_: str, *rows: Mapping[str, Any], **others: Any) -> dict[str, Any]:
    return {"type": type_, "data": list(rows) or None, "database": "shop", "table": "orders", "isDdl": False, **others}


def maxwell(type_: str, data: Any = None, **others: Any) -> dict[str, Any]:
    return {"type": type_, "database": "shop", "table": "orders", "data": data, **others}


def ogg(op_type: str, **images: Any) -> dict[str, Any]:
    return {"op_type": op_type, "table": "shop.orders", **images}


def aliyun(op: str, before: Any = None, after: Any = None) -> dict[str, Any]:
    images = {"before": before and {"dataColumn": before}, "after": after and {"dataColumn": after}}
    schema = {"source": {"dbName": "shop", "tableName": "orders"}}
    return {"schema": schema, "payload": {"op": op, **images}, "version": "0.0.1"}


def dms(operation: str, data: Any = None, **metadata: str) -> dict[str, Any]:
    names = {"record-type": "data", "schema-name": "shop", "table-name": "orders"}
    return {"data": data, "metadata": {**names, "operation": operation, **metadata}}


@dataclass(frozen=True)
class SkippedCase:
    id: str
    format: str
    value: Any
    kind: Skipped


SKIPPED = (
    SkippedCase("tombstone", "canal-json", None, Skipped.TOMBSTONE),
    SkippedCase("a schema change", "canal-json", canal("ALTER", isDdl=True), Skipped.SCHEMA_CHANGE),
    SkippedCase("a dropped table", "canal-json", canal("ERASE", isDdl=True), Skipped.SCHEMA_CHANGE),
    SkippedCase("GRANT", "canal-json", canal("QUERY", sql="GRANT ALL ON x TO y"), Skipped.MESSAGE),
    SkippedCase("TiCDC's watermark", "canal-json", canal("TIDB_WATERMARK"), Skipped.HEARTBEAT),
    SkippedCase("a schema change", "maxwell-json", maxwell("table-alter", sql="ALTER …"), Skipped.SCHEMA_CHANGE),
    SkippedCase("a schema change", "aliyun-json", aliyun("ALTER"), Skipped.SCHEMA_CHANGE),
    SkippedCase("a transaction", "aliyun-json", aliyun("TRANSACTION_BEGIN"), Skipped.TRANSACTION),
    SkippedCase(
        "a control record", "aws-dms-json", dms("add-column", **{"record-type": "control"}), Skipped.SCHEMA_CHANGE
    ),
    SkippedCase("the beginning of a bootstrap", "maxwell-json", maxwell("bootstrap-start", {}), Skipped.MESSAGE),
)


@pytest.mark.parametrize("case", SKIPPED, ids=lambda case: f"{case.format}: {case.id}")
def test_records_without_rows_are_counted_by_their_kind(case: SkippedCase) -> None:
    decoded = _decode(case.format, case.value)
    assert (decoded.tables, decoded.failures, dict(decoded.skipped)) == ((), (), {case.kind: 1})


@dataclass(frozen=True)
class FailureCase:
    id: str
    format: str
    value: Any
    reason: str
    kind: FailureKind = FailureKind.BAD_RECORD


_DEBEZIUM = change("c", after={"id": 1}).value
FAILURES = (
    FailureCase("no JSON", "canal-json", b"{", "not a valid canal-json record: Input data was truncated"),
    FailureCase(
        "of Debezium",
        "canal-json",
        _DEBEZIUM,
        "not a valid canal-json record: it has no member `type`. It looks like debezium-json: set `format` to the "
        "format of the topic",
    ),
    FailureCase("of Debezium", "maxwell-json", _DEBEZIUM, "it has no member `type`. It looks like debezium-json"),
    FailureCase("data: null", "canal-json", canal("INSERT"), "a record of type INSERT has no rows: `data` is null"),
    FailureCase("data: null", "maxwell-json", maxwell("insert"), "a record of type insert has no rows: `data` is"),
    FailureCase("an UPDATE without old", "canal-json", canal("UPDATE", {"id": "1"}), "an UPDATE of 1 rows, with 0 in"),
    FailureCase(
        "an UPDATE with too few old rows",
        "canal-json",
        canal("UPDATE", {"id": "1"}, {"id": "2"}, old=[{}]),
        "an UPDATE of 2 rows, with 1 in `old`",
    ),
    FailureCase("an update without old", "maxwell-json", maxwell("update", {"id": 1}), "the update has no `old`"),
    FailureCase("of Debezium", "ogg-json", _DEBEZIUM, "it has no member `op_type`. It looks like debezium-json"),
    FailureCase("of Debezium", "aliyun-json", _DEBEZIUM, "it has no member `payload.op`. It looks like debezium-json"),
    FailureCase("of Debezium", "aws-dms-json", _DEBEZIUM, "`metadata.operation`. It looks like debezium-json"),
    FailureCase("an update without before", "ogg-json", ogg("U", after={"id": 1}), "whether it changed the key"),
    FailureCase("unknown op_type", "ogg-json", ogg("X"), "unknown op_type 'X'; expected I, U, D or T"),
    FailureCase("no image", "aliyun-json", aliyun("DELETE", after={"id": 1}), "op DELETE has no rows: `payload.befo"),
    FailureCase("no data", "aws-dms-json", dms("insert"), "operation insert has no rows: `data` is null"),
    FailureCase("no object", "json", b"[1]", "[1] is not a readable object"),
    FailureCase("statement", "canal-json", canal("QUERY", sql=" update t set a = 1"), "set binlog_format=ROW"),
    FailureCase("unknown type", "maxwell-json", maxwell("upsert", {"id": 1}), "unknown type 'upsert'"),
    FailureCase("no key", "canal-json", canal("INSERT", {"note": "a"}), "column id has no value, but is a column of"),
    FailureCase(
        "a bad number", "canal-json", canal("INSERT", {"id": "x"}), 'column id: text "x" is not a valid BIGINT'
    ),
    FailureCase(
        "a new column",
        "canal-json",
        canal("INSERT", {"id": "1", "extra": "1"}, mysqlType={"id": "bigint", "extra": "int(11)"}),
        "column 'extra' is not in table shop.orders; add it with `tidelake table alter",
        FailureKind.UNKNOWN_COLUMN,
    ),
    FailureCase(
        "a value beyond its column",
        "canal-json",
        canal("INSERT", {"id": "1", "qty": "3000000000"}),
        "column qty of shop.orders is INT: 3000000000 is out of the range of INT",
        FailureKind.NARROW_COLUMN,
    ),
    FailureCase(
        "a truncate",
        "canal-json",
        canal("TRUNCATE", isDdl=True),
        "the source truncated shop.orders, but shop.orders still has its rows",
        FailureKind.TRUNCATE,
    ),
)


@pytest.mark.parametrize("case", FAILURES, ids=lambda case: f"{case.format}: {case.id}")
def test_a_record_without_a_row_has_a_reason(case: FailureCase) -> None:
    decoded = _decode(case.format, case.value)
    (failure,) = decoded.failures
    assert case.reason in failure.reason
    assert (failure.kind, failure.offset, decoded.tables, dict(decoded.skipped)) == (case.kind, 100, (), {})


TRUNCATES = {
    "canal-json": canal("TRUNCATE", isDdl=True),
    "ogg-json": ogg("T"),
    "aliyun-json": aliyun("TRUNCATE"),
    "aws-dms-json": dms("truncate-table", **{"record-type": "control"}),
}


@pytest.mark.parametrize("name", TRUNCATES)
def test_a_truncate_is_a_failure_or_skipped_on_request(name: str) -> None:
    (failure,) = _decode(name, TRUNCATES[name]).failures
    assert failure.kind is FailureKind.TRUNCATE
    assert dict(_decode(name, TRUNCATES[name], truncates="skip").skipped) == {Skipped.TRUNCATE: 1}


def test_a_bad_record_does_not_affect_its_neighbours() -> None:
    good = [canal("INSERT", {"id": str(i), "note": "a", "qty": "1"}) for i in range(300)]
    decoded = _decode("canal-json", *good[:150], b"{}", canal("INSERT", {"id": "x"}), *good[150:])
    assert [failure.row for failure in decoded.failures] == [150, 151]
    assert [row[1] for row in rows_of(decoded)] == list(range(300))


def test_a_record_with_one_bad_row_gives_none() -> None:
    decoded = _decode("canal-json", canal("INSERT", {"id": "1"}, {"id": "x"}))
    assert (decoded.tables, len(decoded.failures)) == ((), 1)


def test_equal_rows_of_one_update_are_updated_each() -> None:
    value = canal("UPDATE", {"id": "1", "note": "b"}, {"id": "1", "note": "b"}, old=[{"note": "a"}, {"note": "b"}])
    rows = rows_of(_decode("canal-json", value, target=orders(emit_update_before=True)))
    assert [row[:3] for row in rows] == [("-U", 1, "a"), ("+U", 1, "b"), ("-U", 1, "b"), ("+U", 1, "b")]


def test_a_column_that_an_update_leaves_out_is_looked_up() -> None:
    insert, update = canal("INSERT", {"id": "1"}), canal("UPDATE", {"id": "1", "qty": "2"}, old=[{"qty": "1"}])
    (found,) = _decode("canal-json", insert, update).tables
    assert found.unavailable is not None
    assert found.unavailable.rows.tolist() == [1]
    assert {name: flags.tolist() for name, flags in found.unavailable.columns.items()} == {"note": [True]}


def test_a_row_that_moves_is_looked_up_under_its_old_key() -> None:
    (found,) = _decode("canal-json", canal("UPDATE", {"id": "2", "qty": "2"}, old=[{"id": "1"}])).tables
    assert found.unavailable is not None
    assert found.unavailable.keys.to_pylist() == [{"id": 1}]


def test_a_table_that_aggregates_refuses_a_delete_without_the_old_values() -> None:
    target = replace(orders(emit_update_before=True), needs_retractions=True)
    (failure,) = _decode("canal-json", canal("DELETE", {"id": "1"}), target=target).failures
    assert "the delete has no old value of note, qty, but shop.orders aggregates" in failure.reason


def test_a_member_that_mysql_type_lacks_is_left_out_unless_the_table_has_it() -> None:
    value = canal("INSERT", {"id": "1", "extra": "x", "note": "a"}, mysqlType={"id": "bigint"})
    assert rows_of(_decode("canal-json", value)) == [("+I", 1, "a", None)]


def test_a_maxwell_record_without_key_columns_has_those_of_its_key() -> None:
    key = as_json({"database": "shop", "table": "orders", "pk.id": 1, "pk.day": "2024-01-01"})
    record = Record(key, as_json(maxwell("insert", {"id": 1, "day": "2024-01-01", "note": "a"})))
    assert open_format("maxwell-json", {}).infer_table(batch_of([record]), 0).primary_key == ("id", "day")


def test_a_compressed_update_of_goldengate_leaves_the_other_columns_as_they_are() -> None:
    decoded = _decode("ogg-json", ogg("U", before={"id": 1, "qty": 1}, after={"id": 1, "qty": 2}))
    (found,) = decoded.tables
    assert rows_of(decoded) == [("+U", 1, None, 2)]
    assert found.unavailable is not None
    assert {name: flags.tolist() for name, flags in found.unavailable.columns.items()} == {"note": [True]}


def test_an_update_in_two_records_is_two_rows() -> None:
    records = (aliyun("UPDATE_BEFORE", {"id": 1, "qty": 1}), aliyun("UPDATE_AFTER", after={"id": 2, "qty": 1}))
    assert [row[:2] for row in rows_of(_decode("aliyun-json", *records))] == [("-U", 1), ("+U", 2)]


def test_a_date_of_aliyun_counts_milliseconds() -> None:
    target = orders({"id": "BIGINT", "day": "DATE"})
    columns = [{"name": "id", "type": "LONG"}, {"name": "day", "type": "DATE"}]
    midnight, later = (aliyun("INSERT", after={"id": 1, "day": day}) for day in (86400000, 1))
    for record in (midnight, later):
        record["schema"]["dataColumn"] = columns
    decoded = _decode("aliyun-json", midnight, later, target=target)
    assert rows_of(decoded) == [("+I", 1, date(1970, 1, 2))]
    assert "column day of shop.orders is DATE: 1 has a time of day" in decoded.failures[0].reason


def test_a_column_named_like_an_old_value_of_dms_is_read_if_the_table_has_it() -> None:
    update = dms("update", {"id": 1, "note": "b", "qty": 1, "BI_note": "a"})
    plain = orders(emit_update_before=True)
    named = orders({"id": "BIGINT", "note": "STRING", "qty": "INT", "BI_note": "STRING"}, emit_update_before=True)
    assert rows_of(_decode("aws-dms-json", update, target=plain)) == [("-U", 1, "a", 1), ("+U", 1, "b", 1)]
    assert rows_of(_decode("aws-dms-json", update, target=named)) == [("+U", 1, "b", 1, "a")]


def test_an_update_of_dms_without_all_old_values_is_not_retracted_from_a_sum() -> None:
    target = replace(orders(emit_update_before=True), needs_retractions=True)
    update = dms("update", {"id": 1, "note": "b", "qty": 1, "BI_id": 1})
    (failure,) = _decode("aws-dms-json", update, target=target).failures
    assert "but shop.orders aggregates" in failure.reason


def test_plain_json_makes_no_table_of_the_envelopes_of_another_format() -> None:
    with pytest.raises(BadInput, match="it looks like canal-json: set `format` to the format of the topic"):
        open_format("json", {}).infer_table(batch_of([Record(None, as_json(canal("INSERT", {"id": "1"})))]), 0)


@pytest.mark.parametrize("name", ["canal-json", "maxwell-json"])
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"truncate": "skip"}, "has no option 'truncate'"),
        ({"truncates": "yes"}, "must be apply or fail or skip, not 'yes'"),
    ],
    ids=["unknown option", "unknown value"],
)
def test_meaningless_options_are_refused(name: str, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        open_format(name, options)


def test_a_time_of_day_is_parsed_from_its_string() -> None:
    target = orders({"id": "BIGINT", "at": "TIME(0)"})
    assert rows_of(_decode("canal-json", canal("INSERT", {"id": "1", "at": "23:59:59"}), target=target)) == [
        ("+I", 1, time(23, 59, 59))
    ]
