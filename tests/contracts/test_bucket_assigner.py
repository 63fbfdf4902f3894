"""The contract of storage/write/assigners/bucket_assigner.py, checked for every assigner and for one with an index.

The latter is defined here: like dynamic buckets with two keys each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pytest

from tidelake.ingest.spark.batch_rows import TypedColumns
from tidelake.ingest.spark.shuffling.shuffle import ShuffleMap, from_ipc, shuffle_partition_of
from tidelake.storage.commit.commit_message import CommitMessage
from tidelake.storage.fileio.memory import MemoryFileIO
from tidelake.storage.files.data_file import EMPTY_ROW
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.bucketing import bucket_ids
from tidelake.storage.model.options import TableOptions
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import BIGINT, STRING, DataField, not_null
from tidelake.storage.write.assigners import AssignedRows, BucketAssigner, PartitionedRows, bucket_assigner_of
from tidelake.storage.write.bucket_router import BucketRouter
from tidelake.storage.write.table_writer import TableWriter

FIELDS = (DataField(0, "day", not_null(STRING)), DataField(1, "id", not_null(BIGINT)))
KEYED = TableSchema(0, FIELDS, 1, partition_keys=("day",), primary_keys=("day", "id"))
CROSSING = replace(KEYED, primary_keys=("id",))
APPENDED = TableSchema(0, FIELDS, 1, partition_keys=("day",))


def table(schema: TableSchema, **options: str) -> TableContext:
    named = {name.replace("_", "-").replace("-type", ".type"): value for name, value in options.items()}
    return TableContext(MemoryFileIO(), "memory://assigners/t", "d.t", schema, TableOptions(named))


class IndexedAssigner:
    """Two keys a bucket, and a key stays where it came first: as Java's HashBucketAssigner, with target-row-num 2."""

    is_function_of_rows = False
    moves_rows = False
    is_ready = True
    reads_files = False

    def __init__(self) -> None:
        self._bucket_of: dict[tuple[bytes, int], int] = {}

    def assign(self, rows: PartitionedRows) -> AssignedRows:
        keys = zip(rows.partition_ids.tolist(), rows.rows.column("id").to_pylist(), strict=True)
        return AssignedRows(rows, np.array([self._of(rows.partitions[p], key) for p, key in keys], np.int32))

    def _of(self, partition: bytes, key: int) -> int:
        known = sum(of == partition for of, _ in self._bucket_of)
        return self._bucket_of.setdefault((partition, key), known // 2)

    def prepare_commit(self, identifier: int) -> Sequence[CommitMessage]:
        return ()

    def committed(self, snapshot_id: int) -> None:
        pass

    def dropped(self) -> None:
        pass


class MovingAssigner(IndexedAssigner):
    """The first row of a batch is a delete of its key's old partition: as cross-partition upserts."""

    def assign(self, rows: PartitionedRows) -> AssignedRows:
        return super().assign(
            PartitionedRows(
                pa.concat_batches([rows.rows.slice(0, 1), rows.rows]),
                [*rows.partitions, b"old"],
                np.array([len(rows.partitions), *rows.partition_ids]),
            )
        )


@dataclass(frozen=True, slots=True)
class Case:
    new: Callable[[], BucketAssigner]
    buckets: range


CASES = {
    "fixed, default function": Case(lambda: bucket_assigner_of(table(KEYED, bucket="3")), range(3)),
    "fixed, mod": Case(lambda: bucket_assigner_of(table(KEYED, bucket="3", bucket_function_type="mod")), range(3)),
    "fixed, hive": Case(lambda: bucket_assigner_of(table(KEYED, bucket="3", bucket_function_type="hive")), range(3)),
    "fixed, one bucket": Case(lambda: bucket_assigner_of(table(KEYED, bucket="1")), range(1)),
    "fixed, append table": Case(lambda: bucket_assigner_of(table(APPENDED, bucket="3", bucket_key="id")), range(3)),
    "unaware": Case(lambda: bucket_assigner_of(table(APPENDED, bucket="-1")), range(1)),
    "dynamic": Case(
        lambda: bucket_assigner_of(table(KEYED, bucket="-1", **{"dynamic-bucket.target-row-num": "2"})), range(5)
    ),
    "dynamic, overwriting": Case(
        lambda: bucket_assigner_of(table(KEYED, bucket="-1", **{"dynamic-bucket.target-row-num": "2"}), replaces=True),
        range(5),
    ),
    "keys that move": Case(
        lambda: bucket_assigner_of(table(CROSSING, bucket="-1", **{"dynamic-bucket.target-row-num": "2"})), range(5)
    ),
    "an index of keys": Case(IndexedAssigner, range(5)),
}


@pytest.fixture(params=list(CASES.values()), ids=list(CASES))
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


def rows(ids: list[int]) -> PartitionedRows:
    days = [str(i % 2) for i in range(len(ids))]
    batch = pa.RecordBatch.from_arrays([pa.array(days), pa.array(ids, pa.int64())], schema=KEYED.arrow)
    return PartitionedRows(batch, [b"even", b"odd"], np.arange(len(ids)) % 2)


def buckets_of(assigned: AssignedRows) -> list[int]:
    if isinstance(assigned.buckets, int):
        return [assigned.buckets] * assigned.rows.rows.num_rows
    return [int(bucket) for bucket in assigned.buckets]


def test_each_row_gets_one_bucket_of_the_table(case: Case) -> None:
    assigned = case.new().assign(rows(list(range(10))))
    assert assigned.rows.rows.num_rows == 10
    assert len(buckets_of(assigned)) == 10
    assert set(buckets_of(assigned)) <= set(case.buckets)


def test_a_key_stays_in_its_bucket_over_commits(case: Case) -> None:
    assigner = case.new()
    first = buckets_of(assigner.assign(rows(list(range(10)))))
    assigner.prepare_commit(1)
    assert buckets_of(assigner.assign(rows(list(range(10))))) == first


def test_only_an_assigner_that_is_a_function_of_rows_agrees_across_tasks(case: Case) -> None:
    one, other = case.new(), case.new()
    one.assign(rows([7, 8, 9, 10, 11, 12]))
    same = buckets_of(one.assign(rows([1, 2, 3]))) == buckets_of(other.assign(rows([1, 2, 3])))
    assert same == one.is_function_of_rows


def test_a_fixed_bucket_equals_the_result_of_the_bucket_function() -> None:
    ids = [5, -7, 2**40, 0, -1]
    for function in ("default", "mod", "hive"):
        assigner = bucket_assigner_of(table(KEYED, bucket="4", bucket_function_type=function))
        expected = bucket_ids([pa.array(ids, pa.int64())], [not_null(BIGINT)], 4, function)
        assert buckets_of(assigner.assign(rows(ids))) == expected.tolist()


def test_postponed_rows_all_go_into_one_bucket() -> None:
    assert bucket_assigner_of(table(KEYED, bucket="-2")).assign(rows([1, 2, 3])).buckets == -2


def test_a_router_splits_rows_by_the_buckets_of_its_assigner() -> None:
    parts = BucketRouter(KEYED, IndexedAssigner()).route(rows([1, 2, 3, 4, 5, 6, 7, 8]).rows)
    assert [(key.bucket, part.column("id").to_pylist()) for key, part in parts] == [
        (0, [1, 3]), (1, [5, 7]), (0, [2, 4]), (1, [6, 8]),
    ]  # fmt: skip


def test_an_assigner_may_return_other_rows_than_it_received() -> None:
    parts = BucketRouter(KEYED, MovingAssigner()).route(rows([1, 2, 3]).rows)
    assert [part.column("id").to_pylist() for key, part in parts if key.partition == b"old"] == [[1]]
    assert sum(part.num_rows for _, part in parts) == 4


def test_a_writer_uses_the_injected_assigner() -> None:
    flat = replace(KEYED, partition_keys=(), primary_keys=("id",))
    writer = TableWriter(table(flat, bucket="5"), bucket_assigner=IndexedAssigner())
    routed = writer.route(rows([10, 20, 30, 40, 50]).rows)
    assert [key for key, _ in routed.parts] == [BucketId(EMPTY_ROW, bucket) for bucket in (0, 1, 2)]
    writer.abort()


def test_a_shuffle_uses_the_injected_assigner() -> None:
    context = table(replace(KEYED, partition_keys=(), primary_keys=("id",)), bucket="5")
    shuffle = ShuffleMap([(context, TypedColumns())], 8, bucket_assigner=lambda _: IndexedAssigner())
    sent = [row for part in shuffle(iter([rows([10, 20, 30, 40, 50]).rows])) for row in part.to_pylist()]
    found = {
        row["shuffle_partition"]: from_ipc(row["payload"]).column("id").to_pylist()
        for row in sent
        if row["kind"] == "rows"
    }
    to = [shuffle_partition_of(context, BucketId(EMPTY_ROW, bucket), 8) for bucket in (0, 1, 2)]
    assert found == dict(zip(to, ([10, 20], [30, 40], [50]), strict=True))
