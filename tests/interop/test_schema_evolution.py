"""Every reader reads rows of older schemas the same under the newest schema, for any writer and any engine that altered
the table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pytest

from tests.interop.columns import Column
from tests.interop.conftest import NewTable
from tests.interop.naive_table import Row
from tests.interop.shared_table import KIND, NAME, Reader
from tests.support.expected import Json
from tidelake import AddColumn, DropColumn, RenameColumn, UpdateColumnPosition, UpdateColumnType, open_catalog

INT, BIGINT, STRING, DOUBLE = pa.int32(), pa.int64(), pa.string(), pa.float64()
POINT: Final = pa.struct([("x", INT), ("label", STRING)])
_INNER: Final = {"type": "ROW", "fields": [{"name": "x", "type": "INT"}, {"name": "label", "type": "STRING"}]}

K: Final = Column("k", "INT", INT, ())
N: Final = Column("n", "INT", INT, (1, -5, 2**31 - 1))
S: Final = Column("s", "STRING", STRING, ("a", "", "ü🌊"))
R: Final = Column("r", _INNER, POINT, ({"x": 1, "label": "one"}, {"x": None, "label": None}))
L: Final = Column("l", {"type": "ARRAY", "element": _INNER}, pa.list_(POINT), ([{"x": 1, "label": "a"}, None], []))
M: Final = Column(
    "m",
    {"type": "MAP", "key": "STRING NOT NULL", "value": _INNER},
    pa.map_(STRING, POINT),
    ([("a", {"x": 1, "label": "a"}), ("b", None)], []),
)
F: Final = Column("f", "FLOAT", pa.float32(), (0.5, float("nan"), -0.0, float("inf")))
D: Final = Column("d", "DECIMAL(9, 2)", pa.decimal128(9, 2), (Decimal("-1234567.89"), Decimal("0.10")))
DAY: Final = Column("day", "DATE", pa.date32(), (0, -719162, 19782))


@dataclass(frozen=True)
class Evolution:
    """changes: ours, and as Java's oracle takes them. after: the columns then; row: what becomes of a row of before."""

    id: str
    before: Sequence[Column]
    changes: Sequence[Any]
    java_changes: Json
    after: Sequence[Column]
    row: Callable[[Row], Row]
    has_null_rows: bool = False


def renamed(column: Column, name: str) -> Column:
    return Column(name, column.sql, column.arrow, column.values)


def of(name: str, kind: pa.DataType, *values: Any) -> Column:
    return Column(name, "", kind, values)


def with_z(point: Json) -> Json:
    return None if point is None else {"x": point["x"], "z": None, "label": point["label"]}


_RUST_AVRO: Final = "it takes nested rows of an Avro file for empty when the first one is null"
POINT_Z: Final = pa.struct([("x", INT), ("z", BIGINT), ("label", STRING)])
A_POINT_Z: Final = {"x": 1, "z": 2**40, "label": "q"}

