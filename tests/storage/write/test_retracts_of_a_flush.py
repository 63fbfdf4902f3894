"""One flush of many rows gives the same as a flush of each row, whatever the rows are, for each aggregate function.

A -U and the +U after it come together from every change stream. If they were merged with each other first, most
functions would lose what the -U retracts. So a flush writes them in runs of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple, Protocol
from uuid import uuid4

import pyarrow as pa
import pytest

import tidelake
from tests.support.java_oracle import JavaOracle
from tests.support.levels import rounds
from tidelake.storage.merge.aggregate_functions import AGGREGATE_FUNCTIONS, Retracts

INSERT, BEFORE, AFTER, DELETE = range(4)


class Function(NamedTuple):
    """A function that takes retracts, a type of its column, and values for it. `options` are of the column."""

    name: str
    kind: pa.DataType
    values: Sequence[Any]
    options: Mapping[str, str] = {}


NESTED: Final = pa.list_(pa.struct([("k", pa.int64()), ("w", pa.string())]))
FUNCTIONS: Final = (
    Function("sum", pa.int64(), [None, 2, 3, 5]),
    Function("product", pa.int64(), [None, 1, 2, 3]),
    Function("last_value", pa.string(), [None, "a", "b", "c"]),
    Function("last_non_null_value", pa.string(), [None, "a", "b", "c"]),
    Function("collect", pa.list_(pa.int64()), [None, [1], [1, 2], [2, 2]]),
    Function("collect", pa.list_(pa.int64()), [None, [1], [1, 2], [3]], {"distinct": "true"}),
    Function("merge_map", pa.map_(pa.string(), pa.int64()), [None, [("x", 1)], [("x", 2), ("y", 1)], [("z", 1)]]),
    Function("nested_update", NESTED, [None, [{"k": 1, "w": "a"}], [{"k": 1, "w": "b"}, {"k": 2, "w": "c"}]]),
    Function(
        "nested_update", NESTED, [None, [{"k": 1, "w": "a"}], [{"k": 1, "w": "b"}, {"k": 2, "w": "c"}]],
        {"nested-key": "k"},
    ),
    Function("primary-key", pa.int64(), [1, 2]),
)  # fmt: skip


def test_every_function_that_takes_retracts_is_here() -> None:
    takes = {name for name, function in AGGREGATE_FUNCTIONS.items() if function.retracts is not Retracts.REFUSED}
    assert takes == {function.name for function in FUNCTIONS}


def history(function: Function, dice: Random, keys: int) -> list[dict[str, Any]]:
    """Rows as a change stream sends them: an update retracts the value before it. One stream for each key."""
    current: dict[int, Any] = {}
    rows: list[dict[str, Any]] = []
    for _ in range(8):
        key, value = dice.randrange(keys), dice.choice(function.values)
        if key not in current:
            rows.append({"k": key, "v": value, "_VALUE_KIND": INSERT})
            current[key] = value
        elif dice.random() < 0.8:
            rows.append({"k": key, "v": current[key], "_VALUE_KIND": BEFORE})
            rows.append({"k": key, "v": value, "_VALUE_KIND": AFTER})
            current[key] = value
        else:
            rows.append({"k": key, "v": current.pop(key), "_VALUE_KIND": DELETE})
    return rows


def create(catalog: tidelake.Catalog, name: str, options: Mapping[str, str], function: Function) -> tidelake.Table:
    given = {"bucket": "1", "merge-engine": "aggregation", "fields.v.aggregate-function": function.name, **options}
    given |= {f"fields.v.{key}": value for key, value in function.options.items()}
    columns = pa.schema([("k", pa.int64()), ("v", function.kind)])
    return catalog.create_table(name, columns, primary_key=["k"], options=given)


def write(table: tidelake.Table, function: Function, rows: Sequence[Mapping[str, Any]]) -> None:
    _write(table, pa.schema([("k", pa.int64()), ("v", function.kind), ("_VALUE_KIND", pa.int8())]), rows)


def _write(table: tidelake.Table, columns: pa.Schema, rows: Sequence[Mapping[str, Any]]) -> None:
    with table.writer() as writer:
        writer.write(pa.Table.from_pylist(list(rows), columns))
        writer.commit()


def rows_of(table: tidelake.Table) -> list[dict[str, Any]]:
    return sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["k"])


def case_name(function: Function) -> str:
    return " ".join([function.name, *function.options])


@pytest.mark.sampled
@pytest.mark.exhaustive(kept=3)
@pytest.mark.parametrize("function", FUNCTIONS, ids=case_name)
def test_one_flush_is_the_same_as_a_flush_of_each_row(function: Function) -> None:
    for seed in range(rounds(15)):
        dice = Random(seed)
        catalog = tidelake.open_catalog(f"memory://{uuid4().hex}/lake")
        catalog.create_database("d")
        made = partial(create, catalog, function=function)
        columns = pa.schema([("k", pa.int64()), ("v", function.kind), ("_VALUE_KIND", pa.int8())])
        _check_one_flush_is_row_by_row(made, columns, history(function, dice, keys=2), dice, compacts=True)


class Engine(NamedTuple):
    """A table with columns `seq` (ascending), `a`, `b` and `c`, and the row kinds that it takes."""

    about: str
    options: Mapping[str, str]
    kinds: Sequence[int] = (INSERT, INSERT, BEFORE, AFTER, DELETE)


def partial_update(about: str, **options: str) -> Engine:
    return Engine(about, {"merge-engine": "partial-update"} | {_SPELLED[k]: v for k, v in options.items()})


_SPELLED: Final = {
    "group": "fields.seq.sequence-group",
    "sum_of_a": "fields.a.aggregate-function",
    "function_of_b": "fields.b.aggregate-function",
    "keeps_b": "fields.b.ignore-retract",
    "removes": "partial-update.remove-record-on-delete",
    "group_removes": "partial-update.remove-record-on-sequence-group",
}
ENGINES: Final = (
    partial_update("a group", group="a,b"),
    partial_update("a group of every column", group="a,b,c"),
    partial_update("a sum in a group", group="a,b", sum_of_a="sum"),
    partial_update("a product in a group", group="a,b", sum_of_a="product"),
    partial_update("functions that overwrite", group="a,b", sum_of_a="last_value", function_of_b="last_non_null_value"),
    partial_update("a function without retracts", group="a,b", function_of_b="max", keeps_b="true"),
    partial_update("deletes remove", removes="true"),
    partial_update("deletes of a group remove", group="a,b", group_removes="seq"),
    partial_update("a group of every column removes", group="a,b,c", group_removes="seq"),
    partial_update("a sum, and its group removes", group="a,b", group_removes="seq", sum_of_a="sum"),
    Engine(
        "aggregation whose deletes remove",
        {
            "merge-engine": "aggregation",
            "aggregation.remove-record-on-delete": "true",
            "fields.a.aggregate-function": "sum",
            "fields.b.aggregate-function": "product",
        },
    ),
    Engine("aggregation of columns without a function", {"merge-engine": "aggregation"}),
)


@pytest.mark.sampled
@pytest.mark.exhaustive(kept=2)
@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.about)
def test_one_flush_is_the_same_as_a_flush_of_each_row_for_rows_of_any_order(engine: Engine) -> None:
    """A change stream may begin anywhere, and other writers may have written the key. So any row may be retracted."""
    columns = pa.schema([("k", pa.int64()), *((name, pa.int64()) for name in ("seq", "a", "b", "c"))])
    for seed in range(rounds(40)):
        dice = Random(seed)
        catalog = tidelake.open_catalog(f"memory://{uuid4().hex}/lake")
        catalog.create_database("d")

        def made(name: str, options: Mapping[str, str], catalog: tidelake.Catalog = catalog) -> tidelake.Table:
            given = {"bucket": "1", **engine.options, **options}
            return catalog.create_table(name, columns, primary_key=["k"], options=given)

        rows = [
            {
                "k": dice.randrange(2),
                "seq": dice.choice([number, number, number, None]),
                **{name: dice.choice([None, 1, 2, 3]) for name in ("a", "b", "c")},
                "_VALUE_KIND": dice.choice(engine.kinds),
            }
            for number in range(12)
        ]
        _check_one_flush_is_row_by_row(
            made, columns.append(pa.field("_VALUE_KIND", pa.int8())), rows, dice, compacts=False
        )


class Create(Protocol):
    def __call__(self, name: str, options: Mapping[str, str]) -> tidelake.Table: ...


def _check_one_flush_is_row_by_row(
    create: Create, columns: pa.Schema, rows: Sequence[Mapping[str, Any]], dice: Random, *, compacts: bool
) -> None:
    """Write the rows to tables: each in its own flush, and several together.

    compacts: also to a table that is often compacted. A compaction drops deletes, which is no change only if every row
        that was added is taken back once, like in a change stream.
    """
    alone = create(name="d.alone", options={"write-only": "true"})
    for row in rows:
        _write(alone, columns, [row])
    cuts = sorted(dice.sample(range(len(rows)), 3))
    often = {"num-sorted-run.compaction-trigger": "2", "num-levels": "4"}
    tables = {"d.together": {"write-only": "true"}} | ({"d.compacted": often} if compacts else {})
    together = [create(name=name, options=options) for name, options in tables.items()]
    for table in together:
        for start, stop in zip([0, *cuts], [*cuts, len(rows)], strict=True):
            _write(table, columns, rows[start:stop])
        assert rows_of(table) == rows_of(alone), (cuts, rows)
    alone.compact(full=True)
    for table in together:
        table.compact(full=True)
        assert rows_of(table) == rows_of(alone), (cuts, rows)


def test_java_reads_what_a_flush_kept_apart(java_oracle: JavaOracle, tmp_path: Path) -> None:
    function = FUNCTIONS[1]
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("d")
    table = create(catalog, "d.t", {"write-only": "true"}, function)
    write(table, function, [{"k": 1, "v": 20, "_VALUE_KIND": INSERT}])
    write(
        table,
        function,
        [{"k": 1, "v": 20, "_VALUE_KIND": BEFORE}, {"k": 1, "v": 3, "_VALUE_KIND": AFTER}],
    )
    assert [(row["k"], row["v"]) for row in java_oracle.read(tmp_path, "d.t")] == [(1, 3)]


@pytest.mark.parametrize("budget", ["1 kb", "64 mb"], ids=["in several runs on disk", "in memory"])
def test_a_minor_compaction_waits_for_the_rows_that_are_retracted(budget: str, tmp_path: Path) -> None:
    """The older rows are on the highest level, and large: by size alone they would not be picked."""
    function = FUNCTIONS[1]
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("d")
    sizes = {"write-buffer-size": budget, "page-size": "256", "num-sorted-run.compaction-trigger": "3"}
    table = create(catalog, "d.t", sizes, function)
    write(table, function, [{"k": key, "v": 2, "_VALUE_KIND": INSERT} for key in range(5_000)])
    table.compact(full=True)
    for value in range(2, 6):
        before = {"k": 7, "v": value, "_VALUE_KIND": BEFORE}
        write(table, function, [before, {"k": 7, "v": value + 1, "_VALUE_KIND": AFTER}])
    assert [row["v"] for row in rows_of(table) if row["k"] == 7] == [6]
    assert [row["v"] for row in rows_of(table) if row["k"] != 7] == [2] * 4_999
