"""Tables whose buckets an index chooses, written by independent tasks: no key gets into two buckets.

The jobs are run here without Spark, as many tasks as there are; `test_indexed_buckets.py` and the contracts of both
drivers run them in Spark.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidelake
from tests.ingest.spark.test_bucket_task import kafka_columns
from tests.ingest.tables.moved_rows_model import SourceTable
from tests.support.levels import examples
from tidelake.errors import BadInput, CommitConflict, TidelakeError
from tidelake.ingest.formats.debezium.debezium_json import DebeziumJson
from tidelake.ingest.spark.assigning.assign_plan import plan_assigners
from tidelake.ingest.spark.assigning.assign_task import AssignTask
from tidelake.ingest.spark.batch_rows import BatchInput, RawRecords, TypedColumns
from tidelake.ingest.spark.batch_statistics import BatchStatistics
from tidelake.ingest.spark.bucket_task import BucketTask
from tidelake.ingest.spark.shuffling.shuffle import PayloadKind, ShuffleMap, buckets_of, from_ipc, payload_row
from tidelake.ingest.spark.shuffling.task_plan import plan_shuffle, task_plans
from tidelake.storage.commit.commit_message import CommitMessage, Committable
from tidelake.storage.commit.table_commit import TableCommit
from tidelake.storage.maintenance.verify import verify
from tidelake.storage.model.format import KIND_COLUMN

SHUFFLE_PARTITIONS: Final = 8
ROWS: Final = PayloadKind.ROWS
INDEXED: Final = {"bucket": "-1", "dynamic-bucket.target-row-num": "3"}
SCHEMA: Final = pa.schema([pa.field("id", pa.int64(), False), pa.field("day", pa.string(), False), ("v", pa.int64())])
KEYS: Final = {"keys keep their partition": ["day", "id"], "keys change it": ["id"]}
ORDERED: Final = TypedColumns(("at",))


@dataclass
class Job:
    """A batch of one table, as `batch_write` has it done."""

    table: tidelake.Table
    batches: Sequence[pa.RecordBatch]
    input: BatchInput = ORDERED
    cores: int = 4
    random: Random = field(default_factory=lambda: Random(1))

    def messages(self) -> list[CommitMessage]:
        assigned, messages = self.assigned()
        rows = [row for row in assigned if row["kind"] == ROWS]
        statistics = BatchStatistics.merged(row["payload"] for row in assigned if row["kind"] == PayloadKind.STATISTICS)
        plan = plan_shuffle(statistics, SHUFFLE_PARTITIONS, self.cores)
        for number, of_task in enumerate(task_plans([self.table.context], statistics, plan)):
            mine = [row for row in rows if plan.task_of_partition[row["shuffle_partition"]] == number]
            written = BucketTask(self.tables, 1)(self.shuffled(mine, of_task.to_payload()))
            messages += messages_in(written)
        return messages

    def assigned(self) -> tuple[list[dict[str, Any]], list[CommitMessage]]:
        """Rows of the shuffle to buckets, and what the index becomes."""
        shares = [row for b in self.batches for row in rows_of(ShuffleMap(self.tables, SHUFFLE_PARTITIONS)(iter([b])))]
        statistics = BatchStatistics.merged(row["payload"] for row in shares if row["kind"] == PayloadKind.STATISTICS)
        plan, plans = plan_assigners({0: self.table.context}, statistics, SHUFFLE_PARTITIONS, self.cores)
        found: list[dict[str, Any]] = []
        for number, of_task in enumerate(plans):
            mine = [r for r in shares if r["kind"] == ROWS and plan.task_of_partition[r["shuffle_partition"]] == number]
            found += rows_of(AssignTask(self.tables, 1)(self.shuffled(mine, of_task.to_payload())))
        messages = [m for r in found if r["kind"] == PayloadKind.MESSAGES for m in pickle.loads(r["payload"])]
        return found, messages

    def shuffled(self, rows: Sequence[Mapping[str, Any]], plan: bytes) -> Iterator[pa.RecordBatch]:
        sent = [payload_row(0, row["shuffle_partition"], ROWS, row["payload"]) for row in rows]
        sent.append(payload_row(0, 0, PayloadKind.PLAN, plan))
        return iter(self.random.sample(sent, len(sent)))

    @property
    def tables(self) -> list[tuple[Any, BatchInput]]:
        return [(self.table.context, self.input)]

    def commit(self, identifier: int) -> None:
        TableCommit(self.table.context, "spark").commit(Committable(identifier, self.messages()))


def rows_of(batches: Iterator[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


def messages_in(batches: Iterator[pa.RecordBatch]) -> list[CommitMessage]:
    return [m for r in rows_of(batches) if r["kind"] == PayloadKind.MESSAGES for m in pickle.loads(r["payload"])]


def new_table(key: Sequence[str], **options: str) -> tidelake.Table:
    catalog = tidelake.open_catalog(f"memory://{uuid4().hex}/lake")
    catalog.create_database("x")
    return catalog.create_table(
        "x.t", SCHEMA, primary_key=list(key), partition_by=["day"], options={**INDEXED, **options}
    )


def batch_of(rows: Sequence[tuple[int, str, int, int]], times: Iterator[int]) -> pa.RecordBatch:
    """rows: id, day, v, row kind."""
    columns = list(zip(*rows, strict=True)) or [(), (), (), ()]
    return pa.record_batch(
        {
            "id": pa.array(columns[0], pa.int64()),
            "day": pa.array(columns[1], pa.string()),
            "v": pa.array(columns[2], pa.int64()),
            KIND_COLUMN: pa.array(columns[3], pa.int8()),
            "at": pa.array([next(times) for _ in rows], pa.int64()),
        }
    )


@pytest.fixture(autouse=True)
def _many_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for little work."""
    monkeypatch.setattr("tidelake.ingest.spark.shuffling.task_plan.TASK_COST_BYTES", 1)


