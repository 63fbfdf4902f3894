"""A truncate of a source table empties its table on Spark as it does with `tidelake ingest run`."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from msgspec import structs

import tidelake
from tests.ingest.formats.debezium.changes import change
from tests.support.kafka_broker import KafkaBroker
from tidelake.errors import TidelakeError
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.pipeline.recovery_flags import parse_recovery_flags
from tidelake.ingest.pipeline.service import run as run_pipeline
from tidelake.ingest.settings import Config
from tidelake.ingest.source_settings import KafkaSettings
from tidelake.ingest.spark.batch_commits import BatchCommits
from tidelake.spark import pipeline_query
from tidelake.spark.pipeline_query import start_query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = ("a", "b", "c")
pytestmark = pytest.mark.timeout(600)  # up to seven batches and two starts


@dataclass
class Source:
    """A database with three tables, whose changes are in one topic; each file of its log is a batch.

    `a` has no key, `b` has two buckets, and an index chooses the buckets of `c`.
    """

    home: Path
    partitions: int = 1
    has_places: bool = False
    truth: dict[str, list[int]] = field(default_factory=lambda: {name: [] for name in TABLES})
    lines: list[str] = field(default_factory=list)
    offsets: dict[int, int] = field(default_factory=dict)
    files: int = 0
    place: int = 1_000

    def next_place(self) -> int:
        self.place += 10
        return self.place

    def add(self, table: str, *numbers: int, partition: int = 0, place: int | None = None) -> None:
        for number in numbers:
            self._append(table, "c", number, partition, place)
            self.truth[table].append(number)

    def truncate(self, table: str, partition: int = 0, place: int | None = None) -> None:
        self._append(table, "t", None, partition, place)
        self.truth[table] = []

    def _append(self, table: str, op: str, number: int | None, partition: int, place: int | None) -> None:
        source: dict[str, Any] = {"connector": "postgresql", "name": "s", "db": "s", "table": table}
        if self.has_places:
            at = self.next_place() if place is None else place
            source["sequence"] = json.dumps([str(at - 5), str(at)])
        after = None if number is None else {"id": number, "note": f"ü{number}"}
        key = {"id": number} if number is not None and table != "a" else None
        record = change(op, after=after, key=key, source=source)
        offset = self.offsets.get(partition, 0)
        self.offsets[partition] = offset + 1
        line = {"topic": "all", "partition": partition, "offset": offset, "timestamp": 1}
        texts = [None if of is None else of.decode() for of in (record.key, record.value)]
        self.lines.append(json.dumps(line | dict(zip(("key", "value"), texts, strict=True))))

    def end_batch(self) -> None:
        folder = self.home / "changes"
        folder.mkdir(exist_ok=True)
        (folder / f"{self.files:03}.jsonl").write_text("".join(line + "\n" for line in self.lines))
        self.files, self.lines = self.files + 1, []

    def config(self, lake: str = "lake", more: str = "") -> Config:
        text = (
            f"warehouse: {self.home}/{lake}\n"
            f"source: {{type: change-log-folder, path: {self.home}/changes, until: end}}\n"
            "tables: [{name: shop.a, match: a, options: {bucket: -1}}, {name: shop.b, match: b, primary_key: [id],"
            " options: {bucket: 2}}, {name: shop.c, match: c, primary_key: [id], options: {bucket: -1}}]\n" + more
        )
        return parse_config(text, "shop.yaml", pipeline="shop")

    def table(self, name: str, lake: str = "lake") -> tidelake.Table:
        return tidelake.open_catalog(str(self.home / lake)).table(f"shop.{name}")

    def rows(self, lake: str = "lake") -> dict[str, list[int]]:
        catalog = tidelake.open_catalog(str(self.home / lake))
        there = set(catalog.list_tables("shop"))
        read = {name: self.table(name, lake).scan().to_arrow().to_pylist() for name in TABLES if name in there}
        assert all(row["note"] == f"ü{row['id']}" for rows in read.values() for row in rows)
        return {name: sorted(int(row["id"]) for row in read.get(name, ())) for name in TABLES}

    @property
    def expected(self) -> dict[str, list[int]]:
        return {name: sorted(ids) for name, ids in self.truth.items()}


@pytest.fixture(autouse=True)
def _a_file_is_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline_query, "_MAX_FILES_PER_BATCH", 1)


def run(spark: SparkSession, source: Source, *, checkpoint: str = "checkpoint", more: str = "") -> None:
    running = start_query(spark, source.config(more=more), str(source.home / checkpoint))
    with suppress(Exception):  # `has_ended` raises it in our words
        running.query.awaitTermination()
    assert running.has_ended()


def snapshots(source: Source) -> dict[str, list[tuple[int, str]]]:
    found = {name: source.table(name).snapshots() for name in TABLES}
    return {name: [(one.commit_identifier, str(one.commit_kind)) for one in of] for name, of in found.items()}


@pytest.mark.interop
def test_a_truncate_removes_earlier_rows_of_its_table_alone(spark: SparkSession, tmp_path: Path) -> None:
    source = Source(tmp_path)
    for name in TABLES:
        source.add(name, 1, 2, 3)
    source.end_batch()
    for name in TABLES:  # rows before it and after it in one batch, and a key that comes back
        source.add(name, 4)
    source.truncate("a")
    source.truncate("b")
    source.truncate("c")
    source.add("a", 5)
    source.add("b", 2, 6)
    source.add("c", 3)
    source.truncate("c")
    source.add("c", 1, 7)
    source.end_batch()
    source.truncate("b")  # a batch without rows
    source.end_batch()
    source.add("b", 8)
    source.add("c", 9)
    source.end_batch()
    run(spark, source)
    assert source.rows() == source.expected == {"a": [5], "b": [8], "c": [1, 7, 9]}
    asyncio.run(run_pipeline(source.config("of-service")))
    assert source.rows("of-service") == source.expected

    before = snapshots(source)
    last = tmp_path / "checkpoint" / "commits" / "3"  # as if the driver had ended before Spark's own commit
    last.unlink()
    (last.parent / ".3.crc").unlink(missing_ok=True)
    run(spark, source)
    assert snapshots(source) == before
    assert source.rows() == source.expected


@pytest.mark.interop
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_batch_that_only_some_tables_have_is_completed(
    when: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Source(tmp_path)
    for name in TABLES:
        source.add(name, 1, 2)
    source.end_batch()
    for name in TABLES:
        source.truncate(name)
        source.add(name, 2, 3)
    source.end_batch()
    publish = BatchCommits.publish

    class Killed(Exception):
        pass

    def killed(self: Any, batch_id: int, *given: Any, **named: Any) -> int | None:
        dies = self._context.name == "shop.b" and batch_id == 1
        if dies and when == "before":
            raise Killed
        published = publish(self, batch_id, *given, **named)
        if dies:
            raise Killed
        return published

    with monkeypatch.context() as patched:
        patched.setattr(BatchCommits, "publish", killed)
        with pytest.raises(Exception, match="Killed"):
            run(spark, source)
    run(spark, source)
    assert source.rows() == source.expected
    of_batches = [[identifier for identifier, kind in of if "OVERWRITE" in kind] for of in snapshots(source).values()]
    assert of_batches == [[1], [1], [1]]


@pytest.mark.interop
def test_source_positions_order_rows_and_truncates_of_several_partitions(spark: SparkSession, tmp_path: Path) -> None:
    source = Source(tmp_path, has_places=True)
    source.add("b", 1, partition=1)
    early = source.next_place(), source.next_place()
    source.add("b", 2)
    source.end_batch()
    source.truncate("b")
    source.add("b", 4)
    source.end_batch()  # nothing of partition 1, which is behind
    source.add("b", 3, partition=1, place=early[0])
    source.truth["b"].remove(3)
    source.end_batch()
    source.add("b", 5, partition=1, place=early[1])
    source.truth["b"].remove(5)
    source.add("b", 7, partition=1)
    source.end_batch()
    run(spark, source)
    assert source.rows() == source.expected == {"a": [], "b": [4, 7], "c": []}
    source.add("b", 9, partition=1)
    source.truncate("b", partition=1)
    source.add("b", 6)
    source.add("b", 11, partition=1)
    source.end_batch()
    run(spark, source)
    assert source.rows() == source.expected == {"a": [], "b": [6, 11], "c": []}


@pytest.mark.interop
def test_the_service_and_a_query_know_of_each_others_truncates(spark: SparkSession, tmp_path: Path) -> None:
    source = Source(tmp_path, has_places=True)
    source.add("b", 1, partition=1)
    early = [source.next_place() for _ in range(4)]
    source.add("b", 2)
    source.end_batch()
    source.truncate("b")
    source.add("b", 4)
    source.end_batch()
    run(spark, source)
    source.add("b", 3, partition=1, place=early[0])
    source.end_batch()
    flags = parse_recovery_flags(["shop.b"], [], [], ["shop.b"])
    service = source.config()
    asyncio.run(run_pipeline(service, recovery_flags=flags))
    source.add("b", 5, partition=1, place=early[1])
    source.end_batch()
    run(spark, source, checkpoint="another")
    source.truth["b"] = [4]
    assert source.rows() == source.expected


@pytest.mark.interop
def test_rows_that_the_table_has_already_from_after_a_truncate_are_written_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = Source(tmp_path, has_places=True)
    for name in TABLES:
        source.add(name, 1, 3, partition=1)
        source.add(name, 2)
    late = {name: source.next_place() for name in TABLES}
    kept = {name: [5, 7] for name in TABLES}
    for name in TABLES:
        source.add(name, 5, 7, partition=1)
    source.end_batch()
    run(spark, source)
    for name in TABLES:
        source.truncate(name, place=late[name])
        source.truth[name] = kept[name].copy()
        source.add(name, 4)
        source.add(name, 9, partition=1)
    source.end_batch()
    run(spark, source)
    assert source.rows() == source.expected == {name: [4, 5, 7, 9] for name in TABLES}


@pytest.mark.interop
@pytest.mark.parametrize("partitions", [1, 2])
def test_partitions_of_a_topic_without_any_record_count(
    partitions: int, spark: SparkSession, tmp_path: Path, kafka_broker: KafkaBroker
) -> None:
    source = Source(tmp_path)
    source.add("b", 1, 2)
    source.truncate("b")
    source.add("b", 3)
    topic = f"truncated-{uuid4().hex[:8]}"
    kafka_broker.create_topic(topic, partitions=partitions)
    kafka_broker.send([json.loads(line) | {"timestamp_ms": 1, "headers": []} for line in source.lines], topic)
    settings = structs.replace(
        source.config(), source=KafkaSettings(bootstrap_servers=kafka_broker.address, topics=[topic], until="end")
    )
    running = start_query(spark, settings, str(tmp_path / "checkpoint"))
    with suppress(Exception):
        running.query.awaitTermination()
    if partitions == 1:
        assert running.has_ended()
        assert source.rows() == source.expected
    else:
        with pytest.raises(TidelakeError, match=f"topic {topic} has 2 partitions, and the order of a truncate"):
            running.has_ended()
        assert source.rows() == {name: [] for name in TABLES}


@pytest.mark.interop
@pytest.mark.parametrize(
    ("more", "partition", "message"),
    [
        pytest.param("format_options: {truncates: fail}", 0, "truncates: skip", id="none is applied"),
        pytest.param("", 1, "topic all has 2 partitions, and the order of a truncate", id="its order is unknown"),
    ],
)
def test_a_truncate_that_is_not_applied_ends_the_query(
    more: str, partition: int, message: str, spark: SparkSession, tmp_path: Path
) -> None:
    source = Source(tmp_path)
    source.add("b", 1)
    source.add("b", 2, partition=partition)
    source.end_batch()
    source.add("a", 1)
    source.truncate("b")
    source.end_batch()
    with pytest.raises(TidelakeError, match=message):
        run(spark, source, more=more)
    assert source.rows() == {"a": [], "b": [1, 2], "c": []}
