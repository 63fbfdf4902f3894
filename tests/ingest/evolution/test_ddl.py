"""DDL in the change stream: columns are renamed and dropped if the configuration includes it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.ingest.evolution.world import TOPIC, EvolvingWorld
from tidelake.errors import RecordRefused
from tidelake.ingest.formats.ddl_statements import ColumnStatement, column_statements
from tidelake.ingest.formats.source_table import SourceTable
from tidelake.ingest.tables.table_router import Route, TableRouter
from tidelake.storage.ddl.schema_changes import DropColumn, RenameColumn

ALL = "schema_evolution: {mode: %s, include: [add, alter, rename, drop]}"


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("ALTER TABLE `shop`.`t` RENAME COLUMN `a` TO b", [("a", "b", "")]),
        ("alter table t change column `a b` c tinyint(1) not null default 0 after x", [("a b", "c", "")]),
        ("alter table t change a a bigint", []),
        ("alter table t modify a bigint", []),
        ("ALTER TABLE t DROP a, DROP COLUMN b", [("a", None, ""), ("b", None, "")]),
        ("alter table t add column a varchar(10)", [(None, "a", "VARCHAR(10)")]),
        ("alter table t drop primary key, drop index i", []),
        ("rename table t to u", []),
        ("this is no DROP of an ALTER TABLE", []),
        (None, []),
    ],
)
def test_the_changed_columns_of_a_statement_are_found(sql: str | None, found: list[tuple[Any, Any, str]]) -> None:
    assert column_statements(sql) == tuple(ColumnStatement(*one) for one in found)


def canal(world: EvolvingWorld, sql: str | None = None, **row: Any) -> None:
    common = {"database": "shop", "table": "orders", "pkNames": ["id"]}
    record: dict[str, Any] = {**common, "type": "ALTER", "isDdl": True, "sql": sql, "data": None}
    if sql is None:
        record = {**common, "type": "INSERT", "isDdl": False, "data": [row]}
        record["mysqlType"] = dict.fromkeys(row, "int")
    world.log.append(TOPIC, json.dumps(record).encode())


def maxwell(world: EvolvingWorld, sql: str | None = None, **row: Any) -> None:
    common = {"database": "shop", "table": "orders", "ts": 1}
    record = {**common, "type": "table-alter", "sql": sql} if sql else {**common, "type": "insert", "data": row}
    world.log.append(TOPIC, json.dumps(record).encode())


def debezium(world: EvolvingWorld, sql: str | None = None, **row: Any) -> None:
    source = {"connector": "mysql", "db": "shop", "table": "orders"}
    record: dict[str, Any] = {"source": source, "op": "c", "before": None, "after": row}
    if sql:
        record = {"source": source, "databaseName": "shop", "ddl": sql, "tableChanges": []}
    world.log.append(TOPIC, json.dumps(record).encode(), json.dumps({"id": row.get("id")}).encode())


FORMATS = [("canal-json", canal), ("maxwell-json", maxwell), ("debezium-json", debezium)]


@pytest.mark.parametrize(("name", "add"), FORMATS, ids=[name for name, _ in FORMATS])
def test_a_rename_and_a_drop_are_followed(name: str, add: Any) -> None:
    world = EvolvingWorld(f"{ALL % 'evolve'}, format: {name}", "primary_key: [id]")
    add(world, id=1, a=1, b=2)
    add(world, "ALTER TABLE shop.orders RENAME COLUMN a TO c, DROP COLUMN b")
    add(world, id=2, c=5)
    world.run(batch_records=10)
    assert list(world.columns) == ["id", "c"]
    assert [(int(row["id"]), int(row["c"])) for row in world.rows()] == [(1, 1), (2, 5)]
    world.run()
    assert not world.breaks()


@pytest.mark.parametrize("mode", ["lenient", "ignore"])
def test_these_statements_change_no_column(mode: str) -> None:
    world = EvolvingWorld(f"{ALL % mode}, format: canal-json")
    canal(world, id=1, a=1)
    canal(world, "ALTER TABLE orders RENAME COLUMN a TO c")
    canal(world, id=2, c=5)
    world.run()
    assert list(world.columns) == (["id", "a", "c"] if mode == "lenient" else ["id", "a"])


def test_by_default_a_dropped_column_is_logged_and_kept(caplog: pytest.LogCaptureFixture) -> None:
    world = EvolvingWorld("format: canal-json")
    canal(world, id=1, a=1)
    canal(world, "ALTER TABLE orders DROP COLUMN a")
    canal(world, id=2)
    world.run()
    assert list(world.columns) == ["id", "a"]
    assert "drop a: `schema_evolution` ignores it" in caplog.text


def test_exception_stops_until_the_table_is_altered_manually() -> None:
    world = EvolvingWorld(f"{ALL % 'exception'}, format: canal-json")
    canal(world, id=1, a=1)
    canal(world, "ALTER TABLE orders DROP COLUMN a")
    canal(world, id=2)
    with pytest.raises(RecordRefused, match=r"columns of shop\.orders were changed at the source: drop a"):
        world.run()
    world.catalog.alter_table("shop.orders", [DropColumn("a")])
    world.run()
    assert world.rows() == [{"id": 1}, {"id": 2}]


def test_a_dropped_column_is_added_again_by_ddl_and_not_by_an_older_record() -> None:
    world = EvolvingWorld(f"{ALL % 'evolve'}, format: canal-json")
    canal(world, id=1, a=1)
    canal(world, "ALTER TABLE orders DROP COLUMN a")
    canal(world, id=2, a=2)  # as another partition may bring it
    world.run()
    assert world.rows() == [{"id": 1}, {"id": 2}]
    canal(world, "ALTER TABLE orders ADD COLUMN a BIGINT")
    canal(world, id=3, a=3)
    world.run()
    assert world.columns == {"id": "INT", "a": "BIGINT"}
    assert [row["a"] for row in world.rows()] == [None, None, 3]


@pytest.mark.parametrize(
    ("actions", "columns", "rows"),
    [
        ("DROP COLUMN a, ADD COLUMN a BIGINT", {"b": "INT", "a": "BIGINT"}, [(None, 2), (7, 8)]),
        ("DROP COLUMN b, RENAME COLUMN a TO b, ADD COLUMN a INT", {"b": "INT", "a": "INT"}, [(None, 1), (7, 8)]),
        ("RENAME COLUMN a TO b, DROP COLUMN b, ADD COLUMN a INT", {"b": "INT", "a": "INT"}, [(None, 1), (7, 8)]),
        ("CHANGE a b INT, CHANGE b c INT, ADD COLUMN a INT", {"b": "INT", "c": "INT", "a": "INT"}, [(None, 1), (7, 8)]),
    ],
    ids=["a column is made anew", "its name is taken", "and told first", "names move on"],
)
def test_actions_of_one_statement_refer_to_the_columns_before_it(
    actions: str, columns: dict[str, str], rows: list[tuple[int | None, int]]
) -> None:
    world = EvolvingWorld(f"{ALL % 'evolve'}, format: canal-json")
    canal(world, id=1, a=1, b=2)
    canal(world, f"ALTER TABLE orders {actions}")
    canal(world, id=2, a=7, b=8)
    world.run()
    assert world.columns == {"id": "INT", **columns}
    assert [(row["a"], row["b"]) for row in world.rows()] == rows


def test_a_column_that_reuses_a_dropped_name_survives_a_crash_after_the_change() -> None:
    world = EvolvingWorld(f"{ALL % 'evolve'}, format: canal-json")
    canal(world, id=1, a=1, b=2, c=3)
    world.run()
    canal(world, "ALTER TABLE orders DROP COLUMN c, RENAME COLUMN b TO c, RENAME COLUMN a TO b")
    canal(world, id=2, b=7, c=8)
    # what a process that is killed before its next commit leaves
    world.catalog.alter_table("shop.orders", [DropColumn("c"), RenameColumn("b", "c"), RenameColumn("a", "b")])
    world.run()
    assert world.rows() == [{"id": 1, "b": 1, "c": 2}, {"id": 2, "b": 7, "c": 8}]


@pytest.mark.parametrize("mode", ["evolve", "exception"])
def test_columns_that_swap_names_stop_the_pipeline_until_altered_manually(mode: str) -> None:
    world = EvolvingWorld(f"{ALL % mode}, format: canal-json")
    canal(world, id=1, a=1, b=2)
    canal(world, "ALTER TABLE orders RENAME COLUMN a TO b, RENAME COLUMN b TO a")
    canal(world, id=2, a=7, b=8)
    with pytest.raises(RecordRefused, match="rename b to a: columns exchange their names"):
        world.run()
    by_hand = [RenameColumn("a", "x"), RenameColumn("b", "a"), RenameColumn("x", "b")]
    world.catalog.alter_table("shop.orders", by_hand)
    world.run(skip=[f"{TOPIC}:0:1"])
    assert world.rows() == [{"id": 1, "b": 1, "a": 2}, {"id": 2, "b": 8, "a": 7}]


def test_a_key_can_t_be_dropped_which_stops_the_pipeline() -> None:
    world = EvolvingWorld(f"{ALL % 'evolve'}, format: canal-json")
    canal(world, id=1, a=1)
    canal(world, "ALTER TABLE orders DROP COLUMN id")
    with pytest.raises(RecordRefused, match="can't be dropped"):
        world.run()


COMPUTED = "primary_key: [id], computed_columns: {up: upper(b)}"


@pytest.mark.parametrize(
    ("sql", "remedy", "by_hand", "later"),
    [
        ("DROP COLUMN b", "Take it out of `computed_columns`", [], "primary_key: [id]"),
        (
            "RENAME COLUMN b TO c",
            "name c in `computed_columns`",
            [RenameColumn("b", "c")],
            "primary_key: [id], computed_columns: {up: upper(c)}",
        ),
    ],
)
def test_a_column_that_another_is_computed_from_is_neither_dropped_nor_renamed_until_somebody_has_chosen(
    sql: str, remedy: str, by_hand: list[RenameColumn], later: str
) -> None:
    world = EvolvingWorld(f"{ALL % 'evolve'}, format: maxwell-json", table_settings=COMPUTED)
    maxwell(world, id=1, b="x")
    maxwell(world, f"ALTER TABLE orders {sql}")
    with pytest.raises(RecordRefused, match="the computed column up is made of b") as refused:
        world.run()
    assert remedy in str(refused.value)
    assert list(world.columns) == ["id", "b", "up"]
    if by_hand:
        world.catalog.alter_table("shop.orders", by_hand)
    world.table_settings = later
    world.run()
    assert list(world.columns) == (["id", "c", "up"] if by_hand else ["id", "up"])


def test_a_column_that_another_is_computed_from_stays_where_changes_are_only_tried() -> None:
    world = EvolvingWorld(f"{ALL % 'try_evolve'}, format: maxwell-json", table_settings=COMPUTED)
    maxwell(world, id=1, b="x")
    maxwell(world, "ALTER TABLE orders DROP COLUMN b")
    maxwell(world, id=2)
    world.run()
    assert [(row["b"], row["up"]) for row in world.rows()] == [("x", "X"), (None, None)]


@pytest.mark.parametrize("name", ["_orders_gho", "_orders_ghc", "_orders_del", "_orders_new", "_orders_old"])
def test_shadow_tables_of_online_ddl_are_routed_only_by_their_own_name(name: str) -> None:
    source = SourceTable("topic", "shop", None, name)
    assert TableRouter([Route("a.b", ["shop.*"])]).table_of(source) is None
    assert TableRouter([Route("a.b", [name])]).table_of(source) == "a.b"
    assert TableRouter([Route("a.b", ["shop.*"])]).table_of(SourceTable("topic", "shop", None, "orders_old")) == "a.b"
