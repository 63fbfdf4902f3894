"""DDL in the change stream: columns are renamed and dropped where the configuration includes it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ingest.formats.ddl_statements import ColumnStatement, column_statements
from ingest.formats.source_table import SourceTable
from ingest.pipeline.error_policy import RecordRefused
from ingest.tables.table_router import Route, TableRouter
from storage.ddl.schema_changes import DropColumn, RenameColumn
from tests.ingest.evolution.world import TOPIC, EvolvingWorld

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
def test_a_statement_tells_which_columns_change(sql: str | None, found: list[tuple[Any, Any, str]]) -> None:
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
def test_these_keep_what_they_have(mode: str) -> None:
    world = EvolvingWorld(f"{ALL % mode}, format: canal-json")
    canal(world, id=1, a=1)
    canal(world, "ALTER TABLE orders RENAME COLUMN a TO c")
    canal(world, id=2, c=5)
    world.run()
    assert list(world.columns) == (["id", "a", "c"] if mode == "lenient" else ["id", "a"])


def test_by_default_a_drop_is_told_and_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    world = EvolvingWorld("format: canal-json")
    canal(world, id=1, a=1)
    canal(world, "ALTER TABLE orders DROP COLUMN a")
    canal(world, id=2)
    world.run()
    assert list(world.columns) == ["id", "a"]
    assert "drop a: `schema_evolution` ignores it" in caplog.text


def test_exception_stops_until_the_table_was_changed_by_hand() -> None:
    world = EvolvingWorld(f"{ALL % 'exception'}, format: canal-json")
    canal(world, id=1, a=1)
    canal(world, "ALTER TABLE orders DROP COLUMN a")
    canal(world, id=2)
    with pytest.raises(RecordRefused, match=r"columns of shop\.orders were changed at the source: drop a"):
        world.run()
    world.catalog.alter_table("shop.orders", [DropColumn("a")])
    world.run()
    assert world.rows() == [{"id": 1}, {"id": 2}]


def test_a_dropped_column_comes_back_by_ddl_and_not_by_an_older_record() -> None:
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
def test_actions_of_one_statement_mean_the_columns_as_they_were_before_it(
    actions: str, columns: dict[str, str], rows: list[tuple[int | None, int]]
) -> None:
    world = EvolvingWorld(f"{ALL % 'evolve'}, format: canal-json")
    canal(world, id=1, a=1, b=2)
    canal(world, f"ALTER TABLE orders {actions}")
    canal(world, id=2, a=7, b=8)
    world.run()
    assert world.columns == {"id": "INT", **columns}
    assert [(row["a"], row["b"]) for row in world.rows()] == rows


def test_a_column_that_took_a_dropped_one_s_name_outlives_a_crash_after_the_change() -> None:
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
def test_columns_that_exchange_their_names_stop_the_pipeline_until_somebody_has_done_it(mode: str) -> None:
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


@pytest.mark.parametrize("name", ["_orders_gho", "_orders_ghc", "_orders_del", "_orders_new", "_orders_old"])
def test_shadow_tables_of_online_ddl_are_only_taken_by_name(name: str) -> None:
    source = SourceTable("topic", "shop", None, name)
    assert TableRouter([Route("a.b", ["shop.*"])]).table_of(source) is None
    assert TableRouter([Route("a.b", [name])]).table_of(source) == "a.b"
    assert TableRouter([Route("a.b", ["shop.*"])]).table_of(SourceTable("topic", "shop", None, "orders_old")) == "a.b"
