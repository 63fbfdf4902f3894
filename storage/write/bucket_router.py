"""Which row goes into which bucket of which partition: one sort, then a copy of each bucket's rows.

Each its own: slices of one copy would all stay in memory as long as the least busy bucket holds its few rows.

Source: Java `table/sink/FixedBucketRowKeyExtractor.java`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from storage.binary_row import serialize_rows
from storage.bucketing import Bucketing, BucketMode
from storage.files.data_file import EMPTY_ROW
from storage.schema.table_schema import TableSchema


@dataclass(frozen=True, slots=True)
class BucketKey:
    """A bucket of a partition. partition: the serialized BinaryRow of the partition columns."""

    partition: bytes
    bucket: int


class BucketRouter:
    """Splits converted batches. Arrival order holds inside each part."""

    def __init__(self, schema: TableSchema, bucketing: Bucketing) -> None:
        self._bucketing = bucketing
        self._partition_types = [f.type for f in schema.partition_fields]
        self._partition_columns = list(schema.partition_keys)
        self._key_columns = list(bucketing.key_columns)
        self._num_buckets = bucketing.num_buckets if bucketing.mode is BucketMode.FIXED else 1

    def route(self, batch: pa.RecordBatch) -> list[tuple[BucketKey, pa.RecordBatch]]:
        """Parts with at least one row each; together they hold every row once."""
        if not batch.num_rows:
            return []
        partitions, partition_ids = self._partitions(batch)
        buckets = self._buckets(batch)
        if buckets is None and len(partitions) == 1:
            return [(BucketKey(partitions[0], 0), batch)]
        groups = partition_ids * self._num_buckets + (0 if buckets is None else buckets)
        are_few = len(partitions) * self._num_buckets <= 1 << 16
        # stable: arrival order holds inside a bucket. Of 16-bit numbers NumPy's stable sort is a radix sort
        order = np.argsort(groups.astype(np.uint16) if are_few else groups, kind="stable")
        ids = groups[order]
        edges = np.flatnonzero(np.diff(ids, prepend=-1, append=-1))  # where each run starts, then n; ids are >= 0
        parts = []
        for start, stop in pairwise(edges.tolist()):
            partition, bucket = divmod(int(ids[start]), self._num_buckets)
            rows = batch if len(edges) == 2 else batch.take(pa.array(order[start:stop]))
            parts.append((BucketKey(partitions[partition], bucket), rows))
        assert sum(part.num_rows for _, part in parts) == batch.num_rows
        return parts

    def _buckets(self, batch: pa.RecordBatch) -> NDArray[np.int32] | None:
        """None when all rows share bucket 0."""
        if self._num_buckets == 1:
            return None
        return self._bucketing.bucket_ids([batch.column(name) for name in self._key_columns])

    def _partitions(self, batch: pa.RecordBatch) -> tuple[Sequence[bytes], NDArray[np.int64]]:
        """Distinct partitions as serialized rows, and which of them each row belongs to."""
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
        one_each = [column.take(pa.array(first_rows)) for column in columns]
        return serialize_rows(one_each, self._partition_types), ids.astype(np.int64)
