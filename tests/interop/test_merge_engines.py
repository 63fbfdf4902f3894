"""The same rows, written by Tidelake and by Java, merge to the same rows. Both read, continue and compact tables of the
other.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

import tidelake
from tests.compaction.invariants import check_tree
from tests.interop.columns import Column
from tests.interop.conftest import NewTable
from tests.interop.shared_table import KIND, NAME, SharedTable, values
from tests.support.expected import difference
from tests.support.java_oracle import JavaOracle
from tests.support.merge_engines import (
    AGGREGATION_WITH_RETRACTS,
    ALL_KINDS,
    COLUMNS,
    ENGINES,
    GROUPS,
    GROUPS_WITH_FUNCTIONS,
    SCHEMA,
    Engine,
    Rows,
    partial_update,
)
from tidelake.storage.maintenance.verify import verify


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
def test_the_same_commits_and_full_compactions_make_the_same_table(engine: Engine, new_table: NewTable) -> None:
    """Each side compacts its own: with files of other sizes they would pick others, and that can show in a row.

    Java's flush may lose a retract that it merges before it knows the older rows. Then it has another row than Java
    itself gets from the same rows one by one, and these rows are right.
    """
    options = {"bucket": "1", "write-only": "true", **engine.options}
    ours = new_table(columns(), primary_key=["k"], options=options, folder="ours")
    javas = new_table(columns(), primary_key=["k"], options=options, folder="javas")
    rows, written = Rows(engine), list[pa.Table]()
    for commit in range(1, 6):
        batch = rows.batch(25)
        written.append(batch)
        ours.write(batch)
        javas.java_writes(batch)
        if commit in (3, 5):
            ours.ours.compact(full=True)
            javas.java_compacts(full=True)
        found = check_same(ours)
        if difference(found, values(javas.java.read(javas.warehouse, NAME))) is not None:
            one_by_one = new_table(columns(), primary_key=["k"], options=options, folder=f"rows-{commit}")
            for whole in written:
                for row in range(len(whole)):
                    one_by_one.java_writes(whole.slice(row, 1))
            expected = [t.java.read(t.warehouse, NAME) for t in (javas, one_by_one)]
            for row in found.to_pylist():
                of_key = [theirs for rows in expected for theirs in rows if theirs["k"] == row["k"]]
                for column, value in row.items():
                    assert value in [theirs[column] for theirs in of_key], (row, of_key)
            assert {row["k"] for row in expected[1]} == set(found.column("k").to_pylist())
        check_same(javas)
    assert found.num_rows


def take_turns(engine: Engine, new_table: NewTable, turns: int) -> None:
    options = {"bucket": "1", "num-sorted-run.compaction-trigger": "3", "snapshot.num-retained.min": "1000"}
    table = new_table(columns(), primary_key=["k"], options=options | dict(engine.options))
    rows = Rows(engine)
    for turn in range(turns):
        if turn % 2:
            table.java_writes(rows.batch(15))
        else:
            table.write(rows.batch(15))
        check_same(table)
        match turn % 6:
            case 2:
                table.java_compacts(full=turn % 12 > 6)
            case 5:
                table.ours.compact(full=turn % 12 > 6)
            case _:
                continue
        check_same(table)
    table.check_history()
    check_tree(table.ours.context)
    assert verify(table.ours.context, deep=True) == []


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.about)
def test_several_writers_continue_one_table(engine: Engine, new_table: NewTable) -> None:
    take_turns(engine, new_table, turns=6)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.about)
def test_several_writers_continue_one_table_for_fifty_commits(engine: Engine, new_table: NewTable) -> None:
    take_turns(engine, new_table, turns=50)


LOOKED_UP: Final = (
    Engine("a sum", {"merge-engine": "aggregation", "fields.c.aggregate-function": "sum"}),
    partial_update("a record that comes back", (0, 2, 3), remove_on_delete="true"),
    partial_update("a sum in a group", ALL_KINDS, group_s="a,b", function_a="sum"),
    Engine("first row", {"merge-engine": "first-row"}),
)


@pytest.mark.exhaustive
@pytest.mark.parametrize("engine", LOOKED_UP, ids=lambda engine: engine.about)
def test_levels_already_looked_up_by_compaction_are_not_merged_again(engine: Engine, new_table: NewTable) -> None:
    """Java upgrades level 0 below the large file on the highest level. The files in between then contain its
    rows too.
    """
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


SHOWN_SINGLE_ROWS: Final = (
    Engine("a sum", {"merge-engine": "aggregation", "fields.c.aggregate-function": "sum"}, ALL_KINDS),
    AGGREGATION_WITH_RETRACTS,
    GROUPS,
    GROUPS_WITH_FUNCTIONS,
)


@pytest.mark.exhaustive
@pytest.mark.parametrize("engine", SHOWN_SINGLE_ROWS, ids=lambda engine: engine.about)
def test_a_single_row_leaving_level_0_gives_the_same_row_as_java(engine: Engine, new_table: NewTable) -> None:
    """A compaction that looks rows up shows single ones to the engine too: a lone -D of a sum is no -D any more."""
    options = {"bucket": "1", "force-lookup": "true", **engine.options}
    ours = new_table(columns(), primary_key=["k"], options=options, folder="ours")
    javas = new_table(columns(), primary_key=["k"], options=options, folder="javas")
    shared = new_table(columns(), primary_key=["k"], options=options, folder="shared")
    rows = Rows(engine, keys=5)
    for commit in range(8):
        batch = rows.batch(2)
        ours.write(batch)
        javas.java_writes(batch)
        (shared.java_writes if commit % 2 else shared.write)(batch)
        found = [check_same(table) for table in (ours, javas, shared)]
        assert found[0].sort_by("k") == found[1].sort_by("k") == found[2].sort_by("k")
    assert found[0].num_rows


NULL_LEFT: Final = (
    pytest.param({"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}, id="aggregation"),
    pytest.param({"merge-engine": "partial-update", "fields.n.sequence-group": "v"}, id="a sequence group"),
)


@pytest.mark.parametrize("options", NULL_LEFT)
def test_a_null_left_by_a_delete_of_java_is_read_as_in_java(
    options: dict[str, str], java_oracle: JavaOracle, tmp_path: Path
) -> None:
    """Java writes the delete, and reads a null out of a NOT NULL column; neither can write it to a file."""
    declared = [
        {"name": "k", "type": "BIGINT", "nullable": False},
        {"name": "v", "type": "STRING", "nullable": False},
        {"name": "n", "type": "BIGINT", "nullable": True},
    ]
    java_oracle.create(tmp_path, NAME, declared, primary_keys=["k"], options={"bucket": "1", **options})
    for kind, n in (("+I", 1), ("-D", 2)):
        row = {"_kind": kind, "k": 7, "v": "x", "n": n}
        java_oracle.write(tmp_path, NAME, [row], commit_user="java", wait_compaction=True)
    catalog = tidelake.open_catalog(str(tmp_path))
    table = catalog.table(NAME)
    found = table.scan().to_arrow().to_pylist()
    assert [(row["k"], row["v"]) for row in found] == [(7, None)]
    assert found == java_oracle.read(tmp_path, NAME)
    with pytest.raises(tidelake.BadInput, match=r"k = 7 left null in column 'v' STRING NOT NULL.*Make the"):
        table.compact(full=True)
    table = catalog.alter_table(NAME, [tidelake.UpdateColumnNullability("v", True)])
    table.compact(full=True)
    assert table.scan().to_arrow().to_pylist() == found
    assert java_oracle.read(tmp_path, NAME) == found


DELETES_REMOVE: Final = {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"}
GROUPS_OF_VALUES: Final = {
    "merge-engine": "partial-update",
    "fields.s.sequence-group": "a",
    "fields.t.sequence-group": "b",
}
GROUP_REMOVES: Final = {**GROUPS_OF_VALUES, "partial-update.remove-record-on-sequence-group": "s"}
SUM_REMOVES: Final = {
    "merge-engine": "aggregation",
    "aggregation.remove-record-on-delete": "true",
    "fields.a.aggregate-function": "sum",
    "fields.b.aggregate-function": "last_value",
}
VALUES: Final = pa.schema(
    [("k", pa.int32()), ("a", pa.int32()), ("s", pa.int32()), ("b", pa.string()), ("t", pa.int32()), (KIND, pa.int8())]
)


@pytest.mark.parametrize(
    ("options", "history", "remains"),
    [
        pytest.param(DELETES_REMOVE, [(1, 1, "x", 1, 0), (5, 5, "y", 5, 3)], None, id="the record is removed"),
        pytest.param(
            DELETES_REMOVE,
            [(1, 1, "x", 1, 0), (5, 5, "y", 5, 3), (None, None, "z", None, 0)],
            (5, 5, "z", 5),
            id="the next row gets the values of the delete, not those of the removed record",
        ),
        pytest.param(
            DELETES_REMOVE,
            [(1, 1, "x", 1, 0), (None, None, None, None, 3), (None, None, "z", None, 0)],
            (None, None, "z", None),
            id="a delete with the key alone leaves nothing to the next row",
        ),
        pytest.param(
            DELETES_REMOVE,
            [(1, 1, "x", 1, 0), (5, 5, "y", 5, 3), (6, None, "w", None, 3), (None, None, None, None, 0)],
            (6, None, "w", None),
            id="the values of the last delete count",
        ),
        pytest.param(
            DELETES_REMOVE,
            [(1, 1, "x", 1, 0), (1, 1, "x", 1, 1), (2, None, None, None, 2)],
            (2, 1, "x", 1),
            id="a -U removes nothing",
        ),
        pytest.param(SUM_REMOVES, [(1, 1, "x", 1, 0), (5, 5, "y", 5, 3)], None, id="the sum is removed"),
        pytest.param(
            SUM_REMOVES,
            [(1, 1, "x", 1, 0), (5, 5, "y", 5, 3), (7, 7, None, 7, 0)],
            (12, 7, None, 7),
            id="the next sum begins with the value of the delete",
        ),
        pytest.param(
            SUM_REMOVES,
            [(1, 1, "x", 1, 0), (None, None, None, None, 3), (7, 7, None, 7, 0)],
            (7, 7, None, 7),
            id="a delete with the key alone leaves nothing to the next sum",
        ),
        pytest.param(
            GROUP_REMOVES,
            [(1, 1, "x", 1, 0), (5, 2, "y", 2, 3)],
            None,
            id="the delete of the group that removes records",
        ),
        pytest.param(
            GROUP_REMOVES,
            [(1, 1, "x", 1, 0), (5, 2, "y", 2, 3), (None, None, "z", 3, 0)],
            (5, 2, "z", 3),
            id="the next row of another group gets the values of the delete",
        ),
        pytest.param(
            GROUP_REMOVES,
            [(1, 1, "x", 1, 0), (None, None, "y", 2, 3)],
            (1, 1, None, 2),
            id="the delete of another group empties that group",
        ),
        pytest.param(
            GROUP_REMOVES,
            [(1, 3, "x", 3, 0), (5, 2, "y", 2, 3)],
            (1, 3, "x", 3),
            id="a delete that is older than its group",
        ),
        pytest.param(
            {**GROUPS_OF_VALUES, "fields.a.aggregate-function": "sum"},
            [(1, 1, "x", 1, 0), (5, 2, "y", 2, 3)],
            (-4, 2, None, 2),
            id="a sum in a group, of which nothing removes records, is retracted",
        ),
        pytest.param(
            {**GROUP_REMOVES, "fields.a.aggregate-function": "sum"},
            [(1, 3, "x", 3, 0), (5, 2, "y", 2, 3)],
            (-4, 3, "x", 3),
            id="a delete that is older than its group is retracted from the sum",
        ),
    ],
)
def test_deletes_that_carry_values(
    options: dict[str, str],
    history: list[tuple[int | str | None, ...]],
    remains: tuple[int | str | None, ...] | None,
    new_table: NewTable,
) -> None:
    """Each row is a commit: (a, s, b, t, row kind) of one key."""
    declared = [Column(name, COLUMNS[name][0], COLUMNS[name][1], ()) for name in ("k", "a", "s", "b", "t")]
    table_options = {"bucket": "1", "write-only": "true", **options}
    ours = new_table(declared, primary_key=["k"], options=table_options, folder="ours")
    javas = new_table(declared, primary_key=["k"], options=table_options, folder="javas")
    for row in history:
        batch = pa.Table.from_pylist([dict(zip(VALUES.names, (1, *row), strict=True))], VALUES)
        ours.write(batch)
        javas.java_writes(batch)
    expected = [] if remains is None else [[1, *remains]]
    for table, compact in (
        (ours, lambda: ours.ours.compact(full=True)),
        (javas, lambda: javas.java_compacts(full=True)),
    ):
        assert difference(check_same(table), expected) is None
        compact()
        assert difference(check_same(table), expected) is None
