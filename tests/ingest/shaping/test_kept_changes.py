"""Deleted rows that stay in the table, and tables that keep each change as a row, in a pipeline."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ingest.evolution.world import TOPIC, EvolvingWorld
from tests.ingest.formats.debezium.changes import change
from tests.support.levels import examples
from tidelake.errors import BadInput, ConfigError, RecordRefused, UnsupportedFeature

SOFT: Final = "deletes: soft, columns: {id: INT, n: INT, v: STRING}"
APPEND: Final = "mode: append, columns: {id: INT, n: INT, v: STRING}"
PLAIN: Final = "columns: {id: INT, n: INT, v: STRING}"
UNCHANGED: Final = "__debezium_unavailable_value"

Change = tuple[int, str, int | None]
CHANGES: Final = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from("cuddm"), st.none() | st.integers(0, 3)), max_size=25
)


def append(world: EvolvingWorld, op: str, time_ms: int, key: int, **images: Any) -> None:
    """Append a record of a change that was made at this time."""
    record = change(op, key={"id": key}, source={"ts_ms": time_ms}, **images)
    world.log.append(TOPIC, record.value, record.key, 0)


def capture(world: EvolvingWorld, changes: list[Change]) -> None:
    """Append the records of changes. A delete has only the key, as PostgreSQL sends it; `m` moves a row to key + 10."""
    for at, (key, op, n) in enumerate(changes):
        if op == "d":
            append(world, "d", at, key, before={"id": key, "n": None, "v": None})
        elif op == "m":
            append(world, "d", at, key, before={"id": key, "n": None, "v": None})
            append(world, "c", at, key + 10, after={"id": key + 10, "n": n, "v": f"moved {at}"})
        else:
            append(world, op, at, key, after={"id": key, "n": n, "v": f"at {at}"})


def in_one_table(setting: str, changes: list[Change], batch: int, stops: int) -> EvolvingWorld:
    """Return the world of a pipeline that read the changes in two runs."""
    world = EvolvingWorld(table_settings=setting, options=f"options: {{bucket: {-1 if setting == APPEND else 1}}}")
    capture(world, [(0, "c", 0), *changes[:stops]])
    world.run(batch_records=batch)
    capture(world, changes[stops:])
    world.run(batch_records=batch)
    return world


# ---------------------------------------------------------------- soft deletes


def test_a_deleted_row_stays_with_its_values_and_the_time_of_the_delete() -> None:
    world = EvolvingWorld(table_settings=SOFT)
    append(world, "c", 1_000, 1, after={"id": 1, "n": 7, "v": "a"})
    append(world, "c", 2_000, 2, after={"id": 2, "n": 8, "v": "b"})
    append(world, "d", 3_000, 1, before={"id": 1, "n": None, "v": None})
    world.run()
    deleted, alive = world.rows()
    assert (deleted["n"], deleted["v"], deleted["deleted_at"].timestamp()) == (7, "a", 3.0)
    assert (alive["n"], alive["v"], alive["deleted_at"]) == (8, "b", None)
    assert world.columns["deleted_at"] == "TIMESTAMP(3) WITH LOCAL TIME ZONE"


@pytest.mark.parametrize("batch", [1, 10])
def test_a_later_insert_of_the_key_clears_the_time(batch: int) -> None:
    world = EvolvingWorld(table_settings=SOFT + ", deleted_at_column: gone")
    append(world, "c", 1_000, 1, after={"id": 1, "n": 7, "v": "a"})
    append(world, "d", 2_000, 1, before={"id": 1, "n": None, "v": None})
    append(world, "c", 3_000, 1, after={"id": 1, "n": None, "v": "b"})
    world.run(batch_records=batch)
    assert world.rows() == [{"id": 1, "n": None, "v": "b", "gone": None}]


@pytest.mark.parametrize("batch", [1, 10])
def test_a_delete_of_a_row_that_never_was_leaves_nothing(batch: int) -> None:
    world = EvolvingWorld(table_settings=SOFT)
    append(world, "c", 1_000, 1, after={"id": 1, "n": 7, "v": "a"})
    append(world, "d", 2_000, 2, before={"id": 2, "n": None, "v": None})
    world.run(batch_records=batch)
    assert [row["id"] for row in world.rows()] == [1]


@pytest.mark.parametrize("batch", [1, 10])
def test_a_delete_keeps_the_value_that_the_update_before_it_left_out(batch: int) -> None:
    world = EvolvingWorld(table_settings=SOFT)
    append(world, "c", 1_000, 1, after={"id": 1, "n": 7, "v": "long"})
    append(world, "u", 2_000, 1, after={"id": 1, "n": 8, "v": UNCHANGED})
    append(world, "d", 3_000, 1, before={"id": 1, "n": None, "v": None})
    world.run(batch_records=batch)
    assert [(row["n"], row["v"], row["deleted_at"].timestamp()) for row in world.rows()] == [(8, "long", 3.0)]


def test_a_row_that_stops_matching_the_filter_is_deleted_softly() -> None:
    world = EvolvingWorld(table_settings=SOFT + ", filter: 'n > 1'")
    append(world, "c", 1_000, 1, after={"id": 1, "n": 7, "v": "a"})
    append(world, "u", 2_000, 1, after={"id": 1, "n": 0, "v": "b"})
    world.run()
    assert [(row["n"], row["v"], row["deleted_at"].timestamp()) for row in world.rows()] == [(7, "a", 2.0)]


def test_columns_that_are_added_later_are_kept_by_deletes_too() -> None:
    world = EvolvingWorld(table_settings="deletes: soft, columns: {n: INT}")
    append(world, "c", 1_000, 1, after={"id": 1, "n": 7})
    append(world, "u", 2_000, 1, after={"id": 1, "n": 8, "w": "new"})
    append(world, "d", 3_000, 1, before={"id": 1})
    world.run()
    assert [(row["n"], row["w"], row["deleted_at"].timestamp()) for row in world.rows()] == [(8, "new", 3.0)]


@pytest.mark.parametrize(
    "options",
    ["merge-engine: first-row", "changelog-producer: input", "ignore-delete: true", "sequence.field: n"],
)
def test_a_table_that_can_t_replace_a_row_by_its_delete_is_refused(options: str) -> None:
    world = EvolvingWorld(table_settings=SOFT, options=f"options: {{bucket: 1, {options}}}")
    append(world, "c", 1_000, 1, after={"id": 1, "n": 7, "v": "a"})
    with pytest.raises(UnsupportedFeature, match="`deletes: soft` of shop"):
        world.run()


def test_a_table_whose_staged_rows_no_lookup_sees_is_refused() -> None:
    world = EvolvingWorld(table_settings=f"primary_key: [id], {SOFT}", options="options: {bucket: -2}")
    append(world, "c", 1_000, 1, after={"id": 1, "n": 7, "v": "a"})
    with pytest.raises(UnsupportedFeature, match="another `bucket` than -2"):
        world.run()


def test_a_table_without_the_column_is_refused_with_the_command_that_adds_it() -> None:
    world = EvolvingWorld(table_settings="deletes: soft")
    world.create({"id": "INT", "n": "INT"})
    with pytest.raises(BadInput, match=r"lacks the derived column deleted_at: add it with `.*deleted_at"):
        world.run()


@settings(max_examples=examples(25))
@given(CHANGES, st.integers(1, 7), st.integers(0, 25))
def test_soft_deletes_without_the_deleted_rows_are_the_ordinary_table(
    changes: list[Change], batch: int, stops: int
) -> None:
    soft = in_one_table(SOFT, changes, batch, stops).rows()
    ordinary = in_one_table(PLAIN, changes, batch, stops).rows()
    alive = [row for row in soft if row.pop("deleted_at") is None]
    assert alive == ordinary
    ever = {0} | {key + 10 * (op == "m") for key, op, _ in changes if op != "d"}
    assert {row["id"] for row in soft} == ever


# ---------------------------------------------------------------- a history


def test_each_change_is_a_row_with_its_operation_position_and_time() -> None:
    world = EvolvingWorld(table_settings=APPEND, options="options: {bucket: -1}")
    append(world, "c", 1_000, 1, after={"id": 1, "n": 7, "v": "a"})
    append(world, "u", 2_000, 1, before={"id": 1, "n": 7, "v": "a"}, after={"id": 1, "n": 8, "v": "a"})
    append(world, "d", 3_000, 1, before={"id": 1, "n": 8, "v": "a"})
    world.run()
    assert not world.table.schema.has_primary_key
    found = sorted(world.rows(), key=lambda row: (row["offset"], row["op"]))
    assert [(r["op"], r["n"], r["topic"], r["partition"], r["offset"], r["op_ts"].timestamp()) for r in found] == [
        ("+I", 7, TOPIC, 0, 0, 1.0),
        ("+U", 8, TOPIC, 0, 1, 2.0),
        ("-U", 7, TOPIC, 0, 1, 2.0),
        ("-D", 8, TOPIC, 0, 2, 3.0),
    ]


def folded(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The table that a history leads to: retractions come before the new row of their record."""
    rows: dict[int, dict[str, Any]] = {}
    for row in sorted(history, key=lambda row: (row["offset"], row["op"] in ("+I", "+U"))):
        if row["op"] in ("+I", "+U"):
            rows[row["id"]] = {name: row[name] for name in ("id", "n", "v")}
        else:
            rows.pop(row["id"], None)
    return [rows[key] for key in sorted(rows)]