def check(table: tidelake.Table, key: Sequence[str], model: Mapping[tuple[Any, ...], tuple[int, str, int]]) -> None:
    held = [tuple(row[name] for name in SCHEMA.names) for row in table.scan().to_arrow().to_pylist()]
    assert sorted(held) == sorted(model.values())
    assert verify(table.context, deep=True) == []  # the index of each bucket, too


@pytest.mark.exhaustive(kept=4)
@pytest.mark.sampled
@pytest.mark.parametrize("key", KEYS.values(), ids=list(KEYS))
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"dynamic-bucket.initial-buckets": "3"},
        {"dynamic-bucket.assigner-parallelism": "20"},
        {"dynamic-bucket.max-buckets": "2"},
        {"deletion-vectors.enabled": "true"},
    ],
    ids=["as many assigners as tasks", "three", "more than shuffle partitions", "few buckets", "deletion vectors"],
)
def test_alternating_tasks_and_writers_leave_one_row_per_key(key: list[str], options: Mapping[str, str]) -> None:
    change = st.tuples(st.integers(0, 30), st.sampled_from(["mon", "tue"]), st.integers(0, 9), st.sampled_from([0, 3]))
    turns = st.lists(st.tuples(st.booleans(), st.integers(1, 4), st.lists(change, min_size=1, max_size=40)), max_size=5)

    @settings(max_examples=examples(15))
    @given(turns)
    def in_turns(turns: Sequence[tuple[bool, int, Sequence[tuple[int, str, int, int]]]]) -> None:
        table = new_table(key, **options)
        model: dict[tuple[Any, ...], tuple[int, str, int]] = {}
        times = count()
        with table.writer(commit_user="service") as writer:
            for turn, (by_tasks, cores, rows) in enumerate(turns, 1):
                batch = batch_of(rows, times)
                if by_tasks:
                    half = len(rows) // 2
                    Job(table, [batch.slice(half), batch.slice(0, half)], cores=cores).commit(turn)
                else:
                    writer.write(batch.drop_columns(["at"]))
                    writer.commit(turn)
                for id_, day, v, kind in rows:
                    one = (day, id_) if len(key) == 2 else (id_,)
                    model.pop(one, None)
                    if not kind:
                        model[one] = (id_, day, v)
                check(table, key, model)

    in_turns()


@pytest.mark.interop
@pytest.mark.parametrize("key", KEYS.values(), ids=list(KEYS))
def test_a_rerun_task_gives_the_same_result_for_reordered_chunks(key: list[str]) -> None:
    """Else a key of which one part was written already would get a second bucket."""
    times = count()
    for options in ({}, {"dynamic-bucket.max-buckets": "3"}):
        table = new_table(key, **options)
        Job(table, [batch_of([(n, "mon", 0, 0) for n in range(20)], times)]).commit(1)
        batches = [batch_of([(n % 40, ("mon", "tue")[n % 3 % 2], n, 0)], times) for n in range(60)]
        made = [places(Job(table, batches, random=Random(seed)).assigned()[0]) for seed in range(3)]
        assert made[0] == made[1] == made[2]


