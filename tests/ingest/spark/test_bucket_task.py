"""A task that writes buckets: rows moved to another key in a micro-batch, and moved rows with a missing record."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping, Sequence
from random import Random
from typing import NoReturn
from uuid import uuid4

import pyarrow as pa
import pytest

import tidelake
from tests.ingest.tables.moved_rows_model import TOPIC, SourceTable
from tidelake.errors import BadInput
from tidelake.ingest.formats.debezium.debezium_json import DebeziumJson
from tidelake.ingest.spark.batch_rows import RawRecords, TypedColumns, open_reader
from tidelake.ingest.spark.batch_statistics import BatchStatistics, BatchTableStatistics
from tidelake.ingest.spark.bucket_task import BucketTask, TableTask
from tidelake.ingest.spark.shuffling.shuffle import BUCKET_COLUMN, PayloadKind, ShuffleMap, payload_row
from tidelake.ingest.spark.shuffling.task_plan import plan_shuffle, task_plans
from tidelake.storage.commit.commit_message import Committable
from tidelake.storage.commit.table_commit import TableCommit
from tidelake.storage.maintenance.verify import verify
from tidelake.storage.model.format import KIND_COLUMN, RowKind
from tidelake.storage.write.bucket_router import BucketRouter

APART = {1: 1, 2: 0}  # the partition with the new key comes first


def kafka_columns(source: SourceTable, left_out: Sequence[tuple[int, int]] = ()) -> pa.RecordBatch:
    """Its log as Spark hands it over. left_out: (partition, offset) of records of other batches."""
    rows = [
        {"topic": TOPIC, "partition": p.partition, "offset": offset, "timestamp": 1_000_000, "key": key, "value": value}
        | {"headers": [{"key": n, "value": v} for n, v in source.log.headers.get((p, offset), ())]}
        for p, records in sorted(source.log.records.items())
        for offset, (key, value) in enumerate(records)
        if (p.partition, offset) not in left_out
    ]
    header = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    return pa.RecordBatch.from_pylist(
        rows,
        pa.schema(
            [
                ("topic", pa.string()),
                ("partition", pa.int32()),
                ("offset", pa.int64()),
                ("timestamp", pa.timestamp("us", "UTC")),
                ("key", pa.binary()),
                ("value", pa.binary()),
                ("headers", header),
            ]
        ),
    )


def filled(columns: pa.RecordBatch, *, keeps_dead_letters: bool = False) -> tuple[pa.RecordBatch, list[str]]:
    """The rows as a task would write them, into an empty table, and reasons of dead letters."""
    catalog = tidelake.open_catalog(f"memory://{uuid4().hex}/lake")
    catalog.create_database("x")
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int32()), ("doc", pa.string())])
    context = catalog.create_table("x.docs", schema, primary_key=["id"], options={"bucket": "1"}).context
    records = RawRecords(DebeziumJson(), keeps_dead_letters=keeps_dead_letters)
    statistics = BatchTableStatistics()
    chunks = [
        rows.append_column(BUCKET_COLUMN, pa.array([0] * len(rows), pa.int32()))
        for _, rows in open_reader([(context, records)], BatchStatistics()).rows(columns)
    ]
    (written,) = TableTask(context, records, statistics).row_batches(chunks)
    return written, [json.loads(letter)["reason"] for letter in statistics.dead_letters]


def moving() -> SourceTable:
    source = SourceTable(partition_of=APART)
    source.insert(1, "A")
    source.update(1, "B")
    source.move(1, 2)
    return source


def test_a_row_moved_within_a_micro_batch_keeps_its_values() -> None:
    written, _ = filled(kafka_columns(moving()))
    assert written.slice(len(written) - 1).to_pylist()[0]["doc"] == "B"
    assert written["id"].to_pylist() == [1, 1, 1, 2]


def test_a_row_moved_across_micro_batches_is_refused_with_both_keys() -> None:
    columns = kafka_columns(moving(), left_out=[(1, 2), (1, 3)])
    with pytest.raises(BadInput, match=r'old key \{"id":1\}, new key \{"id":2\}'):
        filled(columns)
    written, (reason,) = filled(columns, keeps_dead_letters=True)
    assert written["id"].to_pylist() == [1, 1]
    assert 'old key {"id":1}, new key {"id":2}' in reason


def orders(ids: Sequence[int], kinds: Sequence[int]) -> pa.RecordBatch:
    columns = {"id": pa.array(ids, pa.int64()), "day": pa.array([f"d{id_ % 3}" for id_ in ids])}
    return pa.record_batch(
        {**columns, "at": pa.array(range(len(ids)), pa.int64()), KIND_COLUMN: pa.array(kinds, pa.int8())}
    )


@pytest.mark.parametrize("options", [{}, {"ignore-delete": "true"}], ids=["plain", "rows are left out"])
def test_rows_are_written_to_the_buckets_found_by_the_shuffle(
    options: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = tidelake.open_catalog(f"memory://{uuid4().hex}/lake")
    catalog.create_database("x")
    schema = pa.schema([pa.field("id", pa.int64(), False), pa.field("day", pa.string(), False), ("at", pa.int64())])
    table = catalog.create_table(
        "x.t", schema, primary_key=["id", "day"], partition_by=["day"], options={"bucket": "3", **options}
    )
    context, typed = table.context, TypedColumns(("at",))
    ids = [*range(40), *range(0, 40, 5)]
    batch = orders(ids, [RowKind.INSERT] * 40 + [RowKind.DELETE] * 8)
    shuffled = list(ShuffleMap([(context, typed)], 2)(iter([batch.slice(0, 25), batch.slice(25)])))

    def route(router: BucketRouter, rows: pa.RecordBatch) -> NoReturn:
        raise AssertionError("routed a second time")

    monkeypatch.setattr(BucketRouter, "_grouped", route)
    messages = []
    for number in (0, 1):
        mine = [part for part in shuffled if part.column("shuffle_partition")[0].as_py() == number]
        (written,) = BucketTask([(context, typed)], 1)(iter(mine))
        messages += pickle.loads(written.column("payload")[0].as_py())
    monkeypatch.undo()
    TableCommit(context, "spark").commit(Committable(1, messages))
    left = set(range(40)) if options else set(range(40)) - set(range(0, 40, 5))
    assert {message.bucket.bucket for message in messages} == {0, 1, 2}
    assert set(table.scan().to_arrow()["id"].to_pylist()) == left
    assert verify(context, deep=True) == []


@pytest.mark.parametrize("shuffle_partitions", [2, 7])
def test_shuffle_partitions_of_a_row_moved_between_buckets_are_linked(
    shuffle_partitions: int,
) -> None:
    """Its value is unavailable, and is with the rows of another bucket."""
    catalog = tidelake.open_catalog(f"memory://{uuid4().hex}/lake")
    catalog.create_database("x")
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int32()), ("doc", pa.string())])
    table = catalog.create_table("x.docs", schema, primary_key=["id"], options={"bucket": "7"})
    tables = [(table.context, RawRecords(DebeziumJson()))]
    source = SourceTable(partition_of={n: n % 3 for n in range(20)})
    for id_ in range(8):
        source.insert(id_, f"doc {id_}")
        source.move(id_, id_ + 10)
    rows = list(ShuffleMap(tables, shuffle_partitions)(iter([kafka_columns(source)])))
    found = BatchStatistics.merged(
        row["payload"] for part in rows for row in part.to_pylist() if row["kind"] == "statistics"
    )
    assert found.tables[0].linked_partitions
    plan = plan_shuffle(found, shuffle_partitions, 1)
    (task_plan,) = task_plans([table.context], found, plan)
    given_plan = payload_row(0, 0, PayloadKind.PLAN, task_plan.to_payload())
    (written,) = BucketTask(tables, 1)(iter([given_plan, *rows]))
    TableCommit(table.context, "spark").commit(Committable(1, pickle.loads(written.column("payload")[0].as_py())))
    left = table.scan().to_arrow().sort_by("id").to_pylist()
    assert [(row["id"], row["doc"]) for row in left] == [(id_ + 10, f"doc {id_}") for id_ in range(8)]


def test_rows_larger_than_memory_are_written_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelake.ingest.spark.bucket_task.ROW_BATCH_BYTES", 2_000)
    catalog = tidelake.open_catalog(f"memory://{uuid4().hex}/lake")
    catalog.create_database("x")
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("day", pa.string()), ("at", pa.int64())])
    table = catalog.create_table("x.t", schema, primary_key=["id"], options={"bucket": "1"})
    typed = TypedColumns(("at",))
    ids = [n % 50 for n in range(600)]
    rows = orders(ids, [RowKind.INSERT] * 600)
    order = Random(3).sample(range(600), 600)
    batches = [rows.take(pa.array(order[start : start + 100])) for start in range(0, 600, 100)]
    chunks = [part for batch in batches for part in ShuffleMap([(table.context, typed)], 1)(iter([batch]))]
    (written,) = BucketTask([(table.context, typed)], 1)(iter(chunks))
    TableCommit(table.context, "spark").commit(Committable(1, pickle.loads(written.column("payload")[0].as_py())))
    found = table.scan().to_arrow().sort_by("id")
    assert found["at"].to_pylist() == [550 + id_ for id_ in range(50)]


def test_duplicate_keys_are_accepted_where_order_is_irrelevant() -> None:
    catalog = tidelake.open_catalog(f"memory://{uuid4().hex}/lake")
    catalog.create_database("x")
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64()), ("m", pa.int64())])
    options = {
        "merge-engine": "aggregation",
        "fields.n.aggregate-function": "sum",
        "fields.m.aggregate-function": "max",
    }
    table = catalog.create_table("x.t", schema, primary_key=["id"], options=options)
    typed = TypedColumns()
    batch = pa.record_batch({"id": [1, 2, 1], "n": [3, 4, 5], "m": [9, 1, 2]})
    (written,) = BucketTask([(table.context, typed)], 1)(ShuffleMap([(table.context, typed)], 2)(iter([batch])))
    TableCommit(table.context, "spark").commit(Committable(1, pickle.loads(written.column("payload")[0].as_py())))
    assert table.scan().to_arrow().sort_by("id").to_pylist() == [{"id": 1, "n": 8, "m": 9}, {"id": 2, "n": 4, "m": 1}]
