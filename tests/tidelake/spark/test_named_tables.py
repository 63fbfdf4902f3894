"""A query with an entry of many tables: which tables are its own after a restart, and where it begins again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tidelake
from tests.tidelake.spark.test_pipeline_query import run
from tidelake.checkpoint.idle_progress import ProgressEntry
from tidelake.checkpoint.offsets import TopicPartition
from tidelake.checkpoint.routing import Routing
from tidelake.errors import BadInput
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.pipeline.builder import expanded
from tidelake.ingest.pipeline.recovery_flags import parse_recovery_flags
from tidelake.ingest.pipeline.service import run as run_pipeline
from tidelake.ingest.settings import Config
from tidelake.ingest.spark.table_batch import TableBatch
from tidelake.spark.query_progress import QueryProgress, QueryProgressFile
from tidelake.spark.start_positions import StartPositions
from tidelake.storage.fileio.local import LocalFileIO

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def config(home: Path, pipeline: str = "shop", more: str = "") -> Config:
    text = (
        f"warehouse: {home}/lake\n"
        f"source: {{type: change-log-folder, path: {home}/changes, until: end}}\n"
        f"tables: [{{name: 'shop.{{table}}', options: {{bucket: 2}}}}{more}]\n"
    )
    return parse_config(text, "shop.yaml", pipeline=pipeline)


class Log:
    """Files of a change log. Each topic has one partition."""

    def __init__(self, home: Path) -> None:
        self._folder = home / "changes"
        self._folder.mkdir()
        self._ends: dict[str, int] = {}
        self.rows: dict[str, dict[int, str]] = {}

    def write(self, *changes: tuple[str, int, str]) -> None:
        """changes: table, id, note"""
        lines = []
        for table, id_, note in changes:
            source = {"connector": "postgresql", "db": "shop", "schema": "public", "table": table}
            value = {"op": "c", "before": None, "after": {"id": id_, "note": note}, "source": source}
            offset = self._ends.get(table, 0)
            place: dict[str, Any] = {"topic": f"shop.{table}", "partition": 0, "offset": offset}
            lines.append(json.dumps({**place, "key": json.dumps({"id": id_}), "value": json.dumps(value)}))
            self._ends[table] = offset + 1
            self.rows.setdefault(table, {})[id_] = note
        number = len(list(self._folder.iterdir()))
        (self._folder / f"{number:03}.jsonl").write_text("".join(line + "\n" for line in lines), encoding="utf-8")

    def fill(self) -> None:
        """Write files without rows, so that what follows is in another batch."""
        for _ in range(8):
            self.write()


def tables_in(home: Path) -> dict[str, dict[int, str]]:
    catalog = tidelake.open_catalog(str(home / "lake"))
    found = {}
    for name in catalog.list_tables("shop"):
        rows = catalog.table(f"shop.{name}").scan().to_arrow().to_pylist()
        assert len({row["id"] for row in rows}) == len(rows)
        found[name] = {int(row["id"]): row["note"] for row in rows}  # JSON without a schema has texts
    return found


def snapshots_in(home: Path) -> dict[str, int]:
    catalog = tidelake.open_catalog(str(home / "lake"))
    return {name: len(catalog.table(f"shop.{name}").snapshots()) for name in catalog.list_tables("shop")}


@pytest.mark.interop
def test_a_query_with_another_directory_begins_where_its_tables_end_also_those_without_new_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = Log(tmp_path)
    log.write(("orders", 1, "a"), ("idle", 1, "i"))
    run(spark, config(tmp_path), tmp_path / "one")
    log.fill()
    log.write(("orders", 2, "b"), ("later", 1, "ü"))
    run(spark, config(tmp_path), tmp_path / "one")
    assert tables_in(tmp_path) == log.rows
    before = snapshots_in(tmp_path)

    run(spark, config(tmp_path), tmp_path / "two")  # nothing is read again
    assert snapshots_in(tmp_path) == before
    log.write(("orders", 3, "c"), ("idle", 1, "j"), ("newest", 7, ""))
    run(spark, config(tmp_path), tmp_path / "three")
    assert tables_in(tmp_path) == log.rows
    log.write(("later", 1, "z"))
    run(spark, config(tmp_path), tmp_path / "four")  # the one before did not read all partitions
    assert tables_in(tmp_path) == log.rows


@pytest.mark.interop
def test_either_command_continues_the_tables_of_the_other_one(spark: SparkSession, tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.write(("orders", 1, "a"), ("idle", 1, "i"))
    asyncio.run(run_pipeline(config(tmp_path)))
    log.write(("orders", 1, "b"), ("later", 1, "x"))
    run(spark, config(tmp_path), tmp_path / "one")
    assert tables_in(tmp_path) == log.rows
    log.write(("later", 1, "y"), ("newest", 1, "n"))
    names = [f"shop.{name}" for name in log.rows if name != "newest"]
    assert {table.name for table in expanded(config(tmp_path)).config.named_tables} == set(names)
    asyncio.run(run_pipeline(config(tmp_path), recovery_flags=parse_recovery_flags(names, [], [], names)))
    assert tables_in(tmp_path) == log.rows
    log.write(("idle", 2, "k"), ("newest", 1, "o"))
    run(spark, config(tmp_path), tmp_path / "two")
    assert tables_in(tmp_path) == log.rows


@pytest.mark.interop
@pytest.mark.parametrize("lost", ["orders", "later"], ids=["a table that was there", "a table that the batch creates"])
def test_a_crash_between_the_commits_of_a_batch_loses_no_row_of_any_table(
    spark: SparkSession, tmp_path: Path, lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log(tmp_path)
    log.write(("orders", 1, "a"), ("other", 1, "a"))
    run(spark, config(tmp_path), tmp_path / "checkpoint")
    log.write(("orders", 2, "b"), ("other", 2, "b"), ("later", 1, "c"))

    publish = TableBatch._publish

    def crash(batch: TableBatch, *arguments: Any) -> int | None:
        if batch.context.name == f"shop.{lost}":
            raise RuntimeError("the driver is killed")
        return publish(batch, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(TableBatch, "_publish", crash)
        with pytest.raises(Exception, match="the driver is killed"):
            run(spark, config(tmp_path), tmp_path / "checkpoint")
    assert tables_in(tmp_path)["other"] == {1: "a", 2: "b"}
    run(spark, config(tmp_path), tmp_path / "checkpoint")
    assert tables_in(tmp_path) == log.rows
    run(spark, config(tmp_path), tmp_path / "another")
    assert tables_in(tmp_path) == log.rows


@pytest.mark.interop
def test_tables_of_another_pipeline_are_not_taken(spark: SparkSession, tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.write(("orders", 1, "a"))
    run(spark, config(tmp_path, pipeline="one"), tmp_path / "one")
    assert expanded(config(tmp_path, pipeline="two")).config.named_tables == []
    with pytest.raises(BadInput, match=r"shop\.orders has records that spark-.* wrote .*This pipeline has never"):
        run(spark, config(tmp_path, pipeline="two"), tmp_path / "two")


# ---------------------------------------------------------------- the progress file

AT = TopicPartition("shop.public.orders", 3)
STATE = ProgressEntry(17, 4, "manifest-list-1", Routing.of("debezium-json", ["orders"], ["*"]))
IDLE, OTHER = TopicPartition("shop.public.orders", 0), TopicPartition("ü", 0)
PROGRESS = QueryProgress("5f0c", 41, {AT: 5, IDLE: 4}, {AT: 9, OTHER: 1}, {"shop.orders": STATE}, {AT: 7, OTHER: 1})


@pytest.mark.parametrize(
    ("state", "reached"),
    [
        pytest.param(STATE, {AT: 9, IDLE: 4, OTHER: 1}, id="the state of the file"),
        pytest.param(ProgressEntry(17, 5, "manifest-list-2", STATE.routing), {}, id="a newer position"),
        pytest.param(ProgressEntry(17, 4, "manifest-list-9", STATE.routing), {}, id="rolled back, and written again"),
        pytest.param(ProgressEntry(99, 4, "manifest-list-1", STATE.routing), {}, id="created again"),
        pytest.param(ProgressEntry(17, 4, "manifest-list-1", None), {}, id="other patterns"),
    ],
)
def test_the_progress_of_a_query_applies_to_the_table_as_it_was(
    state: ProgressEntry, reached: Mapping[TopicPartition, int], tmp_path: Path
) -> None:
    file = QueryProgressFile(LocalFileIO(), f"{tmp_path}/", "shop/ü")
    assert file.read() == QueryProgress()
    file.write(PROGRESS)
    assert QueryProgressFile(LocalFileIO(), str(tmp_path), "shop/ü").read() == PROGRESS
    assert file.read().reached_for("shop.orders", state) == reached
    assert file.read().reached_for("shop.others", state) == {}


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version":1}', '{"version":2}', "ü"], ids=repr)
def test_a_progress_file_that_cannot_be_read_is_ignored_with_a_warning(
    text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "shop.spark-progress").write_text(text, encoding="utf-8")
    assert QueryProgressFile(LocalFileIO(), str(tmp_path), "shop").read() == QueryProgress()
    assert "the progress of an earlier query is ignored" in caplog.text


@pytest.mark.parametrize(("batch", "before"), [(41, {AT: 7, OTHER: 1}), (42, {AT: 9, OTHER: 1})])
def test_a_batch_that_is_repeated_begins_where_it_began_before(batch: int, before: dict[TopicPartition, int]) -> None:
    assert PROGRESS.read_before(batch) == before


def test_a_progress_file_of_an_earlier_version_is_read() -> None:
    """It says nothing of a batch that is repeated: then the table's own snapshots decide."""
    members = json.loads(PROGRESS.to_text())
    del members["before"]
    progress = QueryProgress.from_text(json.dumps(members).encode(), "shop.spark-progress")
    assert progress == replace(PROGRESS, before=PROGRESS.reached)


def test_a_new_pipeline_has_no_position(tmp_path: Path) -> None:
    assert StartPositions.of(config(tmp_path)) == StartPositions()
