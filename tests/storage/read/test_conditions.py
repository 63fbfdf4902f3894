"""Valid conditions on rows, including long ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import reduce
from operator import and_, or_
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import tidelake
from tidelake import BadInput, Table, col
from tidelake.storage.read.arrow_expressions import CALLS_MAX
from tidelake.storage.read.predicate import DEPTH_MAX

SCHEMA: Final = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("amount", pa.int64()),
        ("FieldPath(0)", pa.string()),
        ("place", pa.struct([("x", pa.int32()), ("y", pa.int32())])),
    ]
)
ROWS: Final = [
    {"id": 1, "amount": 30, "FieldPath(0)": "a", "place": {"x": 1, "y": 9}},
    {"id": 2, "amount": 20, "FieldPath(0)": "FieldPath(0)", "place": {"x": 2, "y": 8}},
    {"id": 3, "amount": 10, "FieldPath(0)": None, "place": None},
]


@pytest.fixture
def table() -> Table:
    catalog = tidelake.open_catalog(f"memory://{uuid4().hex}/lake")
    catalog.create_database("db")
    table = catalog.create_table("db.t", SCHEMA, primary_key=["id"])
    with table.writer() as writer:
        writer.write(pa.Table.from_pylist(ROWS, SCHEMA))
        writer.commit()
    return table


def ids(table: Table, condition: Any, columns: Sequence[str] = ("id",)) -> list[int]:
    return sorted(table.scan(columns=columns, filter=condition).to_arrow().column("id").to_pylist())


# ---------------------------------------------------------------- columns by position


@pytest.mark.parametrize("columns", [["amount"], ["amount", "id"], ["id"], None])
@pytest.mark.parametrize(
    "positional",
    [
        pytest.param(pc.field(0) > 15, id="a position"),
        pytest.param(pc.field((3, 0)) > 0, id="positions of a part"),
        pytest.param(pc.field(("place", 0)) > 0, id="a name, then a position"),
        pytest.param((pc.field("id") > 0) & ~pc.field(1).is_null(), id="beside a name"),
        pytest.param(pc.if_else(pc.field("id") > 0, pc.field(1) > 0, pc.field("amount") > 0), id="inside a call"),
    ],
)
def test_a_pyarrow_filter_that_names_columns_by_position_is_refused(
    positional: pc.Expression, columns: Sequence[str] | None, table: Table
) -> None:
    with pytest.raises(BadInput, match=r"FieldPath.*by its position.*pyarrow\.compute\.field\('name'\)"):
        table.scan(columns=columns, filter=positional)


def test_compaction_refuses_positional_columns_too(table: Table) -> None:
    with pytest.raises(BadInput, match="by its position"):
        table.compact(where=pc.field(0) > 15)


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        pytest.param(pc.field("FieldPath(0)") == "a", [1], id="a column that is called like a position"),
        pytest.param(pc.field("FieldPath(0)") == "FieldPath(0)", [2], id="a text like a position"),
        pytest.param(pc.field("FieldPath(0)").isin(["FieldPath(0)"]), [2], id="one of several texts"),
        pytest.param(pc.field("place", "y") == 8, [2], id="a part by its name"),
        pytest.param(pc.struct_field(pc.field("place"), [1]) == 8, [2], id="a part by its place in its own column"),
        pytest.param(pc.field("amount") < 25, [2, 3], id="a column that is not read otherwise"),
    ],
)
def test_condition_names_refer_to_table_columns_independent_of_the_projection(
    named: pc.Expression, expected: list[int], table: Table
) -> None:
    assert ids(table, named) == expected
    assert ids(table, named, ["place", "id"]) == expected


# ---------------------------------------------------------------- long and deep


@pytest.mark.exhaustive
@pytest.mark.parametrize("count", [3_000])
@pytest.mark.parametrize("join", [or_, and_])
def test_thousands_of_conditions_may_be_joined(join: Callable[[Any, Any], Any], count: int, table: Table) -> None:
    many = reduce(join, [col("id") == 2, *(col("id") == 2 + (join is or_) * (9 + i) for i in range(count))])
    assert ids(table, many) == [2]
    assert ids(table, ~many) == [1, 3]


def test_double_negation_cancels_out(table: Table) -> None:
    condition: Any = col("id") == 2
    for _ in range(3_000):
        condition = ~condition
    assert ids(table, condition) == [2]


def test_conditions_nested_too_deeply_are_refused(table: Table) -> None:
    def nested(depth: int) -> Any:
        condition: Any = col("id") == 2
        for number in range(depth - 1):
            condition = (condition | (col("id") == 9)) if number % 2 else (condition & (col("id") > 0))
        return condition

    assert ids(table, nested(DEPTH_MAX)) == [2]
    for depth in (DEPTH_MAX + 1, 3_000):
        with pytest.raises(BadInput, match=f"more than {DEPTH_MAX} deep"):
            table.scan(filter=nested(depth))


def test_a_pyarrow_filter_that_would_overflow_the_stack_is_refused(table: Table) -> None:
    def chain(count: int) -> pc.Expression:
        return reduce(or_, [pc.field("id") == number for number in range(count)])

    assert ids(table, chain(CALLS_MAX // 4)) == [1, 2, 3]
    with pytest.raises(BadInput, match=r"39,999 calls.*isin"):
        table.scan(filter=chain(2 * CALLS_MAX))


# ---------------------------------------------------------------- what is no condition


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(lambda: pc.field("id") + 1, id="a number"),
        pytest.param(lambda: pc.field("FieldPath(0)"), id="a text"),
        pytest.param(lambda: pc.scalar(None), id="null"),
        pytest.param(lambda: pc.field("id") > "a", id="an order of different types"),
        pytest.param(lambda: pc.field("nothing") > 1, id="an unknown column"),
        pytest.param(lambda: pc.field("place") == 1, id="a ROW and a number"),
        pytest.param(lambda: col("place") == {"x": 1, "y": 9}, id="a ROW and a ROW"),
        pytest.param(lambda: col("place").is_in([{"x": 1, "y": 9}]), id="a ROW among ROWs"),
        pytest.param(lambda: col("id") == object(), id="an object"),
        pytest.param(lambda: col("FieldPath(0)") == "\ud800", id="half a letter"),
        pytest.param(lambda: col("FieldPath(0)").starts_with(5), id="a prefix that is a number"),  # type: ignore[arg-type]
        pytest.param(lambda: col("FieldPath(0)").starts_with("\ud800"), id="a prefix of half a letter"),
        pytest.param(lambda: col("id").is_in(5), id="one of a number"),  # type: ignore[arg-type]
        pytest.param(lambda: col(5) == 1, id="a column that is a number"),  # type: ignore[arg-type]
        pytest.param(lambda: "id >", id="half a text of SQL"),
        pytest.param(lambda: True, id="a truth value"),
    ],
)
def test_expressions_that_are_no_condition_are_refused(given: Callable[[], Any], table: Table) -> None:
    with pytest.raises(BadInput):
        table.scan(filter=given())


def test_an_expression_that_fails_on_a_value_raises(table: Table) -> None:
    scan = table.scan(filter=pc.field("FieldPath(0)").cast("int64") > 1)
    with pytest.raises(BadInput, match="the filter can't be applied to these rows: Failed to parse string"):
        scan.to_arrow()


def test_comparing_numbers_of_any_size_is_fast(table: Table) -> None:
    for huge in (Decimal("1e999999999"), 10**5_000, float("inf")):
        assert ids(table, col("id") < huge) == [1, 2, 3]
        assert ids(table, col("id") > huge) == []
    assert ids(table, col("id") > Decimal("1e-999999999")) == [1, 2, 3]
    assert ids(table, col("id") > Decimal("-1e999999999")) == [1, 2, 3]
    assert ids(table, col("id") > Decimal("0e999999999")) == [1, 2, 3]


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_times_from_a_read_find_their_rows_to_the_nanosecond(zone: str | None) -> None:
    catalog = tidelake.open_catalog(f"memory://{uuid4().hex}/lake")
    catalog.create_database("db")
    times = pa.array([-1, 0, 1_704_067_200_000_000_001, -8_520_335_999_876_543_211], pa.timestamp("ns", zone))
    rows = pa.table({"id": pa.array(range(4), pa.int64()), "at": times})
    table = catalog.create_table("db.t", rows.schema)
    with table.writer() as writer:
        writer.write(rows)
        writer.commit()
    for row in table.scan().to_arrow().to_pylist():
        assert ids(table, col("at") == row["at"]) == ids(table, col("at").is_in([row["at"]])) == [row["id"]]
        assert ids(table, col("at") < row["at"]) == [i for i, at in enumerate(times) if at.value < row["at"].value]


# ---------------------------------------------------------------- truth values and numbers

FLAGS: Final = pa.table({"ok": pa.array([True, False, None])})


def flags_kept(condition: Any) -> list[bool | None]:
    kept: list[bool | None] = FLAGS.filter(condition.expression(FLAGS.schema)).column("ok").to_pylist()
    return kept


@pytest.mark.parametrize(
    ("condition", "kept"),
    [
        pytest.param(col("ok") == 1, [True], id="one"),
        pytest.param(col("ok") == 0, [False], id="zero"),
        pytest.param(col("ok") != 1.0, [False], id="not 1.0"),
        pytest.param(col("ok") > 0, [True], id="more than zero"),
        pytest.param(col("ok").is_in([1, False]), [True, False], id="a list"),
        pytest.param(col("ok") == "true", [True], id="a text"),
    ],
)
def test_a_boolean_equals_the_numbers_that_are_written_into_it(condition: Any, kept: list[bool]) -> None:
    assert flags_kept(condition) == kept


@pytest.mark.parametrize("number", [5, -1, 2, 0.5, float("nan"), Decimal("1.5"), 2**70], ids=str)
@pytest.mark.parametrize(
    "condition",
    [
        pytest.param(lambda number: col("ok") == number, id="equal"),
        pytest.param(lambda number: col("ok") != number, id="not equal"),
        pytest.param(lambda number: col("ok").is_in([number, True]), id="a list"),
    ],
)
def test_any_other_number_is_refused_for_a_boolean(condition: Callable[[Any], Any], number: Any) -> None:
    with pytest.raises(BadInput, match="'ok'"):
        flags_kept(condition(number))


@pytest.mark.parametrize(
    "condition",
    [
        pytest.param("ok = 5", id="SQL"),
        pytest.param("ok in (5)", id="a list in SQL"),
        pytest.param(pc.field("ok").isin([5]), id="a list in Arrow"),
        pytest.param(pc.field("ok") == 5, id="Arrow"),
    ],
)
def test_a_delete_by_a_number_that_no_boolean_equals_deletes_nothing(condition: Any) -> None:
    """Arrow casts every number but 0 to true: such a delete would remove the rows with true."""
    catalog = tidelake.open_catalog(f"memory://{uuid4().hex}/lake")
    catalog.create_database("db")
    table = catalog.create_table("db.flags", FLAGS.schema)
    table.append(FLAGS)
    with pytest.raises(BadInput):
        table.delete(condition)
    assert table.scan().to_arrow().num_rows == 3
