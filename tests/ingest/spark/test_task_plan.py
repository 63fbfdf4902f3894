"""Which task writes which shuffle partitions: few tasks for little data, even shares of much data, linked partitions
together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from threading import Barrier
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidelake
from tidelake.ingest.spark.batch_rows import TypedColumns
from tidelake.ingest.spark.batch_statistics import BatchStatistics, BatchTableStatistics
from tidelake.ingest.spark.bucket_task import BucketTask
from tidelake.ingest.spark.shuffling import task_plan
from tidelake.ingest.spark.shuffling.shuffle import PayloadKind, ShuffleMap, payload_row
from tidelake.ingest.spark.shuffling.task_plan import PlannedWork, plan_shuffle, task_plans
from tidelake.storage.commit.commit_message import Committable
from tidelake.storage.commit.table_commit import TableCommit
from tidelake.storage.fileio.memory import MemoryFileIO
from tidelake.storage.model.table import TableContext
from tidelake.storage.write.restored_table import RestoredState, restore_files
from tidelake.storage.write.table_writer import TableWriter

MIB = 1 << 20


def statistics(shuffle_bytes: Mapping[int, int], buckets: int = 1, *links: tuple[int, int]) -> BatchStatistics:
    of = BatchTableStatistics(
        shuffle_bytes=dict(shuffle_bytes), buckets={b"": set(range(buckets))}, linked_partitions=set(links)
    )
    return BatchStatistics({}, {0: of})


@pytest.mark.parametrize(
    ("found", "cores", "tasks"),
    [
        pytest.param(statistics({}), 8, 1, id="nothing"),
        pytest.param(statistics(dict.fromkeys(range(8), 1000), 8), 8, 1, id="a few rows"),
        pytest.param(statistics(dict.fromkeys(range(8), MIB), 8), 8, 5, id="some megabytes"),
        pytest.param(statistics(dict.fromkeys(range(8), 1000), 1_000), 8, 8, id="few rows for many buckets"),
        pytest.param(statistics({3: 900 * MIB}), 8, 1, id="one bucket"),
        pytest.param(statistics(dict.fromkeys(range(8), 200 * MIB), 8), 2, 6, id="more than the machines at hand"),
    ],
)
def test_the_number_of_write_tasks_follows_the_data(found: BatchStatistics, cores: int, tasks: int) -> None:
    assert plan_shuffle(found, 8, cores).tasks == tasks


@given(
    sizes=st.dictionaries(st.integers(0, 11), st.integers(0, 50 * MIB), max_size=12),
    links=st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=6),
    cores=st.integers(1, 9),
)
def test_linked_shuffle_partitions_share_a_task(
    sizes: dict[int, int], links: list[tuple[int, int]], cores: int
) -> None:
    plan = plan_shuffle(statistics(sizes, 12, *links), 12, cores)
    assert len(plan.task_of_partition) == 12
    assert set(plan.task_of_partition) <= set(range(plan.tasks))
    for a, b in links:
        assert plan.task_of_partition[a] == plan.task_of_partition[b]
        assert a == b or any({a, b} <= set(group) for group in plan.groups)
    assert sum(map(len, plan.groups)) == len({partition for group in plan.groups for partition in group})


def test_the_driver_reads_manifests_and_tasks_read_none(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = tidelake.open_catalog(f"memory://{uuid4().hex}/lake")
    catalog.create_database("x")
    schema = pa.schema([pa.field("id", pa.int64(), False), ("day", pa.string()), ("v", pa.int64())])
    table = catalog.create_table(
        "x.t", schema, primary_key=["id", "day"], partition_by=["day"], options={"bucket": "4"}
    )
    for v in range(6):  # the fifth compacts
        _write(table.context, batch(v), v)
    tables = [(table.context, TypedColumns())]
    shuffled = list(ShuffleMap(tables, 8)(iter([batch(6)])))
    reported = [row["payload"] for part in shuffled for row in part.to_pylist() if row["kind"] == "statistics"]
    found = BatchStatistics.merged(reported)
    shuffle = plan_shuffle(found, 8, 2)
    plans = task_plans([table.context], found, shuffle)
    assert sum(len(plan.restored[0].buckets) for plan in plans) == found.tables[0].bucket_count

    read = MemoryFileIO.read

    def no_manifest(io: MemoryFileIO, path: str) -> bytes:
        assert "/manifest/" not in path, f"a task read {path}"
        return read(io, path)

    messages = 0
    monkeypatch.setattr(MemoryFileIO, "read", no_manifest)
    for number, plan in enumerate(plans):
        of_task = shuffle.task_of_partition
        rows = [part for part in shuffled if of_task[part.column("shuffle_partition")[0].as_py()] == number]
        given_plan = pa.RecordBatch.from_pylist(
            [{"table_number": 0, "shuffle_partition": 0, "kind": "plan", "payload": plan.to_payload()}], rows[0].schema
        )
        messages += sum(part.num_rows for part in BucketTask(tables, 7)(iter([*rows, given_plan])))
    assert messages == len(plans)


def test_a_task_finds_its_plan_by_its_first_chunk() -> None:
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    planned = PlannedWork(work, task_of_partition=[0, 1, 0], plans=[b"of task 0", b"of task 1"])
    chunk = payload_row(0, 1, PayloadKind.ROWS, b"rows")
    assert list(planned(iter([chunk.slice(0, 0)]))) == []
    plan, *chunks = planned(iter([chunk.slice(0, 0), chunk, chunk]))
    assert plan.to_pylist() == payload_row(0, 0, PayloadKind.PLAN, b"of task 1").to_pylist()
    assert chunks == [chunk, chunk]


def batch(v: int) -> pa.RecordBatch:
    return pa.record_batch({"id": pa.array(range(40)), "day": [f"d{i % 3}" for i in range(40)], "v": [v] * 40})


def _write(context: TableContext, rows: pa.RecordBatch, identifier: int) -> None:
    writer = TableWriter(context)
    writer.write(rows)
    TableCommit(context, "u").commit(Committable(identifier, writer.prepare_commit(identifier)))
    writer.abort()


def test_the_states_of_all_tables_are_read_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog, tables = tidelake.open_catalog(f"memory://{uuid4().hex}/lake"), 8
    catalog.create_database("x")
    schema = pa.schema([pa.field("id", pa.int64(), False)])
    contexts = [
        catalog.create_table(f"x.t{n}", schema, primary_key=["id"], options={"bucket": "1"}).context
        for n in range(tables)
    ]
    of_each = {n: BatchTableStatistics(shuffle_bytes={0: 1}, buckets={b"": {0}}) for n in range(tables)}
    meeting, restore = Barrier(tables, timeout=30), restore_files

    def meet(*of: Any, **settings: Any) -> RestoredState:
        meeting.wait()
        return restore(*of, **settings)

    monkeypatch.setattr(task_plan, "restore_files", meet)
    found = BatchStatistics({}, of_each)
    plans = task_plans(contexts, found, plan_shuffle(found, 8, 2))
    assert sorted(n for plan in plans for n in plan.restored) == list(range(tables))
