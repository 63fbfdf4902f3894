"""Values are written exactly, at every depth, or are refused with path and row."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from random import Random
from typing import Any, Final
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidelake
from tests.support.levels import examples
from tidelake.errors import BadInput
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.types import (
    ArrayType,
    DataField,
    DataType,
    MapType,
    MultisetType,
    RowType,
    VectorType,
    arrow_type,
    not_null,
    parse_type,
)
from tidelake.storage.write.alter_hints import AlterHints
from tidelake.storage.write.value_conversion import convert_exactly
from tidelake.storage.write.value_location import ColumnLocation


def converted(column: pa.Array, data_type: DataType) -> pa.Array:
    schema = TableSchema(0, (DataField(0, "v", data_type),), 99)
    found = convert_exactly(
        column, data_type, ColumnLocation(AlterHints(schema, "shop.orders", "/lake/shop.db/orders"), "v")
    )
    assert found.type == arrow_type(data_type)
    return found


# ---------------------------------------------------------------- values written out


def raw(kind: pa.DataType, data: bytes, count: int = 1) -> pa.Array:
    """As no Arrow function would make it."""
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(data)])


def texts(*values: bytes) -> pa.Array:
    """Of bytes that need be no UTF-8."""
    offsets = np.cumsum([0, *map(len, values)]).astype(np.int32)
    return pa.Array.from_buffers(
        pa.string(), len(values), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(values))]
    )


def decimals(*unscaled: int) -> pa.Array:
    return raw(pa.decimal128(5, 2), b"".join(n.to_bytes(16, "little", signed=True) for n in unscaled), len(unscaled))


def times(*millis: int) -> pa.Array:
    return raw(pa.time32("ms"), np.array(millis, np.int32).tobytes(), len(millis))


def lists(values: pa.Array, *ends: int) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array([0, *ends], pa.int32()), values)


def struct(**parts: pa.Array) -> pa.Array:
    return pa.StructArray.from_arrays(list(parts.values()), names=list(parts))


# ---------------------------------------------------------------- at every depth


@dataclass(frozen=True)
class Fault:
    """A column of one type whose value at 1, and no other, is not one of the table's type."""

    id: str
    type: str
    column: pa.Array
    says: str


