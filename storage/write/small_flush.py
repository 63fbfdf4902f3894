"""Flushes many small buckets together.

A batch of ten thousand rows for a thousand buckets gives a thousand files of ten rows. If each bucket is sorted, merged
and measured alone, most of the time is spent on calls and on waiting for the disk a thousand times. Together they need
one sort by (bucket, key) and one merge, and their files are written in parallel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidelake.storage.base.garbage_collection import paused_collection
from tidelake.storage.files.small_files import SmallFile, write_small_files
from tidelake.storage.files.writer import FilePlan
from tidelake.storage.merge.merge_functions import MergeFunction, check_remaining_retracts
from tidelake.storage.merge.merge_reader import MergeOrder, merge_batch
from tidelake.storage.merge.normalized_keys import align_keys, normalize_column
from tidelake.storage.model.format import FileSource
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types.row_kinds import row_kinds
from tidelake.storage.write.bucket_writer import BucketWriter, PrimaryKeyBucketWriter

SMALL_BUCKET_BYTES: Final = 256 * 1024  # of rows in memory: below this, a file's fixed cost exceeds that of its bytes
BUCKETS_MIN: Final = 4
ROUND_BYTES: Final = 32 * 1024 * 1024  # size of rows that are sorted together
_BUCKET_COLUMN: Final = "_BUCKET"

Edges = NDArray[np.intp]


def flush_small_buckets(context: TableContext, function: MergeFunction | None, buckets: Sequence[BucketWriter]) -> None:
    """Flush the buckets that hold few rows. Other buckets must be flushed separately.

    After an error, the rows are still held. No file is left of the buckets that were flushed together with the failed
    bucket.

    function: None for an append table.
    """
    limit = min(SMALL_BUCKET_BYTES, context.options.target_file_size_bytes(has_primary_key=True) // 2)
    small = [b for b in buckets if isinstance(b, PrimaryKeyBucketWriter) and 0 < b.buffered.nbytes <= limit]
    if function is None or len(small) < BUCKETS_MIN:
        return
    flush = _SmallFlush(context, FilePlan(context, 0, FileSource.APPEND, changelog=False), function, limit)
    for batch in _rounds(small):
        flush.flush(batch)


def _rounds(buckets: Sequence[PrimaryKeyBucketWriter]) -> Iterator[list[PrimaryKeyBucketWriter]]:
    """Divide the buckets into groups of at most ROUND_BYTES. Only a group of one bucket may be larger."""
    taken: list[PrimaryKeyBucketWriter] = []
    nbytes = 0
    for bucket in buckets:
        if taken and nbytes + bucket.buffered.nbytes > ROUND_BYTES:
            yield taken
            taken, nbytes = [], 0
        taken.append(bucket)
        nbytes += bucket.buffered.nbytes
    yield taken


@dataclass(frozen=True)
class _SmallFlush:
    context: TableContext
    plan: FilePlan
    function: MergeFunction
    bytes_max: int

    def flush(self, buckets: Sequence[PrimaryKeyBucketWriter]) -> None:
        """Flush these buckets. Does nothing if the table's files must be written one by one."""
        with ExitStack() as locks, paused_collection():
            for bucket in buckets:
                locks.enter_context(bucket.lock)
            held = {bucket: rows for bucket in buckets if (rows := bucket.small_rows(self.bytes_max))}
            if not held:
                return
            merged = self._merged(list(held.values()), next(iter(held)).order)
            edges = np.searchsorted(merged.column(_BUCKET_COLUMN).to_numpy(), np.arange(len(held) + 1)).tolist()
            files = [
                SmallFile(bucket.files.directory, bucket.files.data_names, start, stop)
                for bucket, (start, stop) in zip(held, pairwise(edges), strict=True)
            ]
            filled = [file for file in files if file.start < file.stop]
            rows = next(iter(held)).files.file_rows(merged)
            written = write_small_files(self.context, self.plan, rows, filled, _FileColumns(rows, filled))
            if written is None:
                return
            metas = iter(written)
            for bucket, file in zip(held, files, strict=True):
                bucket.flushed([next(metas)] if file.start < file.stop else [])

    def _merged(self, held: Sequence[Sequence[pa.RecordBatch]], order: MergeOrder) -> pa.RecordBatch:
        """Return the merged rows, sorted by bucket and key, with a column for the bucket's number."""
        rows = pa.concat_batches([batch for batches in held for batch in batches])
        counts = [sum(batch.num_rows for batch in batches) for batches in held]
        numbers = pa.array(np.repeat(np.arange(len(held), dtype=np.int32), counts))
        rows = rows.append_column(pa.field(_BUCKET_COLUMN, pa.int32(), nullable=False), numbers)
        by_bucket = replace(order, key_columns=(_BUCKET_COLUMN, *order.key_columns))
        merged = merge_batch(rows, by_bucket, self.function.merge)
        check_remaining_retracts(self.function, row_kinds(merged))
        return merged


@dataclass(frozen=True)
class _FileColumns:
    """`ColumnGroups` for sorted rows and the files that they are written to."""

    rows: pa.RecordBatch
    files: Sequence[SmallFile]

    @property
    def count(self) -> int:
        return len(self.files)

    @cached_property
    def _starts(self) -> Edges:
        return np.array([file.start for file in self.files], np.intp)

    @cached_property
    def _file_of_row(self) -> Edges:
        return np.repeat(np.arange(self.count), [file.stop - file.start for file in self.files])

    def min_max(self, name: str) -> tuple[pa.Array, pa.Array]:
        column = self.rows.column(name)
        present = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
        values = column.take(pa.array(present)) if column.null_count else column
        files = self._file_of_row[present]
        (words,) = align_keys([[normalize_column(values, nullable=False)]])
        order = np.lexsort((*reversed(words), files))
        edges = np.flatnonzero(np.diff(files, prepend=-1, append=self.count))  # where each file's values begin, then n
        lowest, highest = np.full(self.count, -1), np.full(self.count, -1)
        lowest[files[edges[:-1]]] = order[edges[:-1]]
        highest[files[edges[:-1]]] = order[edges[1:] - 1]
        smallest = values.take(pa.array(lowest, mask=lowest < 0))
        largest = values.take(pa.array(highest, mask=highest < 0))
        return _signed_zero(smallest, -0.0), _signed_zero(largest, 0.0)

    def null_counts(self, name: str) -> list[int]:
        column = self.rows.column(name)
        if not column.null_count:
            return [0] * self.count
        nulls = column.is_null().to_numpy(zero_copy_only=False).astype(np.int64)
        counts: list[int] = np.add.reduceat(nulls, self._starts).tolist()
        return counts


def _signed_zero(bounds: pa.Array, zero: float) -> pa.Array:
    """Set the sign of zero bounds, so that readers that treat both zeros as equal don't miss one of them."""
    if not pa.types.is_floating(bounds.type):
        return bounds
    return pc.if_else(pc.equal(bounds, 0.0), pa.scalar(zero, bounds.type), bounds)
