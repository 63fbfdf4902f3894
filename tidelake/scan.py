"""Reads rows of a snapshot, or only the rows added between snapshots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any, ClassVar, Self

import pyarrow as pa

from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.storage.base.arguments import checked
from tidelake.storage.maintenance.analysis.analyze import read_statistics
from tidelake.storage.maintenance.analysis.row_estimate import estimated_rows
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types.row_kinds import is_retract, row_kinds
from tidelake.storage.read.arrow_expressions import matching_rows
from tidelake.storage.read.changes.subtask import Subtask
from tidelake.storage.read.evolution.tracked_columns import tracked_schema
from tidelake.storage.read.explain import ExplainedFile, explain_scan
from tidelake.storage.read.fallback_branch import BranchRead, FallbackBranch, branch_reads
from tidelake.storage.read.incremental_read import Increment, read_increment
from tidelake.storage.read.predicate import And, Predicate, as_predicate
from tidelake.storage.read.scan import TableScan, created_since
from tidelake.storage.read.snapshot_reader import SnapshotReader
from tidelake.storage.read.split import Split


class Scan:
    """A read of a table at one snapshot. It is planned once, when rows or splits are first requested. Picklable."""

    has_splits: ClassVar[bool] = True  # whether it can be read split by split, or only as a whole

    def __init__(
        self,
        context: TableContext,
        snapshot: Snapshot | None,
        columns: tuple[str, ...],
        predicate: Predicate | None,
        files_since_ms: int | None = None,
        other: FallbackBranch | None = None,
    ) -> None:
        self._context = context
        self._snapshot = snapshot
        self._columns = columns
        self._predicate = predicate
        self._files_since_ms = files_since_ms
        self._other = other
        self._splits: list[Split] | None = None

    @property
    def context(self) -> TableContext:
        """The table with the schema for this read. Not part of the public API: it may change at any time."""
        return self._context

    @property
    def snapshot_id(self) -> int | None:
        """Id of the snapshot; None for a table without snapshots."""
        return self._snapshot.id if self._snapshot is not None else None

    @property
    def snapshot(self) -> Snapshot | None:
        """The snapshot. Not part of the public API: it may change at any time."""
        return self._snapshot

    @property
    def is_of_snapshot_alone(self) -> bool:
        """Whether it returns all rows of the snapshot: without condition, and without rows of another branch.

        Not part of the public API.
        """
        return self._predicate is None and self._files_since_ms is None and self._other is None

    @property
    def schema(self) -> pa.Schema:
        """The columns of the result."""
        return self._reader.schema

    @checked
    def select(self, columns: Sequence[str]) -> Self:
        """Return the same read of the same snapshot, with only these columns."""
        names, _ = projection(self.schema, columns, None)
        return self._changed(_columns=names)

    @checked
    def where(self, condition: Predicate | Any) -> Self:
        """Return the same read of the same snapshot, with one more condition on its columns."""
        _, predicate = projection(self.schema, None, condition)
        both = predicate if self._predicate is None or predicate is None else And((self._predicate, predicate))
        return self._changed(_predicate=both)

    def _changed(self, **attributes: Any) -> Self:
        changed = copy(self)
        vars(changed).update(attributes, _splits=None)
        return changed

    def splits(self) -> list[Split]:
        """Return units of the read, which can be read in any order and on any machine: `to_batches(splits=[…])`."""
        if self._splits is None:
            self._splits = [split for part in self._parts() for split in part.splits()]
        return self._splits

    def _parts(self) -> list[BranchRead]:
        return branch_reads(self._planned, self._context, self._snapshot, self._other)

    def _planned(self, context: TableContext) -> TableScan:
        is_new = None if self._files_since_ms is None else created_since(self._files_since_ms)
        keep = Subtask.of(self._context.options).keep_entry(context, is_new)
        return TableScan(context, self._predicate, keep)

    @checked
    def explain(self) -> list[ExplainedFile]:
        """Return why each file of the snapshot is read or skipped. Opens no data file.

        For partitions that are read from another branch, only the files of that branch are returned.
        """
        if not self.has_splits:
            self.splits()  # raises
        return [file for part in self._parts() for file in explain_scan(part.scan, part.snapshot)]

    @checked
    def estimated_rows(self) -> int | None:
        """Return the estimated number of rows, from the last `Table.analyze`; None without sufficient statistics.

        Opens no data file.
        """
        if self._snapshot is None or self._other is not None or not self.has_splits:
            return None
        found = read_statistics(self._context, self._snapshot)
        return None if found is None else estimated_rows(found, self._predicate, self._context.schema.arrow)

    @checked
    def to_batches(self, splits: Sequence[Split] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield all rows as batches, in bounded memory."""
        found = self.splits() if splits is None else splits
        if self._other is None:
            return self._reader.read(found)
        return self._read_with_fallback(self._other, found)

    def _read_with_fallback(self, other: FallbackBranch, splits: Sequence[Split]) -> Iterator[pa.RecordBatch]:
        theirs = SnapshotReader(other.context, self._columns, self._predicate)
        for split in splits:
            for rows in (theirs if split.of_fallback_branch else self._reader).read([split]):
                yield rows.cast(self.schema)  # a column may be nullable in one branch only

    @checked
    def to_arrow(self, splits: Sequence[Split] | None = None) -> pa.Table:
        """Return all rows as one Arrow table."""
        return pa.Table.from_batches(self.to_batches(splits), self.schema)

    @property
    def _reader(self) -> SnapshotReader:
        return SnapshotReader(self._context, self._columns, self._predicate)


