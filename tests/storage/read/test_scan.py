"""A filtered scan equals filtering all rows, and skips files."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from random import Random
from typing import Any, Final, TypeAlias
from uuid import uuid4

import pyarrow as pa
import pytest

import tidelake
from tests.interop.columns import SCALARS, Column
from tests.support.faulty_file_io import FaultyFileIO
from tidelake.storage.catalog.filesystem import FileSystemCatalog
from tidelake.storage.fileio.memory import MemoryFileIO
from tidelake.storage.read.predicate import Predicate, col
from tidelake.table import Table

NAME: Final = "db.t"
Value: TypeAlias = Any  # of a column, as pa.array takes it
Row: TypeAlias = Mapping[str, Value]
Truth: TypeAlias = bool | None  # None: unknown, as in SQL
Condition: TypeAlias = tuple[Predicate, Callable[[Row], Truth]]  # ours, and the same in Python

SCHEMA: Final = {"n": pa.int32(), "k": pa.int32()}  # n: another in every row


# ---------------------------------------------------------------- conditions, ours and in Python

_COMPARE: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def compared(column: Column, sign: str, value: Value) -> Condition:
    compare = _COMPARE[sign]
    ours: Predicate = compare(col(column.name), pa.scalar(value, column.arrow))
    return ours, lambda row: None if row[column.name] is None else bool(compare(row[column.name], value))


def simple_conditions(column: Column, random: Random) -> list[Condition]:
    """One of each operator, and each value. Times are numbers here: they compare as their columns do."""
    name, x = column.name, col(column.name)
    values = column.values
    found = [compared(column, sign, random.choice(values)) for sign in _COMPARE]
    found += [compared(column, "==", value) for value in values]
    some = random.choices(values, k=random.randint(0, 3))

    has_null = random.random() < 0.3

    def is_in(row: Row) -> Truth:
        found = None if row[name] is None else any(row[name] == value for value in some)
        return None if has_null and not found else found

    given = pa.array([*some, *([None] if has_null else [])], column.arrow)
    scalars = [value if value.is_valid else random.choice([value, None]) for value in given]
    found += [
        (x.is_in(scalars), is_in),
        (x.is_in(given), is_in),
        (x.is_null(), lambda row: row[name] is None),
        (x.is_not_null(), lambda row: row[name] is not None),
    ]
    if pa.types.is_string(column.arrow):
        prefix = random.choice(values)[: random.randint(0, 3)]
        found.append((x.starts_with(prefix), lambda row: None if row[name] is None else row[name].startswith(prefix)))
    return found


def combined(conditions: Sequence[Condition], random: Random) -> list[Condition]:
    """Each one turned around, and pairs of them."""

    def both(one: Condition, other: Condition) -> Condition:
        return one[0] & other[0], lambda row: _and(one[1](row), other[1](row))  # type: ignore[operator]

    def either(one: Condition, other: Condition) -> Condition:
        return one[0] | other[0], lambda row: _not(_and(_not(one[1](row)), _not(other[1](row))))  # type: ignore[operator]

    def no(one: Condition) -> Condition:
        return ~one[0], lambda row: _not(one[1](row))  # type: ignore[operator]

    pairs = [random.choices(conditions, k=2) for _ in range(6)]
    return [
        *map(no, conditions),
        *(both(*pair) for pair in pairs),
        *(either(*pair) for pair in pairs),
        *(no(both(*pair)) for pair in pairs),
        *(no(either(*pair)) for pair in pairs),
    ]


def _and(one: Truth, other: Truth) -> Truth:
    if one is False or other is False:
        return False
    return None if one is None or other is None else True


def _not(one: Truth) -> Truth:
    return None if one is None else not one


# ---------------------------------------------------------------- tables


@dataclass(frozen=True)
class Shape:
    """The place of the tested column."""

    id: str
    primary_key: Sequence[str] = ()
    partition_by: Sequence[str] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    nullable: bool = True


SHAPES: Final = (
    Shape("value of upserts", ["k"], options={"bucket": "1"}),
    Shape("value of upserts, orc", ["k"], options={"bucket": "2", "file.format": "orc"}),
    Shape(
        "value of upserts, avro, whole statistics",
        ["k"],
        options={"bucket": "1", "file.format": "avro", "metadata.stats-mode": "full"},
    ),
    Shape("key", ["x"], options={"bucket": "3"}, nullable=False),
    Shape("second in the key, avro", ["k", "x"], options={"bucket": "1", "file.format": "avro"}, nullable=False),
    Shape("first in the key, orc", ["x", "k"], options={"bucket": "1", "file.format": "orc"}, nullable=False),
    Shape("partition of upserts", ["x", "k"], ["x"], options={"bucket": "1"}, nullable=False),
    Shape("value of an append table", options={"bucket": "-1"}),
    Shape("value of an append table, avro", options={"bucket": "-1", "file.format": "avro"}),
    Shape("bucket key of an append table, orc", options={"bucket": "4", "bucket-key": "x", "file.format": "orc"}),
    Shape("partition of an append table", partition_by=["x"], options={"bucket": "-1"}),
)
_NOT_IN_AVRO: Final = pa.timestamp("ns"), pa.timestamp("ns", tz="UTC")


@dataclass
class Filled:
    """A table of several commits, and the rows it must hold."""

    table: Table
    rows: list[Row]


def filled(column: Column, shape: Shape, random: Random) -> Filled:
    """Each commit has few of the column's values, so that files differ; keys come again, and go."""
    catalog = tidelake.open_catalog(f"memory://{uuid4().hex}/lake")
    catalog.create_database("db")
    schema = pa.schema([*SCHEMA.items(), pa.field("x", column.arrow)])
    table = catalog.create_table(
        NAME, schema, primary_key=shape.primary_key, partition_by=shape.partition_by, options=shape.options
    )
    values = column.values_for(shape.options.get("file.format", "parquet"))
    rows: dict[Any, Row] = {}
    number = 0
    with table.writer() as writer:
        for _ in range(5):
            few = [*random.choices(values, k=2), *([None] if shape.nullable else [])]
            written = []
            for _ in range(random.choice([1, 4, 8])):
                number += 1
                row = {"n": number, "k": random.randrange(10), "x": random.choice(few)}
                kind = random.choice([0, 2, 3]) if shape.primary_key else 0
                written.append({**row, "_VALUE_KIND": kind})
                key = repr([row[name] for name in shape.primary_key] or number)
                rows.pop(key, None)
                if kind != 3:
                    rows[key] = row
            kinds = pa.field("_VALUE_KIND", pa.int8())
            writer.write(pa.Table.from_pylist(written, pa.schema([*schema, kinds])))
            writer.commit()
    return Filled(table, list(rows.values()))


