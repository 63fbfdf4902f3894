"""The protocol of bucket assigners: their input and their result.

Source: Java `index/BucketAssigner.java`, `table/sink/RowKeyExtractor.java`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.storage.commit.commit_message import CommitMessage


@dataclass(frozen=True, slots=True, eq=False)
class PartitionedRows:
    """Rows in the table's schema, in order of arrival, with the partition of each row.

    rows: n rows.
    partitions: the distinct partitions, each as serialized BinaryRow.
    partition_ids (n,): for each row, an index into partitions.
    """

    rows: pa.RecordBatch
    partitions: Sequence[bytes]
    partition_ids: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class AssignedRows:
    """Rows to write, with the bucket of each row.

    rows: the rows that were passed in. An assigner whose keys move between partitions may return others: it adds
        deletes in the old partition before the new rows, and leaves out rows that are dropped.
    buckets (n,): the bucket of each row, 0 or more; or one number for all rows (-2: postpone bucket).
    """

    rows: PartitionedRows
    buckets: NDArray[np.int32] | int


class BucketAssigner(Protocol):
    """Assigns buckets to rows, for one table and one writer. Not thread-safe.

    is_function_of_rows: all assigners of the table give the same row the same bucket, so each task of a shuffle may use
        its own. Otherwise all rows of a key must reach one assigner, whose index knows the key's bucket.
    moves_rows: the result depends on all previous calls. `assign` must be called only once for each batch, when its
        rows are sure to be written.
    is_ready: `assign` does not read the table first.
    reads_files: `assign` may read files of the table, or files of its own, for the next rows.
    """

    @property
    def is_function_of_rows(self) -> bool: ...
    @property
    def moves_rows(self) -> bool: ...
    @property
    def is_ready(self) -> bool: ...
    @property
    def reads_files(self) -> bool: ...

    def assign(self, rows: PartitionedRows) -> AssignedRows:
        """Assign buckets. Called once for each batch, in order of arrival, with at least one row."""
        ...

    def prepare_commit(self, identifier: int) -> Sequence[CommitMessage]:
        """Return the changes of the bucket index by the rows assigned so far. All these rows are flushed already."""
        ...

    def committed(self, snapshot_id: int) -> None:
        """Learn that the prepared changes were committed, in this snapshot or the previous one."""
        ...

    def dropped(self) -> None:
        """Learn that the prepared changes will not be committed, because they were in the table already."""
        ...


class StatelessAssigner:
    """Base of assigners that keep no state between commits."""

    moves_rows = False
    is_ready = True
    reads_files = False

    def prepare_commit(self, identifier: int) -> Sequence[CommitMessage]:
        return ()

    def committed(self, snapshot_id: int) -> None:
        """Do nothing."""

    def dropped(self) -> None:
        """Do nothing."""
