"""Reads a whole snapshot at the start of a stream, without rows that its changelog will return later.

If such rows were read now, they would be read twice. `StateFiles.STREAM_START` says which they are.

Source: Java `table/source/DataTableStreamScan.java`, `table/source/snapshot/FullCompactedStartingScanner.java`,
`FileCreationTimeStartingScanner.java`. Java leaves out the deletes of the postpone bucket.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.model.format import KIND_COLUMN, POSTPONE_BUCKET, RowKind
from tidelake.storage.model.schema.table_schema import SEQUENCE_FIELD
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types.row_kinds import with_kind
from tidelake.storage.read.changes.change_reader import whole_updates
from tidelake.storage.read.changes.subtask import Subtask
from tidelake.storage.read.scan import TableScan, created_since
from tidelake.storage.read.snapshot_reader import SnapshotReader
from tidelake.storage.read.split import Split
from tidelake.storage.read.state_files import StateFiles


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
        self._numbers = (SEQUENCE_FIELD.name,) if sequence_numbers else ()
        self._reader = SnapshotReader(context, (*context.schema.names, *self._numbers))
        self._postponed = SnapshotReader(context, (*context.schema.names, KIND_COLUMN, *self._numbers))

    def plan(self, snapshot: Snapshot) -> list[Split]:
        """Return the splits of a snapshot. The same snapshot always gives the same splits in the same order."""
        return TableScan(self._context, keep_entry=self._keeps, files=StateFiles.STREAM_START).plan(snapshot)

    def read(self, splits: Iterable[Split]) -> Iterator[pa.RecordBatch]:
        """Read all rows as +I, always in the same order.

        Rows of the postpone bucket have the kinds that they were written with: some change rows of other buckets.
        """
        for split in splits:
            if split.bucket == POSTPONE_BUCKET:
                yield from whole_updates(self._postponed.read([split]))
                continue
            for batch in self._reader.read([split]):
                rows = with_kind(batch.select(self._context.schema.names), RowKind.INSERT)
                for name in self._numbers:
                    rows = rows.append_column(batch.schema.field(name), batch.column(name))
                yield rows

    def _keeps(self, entry: ManifestEntry) -> bool:
        is_new_enough = self._is_new_enough is None or self._is_new_enough(entry)
        return is_new_enough and self._share.is_assigned(self._context, entry)