def goes_together(column: Column, shape: Shape) -> bool:
    is_folder = bool(shape.partition_by)
    is_avro = shape.options.get("file.format") == "avro"
    return not (is_folder and pa.types.is_binary(column.arrow)) and not (is_avro and column.arrow in _NOT_IN_AVRO)


def cases() -> list[Any]:
    """Every column in every shape: the long run has them all, others a part."""
    return [
        pytest.param(
            column,
            shape,
            id=f"{column.name}, {shape.id}",
            marks=[] if (i + j) % 5 == 0 or column.name == "double" else [pytest.mark.long],
        )
        for i, column in enumerate(SCALARS)
        for j, shape in enumerate(SHAPES)
        if goes_together(column, shape)
    ]


@pytest.mark.exhaustive(kept=len(SHAPES))
@pytest.mark.parametrize(("column", "shape"), cases())
def test_a_filtered_scan_equals_filtering_all_rows(column: Column, shape: Shape) -> None:
    random = Random(f"{column.name} {shape.id}")
    made = filled(column, shape, random)
    x = Column("x", column.sql, column.arrow, column.values)
    k = Column("k", "INT", pa.int32(), tuple(range(-1, 11)))
    simple = [*simple_conditions(x, random), *simple_conditions(k, random)]
    for ours, pythons in [*simple, *random.sample(combined(simple, random), k=15)]:
        found = sorted(made.table.scan(columns=["n"], filter=ours).to_arrow().column("n").to_pylist())
        assert found == sorted(row["n"] for row in made.rows if pythons(row)), ours


# ---------------------------------------------------------------- statistics of older schemas


@dataclass(frozen=True)
class Change:
    id: str
    before: pa.DataType
    values: Sequence[Value]
    changes: Sequence[Any]
    literals: Sequence[Value]  # to compare the changed column with