def places(assigned: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    found = []
    for row in assigned:
        if row["kind"] == ROWS:
            chunk = from_ipc(pa.py_buffer(row["payload"]))
            keys = buckets_of(chunk)
            found += [
                (one["id"], one["v"], one[KIND_COLUMN], keys[one["_bucket"]].partition, keys[one["_bucket"]].bucket)
                for one in chunk.to_pylist()
            ]
    return sorted(found)


@pytest.mark.parametrize("key", KEYS.values(), ids=list(KEYS))
def test_rows_of_another_task_are_refused(key: list[str]) -> None:
    job = Job(new_table(key), [batch_of([(n, "mon", 0, 0) for n in range(50)], count())])
    shares = rows_of(ShuffleMap(job.tables, SHUFFLE_PARTITIONS)(iter(job.batches)))
    statistics = BatchStatistics.merged(row["payload"] for row in shares if row["kind"] == PayloadKind.STATISTICS)
    _, (first, *others) = plan_assigners({0: job.table.context}, statistics, SHUFFLE_PARTITIONS, job.cores)
    assert others
    of_all = [row for row in shares if row["kind"] == ROWS]
    with pytest.raises(
        TidelakeError, match=r"x\.t: Spark merged tasks, so a task got rows whose buckets another task must choose"
    ):
        list(AssignTask(job.tables, 1)(job.shuffled(of_all, first.to_payload())))


@pytest.mark.parametrize("key", KEYS.values(), ids=list(KEYS))
def test_several_assigners_fill_separate_buckets(key: list[str]) -> None:
    table = new_table(key, **{"dynamic-bucket.target-row-num": "100"})
    job = Job(table, [batch_of([(n, "mon", 0, 0) for n in range(100)], count())], cores=4)
    messages = job.messages()
    assert {message.bucket.bucket for message in messages if message.increment.new_files} == {0, 1, 2, 3}
    indexes = [message.bucket.bucket for message in messages if message.increment.new_index_files]
    assert sorted(indexes) == ([0, 1, 2, 3] if len(key) == 2 else [])


@pytest.mark.parametrize("key", KEYS.values(), ids=list(KEYS))
def test_concurrent_rows_of_another_writer_are_a_conflict(key: list[str]) -> None:
    ordered = {"sequence.field": "v"} if len(key) == 2 else {}  # of which two may write to a bucket, but for its index
    table = new_table(key, **ordered)
    messages = Job(table, [batch_of([(n, "mon", 0, 0) for n in range(9)], count())]).messages()
    with table.writer(commit_user="other") as other:
        other.write(pa.table({"id": [3], "day": ["mon"], "v": [1]}, SCHEMA))
        other.commit()
    with pytest.raises(
        CommitConflict, match=r"another commit changed the index|a key could get a row in two partitions"
    ):
        TableCommit(table.context, "spark").commit(Committable(1, messages))


@pytest.mark.parametrize("key", KEYS.values(), ids=list(KEYS))
def test_an_overwrite_starts_with_an_empty_index(key: list[str]) -> None:
    table, times = new_table(key), count()
    Job(table, [batch_of([(n, "mon", 0, 0) for n in range(50)], times)]).commit(1)
    replacing = Job(table, [batch_of([(n, "tue", 1, 0) for n in range(40, 60)], times)], TypedColumns(("at",), True))
    TableCommit(table.context, "spark").overwrite(Committable(2, replacing.messages()), None, dynamic=False)
    model = {(n,): (n, "tue", 1) for n in range(40, 60)}
    check(table, key, model)
    Job(table, [batch_of([(n, "tue", 2, 0) for n in range(50, 70)], times)]).commit(3)
    check(table, key, model | {(n,): (n, "tue", 2) for n in range(50, 70)})


def test_a_duplicate_key_without_an_order_is_refused_even_for_sums() -> None:
    """Its first row decides about the partition."""
    summed = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}
    table = new_table(["id"], **summed)
    twice = pa.record_batch({"id": [1, 1], "day": ["mon", "tue"], "v": [1, 2]})
    with pytest.raises(BadInput, match="occurs twice in one batch"):
        Job(table, [twice], TypedColumns()).messages()


def test_a_moved_row_keeps_its_values_across_assigners() -> None:
    """Its value is unavailable, and is with the rows of its old key."""
    catalog = tidelake.open_catalog(f"memory://{uuid4().hex}/lake")
    catalog.create_database("x")
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int32()), ("doc", pa.string())])
    table = catalog.create_table("x.docs", schema, primary_key=["id"], options=INDEXED)
    source = SourceTable(partition_of={n: n % 3 for n in range(20)})
    for id_ in range(8):
        source.insert(id_, f"doc {id_}")
        source.move(id_, id_ + 10)
    Job(table, [kafka_columns(source)], RawRecords(DebeziumJson())).commit(1)
    left = table.scan().to_arrow().sort_by("id").to_pylist()
    assert [(row["id"], row["doc"]) for row in left] == [(id_ + 10, f"doc {id_}") for id_ in range(8)]
    assert verify(table.context, deep=True) == []
