"""Every aggregate function gives the same bytes as Java's. Each side continues and compacts tables of the other."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.interop.columns import Column
from tests.interop.conftest import NewTable
from tests.interop.shared_table import KIND, NAME, SharedTable, changes, values
from tests.support.expected import Json, difference
from tests.support.java_oracle import JavaOracle
from tidelake.errors import BadInput

Make = Callable[[random.Random], Any]

ROW: Final[Json] = {
    "type": "ROW",
    "fields": [{"name": "id", "type": "INT"}, {"name": "v", "type": "STRING"}, {"name": "s", "type": "INT"}],
}
ROWS: Final[Json] = {"type": "ARRAY", "element": ROW}
TIMED: Final[Json] = {
    "type": "MAP",
    "key": "STRING NOT NULL",
    "value": {"type": "ROW", "fields": [{"name": "v", "type": "INT"}, {"name": "ts", "type": "STRING"}]},
}
ROW_ARROW: Final = pa.struct([("id", pa.int32()), ("v", pa.string()), ("s", pa.int32())])
TIMED_ARROW: Final = pa.map_(pa.string(), pa.struct([("v", pa.int32()), ("ts", pa.string())]))


@dataclass(frozen=True)
class Folded:
    """A column under a function. options: without `fields.<column>.`. can_retract: -U and -D may reach it."""

    name: str
    function: str
    sql: Json
    arrow: pa.DataType
    make: Make
    options: tuple[tuple[str, str], ...] = ()
    can_retract: bool = False

    @property
    def settings(self) -> dict[str, str]:
        given = {"aggregate-function": self.function, **dict(self.options)}
        return {f"fields.{self.name}.{key}": value for key, value in given.items()}


def one_of(*choices: Any) -> Make:
    return lambda dice: dice.choice(choices)


def many(make: Make, most: int) -> Make:
    return lambda dice: [make(dice) for _ in range(dice.randrange(most + 1))]


def rows(dice: random.Random) -> list[dict[str, Any]]:
    return [
        {"id": dice.randrange(40), "v": dice.choice([None, "a", "é"]), "s": dice.choice([None, 1, 2, 3])}
        for _ in range(dice.randrange(6))
    ]


def timed(dice: random.Random) -> list[tuple[str, Any]]:
    keys = dice.sample("abcdef", dice.randrange(4))
    return [(k, dice.choice([None, {"v": dice.randrange(9), "ts": dice.choice([None, "1", "10", "9"])}])) for k in keys]


def pairs(dice: random.Random) -> list[tuple[int, Any]]:
    return [(k, dice.choice([None, "x", "y"])) for k in dice.sample(range(50), dice.randrange(4))]


small = one_of(-3, -2, 1, 2, 3)
texts = one_of("", "a", "b", "a,b", "\u3000", "\u00a0", "zoë", "a;b")
numbers = one_of(0.1, -0.0, 1e30, -1e30, float("nan"), float("inf"), 3.7)
long_decimal = one_of(Decimal("9" * 37), Decimal("-" + "9" * 38), Decimal(1), Decimal("8" * 38))
by_id: Final = (("nested-key", "id"),)
deci: Final = one_of(Decimal("999.99"), Decimal("0.05"), Decimal("-1.10"))

COLUMNS: Final = (
    Folded("sum_int", "sum", "INT", pa.int32(), small, can_retract=True),
    Folded("sum_float", "sum", "FLOAT", pa.float32(), numbers, can_retract=True),
    Folded("sum_double", "sum", "DOUBLE", pa.float64(), numbers, can_retract=True),
    Folded("sum_decimal", "sum", "DECIMAL(5, 2)", pa.decimal128(5, 2), deci, can_retract=True),
    Folded("sum_long", "sum", "DECIMAL(38, 0)", pa.decimal128(38, 0), long_decimal, can_retract=True),
    Folded("mul_int", "product", "BIGINT", pa.int64(), small, can_retract=True),
    Folded("mul_double", "product", "DOUBLE", pa.float64(), numbers, can_retract=True),
    Folded("mul_decimal", "product", "DECIMAL(9, 2)", pa.decimal128(9, 2), deci),
    Folded("max_text", "max", "STRING", pa.string(), texts),
    Folded("min_double", "min", "DOUBLE", pa.float64(), numbers),
    Folded("max_bytes", "max", "BYTES", pa.binary(), one_of(b"", b"\x00", b"\xff", b"a")),
    Folded("max_time", "max", "TIMESTAMP(6)", pa.timestamp("us"), one_of(-1, 0, 1_700_000_000_123_456)),
    Folded("and_", "bool_and", "BOOLEAN", pa.bool_(), one_of(True, True, False)),
    Folded("or_", "bool_or", "BOOLEAN", pa.bool_(), one_of(True, False, False)),
    Folded("last", "last_value", "STRING", pa.string(), texts, can_retract=True),
    Folded("last_known", "last_non_null_value", "STRING", pa.string(), texts, can_retract=True),
    Folded("first", "first_value", "STRING", pa.string(), texts),
    Folded("first_known", "first_not_null_value", "STRING", pa.string(), texts),
    Folded("list", "listagg", "STRING", pa.string(), texts),
    Folded("list_once", "listagg", "STRING", pa.string(), texts, (("distinct", "true"), ("list-agg-delimiter", ";"))),
    Folded("all_", "collect", {"type": "ARRAY", "element": "INT"}, pa.list_(pa.int32()), many(small, 3), (), True),
    *(
        Folded(
            f"once_{sql.split('(')[0].lower()}",
            "collect",
            {"type": "ARRAY", "element": sql},
            pa.list_(arrow),
            many(make, 4),
            (("distinct", "true"),),
            can_retract=True,
        )
        for sql, arrow, make in (
            ("BIGINT", pa.int64(), lambda dice: dice.randrange(-(2**40), 2**40)),
            ("STRING", pa.string(), lambda dice: "".join(dice.choices("abcé", k=dice.randrange(7)))),
            ("DOUBLE", pa.float64(), lambda dice: dice.choice([None, 0.0, -0.0, dice.random()])),
            ("DECIMAL(30, 3)", pa.decimal128(30, 3), lambda dice: Decimal(dice.randrange(-(10**20), 10**20)) / 1000),
            ("TIMESTAMP(6)", pa.timestamp("us"), lambda dice: dice.randrange(-(10**15), 10**15)),
        )
    ),
    Folded(
        "map_",
        "merge_map",
        {"type": "MAP", "key": "INT NOT NULL", "value": "STRING"},
        pa.map_(pa.int32(), pa.string()),
        pairs,
        (),
        True,
    ),
    Folded("timed", "merge_map_with_keytime", TIMED, TIMED_ARROW, timed),
    Folded("nested", "nested_update", ROWS, pa.list_(ROW_ARROW), rows, by_id, True),
    Folded("aged", "nested_update", ROWS, pa.list_(ROW_ARROW), rows, (*by_id, ("nested-sequence-field", "s"))),
    Folded("limited", "nested_update", ROWS, pa.list_(ROW_ARROW), rows, (*by_id, ("count-limit", "3")), True),
    Folded("appended", "nested_update", ROWS, pa.list_(ROW_ARROW), rows, (("count-limit", "5"),)),
    Folded("patched", "nested_partial_update", ROWS, pa.list_(ROW_ARROW), rows, by_id),
)
SCHEMA: Final = pa.schema(
    [("k", pa.int32()), ("ts", pa.int32()), *((c.name, c.arrow) for c in COLUMNS), (KIND, pa.int8())]
)
ADDS: Final = (0, 2)
ALL_KINDS: Final = (0, 0, 2, 1, 3)


@dataclass(frozen=True)
class Table:
    about: str
    columns: tuple[Folded, ...]
    kinds: tuple[int, ...] = ADDS
    more: tuple[tuple[str, str], ...] = ()

    @property
    def options(self) -> dict[str, str]:
        functions = {key: value for column in self.columns for key, value in column.settings.items()}
        return {"bucket": "1", "merge-engine": "aggregation", **functions, **dict(self.more)}

    @property
    def declared(self) -> list[Column]:
        of_functions = [Column(c.name, c.sql, c.arrow, ()) for c in self.columns]
        return [Column("k", "INT", pa.int32(), ()), Column("ts", "INT", pa.int32(), ()), *of_functions]

    def batch(self, dice: random.Random, count: int) -> pa.Table:
        made = []
        for _ in range(count):
            row = {c.name: None if dice.random() < 0.15 else c.make(dice) for c in self.columns}
            made.append(row | {"k": dice.randrange(10), "ts": dice.randrange(4), KIND: dice.choice(self.kinds)})
        names = ["k", "ts", *(c.name for c in self.columns), KIND]
        return pa.Table.from_pylist(made, pa.schema([SCHEMA.field(name) for name in names]))


RETRACTABLE: Final = tuple(c for c in COLUMNS if c.can_retract)
IGNORING: Final = tuple(replace(c, options=(*c.options, ("ignore-retract", "true"))) for c in COLUMNS)
TABLES: Final = (
    Table("adds only", COLUMNS),
    Table("adds only, ordered by a column", COLUMNS, more=(("sequence.field", "ts"),)),
    Table("retracts", RETRACTABLE, ALL_KINDS),
    Table("retracts are ignored", IGNORING, ALL_KINDS),
    Table("deletes remove", COLUMNS, (0, 2, 3), (("aggregation.remove-record-on-delete", "true"),)),
)


def check_same(table: SharedTable) -> pa.Table:
    """What is read here is what Java reads. Returns it."""
    found = table.ours.scan().to_arrow()
    problem = difference(found, values(table.java.read(table.warehouse, NAME)))
    assert problem is None, f"Tidelake reads other than Java: {problem}"
    return found


def without_merged_retracts(rows: pa.Table) -> pa.Table:
    """Returns the rows; if some are retracts, one of each key: Java's flush may lose a retract that it merges."""
    if set(rows.column(KIND).to_pylist()) <= {0, 2}:
        return rows
    first = {key: row for row, key in reversed(list(enumerate(rows.column("k").to_pylist())))}
    return rows.take(sorted(first.values()))


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", TABLES, ids=lambda case: case.about)
def test_the_same_commits_give_the_same_table(case: Table, new_table: NewTable, java_oracle: JavaOracle) -> None:
    options = case.options | {"write-only": "true"}
    ours = new_table(case.declared, primary_key=["k"], options=options, folder="ours")
    javas = new_table(case.declared, primary_key=["k"], options=options, folder="javas")
    dice = random.Random(3)
    for _ in range(4):
        batch = without_merged_retracts(case.batch(dice, 20))
        ours.write(batch)
        java_oracle.write(javas.warehouse, NAME, changes(batch))
        assert difference(check_same(ours), values(java_oracle.read(javas.warehouse, NAME))) is None
    for table in (ours, javas):
        table.java_compacts(full=True)
    assert difference(check_same(ours), values(java_oracle.read(javas.warehouse, NAME))) is None


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", TABLES, ids=lambda case: case.about)
def test_several_writers_continue_one_table(case: Table, new_table: NewTable) -> None:
    options = case.options | {"num-sorted-run.compaction-trigger": "3"}
    table = new_table(case.declared, primary_key=["k"], options=options)
    dice = random.Random(4)
    for turn in range(8):
        if turn % 2:
            table.java_writes(case.batch(dice, 12))
        else:
            table.write(case.batch(dice, 12))
        check_same(table)
        if turn % 4 == 1:
            table.ours.compact(full=turn > 4)
            check_same(table)


