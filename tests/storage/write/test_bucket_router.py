"""Rows are routed to their partition and bucket, and keep their arrival order within each."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tidelake.storage.fileio.memory import MemoryFileIO
from tidelake.storage.files.data_file import EMPTY_ROW
from tidelake.storage.model.binary_row import decode_rows
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.options import TableOptions
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import BIGINT, DOUBLE, STRING, DataField, not_null
from tidelake.storage.write.assigners import bucket_assigner_of
from tidelake.storage.write.bucket_router import BucketRouter

FIELDS = (
    DataField(0, "dt", not_null(STRING)),
    DataField(1, "hour", DOUBLE),
    DataField(2, "id", not_null(BIGINT)),
    DataField(3, "arrival", not_null(BIGINT)),
)
PARTITIONED = TableSchema(0, FIELDS, 3, partition_keys=("dt", "hour"), primary_keys=("dt", "hour", "id"))
FLAT = TableSchema(0, FIELDS, 3, primary_keys=("id",))


def router(schema: TableSchema, buckets: int) -> BucketRouter:
    options = TableOptions({"bucket": str(buckets)})
    return BucketRouter(schema, bucket_assigner_of(TableContext(MemoryFileIO(), "memory://t", "d.t", schema, options)))


def batch(rows: list[tuple[str, float | None, int]]) -> pa.RecordBatch:
    columns = [pa.array(column, field.type) for column, field in zip(zip(*rows), FLAT.arrow)] if rows else None  # noqa: B905
    arrival = pa.array(range(len(rows)), pa.int64())
    if columns is None:
        return pa.RecordBatch.from_pylist([], FLAT.arrow)
    return pa.RecordBatch.from_arrays([*columns, arrival], schema=FLAT.arrow)


ROWS = st.lists(
    st.tuples(
        st.sampled_from(["a", "", "b/ä"]), st.sampled_from([None, 0.0, -0.0, float("nan"), 7.5]), st.integers(0, 9)
    )
)


def same_partition(value: float | None) -> Any:
    """-0.0 and 0.0 are two partitions, NaN is one."""
    return str(value)


@given(ROWS)
def test_every_row_reaches_the_partition_of_its_values_once(rows: list[tuple[str, float | None, int]]) -> None:
    seen: list[int] = []
    types = [field.type for field in PARTITIONED.partition_fields]
    for key, part in router(PARTITIONED, 3).route(batch(rows)):
        (dt,), (hour,) = (column.to_pylist() for column in decode_rows([key.partition], types))
        assert set(part.column("dt").to_pylist()) == {dt}
        assert {same_partition(v) for v in part.column("hour").to_pylist()} == {same_partition(hour)}
        seen += part.column("arrival").to_pylist()
    assert sorted(seen) == list(range(len(rows)))


@given(ROWS, st.integers(1, 5))
def test_a_key_always_reaches_the_same_bucket_and_arrival_order_holds(
    rows: list[tuple[str, float | None, int]], buckets: int
) -> None:
    bucket_of: dict[int, int] = {}
    for key, part in router(FLAT, buckets).route(batch(rows)):
        assert key.partition == EMPTY_ROW
        assert 0 <= key.bucket < buckets
        arrival = part.column("arrival").to_pylist()
        assert arrival == sorted(arrival)
        for row_id in part.column("id").to_pylist():
            assert bucket_of.setdefault(row_id, key.bucket) == key.bucket


def test_one_bucket_without_partitions_passes_the_batch_unchanged() -> None:
    rows = batch([("a", 1.0, 1), ("b", 2.0, 2)])
    [(key, part)] = router(FLAT, 1).route(rows)
    assert key == BucketId(EMPTY_ROW, 0)
    assert part is rows


def test_parts_do_not_hold_each_other_in_memory() -> None:
    parts = router(FLAT, 4).route(batch([("text" * 100, 1.0, n) for n in range(1_000)]))
    assert len(parts) == 4
    for _, part in parts:
        assert part.get_total_buffer_size() < 1.5 * part.nbytes


def test_an_empty_batch_is_routed_nowhere() -> None:
    assert router(PARTITIONED, 3).route(batch([])) == []
