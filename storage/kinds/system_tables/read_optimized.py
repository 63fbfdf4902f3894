"""`t$ro`: only the files of the highest level, so that nothing is merged. It is as fresh as the last full compaction.

Source: Java `table/system/ReadOptimizedTable.java`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.kinds.system_tables.system_table import SystemTable, SystemTableRead
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types.row_kinds import is_retract, row_kinds
from tidelake.storage.read.changes.change_reader import ChangeBatch
from tidelake.storage.read.changes.subtask import Subtask
from tidelake.storage.read.fallback_branch import branch_reads, rows_of_branch_reads
from tidelake.storage.read.incremental_read import NoIncrement
from tidelake.storage.read.scan import TableScan, created_since


class ReadOptimized(SystemTable):
    """The read-optimized table. For a table without a primary key it returns all rows of the table."""

    name = "ro"

    def schema(self, context: TableContext) -> pa.Schema:
        return context.schema.arrow

    def read(self, at: SystemTableRead) -> Iterator[pa.RecordBatch]:
        if not isinstance(at.increment, NoIncrement):
            raise self.no_changes()
        is_new = None if at.files_since_ms is None else created_since(at.files_since_ms)

        def scan_of(context: TableContext) -> TableScan:
            highest = context.options.num_levels - 1
            has_levels = context.schema.has_primary_key

            def keeps(entry: ManifestEntry) -> bool:
                return (not has_levels or entry.file.level == highest) and (is_new is None or is_new(entry))

            return TableScan(context, keep_entry=Subtask.of(at.context.options).keep_entry(context, keeps))

        parts = branch_reads(scan_of, at.context, at.snapshot, at.other)
        return rows_of_branch_reads(parts, at.context.schema.names)

    def changes(self, change: ChangeBatch) -> pa.RecordBatch:
        self.check_changes()
        return change.rows.filter(pa.array(~is_retract(row_kinds(change.rows)))).select(self.context.schema.names)

    def check_changes(self) -> None:
        if self.context.schema.has_primary_key:
            raise self.no_changes()