NAIVE, BERLIN = pa.timestamp("us"), pa.timestamp("us", "Europe/Berlin")
FAULTS: Final = (
    Fault("an integer that is too large", "TINYINT", pa.array([1, 300]), "300 not in range"),
    Fault("an unsigned integer", "BIGINT", pa.array([1, 2**63], pa.uint64()), "9223372036854775808"),
    Fault("a fraction", "INT", pa.array([1.0, 1.5]), "1.500000 was truncated"),
    Fault("an integer that doubles lack", "DOUBLE", pa.array([1, 2**53 + 1]), "9007199254740993"),
    Fault("a double beyond the floats", "FLOAT", pa.array([0.5, 1e300]), "1e.300 would become inf"),
    Fault("a double between the floats", "FLOAT", pa.array([0.5, 0.1]), "0.1 would become 0.10000000149"),
    Fault("a text beyond the doubles", "DOUBLE", pa.array(["1", "1e999"]), "'1e999' would become inf"),
    Fault("a double between the decimals", "DECIMAL(5, 2)", pa.array([0.1, 0.125]), "0.125 would become"),
    Fault("NaN for a decimal", "DECIMAL(5, 2)", pa.array([0.1, math.nan]), "nan"),
    Fault("digits beyond the scale", "DECIMAL(5, 2)", pa.array([Decimal("0.110"), Decimal("0.125")]), "data loss"),
    Fault("digits beyond the precision", "DECIMAL(5, 2)", pa.array([Decimal(1), Decimal(1000)]), "precision"),
    Fault("an integer beyond the precision", "DECIMAL(5, 2)", pa.array([999, 1000]), "precision"),
    Fault("a decimal that is not whole", "INT", pa.array([Decimal("7.00"), Decimal("7.01")]), "data loss"),
    Fault("a decimal beyond the integers", "INT", pa.array([Decimal(1), Decimal(2**31)]), "out of bounds"),
    Fault("a decimal made by hand", "DECIMAL(5, 2)", decimals(99_999, 100_000), "100000 does not fit in precision"),
    Fault("a negative decimal made by hand", "DECIMAL(5, 2)", decimals(-99_999, -100_000), "precision"),
    Fault("a truth made of another number", "BOOLEAN", pa.array([1, 5]), "5 would become True"),
    Fault("a time of the next day", "TIME(3)", times(86_399_999, 86_400_000), "86400000 is not within"),
    Fault("a time of the day before", "TIME(3)", times(0, -1), "-1 is not within"),
    Fault("a text finer than milliseconds", "TIME(3)", pa.array(["12:30:00.500", "12:30:00.0001"]), "lose data"),
    Fault("a text after the end of a day", "TIME(3)", pa.array(["12:30", "24:00"]), "not a time of day"),
    Fault("a text of a time with a zone", "TIME(3)", pa.array(["12:30", "12:30:00Z"]), "not a time of day"),
    Fault("a time finer than milliseconds", "TIME(3)", pa.array([1_000, 1], pa.time64("us")), "lose data"),
    Fault("a moment for a day", "DATE", pa.array([0, 1], pa.timestamp("us")), "would become"),
    Fault("a finer moment", "TIMESTAMP(3)", pa.array([1_000, 1], pa.timestamp("us")), "lose data"),
    Fault("a moment beyond nanoseconds", "TIMESTAMP(9)", pa.array([1, 2**60], pa.timestamp("s")), "out of bounds"),
    Fault("bytes that are no text", "STRING", texts(b"a", b"\xff"), "not UTF-8"),
    Fault("half a letter", "STRING", texts(b"a", "\ud800".encode("utf-8", "surrogatepass")), "not UTF-8"),
    Fault("bytes for a text", "STRING", pa.array([b"a", b"\xff"]), "UTF8"),
    Fault("a word for a number", "INT", pa.array(["7", "seven"]), "seven"),
)
WHOLE: Final = (
    Fault("no zone for an instant", "TIMESTAMP(6) WITH LOCAL TIME ZONE", pa.array([0, 0], NAIVE), "no time zone"),
    Fault("a zone for a time without", "TIMESTAMP(6)", pa.array([0, 0], BERLIN), "has a time zone"),
    Fault("a day for an instant", "TIMESTAMP(6) WITH LOCAL TIME ZONE", pa.array([0, 0], pa.date32()), "no time zone"),
    Fault("an instant for a day", "DATE", pa.array([0, 0], BERLIN), "has a time zone"),
    Fault("a count for a time", "TIMESTAMP(3)", pa.array([0, 0]), "has no unit"),
    Fault("a count for a day", "DATE", pa.array([0, 0], pa.int32()), "has no unit"),
    Fault("a time for a number", "BIGINT", pa.array([0, 0], NAIVE), "is not a number"),
    Fault("a duration", "TIME(3)", pa.array([0, 0], pa.duration("s")), "cast"),
    Fault("a list for a text", "STRING", pa.array([["a"], []]), "list"),
    Fault("a struct for a list", "ARRAY<INT>", pa.array([{"a": 1}, {"a": 2}]), "not a list"),
    Fault("a list for a ROW", "ROW<a INT>", pa.array([[1], [2]]), "not a struct"),
    Fault("a list for a MAP", "MAP<STRING, INT>", pa.array([[1], [2]]), "not a map"),
)


def shapes(inner: DataType, values: pa.Array) -> list[tuple[DataType, pa.Array, str, int]]:
    """(type, column, path, row) of every kind of nesting around two values; path and row are those of the second."""
    row = RowType((DataField(1, "n", parse_type("INT")), DataField(2, "x", inner)))
    n = pa.array([1, 2], pa.int32())
    one_each, both = lists(values, 1, 2), lists(values, 0, 2, 2)
    keys = pa.array(["k", "it's"])
    of_values = pa.MapArray.from_arrays(pa.array([0, 1, 2], pa.int32()), keys, values)
    by_row = lists(struct(n=n, x=values), 2)
    return [
        (inner, values, "v", 1),
        (ArrayType(inner), one_each, "v[0]", 1),
        (ArrayType(inner), both, "v[1]", 1),
        (ArrayType(inner), both.slice(1), "v[1]", 0),
        (ArrayType(inner), both.cast(pa.large_list(values.type)), "v[1]", 1),
        (ArrayType(ArrayType(inner)), lists(both, 1, 3), "v[0][1]", 1),
        (row, struct(x=values, n=n), "v.x", 1),
        (ArrayType(row), by_row, "v[1].x", 0),
        (RowType((DataField(1, "tags", ArrayType(row)),)), struct(tags=by_row), "v.tags[1].x", 0),
        (MapType(not_null(parse_type("STRING")), inner), of_values, """v["it's"]""", 1),
        (MapType(not_null(parse_type("STRING")), inner), of_values.slice(1), """v["it's"]""", 0),
    ]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)
