"""The same rows, written here and by Java, merge to the same rows; both read, go on with and compact the other's."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pytest

from tests.interop.columns import Column
from tests.interop.conftest import NewTable
from tests.interop.shared_table import KIND, NAME, SharedTable, changes, values
from tests.support.expected import difference
from tests.support.java_oracle import JavaOracle

# Protected columns lie before, between and after their sequence fields.
COLUMNS: Final = {
    "k": ("INT", pa.int32()),
    "a": ("INT", pa.int32()),
    "s": ("INT", pa.int32()),
    "b": ("STRING", pa.string()),
    "t": ("INT", pa.int32()),
    "u": ("STRING", pa.string()),
    "c": ("BIGINT", pa.int64()),
    "free": ("STRING", pa.string()),
}
SCHEMA: Final = pa.schema([*((name, kind) for name, (_, kind) in COLUMNS.items()), (KIND, pa.int8())])
ADDS: Final = (0, 2)
ALL_KINDS: Final = (0, 0, 2, 1, 3)  # +I twice as often: rows should live long enough to be changed


@dataclass(frozen=True)
class Engine:
    about: str
    options: Mapping[str, str]
    kinds: tuple[int, ...] = ADDS


def partial_update(about: str, kinds: tuple[int, ...] = ADDS, **options: str) -> Engine:
    return Engine(about, {"merge-engine": "partial-update"} | {_SPELLED[k]: v for k, v in options.items()}, kinds)


_SPELLED: Final = {
    "ignore_delete": "ignore-delete",
    "ignore_update_before": "ignore-update-before",
    "remove_on_delete": "partial-update.remove-record-on-delete",
    "remove_on_group": "partial-update.remove-record-on-sequence-group",
    "group_s": "fields.s.sequence-group",
    "group_tu": "fields.t,u.sequence-group",
    "function_a": "fields.a.aggregate-function",
    "function_b": "fields.b.aggregate-function",
    "function_c": "fields.c.aggregate-function",
    "ignore_retract_b": "fields.b.ignore-retract",
    "default_function": "fields.default-aggregate-function",
    "sequence_field": "sequence.field",
    "sort_order": "sequence.field.sort-order",
}

ENGINES: Final = (
    Engine("deduplicate", {"merge-engine": "deduplicate"}, ALL_KINDS),
    Engine("deduplicate by two columns", {"sequence.field": "s,t"}, ALL_KINDS),
    Engine("first row", {"merge-engine": "first-row"}),
    Engine("first row, deletes ignored", {"merge-engine": "first-row", "ignore-delete": "true"}, ALL_KINDS),
    partial_update("plain"),
    partial_update("deletes ignored", ALL_KINDS, ignore_delete="true"),
    partial_update("deletes remove", ALL_KINDS, remove_on_delete="true"),
    partial_update("deletes remove, no -U", ALL_KINDS, remove_on_delete="true", ignore_update_before="true"),
    partial_update("ordered by a column", sequence_field="s"),
    partial_update("ordered by two columns, descending", sequence_field="s,u", sort_order="descending"),
    partial_update("sequence groups", ALL_KINDS, group_s="a,b", group_tu="c"),
    partial_update("sequence groups and an order", ALL_KINDS, group_tu="a,b,c", sequence_field="s"),
    partial_update("a group removes", ALL_KINDS, group_s="a,b", group_tu="c", remove_on_group="s"),
    partial_update("every group removes", ALL_KINDS, group_s="a,b", group_tu="c", remove_on_group="s,u"),
    partial_update(
        "groups with functions",
        ALL_KINDS,
        group_s="a,b",
        group_tu="c",
        function_a="sum",
        function_b="first_value",
        ignore_retract_b="true",
        function_c="last_value",
    ),
    partial_update(
        "groups with functions, one removes",
        ALL_KINDS,
        group_s="a,b",
        group_tu="c",
        function_a="sum",
        function_b="first_non_null_value",
        ignore_retract_b="true",
        function_c="last_non_null_value",
        remove_on_group="t",
    ),
    partial_update("a default function", ALL_KINDS, group_s="a,b", default_function="last_non_null_value"),
)


@dataclass
class Rows:
    """Random rows over a few keys, the same for every run."""

    engine: Engine
    dice: random.Random = field(default_factory=lambda: random.Random(5))

    def batch(self, count: int) -> pa.Table:
        rows = [self._row() for _ in range(count)]
        return pa.Table.from_pylist(rows, SCHEMA)

    def _row(self) -> dict[str, Any]:
        small = [None, 0, 1, 2, 3]
        row: dict[str, Any] = {name: self.dice.choice(small) for name in COLUMNS}
        texts = {name: str(row[name]) for name in ("b", "u", "free") if row[name] is not None}
        return row | texts | {"k": self.dice.randrange(12), KIND: self.dice.choice(self.engine.kinds)}


def columns() -> list[Column]:
    return [Column(name, sql, arrow, ()) for name, (sql, arrow) in COLUMNS.items()]


def check_same(table: SharedTable) -> pa.Table:
    """What is read here is what Java reads. Returns it."""
    found = table.ours.scan().to_arrow()
    problem = difference(found, values(table.java.read(table.warehouse, NAME)))
    assert problem is None, f"Tidelake reads other than Java: {problem}"
    keys = found.column("k").to_pylist()
    assert len(set(keys)) == len(keys), "a key has two rows"
    return found


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.about)
def test_the_same_commits_make_the_same_table(engine: Engine, new_table: NewTable, java_oracle: JavaOracle) -> None:
    options = {"bucket": "1", "write-only": "true", **engine.options}
    ours = new_table(columns(), primary_key=["k"], options=options, folder="ours")
    javas = new_table(columns(), primary_key=["k"], options=options, folder="javas")
    rows = Rows(engine)
    for _ in range(5):
        batch = rows.batch(25)
        ours.write(batch)
        java_oracle.write(javas.warehouse, NAME, changes(batch))
        assert difference(check_same(ours), values(java_oracle.read(javas.warehouse, NAME))) is None
        check_same(javas)
    for table in (ours, javas):
        table.java_compacts(full=True)
    merged = check_same(ours)
    assert merged.num_rows
    assert difference(merged, values(java_oracle.read(javas.warehouse, NAME))) is None


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.about)
def test_a_table_goes_from_writer_to_writer(engine: Engine, new_table: NewTable) -> None:
    options = {"bucket": "1", "num-sorted-run.compaction-trigger": "3", **engine.options}
    table = new_table(columns(), primary_key=["k"], options=options)
    rows = Rows(engine)
    for turn in range(12):
        if turn % 2:
            table.java_writes(rows.batch(15))
        else:
            table.write(rows.batch(15))
        check_same(table)
        match turn % 6:
            case 2:
                table.java_compacts(full=turn > 6)
            case 5:
                table.ours.compact(full=turn > 6)
        check_same(table)
    table.check_history()


LOOKED_UP: Final = (
    Engine("a sum", {"merge-engine": "aggregation", "fields.c.aggregate-function": "sum"}),
    partial_update("a record that comes back", (0, 2, 3), remove_on_delete="true"),
    partial_update("a sum in a group", ALL_KINDS, group_s="a,b", function_a="sum"),
    Engine("first row", {"merge-engine": "first-row"}),
)


@pytest.mark.parametrize("engine", LOOKED_UP, ids=lambda engine: engine.about)
def test_levels_that_compaction_looked_up_are_not_merged_twice(engine: Engine, new_table: NewTable) -> None:
    """Java moves level 0 up beside the large file on the highest level, whose rows the files between then hold too."""
    options = {"bucket": "1", "changelog-producer": "lookup", **engine.options}
    table = new_table(columns(), primary_key=["k"], options=options)
    many = Rows(engine).batch(1500).set_column(0, SCHEMA.field("k"), pa.array(range(6, 1506), pa.int32()))
    table.java_writes(
        many.set_column(many.num_columns - 1, SCHEMA.field(KIND), pa.array([0] * 1500, pa.int8())), full=True
    )
    rows, levels = Rows(engine), set[int]()
    for _ in range(4):
        table.java_writes(rows.batch(6))
        check_same(table)
        files = table.java.system(table.warehouse, NAME, "files")
        levels |= {file["level"] for file in files} if len(files) > 1 else set()
    assert len(levels) > 1, "every compaction took all files: this shows nothing"
    table.check_history()
