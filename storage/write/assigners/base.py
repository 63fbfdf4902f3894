"""What an assigner of buckets is asked, and what it answers.

Source: Java `index/BucketAssigner.java`, `table/sink/RowKeyExtractor.java`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from storage.commit.commit_message import CommitMessage


@dataclass(frozen=True, slots=True, eq=False)
class PartitionedRows:
    """Rows in the table's schema, in order of arrival, and the partition of each.

    rows: n of them.
    partitions: each one once, as serialized BinaryRow.
    partition_ids (n,): of each row, an index into partitions.
    """

    rows: pa.RecordBatch
    partitions: Sequence[bytes]
    partition_ids: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class AssignedRows:
    """Rows to write, and the bucket of each.

    rows: those that were asked about. An assigner whose keys move between partitions may answer with others: with
        deletes of the old partition before the new rows, without rows that are dropped.
    buckets (n,): of each row, 0 or more; or one number, of all rows (-2: they wait for theirs).
    """

    rows: PartitionedRows
    buckets: NDArray[np.int32] | int


class BucketAssigner(Protocol):
    """Assigns buckets to rows, for one table and one writer. Not thread-safe.

    is_function_of_rows: the same row gets the same bucket from every assigner of the table, so that any task of a
        shuffle may ask its own. Else all rows of a key must reach one assigner: its index knows where the key lives.
    moves_rows: what it answers depends on all that it answered before. It may be asked only once about rows, when they
        are sure to be written.
    is_ready: it answers without reading the table first.
    reads_files: it may read files, of the table or of its own, for the next rows.
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
        """Called once for each batch, in order of arrival; rows has at least one."""
        ...

    def prepare_commit(self, identifier: int) -> Sequence[CommitMessage]:
        """The changes of the bucket index by the rows assigned so far, all of which are flushed for this
        commit.
        """
        ...

    def committed(self, snapshot_id: int) -> None:
        """The prepared changes are in the table, since this snapshot or the previous one."""
        ...

    def dropped(self) -> None:
        """The prepared changes will not be committed: they were in the table already."""
        ...


class StatelessAssigner:
    """The half of a `BucketAssigner` that keeps nothing between commits."""

    moves_rows = False
    is_ready = True
    reads_files = False

    def prepare_commit(self, identifier: int) -> Sequence[CommitMessage]:
        return ()

    def committed(self, snapshot_id: int) -> None:
        """Nothing to settle."""

    def dropped(self) -> None:
        """Nothing to settle."""