def test_the_first_invalid_value_is_named_at_every_depth(fault: Fault) -> None:
    inner = parse_type(fault.type)
    for data_type, column, path, row in shapes(inner, fault.column):
        with pytest.raises(BadInput, match=fault.says) as error:
            converted(column, data_type)
        assert f"column {path!r} is {inner}" in str(error.value)
        assert f"row {row} of the batch" in str(error.value)


@pytest.mark.parametrize(
    ("data_type", "column", "command"),
    [
        ("DECIMAL(10, 2)", pa.array([Decimal("1.239")]), "--set-type 'v DECIMAL(11, 3)'"),
        ("INT", pa.array([Decimal("0.5")]), "--set-type 'v DECIMAL(11, 1)'"),
        ("DOUBLE", pa.array([2**53 + 1]), None),
        ("TIMESTAMP(3)", pa.array([7]), None),
    ],
)
def test_the_offered_type_keeps_the_rows_that_the_table_has(
    data_type: str, column: pa.Array, command: str | None
) -> None:
    with pytest.raises(BadInput) as error:
        converted(column, parse_type(data_type))
    assert ("--set-type" in str(error.value)) is (command is not None)
    assert command is None or command in str(error.value)


@pytest.mark.parametrize("fault", WHOLE, ids=lambda fault: fault.id)
def test_an_incompatible_type_is_refused_at_every_depth(fault: Fault) -> None:
    inner = parse_type(fault.type)
    for data_type, column, _, _ in shapes(inner, fault.column):
        with pytest.raises(BadInput, match=fault.says):
            converted(column, data_type)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)
def test_values_under_a_null_are_ignored(fault: Fault) -> None:
    inner = parse_type(fault.type)
    good = converted(fault.column.slice(0, 1), inner).to_pylist()
    hidden = pa.Array.from_buffers(fault.column.type, 2, [pa.py_buffer(b"\x01"), *fault.column.buffers()[1:]])
    assert converted(hidden, inner).to_pylist() == [*good, None]
    under_a_list = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), fault.column, mask=pa.array([False, True]))
    assert converted(under_a_list, ArrayType(inner)).to_pylist() == [good, None]
    row = RowType((DataField(1, "x", not_null(inner)),))
    under_a_struct = pa.StructArray.from_arrays([fault.column], names=["x"], mask=pa.array([False, True]))
    assert converted(under_a_struct, row).to_pylist() == [{"x": good[0]}, None]


# ---------------------------------------------------------------- nulls, fields


def nullable_type(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """The same values, said to be of a type whose parts must not be null: nothing in Arrow checks it."""
    return pa.Array.from_buffers(
        kind, len(column), column.buffers()[:2], column.null_count, column.offset, children=[column.values]
    )


def map_with_a_null_key() -> pa.Array:
    """Arrow looks at the indices of a dictionary, not at what they mean."""
    keys = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), pa.array(["a", None]))
    return pa.MapArray.from_arrays(pa.array([0, 2], pa.int32()), keys, pa.array([1, 2], pa.int32()))


INTS: Final = not_null(parse_type("INT"))
NESTED: Final = ArrayType(RowType((DataField(1, "name", not_null(parse_type("STRING"))),)))
PLAIN_NESTED: Final = pa.list_(pa.struct([("name", pa.string())]))


