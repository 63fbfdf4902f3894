"""A column of the key becomes wider at the source: small tables are rewritten, the command is named for others."""

from __future__ import annotations

import base64
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pytest

from tests.ingest.evolution.world import TABLE, EvolvingWorld
from tests.support.faulty_file_io import Fault, FaultyFileIO, FaultyIOError, ProcessDied
from tests.support.levels import sample
from tidelake.errors import BadInput, CommitConflict, RecordRefused, TidelakeError
from tidelake.storage.ddl.schema_changes import AddColumn, RenameColumn, SchemaChange, SetOption, UpdateColumnType
from tidelake.storage.maintenance.verify import verify
from tidelake.table import Table

BIG = 2**40
NARROW = {"id": "INT", "v": "STRING"}


def unscaled(scale: int) -> Callable[[int], str]:
    """Connect's decimals: base64 of the unscaled integer."""

    def sent(number: int) -> str:
        digits = number * 10**scale
        return base64.b64encode(digits.to_bytes(digits.bit_length() // 8 + 1, "big", signed=True)).decode()

    return sent


@dataclass(frozen=True)
class Key:
    """The types of a key that gets wider, how records of both contain a number, and how a table does."""

    narrow: str
    wide: str
    narrow_sent: Callable[[int], Any] = int
    wide_sent: Callable[[int], Any] = int
    held: Callable[[int], Any] = int


INTEGER: Final = Key("INT", "BIGINT")
DECIMAL: Final = Key("DECIMAL(10, 2)", "DECIMAL(18, 2)", unscaled(2), unscaled(2), Decimal)
KEYS = pytest.mark.parametrize("key", [pytest.param(INTEGER, id="integers"), pytest.param(DECIMAL, id="decimals")])


def widening(settings: str = "", key: Key = INTEGER) -> EvolvingWorld:
    """Keys below and above zero: those below are in other buckets once they are wider."""
    narrow, wide = ({"id": kind, "v": "STRING"} for kind in (key.narrow, key.wide))
    world = EvolvingWorld(settings, options="options: {bucket: 3}")
    world.create(narrow, bucket=3)
    for number in range(-4, 4):
        world.add({"id": key.narrow_sent(number), "v": "a"}, narrow, partition=number % 2)
    for number in (-2, 1):
        world.add({"id": key.narrow_sent(number), "v": "b"}, narrow, op="u", partition=number % 2)
    world.add({"id": key.narrow_sent(-3), "v": "a"}, narrow, op="d", partition=1)
    world.add({"id": key.wide_sent(BIG), "v": "c"}, wide)
    world.add({"id": key.wide_sent(-4), "v": "d"}, wide, op="u")
    world.add({"id": key.wide_sent(3), "v": "a"}, wide, op="d", partition=1)
    return world


def expected(key: Key = INTEGER) -> list[dict[str, Any]]:
    values = ((-4, "d"), (-2, "b"), (-1, "a"), (0, "a"), (1, "b"), (2, "a"), (BIG, "c"))
    return [{"id": key.held(number), "v": value} for number, value in values]


@KEYS
def test_a_small_table_is_rewritten_and_continues(key: Key) -> None:
    world = widening(key=key)
    world.run()
    assert world.columns["id"] == key.wide
    assert (world.rows(), world.breaks()) == (expected(key), [])
    assert not verify(world.table)
    for row in expected(key):
        assert Table(world.table).scan(filter=f"id = {row['id']}").to_arrow().to_pylist() == [row]


def test_a_table_that_is_too_large_stops_and_names_the_command_that_lets_it_continue() -> None:
    world = widening("schema_evolution: {rewrite_keys_max_bytes: 0}")
    with pytest.raises(RecordRefused, match=r"tidelake table rewrite shop\.orders -w \S+ --set-type 'id BIGINT'"):
        world.run()
    assert world.columns["id"] == "INT"
    table_rewritten(world)
    world.run()
    assert (world.rows(), world.breaks()) == (expected(), [])


def table_rewritten(world: EvolvingWorld) -> int | None:
    from tidelake.catalog import Catalog  # noqa: PLC0415 - only some tests rewrite by hand

    return Catalog(world.catalog).rewrite_table(TABLE, [UpdateColumnType("id", "BIGINT")])


@pytest.mark.interop
@pytest.mark.sampled
@KEYS
def test_the_next_run_recovers_from_a_crash_in_any_call_and_readers_see_all_rows_in_between(key: Key) -> None:
    io = FaultyFileIO((world := widening(key=key)).store)
    world.run(io)
    faults = (Fault.BEFORE, Fault.AFTER)
    for number, fault in sample([(number, faults[number % 2]) for number in range(0, len(io.calls), 3)]):
        world = widening(key=key)
        io = FaultyFileIO(world.store)
        io.crash_call(number, fault)
        with suppress(TidelakeError, FaultyIOError, ProcessDied, BaseExceptionGroup):
            world.run(io)
        found = Table(world.table)
        ids = sorted(row["id"] for row in found.scan().to_arrow().to_pylist())
        assert len(ids) == len(set(ids)), f"call {number}, {fault}"
        for one in ids[:1] + ids[-1:]:
            assert [row["id"] for row in found.scan(filter=f"id = {one}").to_arrow().to_pylist()] == [one]
        world.run()
        assert (world.rows(), world.breaks()) == (expected(key), []), f"call {number}, {fault}"
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
    with pytest.raises(CommitConflict, match="rewritten with another key or with other types"):
        table.upsert(pa.table({"id": pa.array([1], pa.int32()), "v": ["b"]}))
    assert world.rows() == [{"id": 1, "v": "a"}]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda table: table.upsert([{"id": -1}, {"id": BIG}]), id="upsert"),
        pytest.param(lambda table: table.delete("id = -1"), id="delete"),
    ],
)
@pytest.mark.parametrize(
    "alterations",
    [
        pytest.param([], id="at once"),
        pytest.param([AddColumn("w", "INT")], id="after a new column"),
        pytest.param([RenameColumn("v", "w"), SetOption("snapshot.num-retained.min", "5")], id="after two alterations"),
    ],
)
def test_nothing_is_added_until_an_interrupted_rewrite_is_finished(
    change: Callable[[Table], object], alterations: list[SchemaChange], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wider key may belong to another bucket, where it would be a second row, which the rewrite then drops."""
    world = EvolvingWorld()
    world.create(NARROW, bucket=3)
    ids = list(range(-4, 4))
    Table(world.table).upsert(pa.table({"id": pa.array(ids, pa.int32()), "v": ["a"] * len(ids)}))

    def die(*_: object) -> None:
        raise ProcessDied

    with monkeypatch.context() as patched:
        patched.setattr("tidelake.compaction.table_rewrite._swap", die)
        with pytest.raises(ProcessDied):
            table_rewritten(world)
    assert world.columns["id"] == "BIGINT"
    for one in alterations:
        world.catalog.alter_table(TABLE, [one])
    before = world.rows()
    remedy = r"did not finish.*`tidelake table rewrite shop\.orders -w \S+`"
    with pytest.raises(CommitConflict, match=remedy):
        change(Table(world.table))
    assert world.rows() == before
    table_rewritten(world)
    assert world.rows() == before
    change(Table(world.table))
    assert not verify(world.table)


def test_a_column_outside_of_the_key_is_left_to_alter() -> None:
    from tidelake.catalog import Catalog  # noqa: PLC0415

    world = EvolvingWorld()
    world.create({**NARROW, "n": "INT"})
    with pytest.raises(BadInput, match="column 'n' is not part of the primary key"):
        Catalog(world.catalog).rewrite_table(TABLE, [UpdateColumnType("n", "BIGINT")])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("INT", "SMALLINT"),
        ("INT", "STRING"),
        ("INT", "DOUBLE"),
        ("INT", "DECIMAL(20, 0)"),
        ("DECIMAL(10, 2)", "DECIMAL(9, 2)"),
        ("DECIMAL(10, 2)", "DECIMAL(12, 1)"),
        ("DECIMAL(10, 2)", "DECIMAL(14, 4)"),
        ("DECIMAL(10, 2)", "DECIMAL(20, 2)"),  # stored in another form
        ("DECIMAL(10, 2)", "BIGINT"),
    ],
)
def test_keys_whose_order_or_values_could_change_are_refused(old: str, new: str) -> None:
    from tidelake.catalog import Catalog  # noqa: PLC0415

    world = EvolvingWorld()
    world.create({"id": old, "v": "STRING"})
    with pytest.raises(BadInput, match="can only become wider integers, longer texts, or decimals with more"):
        Catalog(world.catalog).rewrite_table(TABLE, [UpdateColumnType("id", new)])