class IncrementalScan(Scan):
    """A read of the rows added between two snapshots. It has no splits."""

    has_splits = False

    def __init__(
        self, context: TableContext, increment: Increment, columns: tuple[str, ...], predicate: Predicate | None
    ) -> None:
        super().__init__(context, None, columns, predicate)
        self._increment = increment

    def splits(self) -> list[Split]:
        raise UnsupportedFeature(
            f"splits of changes of {self._context.name}",
            "the changes between two snapshots can only be read as a whole",
            "Call to_batches() or to_arrow() without splits",
        )

    @checked
    def to_batches(self, splits: Sequence[Split] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield all rows as batches, in bounded memory. Rows of one key are in the order of their commits."""
        return self._rows() if splits is None else self._rows_of(splits)

    def _rows_of(self, splits: Sequence[Split]) -> Iterator[pa.RecordBatch]:
        self.splits()  # raises
        return iter(())

    def _rows(self) -> Iterator[pa.RecordBatch]:
        condition = None if self._predicate is None else self._predicate.expression(self._context.schema.arrow)
        for change in read_increment(self._context, self._increment):
            rows = change.rows.filter(pa.array(~is_retract(row_kinds(change.rows))))
            if condition is not None:
                rows = matching_rows(rows, condition)
            if rows.num_rows:
                yield rows.select(self._columns)


def snapshot_projection(
    context: TableContext, columns: Sequence[str] | None, condition: Any
) -> tuple[tuple[str, ...], Predicate | None]:
    """Return the `projection` of the rows at a snapshot, which also have row ids. None: the table's own columns."""
    return projection(tracked_schema(context), context.schema.names if columns is None else columns, condition)


def projection(
    schema: pa.Schema, columns: Sequence[str] | None, condition: Any
) -> tuple[tuple[str, ...], Predicate | None]:
    """Return names and predicate in the form that a scan takes. Raises BadInput."""
    names = tuple(columns) if columns is not None else tuple(schema.names)
    if missing := [name for name in names if name not in schema.names]:
        raise BadInput(f"no column {missing[0]!r}; the table has {', '.join(schema.names)}")
    if len(set(names)) != len(names):
        raise BadInput(f"scan(columns=…) names a column twice: {', '.join(names)}")
    predicate = as_predicate(condition, schema) if condition is not None else None
    if predicate is not None:
        predicate.expression(schema)
    return names, predicate