@pytest.mark.parametrize(
    ("column", "data_type", "says"),
    [
        pytest.param(
            pa.array([None, [{"name": "a"}, None, {"name": "b"}, {"name": None}]], PLAIN_NESTED),
            NESTED,
            r"'v\[3\]\.name' is NOT NULL, but null in row 1",
            id="a field in an element",
        ),
        pytest.param(pa.array([[1], [2, None]]), ArrayType(INTS), r"'v\[1\]' is NOT NULL.*row 1", id="an element"),
        pytest.param(
            nullable_type(pa.array([[1], [2, None]], pa.list_(pa.int32())), arrow_type(ArrayType(INTS))),
            ArrayType(INTS),
            r"'v\[1\]' is NOT NULL.*row 1",
            id="an element of an array that says it has none",
        ),
        pytest.param(
            pa.array([[("a", 1), ("b", None)]], pa.map_(pa.string(), pa.int32())),
            MapType(not_null(parse_type("STRING")), INTS),
            r"v\['b'\].* is NOT NULL.*row 0",
            id="a value of a map",
        ),
        pytest.param(
            pa.array([{"x": 1}, None, {"x": None}], pa.struct([("x", pa.int32())])),
            RowType((DataField(1, "x", INTS),)),
            r"'v\.x' is NOT NULL, but null in row 2",
            id="a field",
        ),
        pytest.param(
            pa.array([None, {"y": 1}], pa.struct([("y", pa.int32())])),
            RowType((DataField(1, "x", INTS), DataField(2, "y", parse_type("INT")))),
            r"'v\.x' is NOT NULL, but the batch lacks it",
            id="a field that the batch lacks",
        ),
        pytest.param(
            pa.array([[1.0, None]], pa.list_(pa.float32(), 2)),
            VectorType(parse_type("FLOAT"), 2),
            r"'v\[1\]' is NOT NULL",
            id="an element of a vector",
        ),
        pytest.param(
            pa.array([[("a", None)]], pa.map_(pa.string(), pa.int32())),
            MultisetType(not_null(parse_type("STRING"))),
            r"v\['a'\].* is NOT NULL",
            id="a count of a multiset",
        ),
        pytest.param(
            map_with_a_null_key(),
            MapType(not_null(parse_type("STRING")), parse_type("INT")),
            r"'v\.key\[1\]' is NOT NULL",
            id="a key made by hand",
        ),
    ],
)
def test_nulls_inside_are_refused_with_their_path(column: pa.Array, data_type: DataType, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        converted(column, data_type)


def test_a_missing_field_is_null_and_its_requirement_waits_for_a_row() -> None:
    row = RowType((DataField(1, "x", INTS), DataField(2, "y", parse_type("INT"))))
    assert converted(pa.array([{"x": 1}]), row).to_pylist() == [{"x": 1, "y": None}]
    assert converted(pa.array([None], pa.struct([("y", pa.int32())])), row).to_pylist() == [None]
    assert converted(pa.nulls(2), row).to_pylist() == [None, None]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        pytest.param(
            ["x", "z"], r"'v' has no field 'z' \(it has x\)\..*--add-column 'v\.z STRING'", id="an unknown field"
        ),
        pytest.param(["X"], "has no field 'X'.*did you mean 'x'", id="another case"),
        pytest.param(["x", "x"], "has the field 'x' more than once", id="a field twice"),
    ],
)
def test_nested_fields_are_matched_by_exact_name(fields: Sequence[str], says: str) -> None:
    row = RowType((DataField(1, "x", parse_type("STRING")),))
    column = pa.StructArray.from_arrays([pa.array(["a"])] * len(fields), names=list(fields))
    with pytest.raises(BadInput, match=says):
        converted(column, row)
    with pytest.raises(BadInput, match=says.replace("'v'", r"'v\[\]'").replace(r"v\.z", r"v\.element\.z")):
        converted(lists(column, 1), ArrayType(row))


@pytest.mark.parametrize("length", [1, 3])
def test_a_vector_of_another_length_is_refused(length: int) -> None:
    data_type = VectorType(parse_type("FLOAT"), 2)
    with pytest.raises(BadInput, match=f"'v' is .*row 1 of the batch: a list of {length} elements"):
        converted(pa.array([None, [0.5] * length], pa.list_(pa.float64())), data_type)
    assert converted(pa.array([[0.5, 1], None, [2, 3]]), data_type).to_pylist() == [[0.5, 1.0], None, [2.0, 3.0]]


# ---------------------------------------------------------------- what passes


