"""Assigns row ids to the rows of new files when their snapshot is built. Also checks for conflicts if columns were
written for rows of older files.

    a new file with                    gets
    sequence number 0                  the id of the snapshot that commits it
    no first row id                    the next row id of the table; blob files get the ids of the data file before them

Source: Java `operation/commit/RowTrackingCommitUtils.java`, `operation/commit/ConflictDetection.java`
(checkForRowIdFromSnapshot).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from tidelake.errors import CommitConflict
from tidelake.storage.commit.commit_message import CommitMessage
from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.model.format import BLOB_FORMAT, ROW_ID_COLUMN, FileKind, FileSource
from tidelake.storage.model.paths import format_of
from tidelake.storage.model.snapshots.snapshot import Snapshot, SnapshotStore


def with_row_ids(
    entries: Sequence[ManifestEntry], snapshot_id: int, next_row_id: int
) -> tuple[list[ManifestEntry], int]:
    """Return the entries as the snapshot stores them, and the next free row id.

    entries: a blob file must come after the data file that has its rows.
    """
    found = []
    start = next_row_id  # the first row id of the data file that the next blob files belong to
    blob_ends: dict[str, int] = {}  # by column: the end of the row ids that have their blobs
    for entry in entries:
        file = entry.file
        if entry.kind is FileKind.ADD:
            file = _numbered(file, snapshot_id)
            if _needs_ids(file):
                if format_of(file.file_name) == BLOB_FORMAT and file.write_columns:
                    first = blob_ends.get(file.write_columns[0], start)
                    blob_ends[file.write_columns[0]] = first + file.row_count
                    file = replace(file, first_row_id=first)
                else:
                    start, blob_ends = next_row_id, {}
                    file = replace(file, first_row_id=next_row_id)
                    next_row_id += file.row_count
            elif file.first_row_id is not None:  # for existing rows, or for rows that have ids already
                next_row_id = max(next_row_id, file.first_row_id + file.row_count)
        found.append(replace(entry, file=file))
    return found, next_row_id


def _numbered(file: DataFileMeta, snapshot_id: int) -> DataFileMeta:
    if file.min_sequence_number == 0:
        return replace(file, min_sequence_number=snapshot_id, max_sequence_number=snapshot_id)
    return replace(file, max_sequence_number=snapshot_id) if file.max_sequence_number == 0 else file


def _needs_ids(file: DataFileMeta) -> bool:
    holds_them = file.write_columns is not None and ROW_ID_COLUMN in file.write_columns
    return file.file_source is FileSource.APPEND and file.first_row_id is None and not holds_them


def check_rows_unchanged(
    messages: Sequence[CommitMessage],
    base: Snapshot | None,
    store: SnapshotStore,
    delta_entries: Callable[[Snapshot], Iterable[ManifestEntry]],
    table_name: str,
) -> None:
    """Check columns that were written for rows of a snapshot. Since then, no other commit may have written the same
    columns of these rows, or moved or removed their files. Raises CommitConflict.
    """
    columns = [m for m in messages if m.base.row_ids is not None]
    own_files = [(m.partition, file) for m in columns for file in m.increment.new_files]
    bases = [m.base.row_ids for m in messages if m.base.row_ids is not None]
    if not own_files or base is None:
        return
    for snapshot_id in range(min(bases) + 1, base.id + 1):
        snapshot = store.find(snapshot_id)
        if snapshot is None:
            raise CommitConflict(
                f"{table_name}: snapshot {snapshot_id} expired while columns of older rows were being written, so it "
                "is unknown whether these rows are unchanged. Nothing was published; write the columns again"
            )
        for entry in delta_entries(snapshot):
            for partition, file in own_files:
                if entry.partition == partition and _may_conflict(entry, file):
                    raise CommitConflict(
                        f"{table_name}: snapshot {snapshot_id} changed rows {_ids(file)}, whose columns "
                        f"{', '.join(file.write_columns or ())} this commit writes. Nothing was published; write the "
                        "columns again"
                    )


def _may_conflict(entry: ManifestEntry, file: DataFileMeta) -> bool:
    other = entry.file
    if other.first_row_id is None:
        return False
    one, two = _ids(other), _ids(file)
    if one.stop <= two.start or two.stop <= one.start:
        return False
    if entry.kind is FileKind.DELETE or other.file_source is FileSource.COMPACT:
        return True
    return other.write_columns is None or not set(other.write_columns).isdisjoint(file.write_columns or ())


def _ids(file: DataFileMeta) -> range:
    first = file.first_row_id or 0
    return range(first, first + file.row_count)
