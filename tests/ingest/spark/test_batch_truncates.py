"""Batches with truncates hold the rows of their source, wherever its partitions are cut. Without Spark."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import tidelake
from tests.ingest.formats.debezium.changes import change
from tests.support.levels import sample
from tests.support.memory_log import MemoryLog, MemoryLogSource
from tidelake.checkpoint.offsets import POSITION_PROPERTY, OffsetRange, SourcePosition, TopicPartition, position_to_text
from tidelake.errors import RecordRefused
from tidelake.ingest.formats.debezium.debezium_json import DebeziumJson
from tidelake.ingest.formats.format_capabilities import SourceOrder
from tidelake.ingest.formats.registry import open_format
from tidelake.ingest.spark.batch_commits import BatchCommits
from tidelake.ingest.spark.batch_rows import RawReader, RawRecords
from tidelake.ingest.spark.batch_statistics import BatchStatistics
from tidelake.ingest.spark.batch_truncates import (
    TruncatedTable,
    TruncateSource,
    Truncation,
    lineage_after,
    plan_truncation,
)
from tidelake.ingest.tables.table_lineage import LINEAGE_PROPERTY, UNKNOWN, SourceLineage, TruncateMarker
from tidelake.storage.catalog.opening import open_catalog
from tidelake.storage.model.format import KIND_COLUMN, RowKind

FORMAT = open_format("debezium-json", {})
ORDER_OF = DebeziumJson.CAPABILITIES.order_of
INSERTS = (RowKind.INSERT, RowKind.UPDATE_AFTER)


@dataclass
class Held:
    """What a table's snapshots say, and its rows by id. An append table may have several of an id."""

    lineage: SourceLineage = field(default_factory=SourceLineage)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    rows: list[int] = field(default_factory=list)


@dataclass
class World:
    """A source with an append table `a` and a table with a key `b`; records have their places in the source's log."""

    warehouse: str
    partitions: int = 3
    log: MemoryLog = field(default_factory=MemoryLog)
    truth: dict[str, list[int]] = field(default_factory=lambda: {"a": [], "b": []})
    held: dict[str, Held] = field(default_factory=lambda: {"a": Held(), "b": Held()})
    read: dict[int, int] = field(default_factory=dict)
    place: int = 1_000
    has_places: bool = True

    def __post_init__(self) -> None:
        catalog = tidelake.open_catalog(self.warehouse)
        catalog.create_database("shop", if_not_exists=True)
        catalog.create_table("shop.a", pa.schema([("id", pa.int64())]))
        catalog.create_table("shop.b", pa.schema([pa.field("id", pa.int64(), nullable=False)]), primary_key=["id"])
        self.contexts = [open_catalog(self.warehouse).load(f"shop.{name}") for name in "ab"]

    def change(self, table: str, op: str, number: int | None, partition: int) -> None:
        self.place += 10
        source: dict[str, Any] = {"connector": "postgresql", "name": "s", "db": "s", "table": table}
        if self.has_places:
            source["sequence"] = json.dumps([str(self.place - 5), str(self.place)])
        image = None if number is None else {"id": number}
        before, after = (image, None) if op == "d" else (None, image)
        record = change(op, before, after, key=image if table == "b" else None, source=source)
        self.log.append("all", record.value, record.key, partition)
        if number is None:
            self.truth[table] = []
        elif op == "d":
            self.truth[table].remove(number)
        else:
            self.truth[table].append(number)

    def batch(self, ends: Mapping[int, int]) -> None:
        """Read each partition up to its end, and write the batch to both tables."""
        plans: dict[str, Truncation | None] = dict.fromkeys(self.held)
        statistics, rows = self._decoded(ends, plans)
        source = TruncateSource(lambda: list(self.log.records), lambda: MemoryLogSource(self.log, batch_records=4))
        for number, name in enumerate(self.held):
            if statistics.table(number).truncates:
                plans[name] = self._planned(name, number, statistics, source)
        if any(plans.values()):
            statistics, rows = self._decoded(ends, plans)
        for number, (name, held) in enumerate(self.held.items()):
            held.lineage = lineage_after(held.lineage, statistics.table(number), plans[name])
            assert SourceLineage.of({LINEAGE_PROPERTY: held.lineage.to_text()}) == held.lineage
            held.ends |= {p: r.end for p, r in statistics.ranges.items()}
            if plans[name] is not None:
                held.rows = []
            for _, _, kind, id_ in sorted(rows[number]):
                if kind in INSERTS:
                    held.rows.append(id_)
                else:
                    held.rows = [one for one in held.rows if one != id_]
        self.read.update(ends)

    def _planned(
        self, name: str, number: int, statistics: BatchStatistics, source: TruncateSource
    ) -> Truncation | None:
        held, reader = self.held[name], RawReader(self._inputs({})[number : number + 1], BatchStatistics())
        known = TruncatedTable(
            f"shop.{name}", held.lineage, held.ends, (), lambda: bool(held.rows), ORDER_OF, reader.decode
        )
        return plan_truncation(known, statistics.table(number), statistics.ranges, source)

    def _inputs(self, plans: Mapping[str, Truncation | None]) -> list[tuple[Any, RawRecords]]:
        return [
            (
                context,
                RawRecords(
                    FORMAT,
                    (name,),
                    applies_truncates=True,
                    truncation=plans.get(name),
                    marker=self.held[name].lineage.truncate,
                ),
            )
            for context, name in zip(self.contexts, self.held, strict=True)
        ]

    def _decoded(
        self, ends: Mapping[int, int], plans: Mapping[str, Truncation | None]
    ) -> tuple[BatchStatistics, list[list[tuple[int, int, int, int]]]]:
        """Return the statistics, and for each table (partition, offset, kind, id). Each partition is read in two tasks,
        as Spark may divide it.
        """
        inputs = self._inputs(plans)
        found: list[list[tuple[int, int, int, int]]] = [[] for _ in inputs]
        payloads = []
        for number, (_, one) in enumerate(inputs):
            for rows in one.rewritten:
                found[number] += _tuples(rows)
        for partition, end in ends.items():
            start = self.read.get(partition, 0)
            middle = (start + end) // 2
            for first, stop in ((start, middle), (middle, end)):
                statistics = BatchStatistics()
                for number, rows in RawReader(inputs, statistics).rows(self._columns(partition, first, stop)):
                    found[number] += _tuples(rows)
                payloads.append(statistics.to_payload())
        return BatchStatistics.merged(payloads), found

    def _columns(self, partition: int, start: int, end: int) -> pa.RecordBatch:
        records = self.log.records[TopicPartition("all", partition)][start:end]
        return pa.record_batch(
            {
                "key": pa.array([key for key, _ in records], pa.binary()),
                "value": pa.array([value for _, value in records], pa.binary()),
                "topic": pa.array(["all"] * len(records), pa.string()),
                "partition": pa.array([partition] * len(records), pa.int32()),
                "offset": pa.array(range(start, end), pa.int64()),
            }
        )

    def cut(self, random: Random) -> dict[int, int]:
        """Return random ends of a batch."""
        left = {p.partition: len(of) for p, of in self.log.records.items()}
        return {p: random.randint(self.read.get(p, 0), end) for p, end in left.items()}

    def all_of_it(self) -> dict[int, int]:
        return {p.partition: len(of) for p, of in self.log.records.items()}


