"""One flush of many rows gives the same as a flush of each row, whatever the rows are, for each aggregate function.

A -U and the +U after it come together from every change stream. If they were merged with each other first, most
functions would lose what the -U retracts. So a flush writes them in runs of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pytest

import tidelake
from tests.support.java_oracle import JavaOracle
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


def create(catalog: tidelake.Catalog, name: str, function: Function, options: Mapping[str, str]) -> tidelake.Table:
    given = {"bucket": "1", "merge-engine": "aggregation", "fields.v.aggregate-function": function.name, **options}
    given |= {f"fields.v.{key}": value for key, value in function.options.items()}
    columns = pa.schema([("k", pa.int64()), ("v", function.kind)])
    return catalog.create_table(name, columns, primary_key=["k"], options=given)


def write(table: tidelake.Table, function: Function, rows: Sequence[Mapping[str, Any]]) -> None:
    columns = pa.schema([("k", pa.int64()), ("v", function.kind), ("_VALUE_KIND", pa.int8())])
    with table.writer() as writer:
        writer.write(pa.Table.from_pylist(list(rows), columns))
        writer.commit()


def rows_of(table: tidelake.Table) -> list[dict[str, Any]]:
    return sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["k"])


def case_name(function: Function) -> str:
    return " ".join([function.name, *function.options])


@pytest.mark.parametrize("options", [{"write-only": "true"}, {}], ids=["write-only", "compacted as usual"])
@pytest.mark.parametrize("function", FUNCTIONS, ids=case_name)
def test_one_flush_is_the_same_as_a_flush_of_each_row(
    function: Function, options: Mapping[str, str], tmp_path: Path
) -> None:
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("d")
    for seed in range(2):
        dice = Random(seed)
        rows = history(function, dice, keys=2)
        alone = create(catalog, f"d.alone{seed}", function, {"write-only": "true"})
        for row in rows:
            write(alone, function, [row])
        together = create(catalog, f"d.together{seed}", function, options)
        cuts = sorted(dice.sample(range(len(rows)), 3))
        for start, stop in zip([0, *cuts], [*cuts, len(rows)], strict=True):
            write(together, function, rows[start:stop])
        assert rows_of(together) == rows_of(alone)
        together.compact(full=True)
        alone.compact(full=True)
        assert rows_of(together) == rows_of(alone)


def test_java_reads_what_a_flush_kept_apart(java_oracle: JavaOracle, tmp_path: Path) -> None:
    function = FUNCTIONS[1]
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("d")
    table = create(catalog, "d.t", function, {"write-only": "true"})
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
    table = create(catalog, "d.t", function, sizes)
    write(table, function, [{"k": key, "v": 2, "_VALUE_KIND": INSERT} for key in range(5_000)])
    table.compact(full=True)
    for value in range(2, 6):
        before = {"k": 7, "v": value, "_VALUE_KIND": BEFORE}
        write(table, function, [before, {"k": 7, "v": value + 1, "_VALUE_KIND": AFTER}])
    assert [row["v"] for row in rows_of(table) if row["k"] == 7] == [6]
    assert [row["v"] for row in rows_of(table) if row["k"] != 7] == [2] * 4_999
