"""A changed type is read as in Java: casts.json contains what Java Paimon read after each allowed change."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.storage.files.samples import column_of, ticks
from tests.support.expected import json_values, meaning
from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.storage.files.casting import cast, keeps_order, may_make_nulls
from tidelake.storage.model.schema.type_changes import can_change
from tidelake.storage.model.types import (
    DOUBLE,
    INT,
    STRING,
    TIMESTAMP_ROOTS,
    ArrayType,
    DataField,
    DataType,
    MapType,
    Root,
    RowType,
    arrow_type,
    decimal,
    not_null,
    parse_type,
    timestamp,
    type_from_json,
)

CASES = json.loads((Path(__file__).parent / "casts.json").read_text(encoding="utf-8"))["cases"]


def type_of(spelled: Any) -> DataType:
    """The oracle's form: SQL text, or JSON without field ids."""
    if isinstance(spelled, dict) and "fields" in spelled:
        spelled = {**spelled, "fields": [{"id": i, **f} for i, f in enumerate(spelled["fields"])]}
    return type_from_json(spelled)


def case_id(case: dict[str, Any]) -> str:
    return f"{type_of(case['old'])} to {type_of(case['new'])}"


def column_from_json(values: list[Any], data_type: DataType) -> pa.Array:
    return column_of(data_type, [None if v is None else _value(v, data_type) for v in values])


def _value(value: Any, data_type: DataType) -> Any:
    kind = arrow_type(data_type)
    if data_type.root in TIMESTAMP_ROOTS:
        return ticks(value.rstrip("Z"), kind.unit)
    match data_type:
        case ArrayType():
            return [None if v is None else _value(v, data_type.element) for v in value]
        case MapType():
            return [(k, pa.scalar(ticks(v, "ms"), arrow_type(data_type.value))) for k, v in value]
    match data_type.root:
        case Root.FLOAT | Root.DOUBLE:
            return float(value)
        case Root.DECIMAL:
            return Decimal(value)
        case Root.DATE:
            return (date.fromisoformat(value) - date(1970, 1, 1)).days
        case Root.TIME:
            return ticks(f"1970-01-01T{value}", "ms")
        case Root.BINARY | Root.VARBINARY:
            return bytes.fromhex(value["hex"])
    return value


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_a_changed_column_reads_as_in_java(case: dict[str, Any]) -> None:
    old, new = type_of(case["old"]), type_of(case["new"])
    after = cast(column_from_json(case["values"], old), old, new)
    mean = meaning(after.type)
    assert after.type == arrow_type(new)
    assert [mean(v) for v in json_values(after)] == [mean(v) for v in case["expected"]]


def test_the_cases_cover_every_change_that_a_table_allows() -> None:
    """One pair of types at least for each pair of roots."""
    covered = {(type_of(case["old"]).root, type_of(case["new"]).root) for case in CASES}
    spelled = {
        Root.CHAR: "CHAR(2)",
        Root.VARCHAR: "STRING",
        Root.TIMESTAMP_LTZ: "TIMESTAMP(3) WITH LOCAL TIME ZONE",
        Root.ARRAY: "ARRAY<INT>",
        Root.MAP: "MAP<INT, INT>",
        Root.ROW: "ROW<a INT>",
    }
    left_out = {Root.MULTISET, Root.VECTOR, Root.VARIANT, Root.BLOB}
    types = {root: parse_type(spelled.get(root, root)) for root in Root if root not in left_out}
    allowed = {(a, b) for a, one in types.items() for b, other in types.items() if a != b and can_change(one, other)}
    assert allowed <= covered


@pytest.mark.parametrize("case", CASES[::7], ids=case_id)
def test_a_slice_and_an_empty_column_change_as_well(case: dict[str, Any]) -> None:
    old, new = type_of(case["old"]), type_of(case["new"])
    column = column_from_json(case["values"], old)
    assert json_values(cast(column.slice(1), old, new)) == json_values(cast(column, old, new).slice(1))
    assert len(cast(column.slice(0, 0), old, new)) == 0


@pytest.mark.parametrize(
    ("texts", "new"),
    [
        (["1e3"], "INT"),
        ([""], "BIGINT"),
        (["-"], "INT"),
        ([" 1"], "INT"),
        (["128"], "TINYINT"),
        (["9223372036854775808"], "BIGINT"),
        (["maybe"], "BOOLEAN"),
        (["1,5"], "DOUBLE"),
        (["nan"], "FLOAT"),
        ([" 1"], "DECIMAL(3, 0)"),
        (["2024-02-30"], "DATE"),
        (["10000-01-01"], "DATE"),
        (["noon"], "TIME(3)"),
        (["2024-05-14 1:2"], "TIMESTAMP(3)"),
        (["2024-05-32"], "TIMESTAMP(3)"),
        (["17"], "TIMESTAMP(4)"),
    ],
)
def test_an_unparsable_string_is_bad_input_and_quoted(texts: list[str], new: str) -> None:
    with pytest.raises(BadInput) as refusal:
        cast(pa.array(texts), STRING, parse_type(new))
    assert repr(texts[0]) in str(refusal.value)
    assert new in str(refusal.value)


