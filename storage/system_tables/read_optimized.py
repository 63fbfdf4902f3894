"""`t$ro`: only what the highest level holds, so nothing is merged; as new as the last full compaction.

Source: Java `table/system/ReadOptimizedTable.java`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from storage.manifests.manifest_entry import ManifestEntry
from storage.read.changes import ChangeBatch
from storage.read.increment import NoIncrement
from storage.read.scan import TableScan, made_since
from storage.read.snapshot_reader import SnapshotReader
from storage.read.stream.share import Share
from storage.system_tables.base import ReadAt, SystemTable
from storage.table import TableContext
from storage.types.row_kinds import is_retract, row_kinds


class ReadOptimized(SystemTable):
    """Of a table without a primary key, it is that table."""

    name = "ro"

    def schema(self, context: TableContext) -> pa.Schema:
        return context.schema.arrow

    def read(self, at: ReadAt) -> Iterator[pa.RecordBatch]:
        if not isinstance(at.increment, NoIncrement):
            raise self.no_changes()
        is_new = None if at.files_since_ms is None else made_since(at.files_since_ms)
        highest = at.context.options.num_levels - 1
        has_levels = at.context.schema.has_primary_key

        def keeps(entry: ManifestEntry) -> bool:
            return (not has_levels or entry.file.level == highest) and (is_new is None or is_new(entry))

        keep = Share.of(at.context.options).keep_entry(at.context, keeps)
        splits = TableScan(at.context, keep_entry=keep).plan(at.snapshot)
        return SnapshotReader(at.context, at.context.schema.names).read(splits)

    def changes(self, change: ChangeBatch) -> pa.RecordBatch:
        self.check_changes()
        return change.rows.filter(pa.array(~is_retract(row_kinds(change.rows)))).select(self.context.schema.names)

    def check_changes(self) -> None:
        if self.context.schema.has_primary_key:
            raise self.no_changes()
