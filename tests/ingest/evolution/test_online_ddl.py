"""gh-ost and pt-online-schema-change: a shadow table is altered and then replaces the table."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

import pytest

from tests.ingest.evolution.world import TOPIC, EvolvingWorld
from tidelake.errors import RecordRefused
from tidelake.ingest.formats.online_ddl import shadow_changes
from tidelake.ingest.formats.source_table import SourceTable

INCLUDE: Final = "schema_evolution: {mode: %s, include: [add, alter, rename, drop]}, format: %s"
GH_OST: Final = (
    "create /* gh-ost */ table `shop`.`_orders_gho` like `shop`.`orders`",
    "alter /* gh-ost */ table `shop`.`_orders_gho` RENAME COLUMN a TO c, DROP COLUMN b",
    "rename /* gh-ost */ table `shop`.`orders` to `shop`.`_orders_del`, `shop`.`_orders_gho` to `shop`.`orders`",
)
PT_OSC: Final = (
    "CREATE TABLE `shop`.`_orders_new` (id int, a int, b int)",
    "ALTER TABLE `shop`.`_orders_new` CHANGE a c INT, DROP b",
    "RENAME TABLE `shop`.`orders` TO `shop`.`_orders_old`, `shop`.`_orders_new` TO `shop`.`orders`",
)
TOOLS: Final = [pytest.param(GH_OST, "_orders_gho", id="gh-ost"), pytest.param(PT_OSC, "_orders_new", id="pt-osc")]


@pytest.mark.parametrize(
    ("table", "sql", "found"),
    [
        pytest.param(
            "_orders_gho", GH_OST[0], ["shop._orders_gho, a copy of orders, is created or dropped"], id="made"
        ),
        pytest.param(
            "_orders_gho",
            "drop table if exists _orders_gho",
            ["shop._orders_gho, a copy of orders, is created or dropped"],
        ),
        pytest.param("_orders_gho", GH_OST[1], ["shop._orders_gho, a copy of orders, is altered"], id="altered"),
        pytest.param(
            "__orders_new",
            "alter table __orders_new drop a",
            ["shop.__orders_new, a copy of _orders, is altered", "shop.__orders_new, a copy of orders, is altered"],
            id="one underscore more, by the tool or by the table",
        ),
        pytest.param("_orders_gho", "alter table _orders_gho add index i (a)", [], id="no column changes"),
        pytest.param("orders", GH_OST[2], ["shop._orders_gho, a copy of orders, replaces it"], id="moved"),
        pytest.param("_orders_new,orders", PT_OSC[2], ["shop._orders_new, a copy of orders, replaces it"]),
        pytest.param(
            "t",
            "RENAME TABLE `_a``b, to c_new` TO `a``b, to c`;",
            ["shop._a`b, to c_new, a copy of a`b, to c, replaces it"],
            id="names in quotes",
        ),
        pytest.param("orders", "rename table orders to _orders_del", [], id="only out of the way"),
        pytest.param("orders", "rename table orders_2 to orders", [], id="a table that is no copy"),
        pytest.param("orders", "rename table _orders_gho to archive.orders", [], id="into another database"),
        pytest.param("_orders_old", "alter table _orders_old drop a", [], id="what was there before"),
        pytest.param(None, "alter table _orders_gho drop a", [], id="a record that names no table"),
        pytest.param("_orders_gho", None, [], id="no text"),
    ],
)
def test_statements_about_a_shadow_table_are_recognised(
    table: str | None, sql: str | None, found: Sequence[str]
) -> None:
    source = SourceTable("topic", "shop", None, table)
    reported = [str(change).replace("a copy of shop.", "a copy of ") for change in shadow_changes(sql, source)]
    assert reported == found


# ---------------------------------------------------------------- through a pipeline


def canal(table: str, sql: str | None, row: dict[str, Any]) -> dict[str, Any]:
    common = {"database": "shop", "table": table, "pkNames": ["id"]}
    if sql is not None:
        return {**common, "type": "ALTER", "isDdl": True, "sql": sql, "data": None}
    return {**common, "type": "INSERT", "isDdl": False, "data": [row], "mysqlType": dict.fromkeys(row, "int")}


def maxwell(table: str, sql: str | None, row: dict[str, Any]) -> dict[str, Any]:
    common = {"database": "shop", "table": table, "ts": 1}
    return {**common, "type": "table-alter", "sql": sql} if sql else {**common, "type": "insert", "data": row}


def debezium(table: str, sql: str | None, row: dict[str, Any]) -> dict[str, Any]:
    source = {"connector": "mysql", "db": "shop", "table": table}
    if sql is not None:
        return {"source": source, "databaseName": "shop", "ddl": sql, "tableChanges": []}
    return {"source": source, "op": "c", "before": None, "after": row}


FORMATS: Final = [("canal-json", canal), ("maxwell-json", maxwell), ("debezium-json", debezium)]
Record = Callable[[str, str | None, dict[str, Any]], dict[str, Any]]


class OnlineDdl:
    """A table of the columns id, a and b, in a log of one format, and what is done to it online."""

    def __init__(self, settings: str, record: Record = canal) -> None:
        self.world = EvolvingWorld(settings, "primary_key: [id]")
        self._record = record

    def row(self, table: str = "orders", **cells: int) -> None:
        value = json.dumps(self._record(table, None, cells)).encode()
        self.world.log.append(TOPIC, value, json.dumps({"id": cells["id"]}).encode())

    def statement(self, table: str, sql: str) -> None:
        self.world.log.append(TOPIC, json.dumps(self._record(table, sql, {})).encode(), b"{}")

    def rows(self) -> list[dict[str, int | None]]:
        return [{k: None if v is None else int(v) for k, v in row.items()} for row in self.world.rows()]


@pytest.mark.parametrize("restarts", [False, True], ids=["in one run", "a run for each record"])
@pytest.mark.parametrize(("statements", "copy"), TOOLS)
@pytest.mark.parametrize(("name", "record"), FORMATS, ids=[name for name, _ in FORMATS])
def test_rows_have_the_new_columns_once_the_shadow_table_replaces_the_table(
    name: str, record: Record, statements: Sequence[str], copy: str, restarts: bool
) -> None:
    online = OnlineDdl(INCLUDE % ("evolve", name), record)
    made, altered, moved = statements
    steps: list[Callable[[], None]] = [
        lambda: online.row(id=1, a=1, b=1),
        lambda: online.statement(copy, made),
        lambda: online.statement(copy, altered),
        lambda: online.row(copy, id=1, c=1),
        lambda: online.row(id=2, a=2, b=2),
        lambda: online.row(copy, id=2, c=2),
        lambda: online.statement("orders", moved),
        lambda: online.row(id=3, c=3),
        lambda: online.statement(copy, f"DROP TABLE `shop`.`{copy}`"),
    ]
    for step in steps:
        step()
        if restarts:
            online.world.run()
    online.world.run(batch_records=10)
    assert list(online.world.columns) == ["id", "c"]
    assert online.rows() == [{"id": n, "c": n} for n in (1, 2, 3)]
    assert not online.world.breaks()


def test_changes_of_an_abandoned_shadow_table_are_ignored() -> None:
    online = OnlineDdl(INCLUDE % ("evolve", "canal-json"))
    online.row(id=1, a=1, b=1)
    online.statement("_orders_gho", "ALTER TABLE _orders_gho DROP COLUMN a")
    online.world.run()
    online.statement("_orders_gho", "DROP TABLE IF EXISTS `shop`.`_orders_gho`")
    online.statement("_orders_gho", GH_OST[0])
    online.statement("_orders_gho", "ALTER TABLE _orders_gho DROP COLUMN b")
    online.statement("orders", GH_OST[2])
    online.row(id=2, a=2)
    online.world.run()
    assert online.rows() == [{"id": 1, "a": 1}, {"id": 2, "a": 2}]


def test_excluded_changes_are_logged_when_the_shadow_table_replaces_the_table(
    caplog: pytest.LogCaptureFixture,
) -> None:
    online = OnlineDdl("format: canal-json")
    online.row(id=1, a=1, b=1)
    online.statement("_orders_gho", GH_OST[1])
    online.world.run()
    assert "ignores it" not in caplog.text
    online.statement("orders", GH_OST[2])
    online.row(id=2, c=2)
    online.world.run()
    assert "rename a to c: `schema_evolution` ignores it" in caplog.text
    assert online.rows() == [{"id": 1, "a": 1, "b": 1, "c": None}, {"id": 2, "a": None, "b": None, "c": 2}]


def test_exception_stops_only_when_the_shadow_table_replaces_the_table() -> None:
    online = OnlineDdl(INCLUDE % ("exception", "canal-json"))
    online.row(id=1, a=1, b=1)
    for statement in GH_OST[:2]:
        online.statement("_orders_gho", statement)
    online.row(id=2, a=2, b=2)
    online.world.run()
    online.statement("orders", GH_OST[2])
    for _ in range(2):
        with pytest.raises(RecordRefused, match=r"_orders_gho, a copy of shop\.orders, replaces it.*rename a to c"):
            online.world.run()
    assert online.rows() == [{"id": n, "a": n, "b": n} for n in (1, 2)]


NAMED: Final = {
    "a mask": ("masks: {a: 'null'}", "masks: {a: 'null'}, rename_columns: {c: a}", "mask"),
    "a filter": ("filter: 'a > 0'", "filter: 'a > 0', rename_columns: {c: a}", "`filter` names a, not c"),
    "kept columns": (
        "keep_columns: [id, a]",
        "keep_columns: [id, c], rename_columns: {c: a}",
        "`keep_columns` names a, not c",
    ),
    "columns to leave out": ("drop_columns: [c]", "rename_columns: {c: a}", "`drop_columns` leaves out c"),
}
DIRECT: Final = ("alter table orders rename column a to c",)


@pytest.mark.parametrize("mode", ["evolve", "ignore"])
@pytest.mark.parametrize(
    "statements", [DIRECT, (GH_OST[1].replace(", DROP COLUMN b", ""), GH_OST[2])], ids=["by hand", "by gh-ost"]
)
@pytest.mark.parametrize(("settings", "followed", "reason"), NAMED.values(), ids=NAMED)
def test_a_column_that_the_settings_name_is_not_renamed_until_they_follow(
    settings: str, followed: str, reason: str, statements: Sequence[str], mode: str
) -> None:
    online = OnlineDdl(INCLUDE % (mode, "canal-json"))
    world = online.world
    world.table_settings = f"{settings}, primary_key: [id]"
    online.row(id=1, a=1)
    world.run()
    for statement in statements:
        online.statement(
            "_orders_gho" if "_orders_gho" in statement and statement != GH_OST[2] else "orders", statement
        )
    online.row(id=2, c=2)
    with pytest.raises(RecordRefused, match=reason):
        world.run()
    assert list(world.columns) == ["id", "a"]
    world.table_settings = f"{followed}, primary_key: [id]"
    world.run()
    kept = [None, None] if "masks" in settings else [1, 2]
    assert online.rows() == [{"id": 1, "a": kept[0]}, {"id": 2, "a": kept[1]}]


def test_a_column_that_is_left_out_stays_out_under_a_new_name() -> None:
    online = OnlineDdl(INCLUDE % ("evolve", "canal-json"))
    world = online.world
    world.table_settings = "drop_columns: [a], primary_key: [id]"
    online.row(id=1, a=1, b=1)
    online.statement("orders", DIRECT[0])
    online.row(id=2, c=2, b=2)
    with pytest.raises(RecordRefused, match="Add c to `drop_columns`, or take a out of it"):
        world.run()
    world.table_settings = "drop_columns: [a, c], primary_key: [id]"
    world.run()
    assert online.rows() == [{"id": 1, "b": 1}, {"id": 2, "b": 2}]


def test_a_column_of_the_filter_that_the_source_drops_stops_the_table() -> None:
    online = OnlineDdl(INCLUDE % ("ignore", "canal-json"))
    world = online.world
    world.table_settings = "filter: 'a > 0', primary_key: [id]"
    online.row(id=1, a=1, b=1)
    online.statement("orders", "alter table orders drop column a")
    online.row(id=1, b=2)
    with pytest.raises(RecordRefused, match=r"`filter` needs a\. Change `filter`"):
        world.run()
    world.table_settings = "primary_key: [id]"
    world.run()
    assert online.rows() == [{"id": 1, "a": None, "b": 2}]