def _tuples(rows: pa.RecordBatch) -> list[tuple[int, int, int, int]]:
    columns = [rows.column(name).to_pylist() for name in ("_order_1", "_order_2", KIND_COLUMN, "id")]
    return list(zip(*columns, strict=True))


@pytest.mark.sampled
@pytest.mark.parametrize("seed", sample(range(60)))
def test_batches_cut_anywhere_hold_the_rows_of_the_source(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    world = World(str(tmp_path), partitions=random.randint(1, 4))
    for table in "ab":
        world.change(table, "c", 0, 0)
    world.batch(world.all_of_it())  # both tables have rows: what a truncate does before is another matter
    for number in range(1, random.randint(10, 60)):
        what = random.random()
        if what < 0.12:
            world.change(random.choice("ab"), "t", None, random.randrange(world.partitions))
        elif what < 0.25 and world.truth["b"]:
            gone = random.choice(world.truth["b"])
            world.change("b", "d", gone, gone % world.partitions)
        elif what < 0.6:
            world.change("a", "c", number, random.randrange(world.partitions))
        else:
            world.change("b", "c", number, number % world.partitions)
        if random.random() < 0.1:
            world.batch(world.cut(random))
    for _ in range(random.randint(0, 4)):
        world.batch(world.cut(random))
    world.batch(world.all_of_it())
    found = {name: sorted(held.rows) for name, held in world.held.items()}
    assert found == {name: sorted(ids) for name, ids in world.truth.items()}


def test_without_places_one_partition_is_exact_and_several_are_refused(tmp_path: Path) -> None:
    world = World(str(tmp_path), has_places=False)
    for op, number in (("c", 1), ("t", None), ("c", 2), ("t", None), ("c", 3)):
        world.change("a", op, number, 0)
    world.batch({0: 5})
    assert world.held["a"].rows == [3]
    world.change("b", "c", 7, 1)  # now the topic has two
    world.change("a", "t", None, 0)
    with pytest.raises(RecordRefused, match=r"offset 5: .*topic all has 2 partitions, and the order of a truncate"):
        world.batch({0: 6})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        pytest.param({"shared_with": ["other"]}, "also has rows of other, which would be deleted", id="another writer"),
        pytest.param({"lineage": UNKNOWN}, "an earlier release wrote to the table", id="unknown sources"),
        pytest.param(
            {"lineage": SourceLineage(frozenset({"s.b"}), frozenset({"all"}))},
            "also has rows of s.b, which would be deleted, too",
            id="another source table",
        ),
        pytest.param(
            {"lineage": SourceLineage(frozenset({"s.a"}), frozenset({"elsewhere"}))},
            "also came from topic elsewhere",
            id="another topic",
        ),
    ],
)
def test_a_truncate_that_would_delete_other_rows_is_refused(
    given: Mapping[str, Any], message: str, tmp_path: Path
) -> None:
    world = World(str(tmp_path))
    world.change("a", "c", 1, 0)
    world.change("a", "t", None, 0)
    statistics, _ = world._decoded({0: 2}, {})
    source = TruncateSource(list, lambda: MemoryLogSource(world.log))
    reader = RawReader(world._inputs({})[:1], BatchStatistics())
    table = TruncatedTable("shop.a", SourceLineage(), {}, (), lambda: True, ORDER_OF, reader.decode)
    assert plan_truncation(table, statistics.table(0), statistics.ranges, source) is not None
    with pytest.raises(RecordRefused, match=rf"topic all, partition 0, offset 1: .*can't be applied: .*{message}"):
        plan_truncation(replace(table, **given), statistics.table(0), statistics.ranges, source)


