"""Reads overwritten rows as changes: the old rows as -D, then the new rows as +I.

Source: Java `table/source/snapshot/FollowUpScanner.java`, `operation/ReverseReader.java`,
`table/source/splitread/IncrementalChangelogReadProvider.java`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.commit.manifests.snapshot_files import deletion_files, delta_entries
from tidelake.storage.model.format import FileKind, RowKind
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types.row_kinds import with_kind
from tidelake.storage.read.changes.subtask import Subtask
from tidelake.storage.read.expired_snapshots import snapshot_expired
from tidelake.storage.read.scan import TableScan
from tidelake.storage.read.snapshot_reader import SnapshotReader
from tidelake.storage.read.split import Split
from tidelake.storage.read.state_files import StateFiles


def reads_overwrites_as_changes(context: TableContext) -> bool:
    options = context.options
    has_key = context.schema.has_primary_key
    return options.streaming_read_overwrite if has_key else options.streaming_read_append_overwrite


def overwritten_rows(
    context: TableContext, snapshot: Snapshot, share: Subtask, columns: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    """Read the changes of an OVERWRITE snapshot.

    With a primary key, the old rows come first as -D, then the new rows as +I. Without a primary key only the new rows
    are read: the row that a -D deletes could not be identified.

    Rows whose changes follow later are left out, as at the start of a stream.

    columns: columns of the table, or `_SEQUENCE_NUMBER`. `_VALUE_KIND` is added after them.
    """
    scan = TableScan(context, files=StateFiles.STREAM_START)
    wanted = scan.among([entry for entry in delta_entries(context, snapshot) if share.is_assigned(context, entry)])
    added = _splits(scan, snapshot, snapshot.id, _of_kind(wanted, FileKind.ADD))
    removed: list[Split] = []
    if context.schema.has_primary_key and (deleted := _of_kind(wanted, FileKind.DELETE)):
        before = context.snapshots.find(snapshot.id - 1)
        if before is None and context.options.deletion_vectors_enabled:  # only it says which rows were deleted before
            raise snapshot_expired(context, snapshot.id - 1)
        removed = _splits(scan, before, snapshot.id - 1, deleted)
    reader = SnapshotReader(context, columns)
    # A key may have moved to another bucket: all old rows go before any new row comes.
    for splits, kind in ((removed, RowKind.DELETE), (added, RowKind.INSERT)):
        for batch in reader.read(splits):
            yield with_kind(batch, kind)


def _splits(scan: TableScan, snapshot: Snapshot | None, snapshot_id: int, entries: list[ManifestEntry]) -> list[Split]:
    """Return the splits of these files, with the deletion vectors of the snapshot.

    snapshot: None if it expired and its deletion vectors are not needed
    """
    has_vectors = snapshot is not None and scan.context.options.deletion_vectors_enabled
    vectors = deletion_files(scan.context, snapshot) if snapshot is not None and has_vectors else {}
    return scan.splits_of(snapshot_id, entries, vectors)


def _of_kind(entries: list[ManifestEntry], kind: FileKind) -> list[ManifestEntry]:
    return [entry for entry in entries if entry.kind is kind]