@pytest.mark.parametrize(
    ("given", "wanted", "stored"),
    [
        pytest.param(pa.array(["a", None]).dictionary_encode(), "STRING", ["a", None], id="a dictionary"),
        pytest.param(
            pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), pa.array(["a", "b"]).dictionary_encode()),
            "ARRAY<STRING>",
            [["a", "b"]],
            id="a dictionary in a list",
        ),
        pytest.param(
            pa.array([["a"], None], pa.list_(pa.string_view())), "ARRAY<STRING>", [["a"], None], id="views of texts"
        ),
        pytest.param(
            pa.array([["a"], None], pa.large_list(pa.large_string())), "ARRAY<STRING>", [["a"], None], id="large ones"
        ),
        pytest.param(
            pa.array([["a"], None], pa.list_view(pa.string())), "ARRAY<STRING>", [["a"], None], id="views of lists"
        ),
        pytest.param(
            pa.array([["a"], None], pa.list_(pa.string(), 1)), "ARRAY<STRING>", [["a"], None], id="lists of one length"
        ),
        pytest.param(
            pa.RunEndEncodedArray.from_arrays(pa.array([2], pa.int32()), pa.array(["a"])),
            "STRING",
            ["a", "a"],
            id="run lengths",
        ),
        pytest.param(pa.array([b"a" * 16], pa.uuid().storage_type), "BYTES", [b"a" * 16], id="bytes of one length"),
        pytest.param(pa.array([7.0, None]), "INT", [7, None], id="whole doubles"),
        pytest.param(pa.array([Decimal("7.00"), None]), "INT", [7, None], id="whole decimals"),
        pytest.param(
            pa.array([Decimal(2**63 - 1)], pa.decimal256(70, 2)),
            "BIGINT",
            [2**63 - 1],
            id="whole decimals of many digits",
        ),
        pytest.param(pa.array([7, None]), "DECIMAL(3, 2)", [Decimal("7.00"), None], id="integers as decimals"),
        pytest.param(
            pa.array([2**64 - 1], pa.uint64()),
            "DECIMAL(38, 0)",
            [Decimal(2**64 - 1)],
            id="large integers as decimals",
        ),
        pytest.param(
            pa.array([0.1, -2.25, None]),
            "DECIMAL(5, 2)",
            [Decimal("0.10"), Decimal("-2.25"), None],
            id="doubles that are decimals",
        ),
        pytest.param(pa.array([0.5, math.inf, None]), "FLOAT", [0.5, math.inf, None], id="doubles that are floats"),
        pytest.param(pa.array([Decimal("1.50")]), "DOUBLE", [1.5], id="decimals that are doubles"),
        pytest.param(pa.array([True, None]), "INT", [1, None], id="truth as a number"),
        pytest.param(pa.array([1, None]), "STRING", ["1", None], id="numbers as texts"),
        pytest.param(
            pa.array([date(2024, 2, 29)]), "TIMESTAMP(3)", [datetime(2024, 2, 29)], id="a day is its midnight"
        ),
        pytest.param(
            pa.array(["12:30", "23:59:59.999", None, "00:00:00.000000000"]),
            "TIME(3)",
            [time(12, 30), time(23, 59, 59, 999_000), None, time(0)],
            id="texts as times of day",
        ),
        pytest.param(pa.array(["12:30"], pa.string_view()), "TIME(3)", [time(12, 30)], id="views as times of day"),
        pytest.param(pa.array([datetime(2024, 2, 29)]), "DATE", [date(2024, 2, 29)], id="midnight is a day"),
        pytest.param(
            pa.array([0], BERLIN),
            "TIMESTAMP(6) WITH LOCAL TIME ZONE",
            [datetime(1970, 1, 1, tzinfo=UTC)],
            id="an instant is one anywhere",
        ),
    ],
)
def test_other_arrow_types_of_the_same_values_are_accepted(given: pa.Array, wanted: str, stored: list[Any]) -> None:
    found = converted(given, parse_type(wanted)).to_pylist()
    assert [(type(value), str(value)) for value in found] == [(type(value), str(value)) for value in stored]
    assert found == stored
    nested = ArrayType(parse_type(wanted))
    assert converted(lists(given, len(given)), nested).to_pylist() == [stored]


