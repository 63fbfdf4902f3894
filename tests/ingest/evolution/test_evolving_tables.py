"""The source columns change while a pipeline reads: the table follows, the pipeline stops, or the table is
unchanged.
"""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ingest.evolution.world import TABLE, EvolvingWorld
from tests.support.faulty_file_io import Call, Fault, FaultyFileIO, FaultyIOError, ProcessDied
from tests.support.levels import examples, sample
from tests.support.memory_log import MemoryLogSource
from tidelake.errors import RecordRefused, TidelakeError
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.pipeline.builder import build_pipeline
from tidelake.storage.ddl.schema_changes import AddColumn, DropColumn, UpdateColumnType
from tidelake.storage.maintenance.verify import verify
from tidelake.table import Table

ALL = "schema_evolution: {mode: %s, include: [add, alter, rename, drop]}"


def test_a_new_column_is_added_and_is_null_in_older_rows() -> None:
    world = EvolvingWorld()
    world.add({"id": 1, "v": "a"}, {"id": "INT", "v": "STRING"})
    world.add({"id": 2, "v": "b", "n": 7}, {"id": "INT", "v": "STRING", "n": "BIGINT"})
    world.run()
    assert world.columns == {"id": "INT", "v": "STRING", "n": "BIGINT"}
    assert world.rows() == [{"id": 1, "v": "a", "n": None}, {"id": 2, "v": "b", "n": 7}]
    assert not world.breaks()


def test_a_new_column_of_records_without_a_schema_is_a_text() -> None:
    world = EvolvingWorld()
    world.add({"id": 1, "v": "a"})
    world.add({"id": 2, "v": "b", "n": 7.50})
    world.run()
    assert world.columns == {"id": "STRING", "v": "STRING", "n": "STRING"}
    assert world.rows()[1] == {"id": "2", "v": "b", "n": "7.5"}


@pytest.mark.parametrize(
    ("old", "new", "before", "after", "held"),
    [
        ("INT", "BIGINT", 5, 2**40, [5, 2**40]),
        ("SMALLINT", "INT", 5, 6, [5, 6]),  # the schema says it before a value needs it
        ("FLOAT", "DOUBLE", 0.5, 0.1, [0.5, 0.1]),
    ],
)
def test_a_column_is_widened_with_the_source(old: str, new: str, before: Any, after: Any, held: list[Any]) -> None:
    world = EvolvingWorld()
    world.add({"id": 1, "v": before}, {"id": "INT", "v": old})
    world.add({"id": 2, "v": after}, {"id": "INT", "v": new})
    world.add({"id": 3, "v": before}, {"id": "INT", "v": old})  # of an older schema still
    world.run()
    assert world.columns["v"] == new
    assert [row["v"] for row in world.rows()] == [*held, held[0]]


def test_widening_the_scale_keeps_the_integer_digits() -> None:
    world = EvolvingWorld()
    world.add({"id": 1, "v": "SZYC0g=="}, {"id": "INT", "v": "DECIMAL(14,2)"})
    world.add({"id": 2, "v": "AQ=="}, {"id": "INT", "v": "DECIMAL(12,6)"})
    world.run()
    assert world.columns["v"] == "DECIMAL(18, 6)"
    assert [str(row["v"]) for row in world.rows()] == ["12345678.90" + "0000", "0.000001"]


def test_an_existing_table_keeps_its_types_until_a_value_needs_a_wider_one() -> None:
    world = EvolvingWorld()
    world.create({"id": "INT", "v": "VARCHAR(3)"})
    world.add({"id": 1, "v": "abc"}, {"id": "INT", "v": "STRING"})
    world.run()
    assert world.columns["v"] == "VARCHAR(3)"
    world.add({"id": 2, "v": "abcd"}, {"id": "INT", "v": "STRING"})
    world.run()
    assert world.columns["v"] == "STRING"
    assert [row["v"] for row in world.rows()] == ["abc", "abcd"]


def test_a_string_never_changes_the_unit_of_numbers_without_a_schema() -> None:
    world = EvolvingWorld("errors: {tolerance: all}")
    world.create({"id": "INT", "v": "TIMESTAMP(3)"})
    world.add({"id": 1, "v": 1_700_000_000_000})
    world.add({"id": 2, "v": "2023-11-14T22:13:20.123456Z"})
    world.add({"id": 3, "v": 1_700_000_000_000})
    assert world.run().dead_letters == 1
    assert world.columns["v"] == "TIMESTAMP(3)"
    assert [(row["id"], str(row["v"])) for row in world.rows()] == [
        (1, "2023-11-14 22:13:20"),
        (3, "2023-11-14 22:13:20"),
    ]


