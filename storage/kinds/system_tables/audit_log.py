"""`t$audit_log`: the rows of a table with their row kind as text. Deleted rows are shown until a compaction drops them.

    rowkind STRING | _SEQUENCE_NUMBER BIGINT NOT NULL, with table-read.sequence-number.enabled | the table's columns

Source: Java `table/system/AuditLogTable.java`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from tidelake.errors import UnsupportedFeature
from tidelake.storage.kinds.system_tables.system_table import SystemTable, SystemTableRead
from tidelake.storage.model.format import KIND_COLUMN, SEQUENCE_COLUMN, RowKind
from tidelake.storage.model.schema.table_schema import SEQUENCE_FIELD
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import arrow_schema
from tidelake.storage.model.types.row_kinds import row_kinds
from tidelake.storage.read.changes.change_reader import ChangeBatch, ChangeReader
from tidelake.storage.read.changes.subtask import Subtask
from tidelake.storage.read.fallback_branch import branch_reads, rows_of_branch_reads
from tidelake.storage.read.incremental_read import (
    Increment,
    NoIncrement,
    SnapshotChanges,
    SnapshotDifference,
    difference_of,
)
from tidelake.storage.read.scan import TableScan, created_since
from tidelake.storage.read.snapshot_diff import SnapshotDiff

_ROW_KIND: Final = "rowkind"
_SYMBOLS: Final = pa.array([RowKind(number).symbol for number in range(len(RowKind))], pa.string())


class AuditLog(SystemTable):
    name = "audit_log"

    def __init__(self, context: TableContext) -> None:
        super().__init__(context)
        self.sequence_numbers = context.options.reads_sequence_numbers
        if self.sequence_numbers and not context.schema.has_primary_key:
            raise UnsupportedFeature(
                f"{context.name}: option table-read.sequence-number.enabled",
                "rows of a table without a primary key have no sequence numbers",
                "Unset it",
            )

    @property
    def special_fields(self) -> list[pa.Field]:
        numbers = [arrow_schema([SEQUENCE_FIELD]).field(0)] if self.sequence_numbers else []
        return [pa.field(_ROW_KIND, pa.string()), *numbers]

    def schema(self, context: TableContext) -> pa.Schema:
        return pa.schema([*self.special_fields, *context.schema.arrow])

    def read(self, at: SystemTableRead) -> Iterator[pa.RecordBatch]:
        if isinstance(at.increment, NoIncrement):
            return (self._to_output(rows, at.context) for rows in self._rows_of_snapshot(at))
        return (self._to_output(rows, at.context, is_stream=True) for rows in self._rows_of_increment(at))

    def changes(self, change: ChangeBatch) -> pa.RecordBatch:
        return self._to_output(change.rows, self.context, is_stream=True)

    def check_changes(self) -> None:
        pass

    def _rows_of_snapshot(self, at: SystemTableRead) -> Iterator[pa.RecordBatch]:
        numbers = (SEQUENCE_COLUMN,) if self.sequence_numbers else ()
        is_new = None if at.files_since_ms is None else created_since(at.files_since_ms)
        keep = Subtask.of(at.context.options).keep_entry(at.context, is_new)
        parts = branch_reads(lambda context: TableScan(context, keep_entry=keep), at.context, at.snapshot, at.other)
        return rows_of_branch_reads(parts, (*at.context.schema.names, KIND_COLUMN, *numbers))

    def _rows_of_increment(self, at: SystemTableRead) -> Iterator[pa.RecordBatch]:
        increment: Increment | NoIncrement = at.increment
        match increment:
            case SnapshotChanges():
                share = Subtask.of(at.context.options)
                reader = ChangeReader(at.context, share, files=increment.files, sequence_numbers=self.sequence_numbers)
                for change in reader.read_range(increment.start, increment.end):
                    if not change.is_break:
                        yield change.rows
            case SnapshotDifference():
                diff = difference_of(
                    at.context, increment.before, increment.after, sequence_numbers=self.sequence_numbers
                )
                yield from diff.rows_as_java() if isinstance(diff, SnapshotDiff) else diff.rows()

    def _to_output(self, rows: pa.RecordBatch, context: TableContext, *, is_stream: bool = False) -> pa.RecordBatch:
        """Return rows with the columns of `schema`.

        rows: with `_VALUE_KIND`, and `_SEQUENCE_NUMBER` if the table shows it.
        is_stream: the rows are changes, in their order.
        """
        numbers = [rows.column(SEQUENCE_COLUMN)] if self.sequence_numbers else []
        columns = [symbols(row_kinds(rows)), *numbers, *(rows.column(name) for name in context.schema.names)]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema(context))


def symbols(kinds: np.ndarray) -> pa.Array:
    """Return the text of each row kind, (n,): `+I`, `-U`, `+U`, `-D`."""
    return _SYMBOLS.take(pa.array(kinds))
