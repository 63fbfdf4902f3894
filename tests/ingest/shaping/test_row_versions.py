"""Tables that keep the versions of rows, in a pipeline."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ingest.evolution.world import EvolvingWorld
from tests.ingest.shaping.test_kept_changes import PLAIN, UNCHANGED, append
from tests.ingest.shaping.versions import Version, versions_of
from tests.support.faulty_file_io import Fault, FaultyFileIO
from tests.support.levels import examples, sample
from tests.support.recorded_truth import RecordedTable, differences, format_options_for, own_recorded
from tidelake.errors import BadInput, ConfigError, RecordRefused, UnsupportedFeature
from tidelake.ingest.pipeline.builder import build_pipeline
from tidelake.ingest.settings import Config, TableSettings
from tidelake.ingest.source_settings import FolderSettings
from tidelake.storage.catalog.filesystem import FileSystemCatalog
from tidelake.storage.fileio.base import FileIO
from tidelake.storage.fileio.local import LocalFileIO
from tidelake.table import Table

VERSIONS: Final = "mode: scd2, columns: {id: INT, n: INT, v: STRING}"

# (key, time, n); n is None for a delete
Change = tuple[int, int, int | None]
CHANGES: Final = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 9), st.none() | st.integers(0, 9)), max_size=25)


def capture(world: EvolvingWorld, changes: list[Change]) -> None:
    """Append the records of changes. A delete has only the key, as PostgreSQL sends it."""
    for key, time, n in changes:
        if n is None:
            append(world, "d", time, key, before={"id": key, "n": None, "v": None})
        else:
            append(world, "u", time, key, after={"id": key, "n": n, "v": f"at {time}"})


def ms(time: datetime | None) -> int | None:
    return None if time is None else round(time.timestamp() * 1000)


def versions_in(world: EvolvingWorld) -> list[Version]:
    """The versions in the table. `current` must agree with `valid_to`."""
    found = []
    for row in world.rows():
        assert row["current"] is (row["valid_to"] is None)
        is_marker = row["valid_from"] == row["valid_to"]
        assert not is_marker or (row["n"], row["v"]) == (None, None)
        values = None if is_marker else (row["n"], row["v"])
        found.append((row["id"], ms(row["valid_from"]), ms(row["valid_to"]), values))
    return sorted(found, key=lambda version: (str(version[0]), version[1]))


def expected(changes: list[Change]) -> list[Version]:
    return versions_of((key, time, None if n is None else (n, f"at {time}")) for key, time, n in changes)


# ---------------------------------------------------------------- which versions there are


@pytest.mark.parametrize("batch", [1, 10])
@pytest.mark.parametrize(
    ("changes", "versions"),
    [
        pytest.param([(1, 3, 0)], [(3, None)], id="an insert begins a version"),
        pytest.param([(1, 3, 0), (1, 5, 1)], [(3, 5), (5, None)], id="an update ends it and begins another one"),
        pytest.param([(1, 3, 0), (1, 5, None)], [(3, 5)], id="a delete ends it"),
        pytest.param([(1, 3, 0), (1, 5, None), (1, 8, 1)], [(3, 5), (8, None)], id="a row that comes back"),
        pytest.param([(1, 3, 0), (1, 9, 1), (1, 5, 2)], [(3, 5), (5, 9), (9, None)], id="a late update splits"),
        pytest.param([(1, 3, 0), (1, 9, 1), (1, 5, None)], [(3, 5), (9, None)], id="a late delete leaves a gap"),
        pytest.param([(1, 3, 0), (1, 2, 1)], [(2, 3), (3, None)], id="a change before the first one"),
        pytest.param([(1, 3, 0), (1, 5, None), (1, 4, 1)], [(3, 4), (4, 5)], id="a late update before a delete"),
        pytest.param([(1, 3, 0), (1, 5, None), (1, 4, None)], [(3, 4), (5, 5)], id="two deletes of one version"),
        pytest.param([(1, 5, None), (1, 3, 0)], [(3, 5)], id="a delete that arrives first"),
        pytest.param([(1, 3, 0), (1, 3, 1)], [(3, None)], id="two changes at one time"),
        pytest.param([(1, 3, 0), (1, 5, 1), (1, 3, 0), (1, 5, 1)], [(3, 5), (5, None)], id="records that arrive again"),
        pytest.param([(1, 3, 0), (1, 5, 1), (1, 5, None)], [(3, 5)], id="a row that is deleted when it changed"),
    ],
)
def test_the_versions_are_those_of_the_changes_by_time(
    changes: list[Change], versions: list[tuple[int, int | None]], batch: int
) -> None:
    world = EvolvingWorld(table_settings=VERSIONS)
    capture(world, [(0, 1, 0), *changes])  # a delete alone creates no table
    world.run(batch_records=batch)
    assert [version[1:3] for version in versions_in(world) if version[0] == 1] == versions
    assert versions_in(world) == expected([(0, 1, 0), *changes])


def test_the_table_has_the_time_in_its_key_and_all_versions_of_a_row_in_one_bucket() -> None:
    world = EvolvingWorld(table_settings=VERSIONS, options="options: {bucket: 3}")
    capture(world, [(1, 1, 1)])
    world.run()
    assert world.table.schema.primary_keys == ("id", "valid_from")
    assert world.table.schema.options["bucket-key"] == "id"
    ltz = "TIMESTAMP(3) WITH LOCAL TIME ZONE"
    columns = {"id": "INT", "n": "INT", "v": "STRING", "valid_from": ltz, "valid_to": ltz, "current": "BOOLEAN"}
    assert world.columns == columns


def test_the_columns_have_the_configured_names() -> None:
    names = "valid_from_column: since, valid_to_column: until, current_column: is_current"
    world = EvolvingWorld(table_settings=f"{VERSIONS}, {names}, primary_key: [id]")
    append(world, "c", 1_000, 1, after={"id": 1, "n": 7, "v": "ä"})
    append(world, "u", 2_000, 1, after={"id": 1, "n": None, "v": ""})
    world.run(batch_records=1)
    found = [(row["n"], row["v"], ms(row["since"]), ms(row["until"]), row["is_current"]) for row in world.rows()]
    assert found == [(7, "ä", 1_000, 2_000, False), (None, "", 2_000, None, True)]
    world.run()  # the key in the table is that of the configuration


def test_a_row_whose_key_changes_ends_under_its_old_key() -> None:
    world = EvolvingWorld(table_settings=VERSIONS)
    append(world, "c", 1_000, 1, after={"id": 1, "n": 7, "v": "a"})
    append(world, "d", 2_000, 1, before={"id": 1, "n": None, "v": None})
    append(world, "c", 2_000, 2, after={"id": 2, "n": 7, "v": "a"})
    world.run()
    assert [version[:3] for version in versions_in(world)] == [(1, 1_000, 2_000), (2, 2_000, None)]


def test_columns_that_are_added_later_are_null_in_older_versions() -> None:
    world = EvolvingWorld(table_settings="mode: scd2, columns: {n: INT}")
    append(world, "c", 1_000, 1, after={"id": 1, "n": 7})
    append(world, "u", 2_000, 1, after={"id": 1, "n": 8, "w": "new"})
    append(world, "u", 1_500, 1, after={"id": 1, "n": 9, "w": "late"})
    world.run(batch_records=1)
    found = [(row["n"], row["w"], ms(row["valid_from"]), ms(row["valid_to"])) for row in world.rows()]
    assert found == [(7, None, 1_000, 1_500), (9, "late", 1_500, 2_000), (8, "new", 2_000, None)]


def test_versions_may_be_in_partitions_that_are_computed_from_their_values() -> None:
    computed = "computed_columns: {part: 'truncate(n, 1)'}, primary_key: [id, part], partition_by: [part]"
    world = EvolvingWorld(table_settings=f"{VERSIONS}, {computed}")
    changes: list[Change] = [(1, 1, 1), (1, 5, 2), (1, 3, 3), (1, 5, 4), (1, 7, 5)]
    capture(world, changes)
    world.run(batch_records=1)
    assert world.table.schema.primary_keys == ("id", "part", "valid_from")
    assert versions_in(world) == expected(changes)
    assert sorted((row["n"], int(row["part"])) for row in world.rows()) == [(1, 1), (3, 3), (4, 4), (5, 5)]


OPTIONS: Final = ("bucket: 1", "bucket: 3", "bucket: -1", "bucket: 1, changelog-producer: lookup")


@settings(max_examples=examples(60))
@given(CHANGES, st.integers(1, 7), st.integers(0, 25), st.sampled_from(OPTIONS))
def test_late_and_repeated_changes_give_the_versions_of_a_dictionary(
    changes: list[Change], batch: int, stops: int, options: str
) -> None:
    world = EvolvingWorld(table_settings=VERSIONS, options=f"options: {{{options}}}")
    for part in ([(0, 5, 0), *changes[:stops]], changes[stops:], changes[:3]):
        capture(world, part)
        world.run(batch_records=batch)
    assert versions_in(world) == expected([(0, 5, 0), *changes, *changes[:3]])


@settings(max_examples=examples(25))
@given(CHANGES, st.integers(1, 7), st.integers(0, 25))
def test_the_versions_of_a_time_are_the_ordinary_table_of_that_time(
    changes: list[Change], batch: int, stops: int
) -> None:
    in_order = [(0, 0, 0), *((key, at + 1, n) for at, (key, _, n) in enumerate(changes))]
    world, ordinary = EvolvingWorld(table_settings=VERSIONS), EvolvingWorld(table_settings=PLAIN)
    capture(world, in_order)
    world.run(batch_records=batch)
    versions = versions_in(world)
    for part, is_end in ((in_order[: stops + 1], False), (in_order[stops + 1 :], True)):
        capture(ordinary, part)
        ordinary.run(batch_records=batch)
        time = part[-1][1] if part else stops
        at_time = [v for v in versions if v[1] <= time and (v[2] is None or time < v[2])]
        rows = [(row["id"], row["n"], row["v"]) for row in ordinary.rows()]
        assert [(key, *(values or ())) for key, _, _, values in at_time] == rows
        if is_end:
            assert [v for v in versions if v[2] is None] == at_time


# ---------------------------------------------------------------- kills


@pytest.mark.exhaustive
@pytest.mark.sampled
@pytest.mark.parametrize("fault", [Fault.AFTER, Fault.BEFORE])
def test_a_process_that_is_killed_at_any_call_leaves_no_version_out_and_none_twice(fault: Fault) -> None:
    first: list[Change] = [(key, time, time) for time in (2, 4, 6) for key in (1, 2)]
    second: list[Change] = [(1, 5, 50), (2, 3, None), (1, 4, 40), (2, 8, None), (3, 1, 1), (1, 7, None), (2, 7, 70)]

    def begun() -> EvolvingWorld:
        world = EvolvingWorld(table_settings=VERSIONS)
        capture(world, first)
        world.run()
        capture(world, second)
        return world

    world = begun()
    io = FaultyFileIO(world.store)
    world.run(io)
    assert versions_in(world) == expected([*first, *second])
    assert len(io.calls) > 60
    for number in sample(range(1, len(io.calls) + 1)):
        world = begun()
        io = FaultyFileIO(world.store)
        io.crash_call(number, fault)
        with suppress(BaseException):
            world.run(io)
        world.run()
        assert versions_in(world) == expected([*first, *second]), number
        assert world.breaks() == []


# ---------------------------------------------------------------- captures of a real database


@pytest.mark.exhaustive(kept=2)
@pytest.mark.parametrize("kill_at", [None, 60, 130])
@pytest.mark.parametrize("name", ["orders", "customers"])
def test_the_current_versions_of_a_capture_are_the_database_and_all_are_those_of_its_history(
    name: str, kill_at: int | None, tmp_path: Path
) -> None:
    recorded = own_recorded(f"pg-shop/json-schema/{name}")
    if kill_at is not None:
        io = FaultyFileIO(LocalFileIO())
        io.crash_call(kill_at, Fault.AFTER)
        with suppress(BaseException):
            run_capture(recorded, tmp_path, io)
    run_capture(recorded, tmp_path)
    catalog = FileSystemCatalog(LocalFileIO(), str(tmp_path / "lake"))
    versions, history = (Table(catalog.load(f"shop.{one}")).scan().to_arrow() for one in ("versions", "history"))
    made = ["valid_from", "valid_to", "current"]
    assert differences(recorded, versions.filter(versions["current"]).drop_columns(made)) == []
    found = found_versions(versions, recorded.primary_key)
    assert found == versions_of(changes_of(history, recorded.primary_key))
    assert len(found) > sum(version[2] is None for version in found)


def run_capture(recorded: RecordedTable, folder: Path, io: FileIO | None = None) -> None:
    (folder / "log").mkdir(exist_ok=True)
    for path in recorded.files:
        shutil.copyfile(path, folder / "log" / path.name)
    common: dict[str, Any] = {"match": list(recorded.topics), "source_types": dict(recorded.source_types)}
    with format_options_for(recorded) as options:
        config = Config(
            pipeline="truth",
            warehouse=str(folder / "lake"),
            source=FolderSettings(path=folder / "log", until="end"),
            format=recorded.format,
            format_options=options,
            tables=[
                TableSettings(name="shop.versions", mode="scd2", **common),
                TableSettings(name="shop.history", mode="append", options={"bucket": "-1"}, **common),
            ],
        )
        asyncio.run(build_pipeline(config, io=io).run())


def with_numbers(table: pa.Table) -> pa.Table:
    """The table with times as numbers: Python has no year 294247."""
    fields = [f.with_type(pa.int64()) if pa.types.is_timestamp(f.type) else f for f in table.schema]
    return table.cast(pa.schema(fields))


def changes_of(history: pa.Table, key: tuple[str, ...]) -> list[tuple[Any, Any, Any]]:
    """The changes in a history, in the order of a log with one partition."""
    rows = sorted(
        with_numbers(history).to_pylist(), key=lambda row: (row["partition"], row["offset"], row["op"] in ("+I", "+U"))
    )
    names = [name for name in history.schema.names if name not in ("op", "topic", "partition", "offset", "op_ts")]
    return [
        (
            tuple(row[name] for name in key),
            row["op_ts"],
            tuple(repr(row[name]) for name in names) if row["op"] in ("+I", "+U") else None,
        )
        for row in rows
        if row["op"] != "-U"
    ]


def found_versions(versions: pa.Table, key: tuple[str, ...]) -> list[Version]:
    names = [name for name in versions.schema.names if name not in ("valid_from", "valid_to", "current")]
    found = [
        (
            tuple(row[name] for name in key),
            row["valid_from"],
            row["valid_to"],
            None if row["valid_from"] == row["valid_to"] else tuple(repr(row[name]) for name in names),
        )
        for row in with_numbers(versions).to_pylist()
    ]
    return sorted(found, key=lambda version: (str(version[0]), version[1]))


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    "options",
    ["merge-engine: first-row", "changelog-producer: input", "ignore-delete: true", "sequence.field: n"],
)
def test_a_table_that_can_t_replace_a_version_is_refused(options: str) -> None:
    world = EvolvingWorld(table_settings=VERSIONS, options=f"options: {{bucket: 1, {options}}}")
    capture(world, [(1, 1, 1)])
    with pytest.raises(UnsupportedFeature, match="`mode: scd2` of shop"):
        world.run()


def test_a_table_without_the_time_in_its_key_is_refused() -> None:
    world = EvolvingWorld(table_settings=VERSIONS)
    ltz = "TIMESTAMP(3) WITH LOCAL TIME ZONE"
    columns = {"id": "INT", "n": "INT", "v": "STRING", "valid_from": ltz, "valid_to": ltz, "current": "BOOLEAN"}
    world.create(columns)
    with pytest.raises(UnsupportedFeature, match=r"that of the source's rows and valid_from, but it is \(id\)"):
        world.run()


def test_a_table_without_the_columns_is_refused_with_the_command_that_adds_them() -> None:
    world = EvolvingWorld(table_settings="mode: scd2")
    world.create({"id": "INT", "n": "INT"})
    with pytest.raises(BadInput, match="lacks the derived column valid_from, valid_to, current"):
        world.run()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("deletes: soft", "versions of a deleted row stay anyway"),
        ("filter: 'n > 1'", "would look like deletes"),
        ("valid_to_column: valid_from", "choose another `valid_to_column`"),
        ("current_column: topic, metadata_columns: [topic]", "choose another `current_column`"),
    ],
)
def test_settings_that_contradict_versions_are_refused(setting: str, message: str) -> None:
    with pytest.raises((ConfigError, BadInput), match=message):
        EvolvingWorld(table_settings=f"mode: scd2, {setting}").run()


def test_an_update_that_leaves_out_a_value_is_refused() -> None:
    world = EvolvingWorld(table_settings=VERSIONS)
    append(world, "c", 1_000, 1, after={"id": 1, "n": 7, "v": "long"})
    append(world, "u", 2_000, 1, after={"id": 1, "n": 8, "v": UNCHANGED})
    with pytest.raises(RecordRefused, match="a version of a row needs all values"):
        world.run()


def test_a_truncate_stops_the_table() -> None:
    world = EvolvingWorld(table_settings=VERSIONS)
    capture(world, [(1, 1, 1)])
    append(world, "t", 2_000, 1)
    with pytest.raises(RecordRefused, match=r"keeps deleted rows \(`mode: scd2`\)"):
        world.run()
    assert versions_in(world) == expected([(1, 1, 1)])