def test_nan_is_kept() -> None:
    assert math.isnan(converted(pa.array([math.nan]), parse_type("FLOAT"))[0].as_py())


@pytest.mark.parametrize("wanted", ["STRING", "ARRAY<ROW<a INT NOT NULL, b DECIMAL(5, 2)>>", "MAP<STRING, TIME(3)>"])
def test_a_column_of_the_right_type_is_not_copied(wanted: str) -> None:
    data_type = parse_type(wanted)
    column = random_column(Random(1), data_type, 20)
    assert converted(column, data_type) is column


# ---------------------------------------------------------------- a property

ATOMS: Final[Mapping[str, Sequence[Any]]] = {
    "TINYINT": [-128, 0, 127],
    "INT": [-(2**31), 0, 2**31 - 1],
    "BIGINT": [-(2**63), 5, 2**53 + 1],
    "FLOAT": [0.5, -1.25, math.inf],
    "DOUBLE": [0.1, -0.0, 1e300],
    "DECIMAL(5, 2)": [Decimal("999.99"), Decimal("-0.10")],
    "DECIMAL(38, 10)": [Decimal("1234567890.0123456789")],
    "BOOLEAN": [True, False],
    "STRING": ["", "ü", "12"],
    "BYTES": [b"", b"\xff"],
    "DATE": [date(1969, 12, 31), date(2024, 2, 29)],
    "TIME(3)": [time(0), time(23, 59, 59, 999_000)],
    "TIMESTAMP(3)": [datetime(1969, 12, 31, 23, 59, 59, 999_000), datetime(2024, 2, 29)],
    "TIMESTAMP(6)": [datetime(1970, 1, 1, 0, 0, 0, 1)],
    "TIMESTAMP(6) WITH LOCAL TIME ZONE": [datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC)],
}


def random_type(dice: Random, depth: int) -> DataType:
    if depth == 0 or dice.random() < 0.4:
        found = parse_type(dice.choice(list(ATOMS)))
    else:
        match dice.choice(["array", "row", "map"]):
            case "array":
                found = ArrayType(random_type(dice, depth - 1))
            case "map":
                key = not_null(parse_type(dice.choice(["STRING", "INT"])))
                found = MapType(key, random_type(dice, depth - 1))
            case _:
                names = dice.sample(["a", "b", "c", "A"], k=dice.randint(1, 3))
                found = RowType(tuple(DataField(0, name, random_type(dice, depth - 1)) for name in names))
    return found if dice.random() < 0.8 else not_null(found)


def random_value(dice: Random, data_type: DataType) -> Any:
    if data_type.nullable and dice.random() < 0.2:
        return None
    match data_type:
        case ArrayType():
            return [random_value(dice, data_type.element) for _ in range(dice.randint(0, 3))]
        case MapType():
            keys = dice.sample(["a", "b", "c"] if "STRING" in str(data_type.key) else [1, 2, 3], k=dice.randint(0, 2))
            return [(key, random_value(dice, data_type.value)) for key in keys]
        case RowType():
            return {f.name: random_value(dice, f.type) for f in data_type.fields}
    spelled = str(data_type).removesuffix(" NOT NULL")
    return dice.choice(ATOMS[spelled])


def random_column(dice: Random, data_type: DataType, count: int) -> pa.Array:
    return pa.array([random_value(dice, data_type) for _ in range(count)], arrow_type(data_type))


def other_type(dice: Random, data_type: DataType) -> DataType:
    """Like it, but for something here and there: as callers' batches are."""
    if dice.random() < 0.15:
        return random_type(dice, 1)
    match data_type:
        case ArrayType():
            return ArrayType(other_type(dice, data_type.element))
        case MapType():
            return MapType(data_type.key, other_type(dice, data_type.value))
        case RowType():
            fields = [DataField(0, f.name, other_type(dice, f.type)) for f in data_type.fields]
            dice.shuffle(fields)
            if dice.random() < 0.1:
                fields.append(DataField(0, "z", parse_type("INT")))
            if dice.random() < 0.1 and len(fields) > 1:
                fields.pop()
            return RowType(tuple(fields))
    return parse_type(dice.choice(list(ATOMS))) if dice.random() < 0.2 else data_type


