"""`t$row_tracking`: the rows of a table with `row-tracking.enabled`, with their row ids and sequence numbers.

    the table's columns | _ROW_ID BIGINT NOT NULL | _SEQUENCE_NUMBER BIGINT NOT NULL

A row keeps its id when a compaction moves it. Its sequence number is the id of the snapshot that wrote it.

Source: Java `table/system/RowTrackingTable.java`, `table/SpecialFields.java`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from tidelake.errors import BadInput
from tidelake.storage.kinds.system_tables.system_table import SystemTable, SystemTableRead
from tidelake.storage.model.schema.table_schema import ROW_ID_FIELD, SEQUENCE_FIELD
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import arrow_schema
from tidelake.storage.read.changes.subtask import Subtask
from tidelake.storage.read.fallback_branch import branch_reads, rows_of_branch_reads
from tidelake.storage.read.incremental_read import NoIncrement
from tidelake.storage.read.scan import TableScan, created_since

_TRACKING: Final = arrow_schema([ROW_ID_FIELD, SEQUENCE_FIELD])


class RowTracking(SystemTable):
    name = "row_tracking"

    def __init__(self, context: TableContext) -> None:
        super().__init__(context)
        if not context.options.is_on("row-tracking.enabled"):
            raise BadInput(
                f"{context.name}${self.name}: rows of {context.name} have no ids; only tables that were created with "
                "row-tracking.enabled = true have them. Read the table itself"
            )

    def schema(self, context: TableContext) -> pa.Schema:
        return pa.schema([*context.schema.arrow, *_TRACKING])

    def read(self, at: SystemTableRead) -> Iterator[pa.RecordBatch]:
        if not isinstance(at.increment, NoIncrement):
            raise self.no_changes()
        own = at.context.schema.names
        columns = [name for name in self.schema(at.context).names if at.columns is None or name in at.columns]
        condition = None if at.predicate is None else at.predicate.within(frozenset(own))
        is_new = None if at.files_since_ms is None else created_since(at.files_since_ms)
        keep = Subtask.of(at.context.options).keep_entry(at.context, is_new)
        parts = branch_reads(lambda context: TableScan(context, condition, keep), at.context, at.snapshot, at.other)
        return rows_of_branch_reads(parts, tuple(columns or own[:1]))  # a batch without columns has no row count
