"""Splits batches by partition and bucket: sorts the rows once, then copies the rows of each bucket.

The rows are copied, not sliced: a slice would keep the whole batch in memory as long as one bucket holds it.

Source: Java `table/sink/TableWriteImpl.java`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.storage.files.data_file import EMPTY_ROW
from tidelake.storage.model.binary_row import serialize_rows
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.write.assigners import BucketAssigner, PartitionedRows


@dataclass(frozen=True, slots=True, eq=False)
class RoutedRows:
    """Rows that fit their table, in parts with the bucket of each part.

    waiting: rows whose buckets can only be chosen when they are written.
    """

    parts: Sequence[tuple[BucketId, pa.RecordBatch]] = ()
    waiting: PartitionedRows | None = None


class BucketRouter:
    """Splits converted batches. Each part keeps the order of arrival.

    assigner: chooses the buckets.
    check_partition: raises BadInput for an invalid partition; called once for each partition.
    """

    def __init__(
        self,
        schema: TableSchema,
        assigner: BucketAssigner,
        check_partition: Callable[[bytes], None] | None = None,
    ) -> None:
        self._assigner = assigner
        self._check_partition = check_partition
        self._checked: set[bytes] = set()
        self._partition_types = [f.type for f in schema.partition_fields]
        self._partition_columns = list(schema.partition_keys)

    def route(self, batch: pa.RecordBatch) -> list[tuple[BucketId, pa.RecordBatch]]:
        """Return parts of at least one row. Together they hold each row that the assigner returned exactly once."""
        return self._split(self._partitioned(batch)) if batch.num_rows else []

    def routed(self, batch: pa.RecordBatch) -> RoutedRows:
        """Is the first of two steps that do the same as `route`. It has no effect on the next batch."""
        if not batch.num_rows or not self._assigner.moves_rows:
            return RoutedRows(self.route(batch))
        return RoutedRows(waiting=self._partitioned(batch))

    def parts(self, routed: RoutedRows) -> Sequence[tuple[BucketId, pa.RecordBatch]]:
        """Is the second step: chooses the buckets of waiting rows."""
        return routed.parts if routed.waiting is None else self._split(routed.waiting)

    def _partitioned(self, batch: pa.RecordBatch) -> PartitionedRows:
        return PartitionedRows(batch, *self._partitions(batch))

    def _split(self, rows: PartitionedRows) -> list[tuple[BucketId, pa.RecordBatch]]:
        all_rows, groups, keys = self._grouped(rows)
        return [(keys(group), part) for group, part in split_by_group(all_rows, groups, int(groups.max(initial=0)) + 1)]

    def numbered(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, list[BucketId], NDArray[np.int32]]:
        """Return the rows of the assigner in one batch, their buckets, and for each row an index into the buckets."""
        rows, groups, keys = self._grouped(self._partitioned(batch))
        found, numbers = np.unique(groups, return_inverse=True)
        return rows, [keys(group) for group in found.tolist()], numbers.astype(np.int32)

    def _grouped(
        self, asked: PartitionedRows
    ) -> tuple[pa.RecordBatch, NDArray[np.integer[Any]], Callable[[int], BucketId]]:
        """Return rows, a group number for each row, and a function from the group number to the bucket."""
        assigned = self._assigner.assign(asked)
        rows, partitions = assigned.rows.rows, assigned.rows.partitions
        if isinstance(assigned.buckets, int):
            first_bucket, num_buckets = assigned.buckets, 1
            groups = assigned.rows.partition_ids
        else:
            first_bucket, num_buckets = 0, int(assigned.buckets.max(initial=0)) + 1
            groups = assigned.rows.partition_ids * num_buckets + assigned.buckets

        def key(group: int) -> BucketId:
            partition, bucket = divmod(group, num_buckets)
            return BucketId(partitions[partition], first_bucket + bucket)

        return rows, groups, key

    def _partitions(self, batch: pa.RecordBatch) -> tuple[Sequence[bytes], NDArray[np.int64]]:
        """Return the distinct partitions as serialized rows, and for each row an index into them."""
        if not self._partition_columns:
            return [EMPTY_ROW], np.zeros(batch.num_rows, np.int64)
        columns = [batch.column(name) for name in self._partition_columns]
        codes = np.zeros(batch.num_rows, np.int64)
        for column in columns:
            encoded = column.dictionary_encode(null_encoding="encode")
            _, codes = np.unique(
                codes * (len(encoded.dictionary) + 1) + encoded.indices.to_numpy(), return_inverse=True
            )
        _, first_rows, ids = np.unique(codes, return_index=True, return_inverse=True)
        first_values = [column.take(pa.array(first_rows)) for column in columns]
        partitions = serialize_rows(first_values, self._partition_types)
        if self._check_partition is not None:
            for partition in set(partitions) - self._checked:
                self._check_partition(partition)
                self._checked.add(partition)
        return partitions, ids.astype(np.int64)


def split_by_group(
    rows: pa.RecordBatch, groups: NDArray[np.integer[Any]], count: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows of each group, in their order.

    groups (n,): the group of each row, 0 to count - 1.
    """
    if rows.num_rows and bool((groups == groups[0]).all()):
        yield int(groups[0]), rows
        return
    # A stable sort keeps the order of arrival inside a group. For 16-bit numbers NumPy's stable sort is a radix sort.
    order = np.argsort(groups.astype(np.uint16) if count <= 1 << 16 else groups, kind="stable")
    ids = groups[order]
    edges = np.flatnonzero(np.diff(ids, prepend=-1, append=-1))  # where each group starts, then n; ids are >= 0
    assert rows.num_rows == (edges[-1] if len(edges) else 0)
    for start, stop in pairwise(edges.tolist()):
        yield int(ids[start]), rows.take(pa.array(order[start:stop]))