CHANGES: Final = (
    Change(
        "renamed away", pa.int32(), [1, 9], [tidelake.RenameColumn("x", "y"), tidelake.AddColumn("x", "INT")], [1, 5]
    ),
    Change(
        "dropped and added again",
        pa.int32(),
        [1, 9],
        [tidelake.DropColumn("x"), tidelake.AddColumn("x", "INT")],
        [1, 5],
    ),
    Change("widened", pa.int32(), [-5, 2**31 - 1], [tidelake.UpdateColumnType("x", "BIGINT")], [0, 2**31 - 1, 2**40]),
    Change(
        "made exact",
        pa.int64(),
        [1, 9],
        [tidelake.UpdateColumnType("x", "DECIMAL(20, 2)")],
        [Decimal("1.00"), Decimal("9.01")],
    ),
    Change(
        "narrowed, and so wrapped",
        pa.int32(),
        [1, 127, 128, 300],
        [tidelake.UpdateColumnType("x", "TINYINT")],
        [-128, 1, 44],
    ),
    Change(
        "numbers become text", pa.int32(), [9, 10, 100], [tidelake.UpdateColumnType("x", "STRING")], ["10", "5", "9"]
    ),
    Change(
        "text becomes numbers", pa.string(), ["9", "10", "100"], [tidelake.UpdateColumnType("x", "INT")], [9, 50, 100]
    ),
    Change(
        "days become times",
        pa.date32(),
        [0, 19_000],
        [tidelake.UpdateColumnType("x", "TIMESTAMP(3)")],
        [datetime(1970, 1, 1), datetime(2022, 1, 8)],
    ),
    Change(
        "times become days",
        pa.timestamp("ms"),
        [-1, 86_399_999, 86_400_000],
        [tidelake.UpdateColumnType("x", "DATE")],
        [date(1969, 12, 31), date(1970, 1, 1), date(1970, 1, 2)],
    ),
)


@pytest.mark.exhaustive(kept=6)
@pytest.mark.parametrize("primary_key", [(), ("k",)], ids=["append", "upserts"])
@pytest.mark.parametrize("case", CHANGES, ids=lambda case: case.id)
def test_statistics_of_an_older_schema_hide_no_row(case: Change, primary_key: Sequence[str]) -> None:
    catalog = tidelake.open_catalog(f"memory://{uuid4().hex}/lake")
    catalog.create_database("db")
    options = {"bucket": "1" if primary_key else "-1"}
    schema = pa.schema([("k", pa.int32()), ("x", case.before)])
    table = catalog.create_table(NAME, schema, primary_key=primary_key, options=options)
    with table.writer() as writer:
        for first_key, values in enumerate([case.values, case.values[:1], [None]]):  # a file each
            keys = range(10 * first_key, 10 * first_key + len(values))
            writer.write(pa.table({"k": pa.array(keys, pa.int32()), "x": pa.array(values, case.before)}))
            writer.commit()
    table = catalog.alter_table(NAME, case.changes)
    kind = table.schema.field("x").type
    with table.writer() as writer:
        writer.write(pa.table({"k": pa.array([77], pa.int32()), "x": pa.array(case.literals[:1], kind)}))
        writer.commit()
    everything = table.scan().to_arrow()
    conditions = [compare(col("x"), literal) for compare in _COMPARE.values() for literal in case.literals]
    for condition in [*conditions, col("x").is_null(), col("x").is_not_null(), col("x").is_in(case.literals[:1])]:
        expected = everything.filter(condition.expression(table.schema))
        assert seen(table.scan(filter=condition).to_arrow()) == seen(expected), condition


def seen(rows: pa.Table) -> list[str]:
    return sorted(map(repr, rows.to_pylist()))


# ---------------------------------------------------------------- which files are opened


@dataclass(frozen=True)
class Pruning:
    """opened: how many of the table's data files a scan with this filter opens. Each commit below made a file."""

    id: str
    rows_of_commits: Sequence[Sequence[Mapping[str, Value]]]
    filter: Predicate | None
    opened: int
    primary_key: Sequence[str] = ()
    partition_by: Sequence[str] = ()
    options: Mapping[str, str] = field(default_factory=dict)


def in_commits(*columns: Iterable[Value], name: str = "k") -> list[list[Mapping[str, Value]]]:
    return [[{name: value} for value in values] for values in columns]


APART: Final = in_commits(range(10), range(10, 20), range(20, 30))
OVERLAPPING: Final = in_commits(range(30), range(10, 40))
VALUES_APART: Final = [[{"k": k, "x": 100 * n + k} for k in range(10 * n, 10 * n + 10)] for n in range(3)]
VALUES_OVER_EACH_OTHER: Final = [[{"k": k, "x": 100 * n + k} for k in range(10)] for n in range(3)]
PARTS: Final = in_commits(["a"], ["b"], [None], ["a", "b"], name="p")

