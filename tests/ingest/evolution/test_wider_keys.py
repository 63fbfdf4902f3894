"""A column of the key becomes wider at the source: small tables are rewritten, the command is named for others."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest

from tests.ingest.evolution.world import TABLE, EvolvingWorld
from tests.support.faulty_file_io import Fault, FaultyFileIO, FaultyIOError, ProcessDied
from tests.support.levels import sample
from tidelake.errors import BadInput, CommitConflict, RecordRefused, TidelakeError
from tidelake.storage.ddl.schema_changes import UpdateColumnType
from tidelake.storage.maintenance.verify import verify
from tidelake.table import Table

BIG = 2**40
NARROW, WIDE = {"id": "INT", "v": "STRING"}, {"id": "BIGINT", "v": "STRING"}


def widening(settings: str = "") -> EvolvingWorld:
    """Keys below and above zero: those below are in other buckets once they are wider."""
    world = EvolvingWorld(settings, options="options: {bucket: 3}")
    world.create(NARROW, bucket=3)
    for number in range(-4, 4):
        world.add({"id": number, "v": "a"}, NARROW, partition=number % 2)
    for number in (-2, 1):
        world.add({"id": number, "v": "b"}, NARROW, op="u", partition=number % 2)
    world.add({"id": -3, "v": "a"}, NARROW, op="d", partition=1)
    world.add({"id": BIG, "v": "c"}, WIDE)
    world.add({"id": -4, "v": "d"}, WIDE, op="u")
    world.add({"id": 3, "v": "a"}, WIDE, op="d", partition=1)
    return world


EXPECTED = [
    {"id": number, "v": value}
    for number, value in ((-4, "d"), (-2, "b"), (-1, "a"), (0, "a"), (1, "b"), (2, "a"), (BIG, "c"))
]


def test_a_small_table_is_rewritten_and_continues() -> None:
    world = widening()
    world.run()
    assert world.columns["id"] == "BIGINT"
    assert (world.rows(), world.breaks()) == (EXPECTED, [])
    assert not verify(world.table)
    for row in EXPECTED:
        assert Table(world.table).scan(filter=f"id = {row['id']}").to_arrow().to_pylist() == [row]


def test_a_table_that_is_too_large_stops_and_names_the_command_that_lets_it_continue() -> None:
    world = widening("schema_evolution: {rewrite_keys_max_bytes: 0}")
    with pytest.raises(RecordRefused, match=r"tidelake table rewrite shop\.orders -w \S+ --set-type 'id BIGINT'"):
        world.run()
    assert world.columns["id"] == "INT"
    table_rewritten(world)
    world.run()
    assert (world.rows(), world.breaks()) == (EXPECTED, [])


def table_rewritten(world: EvolvingWorld) -> int | None:
    from tidelake.catalog import Catalog  # noqa: PLC0415 - only some tests rewrite by hand

    return Catalog(world.catalog).rewrite_table(TABLE, [UpdateColumnType("id", "BIGINT")])


@pytest.mark.sampled
def test_the_next_run_recovers_from_a_crash_in_any_call_and_readers_see_all_rows_in_between() -> None:
    io = FaultyFileIO((world := widening()).store)
    world.run(io)
    faults = (Fault.BEFORE, Fault.AFTER)
    for number, fault in sample([(number, faults[number % 2]) for number in range(0, len(io.calls), 3)]):
        world = widening()
        io = FaultyFileIO(world.store)
        io.crash_call(number, fault)
        with suppress(TidelakeError, FaultyIOError, ProcessDied, BaseExceptionGroup):
            world.run(io)
        found = Table(world.table)
        ids = sorted(row["id"] for row in found.scan().to_arrow().to_pylist())
        assert len(ids) == len(set(ids)), f"call {number}, {fault}"
        for key in ids[:1] + ids[-1:]:
            assert [row["id"] for row in found.scan(filter=f"id = {key}").to_arrow().to_pylist()] == [key]
        world.run()
        assert (world.rows(), world.breaks()) == (EXPECTED, []), f"call {number}, {fault}"
        assert not verify(world.table)


def test_a_rewrite_keeps_tags_and_followers_and_older_snapshots() -> None:
    world = widening("schema_evolution: {rewrite_keys_max_bytes: 0}")
    with pytest.raises(RecordRefused):
        world.run()
    before: list[dict[str, Any]] = world.rows()
    table = Table(world.table)
    table.create_tag("before")
    last = world.table.snapshots.latest_id() or 0
    table_rewritten(world)
    widened = Table(world.table)
    assert sorted(widened.scan(tag="before").to_arrow().to_pylist(), key=lambda row: row["id"]) == before
    assert widened.scan(between=(last, world.table.snapshots.latest_id() or 0)).count() == 0
    assert world.rows() == before


def test_a_writer_with_the_old_key_is_refused_after_a_rewrite() -> None:
    world = EvolvingWorld()
    world.create(NARROW)
    table = Table(world.table)
    table.upsert(pa.table({"id": pa.array([1], pa.int32()), "v": ["a"]}))
    table_rewritten(world)
    with pytest.raises(CommitConflict, match="rewritten with other types of its key columns"):
        table.upsert(pa.table({"id": pa.array([1], pa.int32()), "v": ["b"]}))
    assert world.rows() == [{"id": 1, "v": "a"}]


def test_a_column_outside_of_the_key_is_left_to_alter() -> None:
    from tidelake.catalog import Catalog  # noqa: PLC0415

    world = EvolvingWorld()
    world.create({**NARROW, "n": "INT"})
    with pytest.raises(BadInput, match="column 'n' is not part of the primary key"):
        Catalog(world.catalog).rewrite_table(TABLE, [UpdateColumnType("n", "BIGINT")])


@pytest.mark.parametrize("kind", ["SMALLINT", "STRING", "DOUBLE", "DECIMAL(20, 0)"])
def test_keys_whose_order_or_values_could_change_are_refused(kind: str) -> None:
    from tidelake.catalog import Catalog  # noqa: PLC0415

    world = EvolvingWorld()
    world.create(NARROW)
    with pytest.raises(BadInput, match="can only become wider integers or longer texts"):
        Catalog(world.catalog).rewrite_table(TABLE, [UpdateColumnType("id", kind)])
