"""Tables of a catalog without upper-case letters are decoded from any case in the source."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ingest.formats.debezium.changes import Record, as_json, assert_same, batch_of, change, orders, rows_of
from tests.ingest.formats.envelopes.histories import COLUMNS, RENDERED, SCHEMA, Change, debezium, histories
from tests.support.levels import examples
from tidelake.errors import BadInput
from tidelake.ingest.formats.base import DecodedBatch, FailureKind, NeededColumn, Skipped, Target
from tidelake.ingest.formats.case_insensitive.lower_case import LowerCaseFormat
from tidelake.ingest.formats.ddl_statements import ColumnStatement
from tidelake.ingest.formats.registry import open_format
from tidelake.storage.model.types import STRING

FORMATS = {**RENDERED, "debezium-json": debezium}
NAMES = tuple(name for name in COLUMNS if name != "data")  # which is also what envelopes call a row

SPELLINGS = st.lists(
    st.fixed_dictionaries({name: st.sampled_from([name, name.upper(), name.title()]) for name in NAMES}), min_size=1
)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("emit_update_before", [False, True], ids=["new rows", "old rows, too"])
@given(history=histories(), spellings=SPELLINGS)
@settings(max_examples=examples(20), deadline=None)
def test_the_case_of_column_names_does_not_change_the_rows(
    name: str, emit_update_before: bool, history: Sequence[Change], spellings: Sequence[Mapping[str, str]]
) -> None:
    """The spelling changes from record to record: as if shards of a table were merged."""
    target = Target("shop.orders", SCHEMA, emit_update_before)
    records = list(FORMATS[name](history))
    spelled = [respelled(record, spellings[at % len(spellings)]) for at, record in enumerate(records)]
    format_ = open_format(name, {})
    expected = format_.decoder(lambda source: target).decode(batch_of(records))
    decoder = LowerCaseFormat(format_).decoder(lambda source: target)
    for _ in range(2):  # before and after it has learned
        assert_same(decoder.decode(batch_of(spelled)), expected)


_HOLD_NAMES = ("name", "pkNames", "primaryKey")  # as some formats declare columns


def respelled(record: Record, names: Mapping[str, str]) -> Record:
    def reported(value: Any, *, is_name: bool = False) -> Any:
        match value:
            case dict():
                return {member(key): reported(inner, is_name=key in _HOLD_NAMES) for key, inner in value.items()}
            case list():
                return [reported(inner, is_name=is_name) for inner in value]
            case str() if is_name:
                return names.get(value, value)
            case _:
                return value

    def member(key: str) -> str:
        return "BI_" + names.get(key[3:], key[3:]) if key.startswith("BI_") else names.get(key, key)

    return Record(record.key, as_json(reported(json.loads(record.value or b""))), record.headers)


def decoded(records: Sequence[Record], target: Target | None = None, format_: str = "debezium-json") -> DecodedBatch:
    table = target or orders()
    return LowerCaseFormat(open_format(format_, {})).decoder(lambda source: table).decode(batch_of(records))


def test_a_delete_with_only_its_key_deletes_the_row() -> None:
    found = decoded([change("d", key={"ID": 7}), change("c", after={"ID": 8}, key={"ID": 8})])
    assert rows_of(found) == [("-D", 7, None, None), ("+I", 8, None, None)]


def test_key_and_row_may_differ_in_case() -> None:
    bad = change("c", after={"ID": "x"}, key={"id": 1})
    found = decoded([change("c", after={"ID": 1}, key={"id": 1}), bad, change("c", after={"ID": 2}, key={"id": 2})])
    assert rows_of(found) == [("+I", 1, None, None), ("+I", 2, None, None)]
    (failure,) = found.failures
    assert (failure.row, failure.kind) == (1, FailureKind.BAD_RECORD)
    assert "column ID" in failure.reason


def test_unavailable_values_are_looked_up_by_the_column_names_of_the_table() -> None:
    found = decoded([change("u", after={"ID": 1, "Note": "__debezium_unavailable_value", "QTY": 3})])
    (part,) = found.tables
    assert part.unavailable is not None
    assert part.unavailable.columns.keys() == {"note"}
    assert part.unavailable.keys.to_pylist() == [{"id": 1}]


@pytest.mark.parametrize(
    "image", [{"ID": 2, "Note": "a", "NOTE": "b"}, {"ID": 2, "note": "a", "Note": "b"}, {"id": 2, "New": 1, "NEW": 2}]
)
def test_two_columns_of_one_name_are_a_bad_record_that_names_both(image: Mapping[str, Any]) -> None:
    found = decoded([change("c", after={"id": 1}), change("c", after=image), change("c", after={"ID": 3})])
    assert [row[1] for row in rows_of(found)] == [1, 3]
    (failure,) = found.failures
    assert (failure.row, failure.offset, failure.kind) == (1, 101, FailureKind.BAD_RECORD)
    one, other = [name for name in image if name.lower() in ("note", "new")]
    assert repr(one) in failure.reason
    assert repr(other) in failure.reason


def test_unknown_columns_are_reported_in_lower_case() -> None:
    target = orders()
    (failure,) = decoded([change("c", after={"ID": 1, "Colour": "red"})], target).failures
    assert (failure.kind, failure.columns) == (FailureKind.UNKNOWN_COLUMN, ("colour",))
    assert failure.needed == (NeededColumn(("colour",), None, None),)
    assert failure.target is target
    assert "'colour'" in failure.reason
    assert "Colour" not in failure.reason


def test_narrow_columns_are_reported_with_the_name_in_the_table() -> None:
    (failure,) = decoded([change("c", after={"ID": 1, "Qty": 1 << 40})]).failures
    assert (failure.kind, failure.columns) == (FailureKind.NARROW_COLUMN, ("qty",))
    assert "Qty" not in failure.reason


def test_statements_use_the_table_columns_and_case_only_changes_are_ignored() -> None:
    def statement(sql: str) -> Record:
        ddl = {"data": None, "old": None, "type": "ALTER", "isDdl": True, "database": "depot", "table": "orders"}
        return Record(None, as_json({**ddl, "sql": sql, "mysqlType": None, "pkNames": None, "sqlType": None, "ts": 1}))

    sent = [statement(f"ALTER TABLE orders RENAME COLUMN {change}") for change in ("note TO Note", "Note TO Text")]
    found = decoded(sent, format_="canal-json")
    assert [failure.statements for failure in found.failures] == [(ColumnStatement("note", "text"),)]
    assert found.skipped == {Skipped.SCHEMA_CHANGE: 1}


def test_column_settings_apply_to_any_case_in_the_source() -> None:
    target = orders({"id": "BIGINT", "no": "DECIMAL(20, 0)"}, source_types={"no": "bigint unsigned"})
    found = decoded([change("c", after={"ID": 1, "No": -1})], target)
    assert rows_of(found) == [("+I", 1, 18446744073709551615)]


def test_a_new_table_gets_lower_case_columns() -> None:
    format_ = LowerCaseFormat(open_format("debezium-json", {}))
    batch = batch_of([change("c", after={"ID": 1, "Note": "a"}, key={"ID": 1})])
    table = format_.infer_table(batch, 0)
    assert [field.name for field in table.fields] == ["id", "note"]
    assert table.primary_key == ("id",)
    assert table.fields[1].type == STRING
    same = batch_of([change("c", after={"Id": 1, "ID": 2})])
    with pytest.raises(BadInput, match=r"offset 100: .*'Id' and 'ID' are both 'id'"):
        format_.infer_table(same, 0)
