"""A pipeline whose table is rewritten while it runs: with another key, other buckets, another merge engine."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Final

import pytest

from tests.ingest.evolution.world import PIPELINE, TABLE, EvolvingWorld
from tests.ingest.formats.debezium.changes import change
from tests.support.memory_log import MemoryLogSource
from tidelake.catalog import Catalog
from tidelake.errors import BadInput, CommitConflict
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.pipeline.builder import build_pipeline
from tidelake.ingest.tables.table_sink import TableSink
from tidelake.storage.ddl.schema_changes import RewriteChange, SetOption, UpdatePrimaryKey
from tidelake.storage.maintenance.verify import verify
from tidelake.table import Table

COLUMNS: Final = {"id": "INT", "region": "STRING", "v": "STRING"}
KEY: Final = UpdatePrimaryKey(("id", "region"))


def new_world(options: str = "") -> EvolvingWorld:
    world = EvolvingWorld(options=options)
    world.create(COLUMNS, bucket=3)
    for number in range(12):
        world.add({"id": number, "region": f"r{number % 3}", "v": "a"}, COLUMNS)
    for number in (1, 5, 7):
        row = {"id": number, "region": f"r{number % 3}"}
        world.add({**row, "v": "b"}, COLUMNS, op="u", before={**row, "v": "a"})
    world.add({"id": 4, "region": "r1", "v": "a"}, COLUMNS, op="d")
    return world


def expected() -> list[dict[str, Any]]:
    return [
        {"id": number, "region": f"r{number % 3}", "v": "b" if number in (1, 5, 7) else "a"}
        for number in range(12)
        if number != 4
    ]


def rewritten_before_commit(
    number: int, world: EvolvingWorld, changes: list[RewriteChange], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rewrites the table while the pipeline has the rows of its `number`-th commit ready."""
    commit, commits = TableSink.commit, iter(range(1_000))

    def rewrite_and_commit(sink: TableSink, *arguments: Any) -> int | None:
        if next(commits) == number:
            Catalog(world.catalog).rewrite_table(TABLE, changes)
        return commit(sink, *arguments)

    monkeypatch.setattr(TableSink, "commit", rewrite_and_commit)


@pytest.mark.parametrize("number", [0, 1, 3])
@pytest.mark.parametrize(
    "changes",
    [
        pytest.param([KEY], id="another key"),
        pytest.param([SetOption("bucket", "5")], id="other buckets"),
        pytest.param(
            [
                SetOption("merge-engine", "aggregation"),
                SetOption("fields.default-aggregate-function", "last_value"),
                SetOption("aggregation.remove-record-on-delete", "true"),
            ],
            id="aggregates",
        ),
        pytest.param([SetOption("file.format", "orc")], id="another format"),
    ],
)
def test_its_rows_are_as_if_nothing_had_happened(
    number: int, changes: list[RewriteChange], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the only table, so that the pipeline ends with the table's error, and a supervisor starts it again."""
    world = new_world()
    with monkeypatch.context() as patched:
        rewritten_before_commit(number, world, changes, patched)
        with suppress(CommitConflict):
            world.run()
    world.run()
    assert (world.rows(), world.breaks()) == (expected(), [])
    assert not verify(world.table)


def test_a_start_says_what_the_configuration_must_name_now() -> None:
    world = new_world("primary_key: [id], options: {bucket: 3}")
    world.run()
    Catalog(world.catalog).rewrite_table(TABLE, [KEY, SetOption("bucket", "5")])
    world.add({"id": 50, "region": "r0", "v": "new"}, COLUMNS)
    message = (
        r"`primary_key` is \(id\) in the configuration, but \(id, region\) in the table. "
        r"Write `primary_key: \[id, region\]`\n"
        r".*`options: bucket` is '3' in the configuration, but '5' in the table. Write `options: {bucket: '5'}`"
    )
    with pytest.raises(BadInput, match=message):
        world.run()
    world.options = "primary_key: [id, region], options: {bucket: 5}"
    world.run()
    assert (world.rows(), world.breaks()) == ([*expected(), {"id": 50, "region": "r0", "v": "new"}], [])


# ---------------------------------------------------------------- beside other tables

OTHER: Final = "shop.items"
BOTH: Final = """
warehouse: {warehouse}
source: {{type: change-log-folder, path: /unused}}
checkpoint: {{bytes_max: 500, interval_ms: 3600000}}
tables:
- {{name: shop.orders, match: '*', topics: [x.public.orders], {table}}}
- {{name: shop.items, match: '*', topics: [x.public.items]}}
"""


def run_both(world: EvolvingWorld, table: str = "options: {bucket: 3}") -> None:
    text = BOTH.format(warehouse=world.warehouse, table=table)
    config = parse_config(text, "evolve.yaml", (), {}, PIPELINE)
    source = MemoryLogSource(world.log, batch_records=2)
    asyncio.run(build_pipeline(config, io=world.store, open_source=lambda: source).run())


def with_items(world: EvolvingWorld) -> EvolvingWorld:
    for number in range(12):
        record = change("c", None, {"id": number, "v": "o"})
        world.log.append("x.public.items", record.value, record.key)
    return world


def test_it_is_held_back_and_opened_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a run tries it once more, as a running pipeline does after a while."""
    world = with_items(new_world())
    with monkeypatch.context() as patched:
        removes = SetOption("partial-update.remove-record-on-delete", "true")
        changes: list[RewriteChange] = [KEY, SetOption("merge-engine", "partial-update"), removes]
        rewritten_before_commit(1, world, changes, patched)
        with suppress(CommitConflict):
            run_both(world)
    assert Table(world.catalog.load(OTHER)).scan().count() == 12
    run_both(world)
    assert (world.rows(), world.breaks()) == (expected(), [])
    assert not verify(world.table)


def test_it_waits_until_the_configuration_names_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    world = with_items(new_world())
    with monkeypatch.context() as patched:
        rewritten_before_commit(1, world, [KEY], patched)
        with pytest.raises(BadInput, match=r"Write `primary_key: \[id, region\]`"):
            run_both(world, "primary_key: [id], options: {bucket: 3}")
    assert Table(world.catalog.load(OTHER)).scan().count() == 12
    run_both(world, "primary_key: [id, region], options: {bucket: 3}")
    assert (world.rows(), world.breaks()) == (expected(), [])