PRUNINGS: Final = (
    Pruning("no filter opens all", APART, None, 3),
    Pruning("one value of an append table", APART, col("k") == 15, 1),
    Pruning("a range over two files", APART, (col("k") > 15) & (col("k") <= 20), 2),
    Pruning("either end", APART, (col("k") < 5) | (col("k") >= 25), 2),
    Pruning("some values", APART, col("k").is_in([3, 5]), 1),
    Pruning("a value that no file has", APART, col("k") == 30, 0),
    Pruning("no nulls anywhere", APART, col("k").is_null(), 0),
    Pruning("a file of nulls", [*APART, [{"x": 1}]], col("k") >= 0, 3),
    Pruning("unequal opens all", APART, col("k") != 15, 3),
    Pruning("a condition turned around opens all", APART, ~(col("k") < 20), 3),
    Pruning("nothing is known without statistics", APART, col("k") == 15, 3, options={"metadata.stats-mode": "none"}),
    Pruning("one key", APART, col("k") == 15, 1, ["k"]),
    Pruning("a range of keys", APART, col("k") >= 10, 2, ["k"]),
    Pruning("a key in overlapping files", OVERLAPPING, col("k") == 15, 2, ["k"]),
    Pruning("a key that only one of them may hold", OVERLAPPING, col("k") == 35, 1, ["k"]),
    Pruning("one value of keys that lie in one file each", VALUES_APART, col("x") == 205, 0, ["k"]),
    Pruning("a range of values of keys that lie in one file each", VALUES_APART, col("x") >= 200, 1, ["k"]),
    Pruning("a value never hides newer versions of its keys", VALUES_OVER_EACH_OTHER, col("x") < 100, 3, ["k"]),
    Pruning("one partition", PARTS, col("p") == "a", 2, partition_by=["p"]),
    Pruning("the null partition", PARTS, col("p").is_null(), 1, partition_by=["p"]),
    Pruning("every partition but one", PARTS, col("p") != "a", 2, partition_by=["p"]),
    Pruning("a partition turned around", PARTS, ~(col("p") == "a"), 2, partition_by=["p"]),
    Pruning("a partition by its beginning", PARTS, col("p").starts_with("b"), 2, partition_by=["p"]),
    Pruning("one bucket of four for one key", in_commits(range(40)), col("k") == 7, 1, ["k"], options={"bucket": "4"}),
    Pruning(
        "all buckets for two keys", in_commits(range(40)), col("k").is_in([7, 8]), 4, ["k"], options={"bucket": "4"}
    ),
)


@pytest.mark.parametrize("case", PRUNINGS, ids=lambda case: case.id)
def test_files_without_a_wanted_row_are_not_opened(case: Pruning) -> None:
    io = FaultyFileIO(MemoryFileIO())
    catalog = FileSystemCatalog(io, f"memory://{uuid4().hex}/lake")
    catalog.create_database("db")
    schema = pa.schema([("k", pa.int32()), ("x", pa.int64()), ("p", pa.string())])
    options = {"bucket": "1" if case.primary_key else "-1", **case.options}
    catalog.create_table(
        NAME, schema, primary_key=tuple(case.primary_key), partition_by=tuple(case.partition_by), options=options
    )
    table = Table(catalog.load(NAME))
    with table.writer() as writer:
        for rows in case.rows_of_commits:
            writer.write(pa.Table.from_pylist(list(rows), schema))
            writer.commit()
    io.calls.clear()
    table.scan(filter=case.filter).to_arrow()
    opened = [call.file_name for call in io.calls if call.name == "open_input" and call.file_name.startswith("data-")]
    assert len(opened) == len(set(opened)) == case.opened


def test_zero_is_searched_in_the_buckets_of_both_zeros() -> None:
    catalog = tidelake.open_catalog(f"memory://{uuid4().hex}/lake")
    catalog.create_database("db")
    schema = pa.schema([("x", pa.float64())])
    table = catalog.create_table(NAME, schema, primary_key=["x"], options={"bucket": "8"})
    with table.writer() as writer:
        writer.write(pa.table({"x": [0.0, -0.0, 1.0]}))
        writer.commit()
    split_of = {repr(x): s.bucket for s in table.scan().splits() for x in table.scan().to_arrow([s])["x"].to_pylist()}
    assert split_of["0.0"] != split_of["-0.0"]
    for zero in (0.0, -0.0):
        assert seen(table.scan(filter=col("x") == zero).to_arrow()) == ["{'x': -0.0}", "{'x': 0.0}"]