@settings(max_examples=examples(25))
@given(CHANGES, st.integers(1, 7), st.integers(0, 25))
def test_the_fold_of_a_history_is_the_ordinary_table(changes: list[Change], batch: int, stops: int) -> None:
    history = in_one_table(APPEND, changes, batch, stops).rows()
    assert len(history) == 1 + sum(2 if op == "m" else 1 for _, op, _ in changes)
    assert folded(history) == in_one_table(PLAIN, changes, batch, stops).rows()


def test_a_history_is_not_written_into_a_table_with_a_key() -> None:
    world = EvolvingWorld(table_settings="mode: append", options="options: {}")
    columns = {"op": "STRING", "topic": "STRING", "partition": "INT", "offset": "BIGINT"}
    world.create({"id": "INT", "n": "INT", **columns, "op_ts": "TIMESTAMP(3) WITH LOCAL TIME ZONE"})
    with pytest.raises(UnsupportedFeature, match="has the primary key id"):
        world.run()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("deletes: soft", "each delete as a row of its own"),
        ("primary_key: [id]", "many rows of one key"),
        ("filter: 'n > 1'", "can't be followed"),
    ],
)
def test_settings_that_contradict_a_history_are_refused_with_the_configuration(setting: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        EvolvingWorld(table_settings=f"mode: append, {setting}").run()


# ---------------------------------------------------------------- truncates


@pytest.mark.parametrize("setting", [SOFT, APPEND])
def test_a_truncate_stops_a_table_that_keeps_deleted_rows(setting: str) -> None:
    world = EvolvingWorld(table_settings=setting, options=f"options: {{bucket: {-1 if setting == APPEND else 1}}}")
    append(world, "c", 1_000, 1, after={"id": 1, "n": 7, "v": "a"})
    append(world, "t", 2_000, 1)
    with pytest.raises(RecordRefused, match="keeps deleted rows"):
        world.run()
    assert [row["n"] for row in world.rows()] == [7]
