"""Reads a whole snapshot at the start of a stream, without rows that its changelog will return later.

The compaction of rows of lower levels will write them to the changelog. If they were read now, they would be read
twice.

Source: Java `table/source/DataTableStreamScan.java`, `table/source/snapshot/FullCompactedStartingScanner.java`,
`FileCreationTimeStartingScanner.java`; vectors `stream_read_rules.json`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.model.format import RowKind
from tidelake.storage.model.options import ChangelogProducer, TableOptions
from tidelake.storage.model.schema.table_schema import SEQUENCE_FIELD
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types.row_kinds import with_kind
from tidelake.storage.read.changes.subtask import Subtask
from tidelake.storage.read.scan import TableScan, created_since
from tidelake.storage.read.snapshot_reader import SnapshotReader
from tidelake.storage.read.split import Split


def is_read_first(level: int, options: TableOptions) -> bool:
    """Return whether a stream starts with the rows of this level."""
    match options.changelog_producer:
        case ChangelogProducer.LOOKUP:
            return level > 0
        case ChangelogProducer.FULL_COMPACTION:
            return level == options.num_levels - 1
        case _:
            return True


class FullRead:
    """Reads all rows at a snapshot, as the start of a stream.

    files_since_ms: read only files created at this time or later; None: all files
    sequence_numbers: rows have the column `_SEQUENCE_NUMBER`
    """

    def __init__(
        self,
        context: TableContext,
        share: Subtask,
        files_since_ms: int | None = None,
        *,
        sequence_numbers: bool = False,
    ) -> None:
        self._context = context
        self._share = share
        self._is_new_enough = None if files_since_ms is None else created_since(files_since_ms)
        numbers = (SEQUENCE_FIELD.name,) if sequence_numbers else ()
        self._reader = SnapshotReader(context, (*context.schema.names, *numbers))

    def plan(self, snapshot: Snapshot) -> list[Split]:
        """Return the splits of a snapshot. The same snapshot always gives the same splits in the same order."""
        return TableScan(self._context, keep_entry=self._keeps).plan(snapshot)

    def read(self, splits: Iterable[Split]) -> Iterator[pa.RecordBatch]:
        """Read all rows as +I, always in the same order."""
        for batch in self._reader.read(splits):
            rows = with_kind(batch.select(self._context.schema.names), RowKind.INSERT)
            if SEQUENCE_FIELD.name in batch.schema.names:
                rows = rows.append_column(batch.schema.field(SEQUENCE_FIELD.name), batch.column(SEQUENCE_FIELD.name))
            yield rows

    def _keeps(self, entry: ManifestEntry) -> bool:
        has_levels = self._context.schema.has_primary_key
        return (
            (not has_levels or is_read_first(entry.file.level, self._context.options))
            and (self._is_new_enough is None or self._is_new_enough(entry))
            and self._share.is_assigned(self._context, entry)
        )