EVOLUTIONS: Final = (
    Evolution(
        "added at the end, in front and between",
        [K, N, S],
        [AddColumn("e", "INT"), AddColumn("f", "DOUBLE", first=True), AddColumn("m", "STRING", after="k")],
        [
            {"add": {"name": "e", "type": "INT"}},
            {"add": {"name": "f", "type": "DOUBLE", "first": True}},
            {"add": {"name": "m", "type": "STRING", "after": "k"}},
        ],
        [of("f", DOUBLE, 0.5), K, of("m", STRING, "new"), N, S, of("e", INT, 7)],
        lambda row: {**row, "e": None, "f": None, "m": None},
    ),
    Evolution(
        "renamed, also the key",
        [K, N, S],
        [RenameColumn("k", "id"), RenameColumn("s", "t")],
        [{"rename": {"name": "k", "to": "id"}}, {"rename": {"name": "s", "to": "t"}}],
        [renamed(K, "id"), N, renamed(S, "t")],
        lambda row: {"id": row["k"], "n": row["n"], "t": row["s"]},
    ),
    Evolution(
        "names exchanged",
        [K, S, renamed(S, "t")],
        [RenameColumn("s", "x"), RenameColumn("t", "s"), RenameColumn("x", "t")],
        [
            {"rename": {"name": "s", "to": "x"}},
            {"rename": {"name": "t", "to": "s"}},
            {"rename": {"name": "x", "to": "t"}},
        ],
        [K, renamed(S, "t"), S],
        lambda row: {"k": row["k"], "t": row["s"], "s": row["t"]},
    ),
    Evolution(
        "dropped",
        [K, N, S],
        [DropColumn("n")],
        {"drop": {"name": "n"}},
        [K, S],
        lambda row: {"k": row["k"], "s": row["s"]},
    ),
    Evolution(
        "dropped and added again under its name",
        [K, N, S],
        [DropColumn("s"), AddColumn("s", "STRING")],
        [{"drop": {"name": "s"}}, {"add": {"name": "s", "type": "STRING"}}],
        [K, N, S],
        lambda row: {**row, "s": None},
    ),
    Evolution(
        "dropped and added again as another type",
        [K, S, N],
        [DropColumn("s"), AddColumn("s", "BIGINT", after="k")],
        [{"drop": {"name": "s"}}, {"add": {"name": "s", "type": "BIGINT", "after": "k"}}],
        [K, of("s", BIGINT, 2**40), N],
        lambda row: {**row, "s": None},
    ),
    Evolution(
        "widened",
        [K, N, F, D],
        [UpdateColumnType("n", "BIGINT"), UpdateColumnType("f", "DOUBLE"), UpdateColumnType("d", "DECIMAL(20, 4)")],
        [
            {"type": {"name": "n", "type": "BIGINT"}},
            {"type": {"name": "f", "type": "DOUBLE"}},
            {"type": {"name": "d", "type": "DECIMAL(20, 4)"}},
        ],
        [
            K,
            of("n", BIGINT, 2**40),
            of("f", DOUBLE, 0.1),
            of("d", pa.decimal128(20, 4), Decimal("1234567890123456.7891")),
        ],
        lambda row: row,
    ),
    Evolution(
        "numbers and days become text",
        [K, N, DAY],
        [UpdateColumnType("n", "STRING"), UpdateColumnType("day", "STRING")],
        [{"type": {"name": "n", "type": "STRING"}}, {"type": {"name": "day", "type": "STRING"}}],
        [K, of("n", STRING, "a number"), of("day", STRING, "a day")],
        lambda row: {"k": row["k"], "n": None if row["n"] is None else str(row["n"]), "day": row["day"]},
    ),
    Evolution(
        "days become times",
        [K, DAY, N],
        [UpdateColumnType("day", "TIMESTAMP(6)")],
        [{"type": {"name": "day", "type": "TIMESTAMP(6)"}}],
        [K, of("day", pa.timestamp("us"), 1_715_690_096_987_654), N],
        lambda row: {**row, "day": None if row["day"] is None else f"{row['day']}T00:00:00"},
    ),
    Evolution(
        "moved",
        [K, N, S],
        [UpdateColumnPosition("s", first=True), UpdateColumnPosition("k", after="n")],
        [{"move": {"name": "s", "first": True}}, {"move": {"name": "k", "after": "n"}}],
        [S, N, K],
        lambda row: row,
    ),
    Evolution(
        "added within a row, a list and a map",
        [K, R, L, M],
        [
            AddColumn(("r", "z"), "BIGINT", after="x"),
            AddColumn(("l", "element", "z"), "BIGINT", after="x"),
            AddColumn(("m", "value", "z"), "BIGINT", after="x"),
        ],
        [
            {"add": {"name": path, "type": "BIGINT", "after": "x"}}
            for path in (["r", "z"], ["l", "element", "z"], ["m", "value", "z"])
        ],
        [
            K,
            of("r", POINT_Z, A_POINT_Z),
            of("l", pa.list_(POINT_Z), [A_POINT_Z, None]),
            of("m", pa.map_(STRING, POINT_Z), [("c", A_POINT_Z)]),
        ],
        lambda row: {
            "k": row["k"],
            "r": with_z(row["r"]),
            "l": None if row["l"] is None else [with_z(p) for p in row["l"]],
            "m": None if row["m"] is None else [[k, with_z(p)] for k, p in row["m"]],
        },
        has_null_rows=True,
    ),
    Evolution(
        "renamed, dropped and widened within a row",
        [K, R],
        [
            RenameColumn(("r", "label"), "name"),
            UpdateColumnType(("r", "x"), "BIGINT"),
            AddColumn(("r", "label"), "STRING"),
        ],
        [
            {"rename": {"name": ["r", "label"], "to": "name"}},
            {"type": {"name": ["r", "x"], "type": "BIGINT"}},
            {"add": {"name": ["r", "label"], "type": "STRING"}},
        ],
        [
            K,
            of(
                "r",
                pa.struct([("x", BIGINT), ("name", STRING), ("label", STRING)]),
                {"x": 2**40, "name": "n", "label": "l"},
            ),
        ],
        lambda row: {
            "k": row["k"],
            "r": None if row["r"] is None else {"x": row["r"]["x"], "name": row["r"]["label"], "label": None},
        },
        has_null_rows=True,
    ),
)


def rows(columns: Sequence[Column], numbers: Sequence[int], kinds: Sequence[int] | None = None) -> pa.Table:
    """The column without values is the key, or (without numbers to be keys) one more value."""
    arrays = {}
    for position, column in enumerate(columns):
        if column.values:
            choices = (*column.values, None)
            arrays[column.name] = pa.array([choices[(n + position) % len(choices)] for n in numbers], column.arrow)
        else:
            arrays[column.name] = pa.array(list(numbers), INT).cast(column.arrow)
    if kinds is not None:
        arrays[KIND] = pa.array(kinds, pa.int8())
    return pa.table(arrays)


@pytest.mark.parametrize("has_key", [True, False], ids=["upserts", "append"])
@pytest.mark.parametrize("number", range(len(EVOLUTIONS)), ids=[evolution.id for evolution in EVOLUTIONS])
def test_rows_of_all_schema_versions_read_the_same_everywhere(number: int, has_key: bool, new_table: NewTable) -> None:
    case = EVOLUTIONS[number]
    file_format = ("parquet", "orc", "avro")[(number + has_key) % 3]  # over all cases, each with each
    table = new_table(
        case.before,
        primary_key=["k"] if has_key else [],
        options={"bucket": "1" if has_key else "-1", "file.format": file_format},
        cannot={Reader.RUST: _RUST_AVRO} if file_format == "avro" and case.has_null_rows else {},
    )
    table.write(rows(case.before, range(12)))
    table.java_writes(rows(case.before, range(8, 20)))

    if has_key:
        open_catalog(str(table.warehouse)).alter_table(NAME, case.changes)
    else:
        table.java.alter(table.warehouse, NAME, case.java_changes)
    table.model.change([column.name for column in case.after], case.row, keys=table.ours.primary_key)
    table.check()

    table.write(rows(case.after, range(4, 16), [3 if n % 4 == 0 else 2 for n in range(12)] if has_key else None))
    table.check()
    table.java_writes(rows(case.after, range(14, 24)))
    table.java_compacts(full=True)
    table.write(rows(case.after, [1, 15, 23, 30]))
    table.check()
    table.check_history()
