"""A configuration becomes the parts it names, and missing prerequisites are reported."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio import to_thread
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import pytest

import tidelake
from tidelake.checkpoint.offsets import TopicPartition
from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.pipeline import checkpointer
from tidelake.ingest.pipeline.builder import build_pipeline
from tidelake.ingest.pipeline.configured_source import build_source, build_start
from tidelake.ingest.pipeline.service import run
from tidelake.ingest.settings import Config
from tidelake.ingest.sources.change_log_folder import ChangeLogFolder
from tidelake.ingest.sources.source import AtGroupOffsets, AtOffsets, AtTimestamp, Earliest, Latest, Start
from tidelake.storage.base.threads import map_uncancellable

A = TypeVar("A")
T = TypeVar("T")

FOLDER = "source: {type: change-log-folder, path: PATH/in, until: end}"
KAFKA = "source: {type: kafka, bootstrap_servers: b, topics: a}"


def config(path: Path, source: str = FOLDER, *flags: str) -> Config:
    text = f"warehouse: PATH/lake\n{source}\ntables: [{{name: shop.orders}}]".replace("PATH", str(path))
    return parse_config(text, "shop.yaml", flags, pipeline="shop")


@pytest.mark.parametrize(
    ("flags", "start"),
    [
        ([], Earliest()),
        (["source.start=latest"], Latest()),
        (["source.start={timestamp_ms: 0}"], AtTimestamp(0)),
        (["source.start={group: g}"], AtGroupOffsets("g")),
        (
            ["source.start={offsets: {a: {0: 5, 1: 0}}}"],
            AtOffsets({TopicPartition("a", 0): 5, TopicPartition("a", 1): 0}),
        ),
    ],
)
def test_the_start_setting_becomes_a_start_position(tmp_path: Path, flags: list[str], start: Start) -> None:
    assert build_start(config(tmp_path, KAFKA, *flags)) == start


def test_a_folder_starts_at_its_beginning(tmp_path: Path) -> None:
    assert build_start(config(tmp_path)) == Earliest()
    assert isinstance(build_source(config(tmp_path), frozenset()), ChangeLogFolder)


@pytest.mark.parametrize(
    ("flags", "error", "message"),
    [
        pytest.param(["format=thrift"], UnsupportedFeature, "format = thrift.*debezium-json", id="a format we lack"),
        pytest.param(
            ["format_options={truncate: skip}"], BadInput, "no option 'truncate'; did you mean 'truncates'", id="a typo"
        ),
        pytest.param(
            ["format_options={truncates: maybe}"], BadInput, "apply, fail or skip, not 'maybe'", id="a wrong word"
        ),
        pytest.param(
            ["format_options={unavailable_value_placeholder: 5}"],
            BadInput,
            "must be a string, not 5",
            id="a number for a text",
        ),
        pytest.param(
            ["warehouse_options={metastore: glue}"], UnsupportedFeature, "metastore = glue", id="a catalog we lack"
        ),
    ],
)
def test_unsupported_sources_are_refused(
    tmp_path: Path, flags: list[str], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        build_pipeline(config(tmp_path, FOLDER, *flags))


def test_an_incompatible_aiokafka_is_refused_with_the_version_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(
        sys.modules, "tidelake.ingest.sources.kafka.kafka_source", None
    )  # like a name that this aiokafka release does not have
    with pytest.raises(UnsupportedFeature, match=r'aiokafka \d.*: import of .* halted.*pip install "aiokafka=='):
        build_source(config(tmp_path, KAFKA), frozenset())


async def test_a_folder_becomes_a_table_and_a_second_run_adds_what_is_new(tmp_path: Path) -> None:
    def change(offset: int, id_: int, name: str) -> str:
        source = {"db": "shop", "table": "orders", "connector": "postgresql"}
        value = {"before": None, "after": {"id": id_, "name": name}, "op": "c", "source": source}
        line = {
            "topic": "log",
            "partition": 0,
            "offset": offset,
            "key": json.dumps({"id": id_}),
            "value": json.dumps(value),
        }
        return json.dumps(line) + "\n"

    def write(name: str, *lines: str) -> None:
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / name).write_text("".join(lines))

    def rows() -> list[dict[str, object]]:
        table = tidelake.open_catalog(str(tmp_path / "lake")).table("shop.orders")
        found: list[dict[str, object]] = table.scan().to_arrow().sort_by("id").to_pylist()
        return found

    await to_thread(write, "1.jsonl", change(0, 1, "one"), change(1, 2, "two"))
    progress = await run(await asyncio.to_thread(config, tmp_path))
    assert (progress.ended, progress.records) == ("end of source", 2)
    await to_thread(write, "2.jsonl", change(2, 2, "zwei"))
    progress = await run(await asyncio.to_thread(config, tmp_path))
    assert (progress.records, progress.snapshots) == (
        1,
        {"shop.orders": 3},
    )  # the second one says that a new process took over
    assert await to_thread(rows) == [{"id": "1", "name": "one"}, {"id": "2", "name": "zwei"}]


@pytest.mark.parametrize(("warehouse", "at_once"), [("PATH/lake", {4}), ("memory://tables-at-once/lake", {64})])
async def test_fewer_tables_at_once_wait_for_a_disk_than_for_a_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warehouse: str, at_once: set[int]
) -> None:
    seen = set[int]()

    async def noted(work: Callable[[A], T], items: Iterable[A], most: int, *args: Any, **kwargs: Any) -> list[T]:
        seen.add(most)
        return await map_uncancellable(work, items, most, *args, **kwargs)

    monkeypatch.setattr(checkpointer, "map_uncancellable", noted)
    await to_thread((tmp_path / "in").mkdir)
    await run(await to_thread(config, tmp_path, FOLDER, f"warehouse={warehouse.replace('PATH', str(tmp_path))}"))
    assert seen == at_once