def test_a_string_widens_a_column_whose_numbers_declare_their_unit() -> None:
    world = EvolvingWorld("", "source_types: {v: timestamp ms}")
    world.create({"id": "INT", "v": "TIMESTAMP(3)"})
    world.add({"id": 1, "v": 1_700_000_000_000})
    world.add({"id": 2, "v": "2023-11-14T22:13:20.123456Z"})
    world.add({"id": 3, "v": 1_700_000_000_000})
    world.run()
    assert world.columns["v"] == "TIMESTAMP(6)"
    moments = ["2023-11-14 22:13:20", "2023-11-14 22:13:20.123456", "2023-11-14 22:13:20"]
    assert [str(row["v"]) for row in world.rows()] == moments


def test_a_column_is_not_widened_if_its_rows_would_not_fit_and_the_pipeline_continues_once_it_rounds() -> None:
    world = EvolvingWorld()
    world.create({"id": "INT", "t": "TIMESTAMP(6)"})
    types = {"id": "INT", "t": "STRING"}  # texts, which are read in any column of times
    world.add({"id": 1, "t": "9999-12-31T23:59:59Z"}, types)
    world.add({"id": 2, "t": "2020-01-01T00:00:00.1234567Z"}, types)
    world.add({"id": 3, "t": "9999-12-31T23:59:59Z"}, types)
    with pytest.raises(RecordRefused, match=r"rows have times such as 9999-12-31 23:59:59, and TIMESTAMP\(9\)"):
        world.run()
    assert world.columns["t"] == "TIMESTAMP(6)"
    assert [row["id"] for row in world.rows()] == [1]
    world.settings = "format_options: {inexact_values: round}"
    world.run()
    assert [str(row["t"]) for row in world.rows()] == [
        "9999-12-31 23:59:59",
        "2020-01-01 00:00:00.123456",
        "9999-12-31 23:59:59",
    ]


def test_a_value_that_the_finer_type_would_not_hold_does_not_widen_its_column() -> None:
    world = EvolvingWorld()
    world.create({"id": "INT", "t": "TIMESTAMP(6)"})
    world.add({"id": 1, "t": "9999-12-31T23:59:59.1234567Z"}, {"id": "INT", "t": "STRING"})
    with pytest.raises(RecordRefused, match="can't become STRING"):
        world.run()
    assert world.columns["t"] == "TIMESTAMP(6)"


def test_a_field_inside_a_column_is_added() -> None:
    world = EvolvingWorld()
    world.create({"id": "INT", "v": "ROW<a INT>"})
    world.add({"id": 1, "v": {"a": 1, "b": "x"}})
    world.run()
    assert world.rows() == [{"id": 1, "v": {"a": 1, "b": "x"}}]


def test_alternating_partitions_with_many_changes_in_one_batch_evolve_correctly() -> None:
    world = EvolvingWorld()
    types = {"id": "INT"}
    for number in range(1, 7):
        types[f"c{number}"] = "INT"
        world.add({"id": number, **dict.fromkeys(list(types)[1:], number)}, dict(types), partition=number % 2)
    world.run(batch_records=10)
    assert [[row[f"c{n}"] for n in range(1, 7)] for row in world.rows()] == [
        [number] * number + [None] * (6 - number) for number in range(1, 7)
    ]
    assert not world.breaks()


# ---------------------------------------------------------------- modes


def changed(mode: str, tolerance: str = "none") -> EvolvingWorld:
    world = EvolvingWorld(f"{ALL % mode}, errors: {{tolerance: {tolerance}}}")
    world.create({"id": "INT", "v": "INT"})
    world.add({"id": 1, "v": 1})
    world.add({"id": 2, "v": 2, "n": 7})
    world.add({"id": 3, "v": 2**40})
    return world


def test_exception_stops_at_the_first_change_and_earlier_records_are_committed() -> None:
    world = changed("exception")
    with pytest.raises(RecordRefused, match=r"column 'n' is not in table shop.orders; add it with `tidelake table"):
        world.run()
    assert world.rows() == [{"id": 1, "v": 1}]


@pytest.mark.parametrize("mode", ["evolve", "try_evolve", "lenient"])
def test_these_modes_follow_the_change(mode: str) -> None:
    world = changed(mode)
    world.run()
    assert world.rows() == [
        {"id": 1, "v": 1, "n": None},
        {"id": 2, "v": 2, "n": "7"},
        {"id": 3, "v": 2**40, "n": None},
    ]


def test_ignore_drops_new_columns_and_values_that_do_not_fit_are_bad_records(caplog: pytest.LogCaptureFixture) -> None:
    world = changed("ignore", tolerance="all")
    progress = world.run()
    assert world.rows() == [{"id": 1, "v": 1}, {"id": 2, "v": 2}]
    assert (progress.dead_letters, len(world.dead_letters())) == (1, 1)
    assert caplog.text.count("schema change ignored") == 2