# ---------------------------------------------------------------- sums that outgrow their DECIMAL

OUTGROWN: Final = pa.table(
    {"k": pa.array([1, 1], pa.int32()), "v": pa.array([Decimal("999.99")] * 2, pa.decimal128(5, 2))}
)


@pytest.mark.parametrize(
    ("file_format", "expected"),
    [pytest.param("parquet", Decimal("1999.98"), id="Parquet keeps it"), pytest.param("avro", None, id="Avro: null")],
)
def test_a_sum_beyond_its_precision_is_read_as_in_java(
    file_format: str, expected: Decimal | None, new_table: NewTable
) -> None:
    columns = [Column("k", "INT", pa.int32(), ()), Column("v", "DECIMAL(5, 2)", pa.decimal128(5, 2), ())]
    options = {"bucket": "1", "write-only": "true", "merge-engine": "aggregation", "file.format": file_format}
    table = new_table(columns, primary_key=["k"], options=options | {"fields.v.aggregate-function": "sum"})
    table.write(OUTGROWN)
    assert check_same(table).column("v").to_pylist() == [expected]
    table.java_writes(OUTGROWN)
    check_same(table)


def test_a_sum_that_parquet_can_not_hold_is_refused(new_table: NewTable) -> None:
    """Java's number would come back as another one."""
    kind = pa.decimal128(9, 2)
    columns = [Column("k", "INT", pa.int32(), ()), Column("v", "DECIMAL(9, 2)", kind, ())]
    options = {"bucket": "1", "merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}
    table = new_table(columns, primary_key=["k"], options=options)
    most = pa.array([Decimal("9999999.99")] * 3, kind)
    with pytest.raises(BadInput, match="outgrown its DECIMAL"):
        table.write(pa.table({"k": pa.array([1, 1, 1], pa.int32()), "v": most}))


# ---------------------------------------------------------------- sketches, bitmaps

SETS: Final = {"r32": ("rbm32", "rbm32"), "r64": ("rbm64", "rbm64"), "th": ("theta_sketch", "theta"),
               "hl": ("hll_sketch", "hll")}  # fmt: skip


def numbers_of(kind: str, dice: random.Random) -> list[int]:
    """Members of a set: few, a run, dense, sparse, far apart."""
    start = dice.choice([0, 60_000]) + (dice.choice([0, 1 << 33, -(1 << 40)]) if kind == "rbm64" else 0)
    if kind == "rbm64" and dice.random() < 0.3:
        return [(dice.randrange(60) << 16) + (dice.randrange(3) << 40) for _ in range(dice.choice([10, 150]))]
    match dice.randrange(4):
        case 0:
            return [start + dice.randrange(2000) for _ in range(dice.choice([0, 1, 5, 40]))]
        case 1:
            return list(range(start, start + dice.choice([3, 7000])))
        case 2:
            return list(range(start, start + 12_000, 2))
        case _:
            return [abs(start) + dice.randrange(1 << 20) for _ in range(300)]


def test_merged_sketches_and_bitmaps_equal_javas_bytes(new_table: NewTable, java_oracle: JavaOracle) -> None:
    columns = [Column(name, "BYTES", pa.binary(), ()) for name in SETS]
    key, turn = Column("k", "INT", pa.int32(), ()), Column("turn", "INT", pa.int32(), ())
    functions = {f"fields.{name}.aggregate-function": function for name, (function, _) in SETS.items()}
    options = {"bucket": "1", "write-only": "true"}
    united = options | functions | {"merge-engine": "aggregation"}
    javas = new_table([key, *columns], primary_key=["k"], options=united, folder="javas")
    ours = new_table([key, *columns], primary_key=["k"], options=united, folder="ours")
    inputs = new_table([key, turn, *columns], primary_key=["k", "turn"], options=options, folder="inputs")
    dice = random.Random(7)
    for at in range(4):
        rows = [
            {"k": k, **{name: {kind: numbers_of(kind, dice)} for name, (_, kind) in SETS.items()}} for k in range(15)
        ]
        java_oracle.write(javas.warehouse, NAME, rows)
        java_oracle.write(inputs.warehouse, NAME, [row | {"turn": at} for row in rows])
    made = inputs.ours.scan().to_arrow()
    for at in range(4):
        ours.write(made.filter(pc.equal(made["turn"], at)).drop_columns("turn"))
    assert difference(ours.ours.scan().to_arrow(), values(java_oracle.read(javas.warehouse, NAME))) is None
    ours.java_compacts(full=True)
    check_same(ours)