A, B = SourceLineage(frozenset({"s.a"}), frozenset({"t"})), SourceLineage(frozenset({"s.b"}), frozenset({"u"}))
MARKED = replace(B, truncate=TruncateMarker(SourceOrder("s", (1,)), frozenset({1})))


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        pytest.param([], SourceLineage(), id="no snapshot"),
        pytest.param([("etl", None, False)], SourceLineage(), id="rows without a source"),
        pytest.param([("one", A, True), ("etl", None, False)], A, id="rows without a source behind those of one"),
        pytest.param([("one", A, True), ("one", MARKED, True)], MARKED, id="the newest"),
        pytest.param([("one", None, True)], UNKNOWN, id="an earlier release"),
        pytest.param(
            [("one", MARKED, True), ("one", None, True)],
            replace(MARKED, tables=None, topics=None),
            id="an earlier release behind this one",
        ),
        pytest.param([("one", A, True), ("shared", B, True)], A, id="a user that writes other records"),
    ],
)
def test_the_lineage_of_a_table_is_in_its_newest_snapshots(
    written: Collection[tuple[str, SourceLineage | None, bool]], expected: SourceLineage, tmp_path: Path
) -> None:
    catalog = tidelake.open_catalog(str(tmp_path))
    catalog.create_database("shop")
    table = catalog.create_table("shop.t", pa.schema([("id", pa.int64())]))
    position = position_to_text(SourcePosition(ranges={TopicPartition("t", 0): OffsetRange(0, 1)}))
    for number, (user, lineage, has_position) in enumerate(written):
        properties = {POSITION_PROPERTY: position} if has_position else {}
        properties |= {} if lineage is None else {LINEAGE_PROPERTY: lineage.to_text()}
        with table.writer(commit_user=user) as writer:
            writer.write(pa.table({"id": [number]}))
            writer.commit(identifier=number, properties=properties)
    context = open_catalog(str(tmp_path)).load("shop.t")
    assert BatchCommits(context, "one", None, False, False, shared_with=["shared"]).lineage == expected


def test_a_record_of_two_tables_is_a_row_of_both(tmp_path: Path) -> None:
    world = World(str(tmp_path))
    world.change("a", "c", 1, 0)
    both = [(context, replace(one, match=("a", "b"))) for context, one in world._inputs({})]
    found = RawReader(both, BatchStatistics()).rows(world._columns(0, 0, 1))
    assert [(number, rows["id"].to_pylist()) for number, rows in found] == [(0, [1]), (1, [1])]


def test_the_marker_of_a_truncate_keeps_its_topic() -> None:
    marked = replace(MARKED, truncate=TruncateMarker(SourceOrder("s", (1,)), frozenset({1}), "t"))
    assert SourceLineage.of({LINEAGE_PROPERTY: marked.to_text()}) == marked
    assert [marked.truncate.is_behind(*one) for one in (("t", 1), ("u", 1), ("t", 0))] == [True, False, False]  # type: ignore[union-attr]
    assert MARKED.truncate is not None
    assert MARKED.truncate.is_behind("u", 1)  # an earlier release did not store the topic


def test_the_lineages_of_several_users_are_joined() -> None:
    texts = [{LINEAGE_PROPERTY: one.to_text()} for one in (A, MARKED)]
    both = SourceLineage.joined(texts)
    assert both == replace(MARKED, tables=frozenset({"s.a", "s.b"}), topics=frozenset({"t", "u"}))
    assert SourceLineage.joined([*texts, {}]) == UNKNOWN
    assert SourceLineage.joined([]) == SourceLineage()