def test_ignored_columns_do_not_slow_the_others_down() -> None:
    world = EvolvingWorld("schema_evolution: {mode: ignore}")
    world.create({"id": "INT", "v": "INT"})
    for number in range(20):
        world.add({"id": number, "v": number, "n": {"x": [number]}})
    world.run(batch_records=20)
    assert [row["v"] for row in world.rows()] == list(range(20))


UNFIT = [
    pytest.param({"id": "INT", "v": "INT"}, {"id": 2, "v": 1.5}, r"INT can't become", id="another kind"),
    pytest.param({"id": "INT", "v": "INT"}, {"id": 1.5, "v": 1}, "INT can't become", id="a key"),
]


@pytest.mark.parametrize(("columns", "row", "reason"), UNFIT)
def test_evolve_stops_at_a_value_that_no_schema_change_can_hold(
    columns: dict[str, str], row: dict[str, Any], reason: str
) -> None:
    world = EvolvingWorld("errors: {tolerance: all}")
    world.create(columns)
    world.add({"id": 1, "v": 1})
    world.add(row)
    with pytest.raises(RecordRefused, match=reason):
        world.run()
    assert world.rows() == [{"id": 1, "v": 1}]


@pytest.mark.parametrize(("columns", "row", "reason"), UNFIT)
def test_try_evolve_continues_with_a_dead_letter(columns: dict[str, str], row: dict[str, Any], reason: str) -> None:
    world = EvolvingWorld("schema_evolution: {mode: try_evolve}, errors: {tolerance: all}")
    world.create(columns)
    world.add({"id": 1, "v": 1})
    world.add(row)
    world.add({"id": 3, "v": 3})
    world.run()
    assert [row["id"] for row in world.rows()] == [1, 3]
    assert len(world.dead_letters()) == 1


# ---------------------------------------------------------------- other writers


class Meddler(FaultyFileIO):
    """Another writer alters the table once, just before our first snapshot with rows."""

    def __init__(self, world: EvolvingWorld, *changes: Any) -> None:
        super().__init__(world.store, self._meddle)
        self._world, self._changes = world, list(changes)

    def _meddle(self, call: Call) -> Fault | None:
        if self._changes and call.file_name == "snapshot-2" and call.name == "create_if_absent":
            changes, self._changes = self._changes, []
            self._world.catalog.alter_table(TABLE, changes)
        return None


@pytest.mark.parametrize(
    ("changes", "columns"),
    [
        pytest.param(
            [AddColumn("n", "BIGINT")], {"id": "INT", "v": "INT", "n": "BIGINT"}, id="the column that will be needed"
        ),
        pytest.param(
            [AddColumn("x", "INT"), UpdateColumnType("v", "BIGINT")],
            {"id": "INT", "v": "BIGINT", "x": "INT", "n": "STRING"},
            id="others",
        ),
    ],
)
def test_a_schema_change_of_another_writer_is_detected_and_adopted(changes: list[Any], columns: dict[str, str]) -> None:
    world = EvolvingWorld()
    world.create({"id": "INT", "v": "INT"})
    for number in range(6):
        world.add({"id": number, "v": number} | ({"n": number} if number > 3 else {}))
    world.run(Meddler(world, *changes))
    assert world.columns == columns
    assert [None if row["n"] is None else int(row["n"]) for row in world.rows()] == [None] * 4 + [4, 5]


class Undoer(FaultyFileIO):
    """Another writer immediately drops each column that we add."""

    def __init__(self, world: EvolvingWorld) -> None:
        super().__init__(world.store, self._undo)
        self._world = world
        self._is_added = False
        self._undoing = threading.Lock()  # requests that go out side by side see the table before or after
        self.undone = 0

    def _undo(self, call: Call) -> Fault | None:
        with self._undoing:
            if self._is_added:
                self._world.catalog.alter_table(TABLE, [DropColumn("n")])
                self.undone += 1
            self._is_added = call.name == "create_if_absent" and call.file_name.startswith("schema-")
        return None


def test_a_record_whose_change_is_repeatedly_undone_stops_the_pipeline() -> None:
    world = EvolvingWorld()
    world.create({"id": "INT", "v": "INT"})
    world.add({"id": 1, "v": 1})
    world.add({"id": 2, "v": 2, "n": 2})
    undoer = Undoer(world)
    with pytest.raises(
        RecordRefused, match="The table's schema can't be changed: its table was changed 100 times for this record"
    ):
        world.run(undoer)
    assert undoer.undone == 100
    assert world.rows() == [{"id": 1, "v": 1}]