def test_nan_cannot_become_a_decimal() -> None:
    with pytest.raises(BadInput, match="nan can't be read as DECIMAL"):
        cast(pa.array([1.0, float("nan")]), DOUBLE, decimal(5, 2))


def test_dates_before_1970_are_those_of_their_times() -> None:
    """Java 2.0.0 rounds towards 1970; later ones as here."""
    before = column_of(timestamp(3), [-1, -86_400_000, -86_400_001])
    assert cast(before, timestamp(3), parse_type("DATE")).cast(pa.int32()).to_pylist() == [-1, -1, -2]


def test_timestamps_outside_the_nanosecond_range_are_refused() -> None:
    with pytest.raises(UnsupportedFeature, match="1677 to 2262"):
        cast(column_of(timestamp(0), [ticks("9999-12-31", "s")]), timestamp(0), timestamp(9))


@pytest.mark.parametrize(("old", "new"), [("INT", "DATE"), ("DATE", "INT"), ("BYTES", "INT"), ("STRING", "ARRAY<INT>")])
def test_a_change_that_java_cannot_read_is_refused(old: str, new: str) -> None:
    with pytest.raises(UnsupportedFeature, match="a change of type from"):
        cast(pa.nulls(1, arrow_type(parse_type(old))), parse_type(old), parse_type(new))


def test_nested_fields_are_matched_by_id() -> None:
    old = RowType((DataField(1, "a", INT), DataField(2, "b", STRING), DataField(3, "gone", INT)))
    inner = RowType((DataField(2, "renamed", STRING), DataField(1, "a", not_null(parse_type("BIGINT")))))
    new = RowType((*inner.fields, DataField(9, "b", INT)))
    column = column_of(ArrayType(old), [[{"a": 1, "b": "x", "gone": 0}, None], None, []])
    after = cast(column, ArrayType(old), ArrayType(new))
    assert after.type == arrow_type(ArrayType(new))
    assert after.to_pylist() == [[{"renamed": "x", "a": 1, "b": None}, None], None, []]


def test_values_of_maps_change_and_keys_do_not() -> None:
    old, new = MapType(STRING, INT), MapType(STRING, DOUBLE)
    assert cast(column_of(old, [[("k", 1)], None]), old, new).to_pylist() == [[("k", 1.0)], None]
    with pytest.raises(UnsupportedFeature):
        cast(column_of(old, []), old, MapType(INT, INT))


ORDERED = [case for case in CASES if keeps_order(type_of(case["old"]), type_of(case["new"]))]


@pytest.mark.parametrize("case", ORDERED, ids=case_id)
def test_order_preserving_changes_keep_order_and_lose_no_value(case: dict[str, Any]) -> None:
    old, new = type_of(case["old"]), type_of(case["new"])
    values = column_from_json([v for v in case["values"] if v is not None and v != "NaN"], old)
    order = pa.compute.sort_indices(values)
    after = cast(values.take(order), old, new)
    assert after.null_count == 0
    comparable = after.cast(pa.int64()) if pa.types.is_timestamp(after.type) else after
    assert comparable.to_pylist() == sorted(comparable.to_pylist())


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_changes_make_nulls_only_as_declared_and_nulls_stay_null(case: dict[str, Any]) -> None:
    old, new = type_of(case["old"]), type_of(case["new"])
    values = column_from_json([*case["values"], None], old)
    try:
        after = cast(values, old, new)
    except BadInput:
        after = cast(values.filter(values.is_null()), old, new)  # a text that Java can't read as `new`, either
        assert after.null_count == len(after)
        return
    assert after.is_null().to_pylist() == values.is_null().to_pylist() or may_make_nulls(old, new)
    assert after[len(after) - 1].as_py() is None


def test_integers_wrap_as_in_java() -> None:
    """The whole range, against NumPy's own narrowing."""
    values = np.concatenate([np.arange(-70_000, 70_000, 37), [2**31 - 1, -(2**31)]]).astype(np.int32)
    narrowed = cast(pa.array(values), INT, parse_type("SMALLINT"))
    assert narrowed.to_pylist() == [((v + 2**15) % 2**16) - 2**15 for v in values.tolist()]