def same(one: Any, other: Any) -> bool:
    """By meaning: what was written, and what is read; a field that was not given is null."""
    match one, other:
        case list(), list():
            return len(one) == len(other) and all(map(same, one, other))
        case tuple(), tuple():
            return all(map(same, one, other))
        case dict(), dict():
            return all(same(one.get(name), value) for name, value in other.items()) and one.keys() <= other.keys()
        case (str(), _) | (_, str()):
            return _same_as_text(one, other)
        case bytes(), bytes():
            return one == other
        case datetime(), date() if not isinstance(other, datetime):
            return one == datetime.combine(other, time(0))
        case date(), datetime() if not isinstance(one, datetime):
            return datetime.combine(one, time(0)) == other
        case (float(), Decimal()) | (Decimal(), float()):
            return float(one) == float(other) or np.float32(one) == np.float32(other)
    return bool(one == other)


def _same_as_text(one: Any, other: Any) -> bool:
    """A text that was read as something else, or the other way round: what Arrow makes of it."""
    if isinstance(one, str) and isinstance(other, str):
        return one == other
    if isinstance(one, bytes) or isinstance(other, bytes):
        return (one if isinstance(one, bytes) else one.encode()) == (
            other if isinstance(other, bytes) else other.encode()
        )
    return one is not None and other is not None


@settings(max_examples=examples(300), deadline=None)
@given(st.integers(0, 2**32))
def test_a_batch_of_any_nesting_is_accepted_unchanged_or_refused(seed: int) -> None:
    dice = Random(seed)
    wanted = random_type(dice, 3)
    given_type = other_type(dice, wanted)
    column = random_column(dice, given_type, dice.randint(0, 6))
    column = column.slice(dice.randint(0, len(column)))
    try:
        found = converted(column, wanted)
    except BadInput:
        return
    found.validate(full=True)
    assert all(map(same, column.to_pylist(), found.to_pylist())), (wanted, given_type)


@settings(max_examples=examples(15), deadline=None)
@given(st.integers(0, 2**32))
def test_values_are_refused_or_read_back(seed: int) -> None:
    dice = Random(seed)
    wanted = [random_type(dice, 3) for _ in range(3)]
    fields = [DataField(0, "id", not_null(parse_type("INT")))]
    fields += [DataField(0, f"c{number}", data_type) for number, data_type in enumerate(wanted)]
    catalog = tidelake.open_catalog(f"memory://{uuid4().hex}/lake")
    catalog.create_database("db")
    file_format = dice.choice(["parquet", "orc", "avro"])
    table = catalog.create_table("db.t", fields, primary_key=["id"], options={"file.format": file_format})
    expected: list[dict[str, Any]] = []
    with table.writer() as writer:
        for number in range(4):
            count = dice.randint(1, 4)
            columns = {f.name: random_column(dice, other_type(dice, f.type), count) for f in fields[1:]}
            columns["id"] = pa.array(range(number * 10, number * 10 + count))
            try:
                writer.write(pa.table(columns))
            except BadInput:
                continue
            expected += pa.table(columns).to_pylist()
        writer.commit()
    rows = sorted(table.scan().to_arrow().to_pylist(), key=lambda row: int(row["id"]))
    assert len(rows) == len(expected)
    assert all(map(same, expected, rows)), wanted


def test_a_nested_null_is_refused_and_the_writer_continues() -> None:
    catalog = tidelake.open_catalog(f"memory://{uuid4().hex}/lake")
    catalog.create_database("db")
    fields = [DataField(0, "id", not_null(parse_type("INT"))), DataField(0, "tags", NESTED)]
    table = catalog.create_table("db.t", fields, primary_key=["id"])
    kinds = pa.schema([("id", pa.int32()), ("tags", PLAIN_NESTED)])
    with table.writer() as writer:
        writer.write(pa.Table.from_pylist([{"id": 1, "tags": [{"name": "a"}]}], kinds))
        with pytest.raises(BadInput, match=r"db\.t: column 'tags\[1\]\.name' is NOT NULL, but null in row 0"):
            writer.write(pa.Table.from_pylist([{"id": 2, "tags": [{"name": "a"}, {"name": None}]}], kinds))
        writer.commit(1)
    assert table.scan().to_arrow().to_pylist() == [{"id": 1, "tags": [{"name": "a"}]}]