def test_our_own_schema_change_is_not_logged_as_one_of_another_writer(caplog: pytest.LogCaptureFixture) -> None:
    world = EvolvingWorld()
    for number in range(20):
        world.add({"id": number, "v": number} | ({"n": "x"} if number > 3 else {}))
    with caplog.at_level("INFO"):
        world.run(batch_records=20)  # one batch, in which many records need what the first of them brings
    (reported,) = [record.getMessage() for record in caplog.records if record.getMessage().startswith("schema changed")]
    assert "add n STRING" in reported


def test_a_column_dropped_by_another_writer_stays_dropped_if_the_mode_says_so() -> None:
    world = EvolvingWorld("schema_evolution: {mode: ignore}")
    world.create({"id": "INT", "v": "INT", "n": "INT"})
    for number in range(6):
        world.add({"id": number, "v": number, "n": number})
    world.run(Meddler(world, DropColumn("n")))
    world.run()
    assert world.columns == {"id": "INT", "v": "INT"}
    assert [row["v"] for row in world.rows()] == list(range(6))


# ---------------------------------------------------------------- crashes


def changing() -> EvolvingWorld:
    """Two partitions whose records add two columns and widen one, a checkpoint every few records."""
    world = EvolvingWorld()
    old = {"id": "INT", "v": "INT"}
    new = {**old, "v": "BIGINT", "n": "STRING"}
    newest = {**new, "m": "DOUBLE"}
    for number in range(3):
        world.add({"id": number, "v": number}, old, partition=number % 2)
    for number in range(2, 5):
        world.add({"id": number, "v": 2**40, "n": "x"}, new, partition=number % 2)
    world.add({"id": 5, "v": 5, "n": "y", "m": 0.5}, newest)
    world.add({"id": 0, "v": 0, "n": None, "m": None}, newest, op="d")
    world.add({"id": 6, "v": 6}, old, partition=1)
    return world


def truth() -> list[dict[str, Any]]:
    world = changing()
    world.run()
    return world.rows()


@pytest.mark.interop
@pytest.mark.sampled
def test_the_next_run_recovers_from_a_crash_in_any_call() -> None:
    expected = truth()
    assert [row["id"] for row in expected] == [1, 2, 3, 4, 5, 6]
    io = FaultyFileIO((world := changing()).store)
    world.run(io)
    faults = (Fault.BEFORE, Fault.AFTER)
    points = [(number, faults[number % 2]) for number in range(len(io.calls))]
    for number, fault in sample(points):
        world = changing()
        io = FaultyFileIO(world.store)
        io.crash_call(number, fault)
        with suppress(TidelakeError, FaultyIOError, ProcessDied, BaseExceptionGroup):
            world.run(io)
        world.run()
        assert (world.rows(), world.breaks()) == (expected, []), f"call {number}, {fault}"
        assert not verify(world.table)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4))
@settings(max_examples=examples(20))
def test_the_rows_do_not_depend_on_batch_boundaries(sizes: list[int]) -> None:
    """Each run reads a log that has grown, in batches of another size."""
    world, whole = changing(), changing()
    records = {partition: list(found) for partition, found in whole.log.records.items()}
    for at, size in enumerate(sizes, start=1):
        for partition, found in records.items():
            world.log.records[partition] = found[: len(found) * at // len(sizes)]
        world.run(batch_records=size)
    assert world.rows() == truth()
    assert not world.breaks()


def test_tables_that_change_in_one_batch_change_together() -> None:
    """A commit of all tables for each change would make a source of many tables wait for every one of them."""
    world, tables = EvolvingWorld(), range(20)
    for columns in ({}, {"new": "x"}, {"new": "y", "newer": "z"}):
        for number in tables:
            origin = {"connector": "mysql", "db": "shop", "table": f"t{number}"}
            for id_ in (len(columns), len(columns) + 10):
                value = {"before": None, "after": {"id": id_, **columns}, "source": origin, "op": "c"}
                world.log.append("shop", json.dumps(value).encode(), json.dumps({"id": id_}).encode())
    text = (
        f"{{warehouse: '{world.warehouse}', source: {{type: change-log-folder, path: /unused}}, "
        "tables: [{name: 'shop.{table}', options: {bucket: 1}}]}"
    )
    config = parse_config(text, "many.yaml", (), {}, "many")
    source = MemoryLogSource(world.log, batch_records=1_000)
    progress = asyncio.run(build_pipeline(config, io=world.store, open_source=lambda: source).run())
    for number in tables:
        table = world.catalog.load(f"shop.t{number}")
        assert table.schema.names == ("id", "new", "newer")
        rows = Table(table).scan().to_arrow().sort_by("id").to_pylist()
        assert {row["id"]: (row["new"], row["newer"]) for row in rows} == dict.fromkeys(("0", "10"), (None, None)) | (
            dict.fromkeys(("1", "11"), ("x", None)) | dict.fromkeys(("2", "12"), ("y", "z"))
        )
    assert progress.checkpoints <= 4
